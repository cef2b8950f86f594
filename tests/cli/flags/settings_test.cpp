// Flag > environment > project file > user file > default.
#include <string>

#include "tests/cli/program.hpp"

using namespace echelon;
using echelon::test::complaint;
using echelon::test::document;
using echelon::test::lacks;
using echelon::test::Sandbox;

namespace {

int gpus(const ProcessResult& result) { return document(result)["request"]["gpus"].get<int>(); }

const std::string kUserFile = ".config/echelon/config.json";

}  // namespace

TEST_CASE("each layer of settings overrides the ones below it") {
  const Sandbox sandbox;
  sandbox.write(kUserFile, R"({"gpus": 8, "model": "7b"})");
  CHECK(gpus(sandbox.plan("--json")) == 8);
  sandbox.write(".echelon.json", R"({"gpus": 16})");
  CHECK(gpus(sandbox.plan("--json")) == 16);
  CHECK(gpus(sandbox.plan("--json", "PLAN_GPUS=24")) == 24);
  CHECK(gpus(sandbox.plan("--json --gpus 32", "PLAN_GPUS=24")) == 32);
}

TEST_CASE("the flag --no-config leaves the files unread, broken or not") {
  const Sandbox sandbox;
  sandbox.write(".echelon.json", "{ not json");
  complaint(sandbox.plan("--model 7b --gpus 8"), 2);
  CHECK(sandbox.plan("--model 7b --gpus 8 --no-config").exit_code == 0);
  CHECK(sandbox.plan("--help").exit_code == 0);
}

TEST_CASE("the error for an invalid setting names its origin") {
  const Sandbox sandbox;
  CHECK(lacks(complaint(sandbox.plan("--model 7b", "PLAN_GPUS=many"), 2), "PLAN_GPUS") == "");
  sandbox.write(".echelon.json", R"({"tp": 0})");
  CHECK(lacks(complaint(sandbox.plan("--model 7b --gpus 8"), 2), ".echelon.json at /tp") == "");
  sandbox.write(".echelon.json", R"({"global-bacth": 8})");
  const std::string message = complaint(sandbox.plan("--model 7b --gpus 8"), 2);
  CHECK(lacks(message, ".echelon.json at /global-bacth") == "");
  CHECK(lacks(message, "did you mean 'global_batch'?") == "");
  sandbox.write(".echelon.json", R"({"tp": {"a": 1}})");
  complaint(sandbox.plan("--model 7b --gpus 8"), 2);
}

TEST_CASE("flags of the command line alone are called that elsewhere") {
  const Sandbox sandbox;
  const ProcessResult set = sandbox.plan("--model gpt2 --gpus 8", "PLAN_STEPS=4 PLAN_RESUME=1");
  CHECK(set.exit_code == 0);
  CHECK(lacks(set.err, "PLAN_STEPS is ignored: its flag is given on the command line alone") == "");
  CHECK(lacks(set.err, "PLAN_RESUME is ignored") == "");
  CHECK(lacks(set.err, "did you mean") != "");
  for (const char* key : {"steps", "resume", "json", "output"}) {
    CAPTURE(key);
    sandbox.write(".echelon.json", "{\"" + std::string(key) + "\": 4}");
    const std::string message = complaint(sandbox.plan("--model gpt2 --gpus 8"), 2);
    CHECK(lacks(message, "a flag of the command line alone") == "");
    CHECK(lacks(message, "give --" + std::string(key) + " with the command") == "");
    CHECK(lacks(message, "did you mean") != "");
  }
}

TEST_CASE("an error about a degree names where the degree came from") {
  const Sandbox sandbox;
  for (const char* command : {"search", "predict", "explain"}) {
    CAPTURE(command);
    const std::string job = std::string(command) + " --model 7b --gpus 8";
    CHECK(lacks(complaint(sandbox.plan(job, "PLAN_TP=3"), 2), "tp 3 is from PLAN_TP") == "");
    CHECK(lacks(complaint(sandbox.plan(job + " --tp 3"), 2), " is from ") != "");
  }
  sandbox.write(".echelon.json", R"({"tp": 3, "seq": 4096})");
  const std::string message = complaint(sandbox.plan("--model 7b --gpus 8"), 2);
  CHECK(lacks(message, "tp 3 is from .echelon.json at /tp") == "");
  CHECK(lacks(message, "seq") != "");
}

TEST_CASE("numbers, texts, switches and lists all come from files") {
  const Sandbox sandbox;
  sandbox.write(".echelon.json",
                R"({"model": "7b", "gpus": "8", "pp": 2, "layers_per_stage": [15, 17],
                    "sequence_parallel": false, "max_memory": "70GiB", "quiet": true})");
  const auto found = document(sandbox.plan("--json"));
  CHECK(found["winner"]["plan"]["layers_per_stage"] == nlohmann::ordered_json({15, 17}));
  CHECK(found["request"]["usable_memory_bytes"] == std::int64_t{70} << 30);
}

TEST_CASE("one way to give the batch overrides the other in lower layers") {
  const Sandbox sandbox;
  sandbox.write(".echelon.json", R"({"global_batch": 8})");
  const auto found =
      document(sandbox.plan("--model 7b --gpus 8 --json --global-batch-tokens 256Ki"));
  CHECK(found["request"]["global_batch"] == 64);
}

TEST_CASE("settings from outside the command line are reported") {
  const Sandbox sandbox;
  CHECK(lacks(sandbox.plan("--model 7b", "PLAN_GPUS=8").out, "gpus = 8, from PLAN_GPUS") == "");
}

TEST_CASE("a misspelt variable is reported") {
  const Sandbox sandbox;
  const ProcessResult result = sandbox.plan("--model 7b --gpus 8", "PLAN_MODLE=13b");
  CHECK(result.exit_code == 0);
  CHECK(lacks(result.err, "did you mean PLAN_MODEL?") == "");
  for (const char* of_wrapper : {"PLAN_NO_INSTALL=1", "PLAN_CMAKE_ARGS=-DX=1"}) {
    CHECK(sandbox.plan("--model 7b --gpus 8", of_wrapper).err.empty());
  }
}
