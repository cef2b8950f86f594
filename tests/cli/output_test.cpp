// Destinations of output, and errors on writing to them.
#include <string>

#include "tests/cli/program.hpp"
#include "tests/support/skip.hpp"

using namespace echelon;
using echelon::test::complaint;
using echelon::test::lacks;
using echelon::test::Sandbox;

namespace {
const std::string kSearch = "--model 7b --gpus 64";
/// Its fastest plan is less likely to fit than its best.
const std::string kTwoPlans = "--model 13b --gpus 16";
}  // namespace

TEST_CASE("an answer goes to standard output, and standard error stays empty") {
  const Sandbox sandbox;
  const ProcessResult result = sandbox.plan(kTwoPlans);
  CHECK(result.exit_code == 0);
  CHECK(result.err.empty());
  for (const char* part : {"\nRun tp ", "likely to fit", "slower than the fastest", "\nfastest    ",
                           "Memory of one GPU, GiB", "Time of one step", "Best plans", "Ruled out",
                           "Assumed", "Next", "GiB", "tokens/s", "MFU", "6N + 12LhT"}) {
    CHECK(lacks(result.out, part) == "");
  }
}

TEST_CASE("the first sentence says what speaks against the fastest plan, where another is better") {
  const Sandbox sandbox;
  const std::string both = sandbox.plan(kTwoPlans).out;
  CHECK(lacks(both, "slower than the fastest, which is only ") == "");
  CHECK(lacks(both, "(--prefer fastest)") == "");
  const std::string fastest = sandbox.plan(kTwoPlans + " --prefer fastest").out;
  CHECK(lacks(fastest, "\nRun tp ") == "");
  CHECK(fastest.find("slower than the fastest") == std::string::npos);
  CHECK(fastest.find("\nfastest    ") == std::string::npos);
}

TEST_CASE("a plan that is all there is, but unlikely to fit, is called that") {
  const Sandbox sandbox;
  const std::string job = "--model 7b --gpus 8 --microbatch 2";
  const std::string pins = " --recompute none --tp 1 --pp 1 --cp 1 --zero 1";
  const ProcessResult result = sandbox.plan(job + pins + " --forbid offload");
  CHECK(result.exit_code == 1);
  CHECK(lacks(result.out, "Nothing is likely to fit. The best that may is tp 1 ") == "");
  CHECK(lacks(result.out, "but it is only ") == "");
  CHECK(lacks(result.out, "no plan is 50 % likely to") == "");
  CHECK(lacks(result.out, "Nearest misses") == "");
  CHECK(lacks(result.out, "fits with ") == "");
  // As plan predict answers of the same plan.
  const ProcessResult alone = sandbox.plan("predict " + job + pins + " --json");
  CHECK(alone.exit_code == 1);
  const auto priced = nlohmann::ordered_json::parse(alone.out);
  const ProcessResult searched = sandbox.plan(job + pins + " --forbid offload --json");
  CHECK(searched.exit_code == 1);
  const auto found = nlohmann::ordered_json::parse(searched.out);
  CHECK(found["winner"]["fits"] == false);
  CHECK(found["winner"]["fits"] == priced["fits"]);
  CHECK(found["winner"]["fits_probability"] == priced["fits_probability"]);
  CHECK_FALSE(found["near_misses"].empty());
  CHECK(sandbox.plan("explain " + job + pins + " --forbid offload").exit_code == 1);
}

TEST_CASE("a plan with offload says how much memory its hosts need") {
  const Sandbox sandbox;
  const std::string job =
      "predict --model llama3.1-8b --cluster rtx-4090 --gpus 2 --framework deepspeed --seq 2048 "
      "--global-batch 32 --pp 2 --zero 1 --recompute full";
  // 8.03 B parameters x 16 bytes
  CHECK(lacks(sandbox.plan(job + " --offload optimizer=1").out,
              "host       120 GiB of the optimizer in the memory of each host, 477 GiB by the") ==
        "");
  CHECK(sandbox.plan(job).out.find("\nhost  ") == std::string::npos);
}

TEST_CASE("a number of GPUs on which nothing is likely to fit is not chosen for its cost") {
  const Sandbox sandbox;
  const ProcessResult result = sandbox.plan(
      "--model llama3.2-1b --cluster rtx-4090 --max-gpus 2 --framework torchtitan --seq 4096 "
      "--global-batch 32 --objective cost --json");
  CHECK(result.exit_code == 0);
  const auto found = nlohmann::ordered_json::parse(result.out);
  CHECK(found["winner"]["gpus"] == 2);
  CHECK(found["gpu_counts"][0]["gpus"] == 1);
  CHECK(found["gpu_counts"][0]["fits"] == false);
  CHECK(found["gpu_counts"][0]["why_none"] == "nothing is likely to fit");
  for (const auto& plan : found["pareto"]) CHECK(plan["fits"] == true);
}

