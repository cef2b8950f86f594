// Plan files from the command line: their content, and changed clusters and rates.
#include <filesystem>
#include <string>

#include "core/plan/plan_file.hpp"
#include "core/schedule/schedule_check.hpp"
#include "tests/cli/program.hpp"
#include "tests/places.hpp"
#include "tests/support/catch.hpp"

namespace echelon::test {
namespace {

using Json = nlohmann::ordered_json;

const std::string kJob = " --model gpt2 --gpus 8 --pp 2 --vpp 1 --global-batch 16";

/// The sandbox's file as the runtime would read it.
PlanFile written(const Sandbox& sandbox, const std::string& name) {
  const Result<PlanFile> file = read_plan_file(sandbox.file(name));
  INFO((file ? "" : file.error().message()));
  REQUIRE(file.ok());
  return *file;
}

TEST_CASE("a plan file contains a sound program and its assumptions") {
  const Sandbox sandbox;
  const ProcessResult answer = sandbox.plan(kJob + " -o plan.json");
  REQUIRE(answer.exit_code == 0);
  const PlanFile file = written(sandbox, "plan.json");
  const Result<Schedule> schedule = parse_schedule_text(file.program, "program");
  REQUIRE(schedule.ok());
  CHECK(check_schedule(*schedule).empty());
  CHECK(schedule->ranks == file.plan.pp);
  CHECK_FALSE(file.assumptions.empty());
  std::string words;  // the answer wraps its lines
  for (const char c : answer.out) {
    if (c != '\n')
      words += c;
    else if (!words.empty() && words.back() != ' ')
      words += ' ';
  }
  while (words.find("  ") != std::string::npos) words.erase(words.find("  "), 1);
  for (const std::string& sentence : file.assumptions) CHECK(lacks(words, sentence) == "");
}

TEST_CASE("the same request writes the same plan file") {
  const Sandbox sandbox;
  REQUIRE(sandbox.plan(kJob + " -q -o a.json").exit_code == 0);
  REQUIRE(sandbox.plan(kJob + " -q -o b.json").exit_code == 0);
  CHECK(slurp(sandbox.file("a.json")) == slurp(sandbox.file("b.json")));
}

TEST_CASE("an edited plan file is refused by every command that reads one") {
  const Sandbox sandbox;
  REQUIRE(sandbox.plan(kJob + " -q -o plan.json").exit_code == 0);
  std::string text = slurp(sandbox.file("plan.json"));
  const std::size_t at = text.find("\"zero\": 1");
  REQUIRE(at != std::string::npos);
  text.replace(at, 9, "\"zero\": 0");
  sandbox.write("edited.json", text);
  for (const char* command : {"predict edited.json", "explain edited.json",
                              "compare plan.json edited.json", "compare edited.json plan.json"}) {
    const std::string message = complaint(sandbox.plan(command), 2);
    CHECK(lacks(message, "edited.json: contents with hash ") == "");
    CHECK(lacks(message, "plan predict FILE --tp 4 -o NEW") == "");
  }
}

TEST_CASE("a plan for a cluster with a changed description is refused, with the remedy") {
  const Sandbox sandbox;
  Json machine = Json::parse(
      slurp(std::string(ECHELON_SOURCE_DIR) + "/topologies/catalog/clusters/dgx-h100.json"));
  sandbox.write("mine.json", machine.dump(1));
  REQUIRE(sandbox.plan(kJob + " --cluster mine.json -q -o plan.json").exit_code == 0);
  // Descriptive text and file layout do not matter.
  machine["description"] = "Another sentence.";
  sandbox.write("mine.json", machine.dump());
  CHECK(sandbox.plan("predict plan.json").exit_code == 0);

  machine["node"]["nics"]["rate"]["value"] =
      machine["node"]["nics"]["rate"]["value"].get<double>() / 2;
  sandbox.write("mine.json", machine.dump());
  for (const char* command :
       {"predict plan.json", "explain plan.json", "compare plan.json plan.json"}) {
    const std::string message = complaint(sandbox.plan(command), 2);
    CHECK(lacks(message,
                "plan.json at /hashes/cluster: the description of cluster mine.json "
                "changed since the plan was written") == "");
    CHECK(lacks(message, "plan predict plan.json --cluster mine.json -o plan.json") == "");
  }
  // The suggested remedy works.
  CHECK(sandbox.plan("predict plan.json --cluster mine.json -o plan.json").exit_code == 0);
  CHECK(sandbox.plan("predict plan.json").exit_code == 0);
}

TEST_CASE("changed rates are reported, not refused") {
  const Sandbox sandbox;
  const auto rates = [](double efficiency) {
    return Json{
        {"schema", 1},
        {"kind", "calibration"},
        {"name", "mine"},
        {"extends", "hopper"},
        {"gpu", "hopper"},
        {"stack", "megatron-core"},
        {"evidence", "measured"},
        {"fitted_to", "a test"},
        {"rates",
         {{"gemm_efficiency", {{"value", efficiency}, {"unit", "ratio"}, {"source", "a test"}}}}}}
        .dump();
  };
  sandbox.write("rates.json", rates(0.7));
  REQUIRE(sandbox.plan(kJob + " --calibration rates.json -q -o plan.json").exit_code == 0);
  CHECK(sandbox.plan("predict plan.json").out.find("changed since") == std::string::npos);
  sandbox.write("rates.json", rates(0.5));
  const ProcessResult answer = sandbox.plan("predict plan.json");
  CHECK(answer.exit_code == 0);
  CHECK(lacks(answer.out, "calibration mine, which changed since") == "");
}

TEST_CASE("the error for a newer plan file names its version") {
  const Sandbox sandbox;
  REQUIRE(sandbox.plan(kJob + " -q -o plan.json").exit_code == 0);
  Json plan = Json::parse(slurp(sandbox.file("plan.json")));
  plan["schema"] = 5;
  plan["something new"] = {1, 2};
  sandbox.write("plan.json", plan.dump());
  CHECK(lacks(complaint(sandbox.plan("predict plan.json"), 2), "written by a newer version") == "");
}

TEST_CASE("plan files of the largest clusters stay small") {
  const Sandbox sandbox;
  constexpr std::uintmax_t kMost = 5'000'000;
  // The winner, and more chunks and microbatches than used in practice.
  REQUIRE(sandbox.plan("--model llama3-405b --gpus 16384 -q -o winner.json").exit_code == 0);
  CHECK(std::filesystem::file_size(sandbox.file("winner.json")) < kMost / 10);
  const ProcessResult large = sandbox.plan(
      "predict --model megatron-1t --gpus 16384 --tp 8 --pp 16 --vpp 8 --microbatch 1 "
      "--global-batch 65536 -q -o large.json");
  CHECK(large.exit_code == 1);  // 16 of 512 microbatches in flight do not fit
  CHECK(std::filesystem::file_size(sandbox.file("large.json")) < kMost);
  const PlanFile file = written(sandbox, "large.json");
  CHECK(file.program.size() > 10'000'000);
  REQUIRE(parse_schedule_text(file.program, "program").ok());
}

TEST_CASE("a step with too many instructions is not written") {
  const Sandbox sandbox;
  const ProcessResult predicted =
      sandbox.plan("predict --model gpt2 --gpus 1 --global-batch 10000000 -q -o plan.json");
  CHECK(predicted.exit_code == 2);
  CHECK(predicted.out.starts_with("plan "));  // which costs nothing to know
  CHECK(lacks(predicted.err, "--output: a step of about 7e+07 instructions") == "");
  CHECK_FALSE(std::filesystem::exists(sandbox.file("plan.json")));
}

}  // namespace
}  // namespace echelon::test
