// plan import of training logs: text, JSON, the table it writes, and what is refused.
#include <string>

#include "tests/cli/program.hpp"

namespace echelon::test {
namespace {

const std::string kTrainingLogs =
    std::string(ECHELON_SOURCE_DIR) + "/tests/fuzz/corpus/training_log/";

std::string training_log(const std::string& name) { return shell_word(kTrainingLogs + name); }

/// The value of a fact of a document.
nlohmann::ordered_json fact(const nlohmann::ordered_json& facts, const std::string& field) {
  for (const auto& one : facts) {
    if (one["field"] == field) return one["value"];
  }
  return nullptr;
}

TEST_CASE("import prints what a log says, what follows and what it does not say") {
  const Sandbox sandbox;
  const ProcessResult asked = sandbox.plan("import " + training_log("megatron_core.log"));
  CHECK(asked.exit_code == 1);  // the GPU is not known
  for (const char* words : {"a log of Megatron-LM, core 0.12 or later", "step 726 ms",
                            "7 of 8 windows", "line 22: padded_vocab_size", "is reproduced",
                            "The log does not say", "--cluster NAME|FILE"}) {
    CHECK(lacks(asked.out, words) == "");
  }
  const ProcessResult priced =
      sandbox.plan("import " + training_log("megatron_core.log") + " --cluster dgx-b200");
  CHECK(priced.exit_code == 0);
  CHECK(lacks(priced.out, "Given") == "");
  CHECK(lacks(priced.out, "tp 2") == "");
}

TEST_CASE("import prints one JSON document with the keys of the contract") {
  const Sandbox sandbox;
  const auto log = document(
      sandbox.plan("import " + training_log("megatron_core.log") + " --cluster dgx-b200 --json"));
  check_keys(log, {"kind", "framework", "version", "plan", "request", "measured", "derived",
                   "assumed", "ask", "refused"});
  check_keys(log["measured"],
             {"step_seconds", "steps_used", "spread", "peak_memory_bytes", "memory_kind"});
  CHECK(log["kind"] == "log");
  CHECK(log["framework"] == "megatron-lm");
  CHECK(log["plan"]["tp"] == 2);
  CHECK(log["plan"]["dp"] == 4);
  CHECK(log["request"]["global_batch"] == 16);
  CHECK(fact(log["found"], "seq") == 4096);
  CHECK(fact(log["derived"], "grad_accumulation") == 4);
  CHECK(log["ask"].empty());
  CHECK(log["refused"].is_null());
  const auto two = document(sandbox.plan("import " + training_log("nanotron.log") + " " +
                                         training_log("torchtitan.log") + " --json"));
  CHECK(two["logs"].size() == 2);
}

TEST_CASE("a torchtitan log names its model, whose shapes the catalog has") {
  const Sandbox sandbox;
  const auto log = document(
      sandbox.plan("import " + training_log("torchtitan.log") + " --cluster dgx-h100 --json"));
  CHECK(fact(log["derived"], "layers") == 32);
  CHECK(log["plan"]["zero"] == 3);
  CHECK(log["measured"]["memory_kind"] == "reserved");
  bool reproduced = false;
  for (const auto& remark : log["checked"]) {
    reproduced = reproduced || remark.get<std::string>().find("reproduced") != std::string::npos;
  }
  CHECK(reproduced);
}

TEST_CASE("the table that import writes is validated like a published one") {
  const Sandbox sandbox;
  const ProcessResult written =
      sandbox.plan("import " + training_log("nanotron.log") + " --cluster dgx-h100 -o runs.csv");
  CHECK(written.exit_code == 0);
  CHECK(lacks(written.out, "1 row of measured runs in runs.csv") == "");
  const auto judged = document(sandbox.plan("validate runs.csv --json"));
  REQUIRE(judged["rows"].size() == 1);
  CHECK(judged["rows"][0]["skipped"].is_null());
  CHECK(judged["rows"][0]["measured_step_seconds"].get<double>() == Approx(3.26).epsilon(0.01));
}

TEST_CASE("logs of one name become rows with names of their own") {
  const Sandbox sandbox;
  const std::string text = slurp(kTrainingLogs + "megatron_core.log");
  for (const char* name : {"a/train.log", "b/train.log"}) sandbox.write(name, text);
  const ProcessResult imported =
      sandbox.plan("import a/train.log b/train.log --cluster dgx-b200 -q -o runs.csv");
  REQUIRE(imported.exit_code == 0);
  const std::string table = slurp(sandbox.file("runs.csv"));
  CHECK(lacks(table, "\ntrain,") == "");
  CHECK(lacks(table, "\ntrain-2,") == "");
  CHECK(sandbox.plan("validate runs.csv").exit_code == 0);
}

TEST_CASE("import of a log that cannot be trusted gives the reason and writes nothing") {
  const Sandbox sandbox;
  std::string text = slurp(kTrainingLogs + "llm_c.log");
  text.resize(text.find("step    3/"));
  sandbox.write("short.log", text);
  const ProcessResult refused = sandbox.plan("import short.log --cluster dgx-h100 -o runs.csv");
  CHECK(refused.exit_code == 1);
  CHECK(lacks(refused.out, "Refused: too few steps") == "");
  CHECK_FALSE(std::filesystem::exists(sandbox.file("runs.csv")));
  const auto contradicted =
      document(sandbox.plan("import " + training_log("megatron_core.log") + " --tp 8 --json"));
  CHECK(contradicted["refused"].get<std::string>().find("tp is 8 (--tp) and 2") !=
        std::string::npos);
}

TEST_CASE("import names what is wrong with its input") {
  const Sandbox sandbox;
  sandbox.write("no.log", "hello\n");
  CHECK(lacks(complaint(sandbox.plan("import no.log"), 2), "no line with a training step") == "");
  CHECK(lacks(complaint(sandbox.plan("import absent.log"), 2), "absent.log") == "");
  const std::string log = training_log("nanotron.log");
  CHECK(lacks(complaint(sandbox.plan("import " + log + " --tp x"), 2), "--tp") == "");
  CHECK(lacks(complaint(sandbox.plan("import " + log + " --cluster dgx-h1000"), 2), "dgx-h100") ==
        "");
  CHECK(lacks(complaint(sandbox.plan("import " + log + " --train-tokens 1T"), 2),
              "not a fact of a measured run") == "");
}

}  // namespace
}  // namespace echelon::test