TEST_CASE("with a limit of memory the first sentence tells what is to spare of it") {
  const Sandbox sandbox;
  const std::string out = sandbox.plan(kSearch + " --max-memory 70GiB").out;
  CHECK(lacks(out, " GiB to spare") == "");
  CHECK(out.find("likely to fit") == std::string::npos);
}

TEST_CASE("the same command prints the same bytes") {
  const Sandbox sandbox;
  CHECK(sandbox.plan(kSearch).out == sandbox.plan(kSearch).out);
}

TEST_CASE("no line is wider than the terminal") {
  const Sandbox sandbox;
  for (const int width : {72, 80, 120}) {
    const std::string columns = "COLUMNS=" + std::to_string(width);
    for (const char* arguments :
         {"--model 7b --gpus 64", "predict --model gpt3-175b --gpus 1024 --tp 8 --pp 8", "doctor",
          "models", "topo list", "topo show dgx-h100", "--help"}) {
      const ProcessResult result = sandbox.plan(arguments, columns + " LC_ALL=C");
      std::size_t start = 0;
      for (std::size_t end; (end = result.out.find('\n', start)) != std::string::npos;
           start = end + 1) {
        const std::string line = result.out.substr(start, end - start);
        // A word wider than the terminal (a path, a command to copy) is not broken.
        const bool unbreakable = line.find("plan ") != std::string::npos;
        CAPTURE(arguments, width, line);
        if (!unbreakable) CHECK(line.size() <= static_cast<std::size_t>(width));
      }
    }
  }
}

TEST_CASE("colour and non-ASCII characters require a terminal that supports them") {
  const Sandbox sandbox;
  const auto has_escape = [](const ProcessResult& result) {
    return result.out.find('\x1b') != std::string::npos;
  };
  CHECK_FALSE(has_escape(sandbox.plan(kSearch)));
  CHECK(has_escape(sandbox.plan(kSearch + " --color always")));
  CHECK(has_escape(sandbox.plan(kSearch, "CLICOLOR_FORCE=1")));
  CHECK_FALSE(has_escape(sandbox.plan(kSearch, "CLICOLOR_FORCE=1 NO_COLOR=1")));
  CHECK_FALSE(has_escape(sandbox.plan(kSearch + " --color never", "CLICOLOR_FORCE=1")));
  const std::string ascii = sandbox.plan(kSearch, "LC_ALL=C").out;
  CHECK(std::all_of(ascii.begin(), ascii.end(), [](char c) { return c > 0; }));
}

TEST_CASE("quiet keeps the answer and drops the rest") {
  const Sandbox sandbox;
  const std::string out = sandbox.plan(kSearch + " --quiet").out;
  CHECK(lacks(out, "best plan") == "");
  CHECK(std::count(out.begin(), out.end(), '\n') <= 6);
}

TEST_CASE("a reader that closes the pipe early is no error") {
  const Sandbox sandbox;
  const ProcessResult result =
      sandbox.shell("bash -c 'set -o pipefail; " + sandbox.program() + " --help | head -c 10'");
  INFO(result.err);
  CHECK(result.exit_code == 0);
  CHECK(result.err.empty());
}

TEST_CASE("standard output that is closed or full is reported, with exit code 3") {
  const Sandbox sandbox;
  const ProcessResult closed = sandbox.shell(sandbox.program() + " " + kSearch + " >&-");
  CHECK(closed.exit_code == 3);
  CHECK(lacks(closed.err, "standard output") == "");
  if (!std::filesystem::exists("/dev/full")) return skip("this system has no /dev/full");
  const ProcessResult full = sandbox.shell(sandbox.program() + " " + kSearch + " >/dev/full");
  CHECK(full.exit_code == 3);
  CHECK(lacks(full.err, "No space left") == "");
}

TEST_CASE("a plan file is written to a temporary file and renamed, or not at all") {
  const Sandbox sandbox;
  CHECK(sandbox.plan(kSearch + " -o plan.json").exit_code == 0);
  const std::string first = slurp(sandbox.file("plan.json"));
  CHECK(first.starts_with("{"));
  CHECK(complaint(sandbox.plan(kSearch + " -o none/plan.json"), 3).find("none/plan.json") !=
        std::string::npos);
  complaint(sandbox.plan(kSearch + " -o ."), 3);
  // The old file stays if the new one cannot be written.
  const ProcessResult limited =
      sandbox.shell("bash -c 'trap \"\" XFSZ; ulimit -f 1; " + sandbox.program() +
                    " --model gpt3-175b --gpus 1024 --pp 32 -o plan.json'");
  CHECK(limited.exit_code == 3);
  CHECK(slurp(sandbox.file("plan.json")) == first);
  CHECK(sandbox.shell("ls -A | wc -l").out == "1\n");
  if (!std::filesystem::exists("/dev/full")) return skip("this system has no /dev/full");
  CHECK(sandbox.plan(kSearch + " -o /dev/full").exit_code == 3);
}

TEST_CASE("a plan can go to standard output") {
  const Sandbox sandbox;
  CHECK(lacks(sandbox.plan(kSearch + " -o -").out, "\"format\": \"echelon-plan\"") == "");
  CHECK(sandbox.plan(kSearch + " -o -").out.starts_with("{"));
}

TEST_CASE("a search without a feasible plan exits with 1, which is no error") {
  const Sandbox sandbox;
  const ProcessResult result = sandbox.plan("--model gpt3-175b --gpus 8 -o plan.json");
  CHECK(result.exit_code == 1);
  CHECK(result.err.empty());
  for (const char* part : {"Nothing fits", "Nearest misses", "is short by", "GPUs instead of 8"}) {
    CHECK(lacks(result.out, part) == "");
  }
  CHECK_FALSE(std::filesystem::exists(sandbox.file("plan.json")));
  CHECK(sandbox.plan("predict --model gpt3-175b --gpus 8").exit_code == 1);
}

TEST_CASE("a plan whose states alone are larger than the GPU is not recommended") {
  const Sandbox sandbox;
  for (const char* question : {"--model llama3-8b --cluster dgx-spark --gpus 1 --global-batch 64",
                               "--model gpt3-175b --gpus 8 --global-batch 64"}) {
    const ProcessResult result = sandbox.plan(question);
    CHECK(result.exit_code == 1);
    CHECK(lacks(result.out, "Nothing fits") == "");
  }
}

TEST_CASE("collectives of a machine of one GPU are those of two of them") {
  const Sandbox sandbox;
  const ProcessResult result = sandbox.plan("topo collectives --cluster dgx-spark");
  CHECK(result.exit_code == 0);
  CHECK(lacks(result.out, "all_reduce") == "");
}

TEST_CASE("a search that is stopped before it finds a plan does not say that nothing fits") {
  const Sandbox sandbox;
  const ProcessResult result =
      sandbox.plan("--model deepseek-v3 --gpus 256 --time-limit 0.001 --quiet");
  CHECK(result.exit_code == 1);
  CHECK(lacks(result.out, "Stopped before a plan was found") == "");
  CHECK(result.out.find("Nothing fits") == std::string::npos);
  CHECK(result.out.find("Nearest misses") == std::string::npos);
}

TEST_CASE("every next command that an answer suggests parses and runs") {
  for (const std::string& arguments :
       {kSearch, kSearch + " -o p.json", kSearch + " --output=b.json --top 3 --time-limit 100",
        std::string("--model gpt2 --gpus=8 --global-batch 8 --no-config"),
        std::string("search --model gpt2 --max-gpus 16 -o 'my plan.json' --objective cost"),
        std::string("--model gpt2 --gpus 1 --global-batch 1")}) {
    const Sandbox sandbox;
    const ProcessResult answer = sandbox.plan(arguments, "COLUMNS=200");
    INFO(arguments << "\n" << answer.out << answer.err);
    REQUIRE(answer.exit_code == 0);
    std::size_t at = answer.out.find("\nNext\n");
    REQUIRE(at != std::string::npos);
    int commands = 0;
    at += 6;
    for (std::size_t end; (end = answer.out.find('\n', at)) != std::string::npos; at = end + 1) {
      const std::string line = answer.out.substr(at, end - at);
      if (!line.starts_with("  plan ")) continue;
      constexpr std::size_t begin = 2;
      // The text behind it describes its purpose.
      const std::string command = line.substr(begin + 5, line.find("  ", begin) - begin - 5);
      const ProcessResult next = sandbox.plan(command);
      INFO(command << "\n" << next.err);
      CHECK(next.exit_code <= 1);
      CHECK(next.err.empty());
      ++commands;
    }
    CHECK(commands >= 3);
  }
}
