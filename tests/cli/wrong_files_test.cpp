// Files given in the place of others, and descriptions that contradict themselves.
#include <string>
#include <vector>

#include "tests/cli/program.hpp"

using namespace echelon;
using echelon::test::complaint;
using echelon::test::lacks;
using echelon::test::Sandbox;

TEST_CASE("a file of another kind is called what it is, with what takes it") {
  const Sandbox sandbox;
  sandbox.write("config.json", R"({"model_type": "llama", "hidden_size": 4096})");
  sandbox.write("list.json", "[]");
  sandbox.write("text.json", R"("a")");
  sandbox.write("null.json", R"({"schema": 1, "name": "mine", "gpu": null, "node": {}})");
  REQUIRE(sandbox.plan("--model gpt2 --gpus 8 -q -o plan.json").exit_code == 0);
  struct Other {
    std::string flag, file;
    std::vector<std::string> says;
  };
  for (const Other& each : std::vector<Other>{
           {"cluster", "config.json", {"a HuggingFace configuration", "--model FILE"}},
           {"cluster", "plan.json", {"a plan file", "plan predict FILE"}},
           {"cluster", "list.json", {"a list", "the description of a cluster"}},
           {"cluster", "text.json", {"a text in quotes", "the description of a cluster"}},
           {"cluster", "null.json", {"/gpu: null", "the name of a GPU of the catalog"}},
           {"calibration", "config.json", {"a HuggingFace configuration", "--model FILE"}},
           {"calibration", "plan.json", {"a plan file", "plan predict FILE"}},
           {"calibration", "null.json", {"the description of a cluster", "--cluster FILE"}},
           {"calibration", "list.json", {"a list", "a calibration file"}}}) {
    CAPTURE(each.flag, each.file);
    const std::string message =
        complaint(sandbox.plan("--model 7b --gpus 8 --" + each.flag + " ./" + each.file), 2);
    CHECK(lacks(message, each.file) == "");
    for (const std::string& part : each.says) CHECK(lacks(message, part) == "");
  }
}

TEST_CASE("a wrong number of GPUs in a description is blamed on the description") {
  const Sandbox sandbox;
  std::string text =
      slurp(std::string(ECHELON_SOURCE_DIR) + "/topologies/catalog/clusters/dgx-h100.json");
  text.replace(text.find('{'), 1, "{ \"gpus\": 12,");
  sandbox.write("twelve.json", text);
  for (const char* command : {"--model 7b --cluster twelve.json", "topo check twelve.json"}) {
    CAPTURE(command);
    const std::string message = complaint(sandbox.plan(command), 2);
    CHECK(lacks(message, "twelve.json at /gpus: 12; expected at most 8") == "");
  }
  const std::string asked =
      complaint(sandbox.plan("--model 7b --cluster twelve.json --gpus 12"), 2);
  CHECK(lacks(asked, "--gpus: 12; expected at most 8") == "");
}

TEST_CASE("rates of another GPU family are called extrapolated, and both are named") {
  const Sandbox sandbox;
  sandbox.write("rates.json", slurp(std::string(ECHELON_SOURCE_DIR) +
                                    "/costmodel/catalog/calibrations/hopper-megatron-core.json"));
  const std::string job = "--model 7b --gpus 8 --calibration rates.json --cluster ";
  const ProcessResult own = sandbox.plan(job + "dgx-h100");
  CHECK(lacks(own.out, ", calibrated)") == "");
  CHECK(lacks(own.out, "rates of hopper/megatron-core on") != "");
  const ProcessResult other = sandbox.plan(job + "mi300x -o plan.json");
  CHECK(lacks(other.out, ", extrapolated)") == "");
  CHECK(lacks(other.out, "rates of hopper/megatron-core on MI300X") == "");
  // A plan file does not say so itself.
  CHECK(lacks(sandbox.plan("predict plan.json").out, "rates of hopper/megatron-core on MI300X") ==
        "");
}

TEST_CASE("a directory in place of a file is wrong input wherever a file is read") {
  const Sandbox sandbox;
  sandbox.write("folder/inside", "");
  REQUIRE(sandbox.plan("--model gpt2 --gpus 8 -q -o plan.json").exit_code == 0);
  REQUIRE(
      sandbox.plan("--model gpt2-tiny --cluster this-machine --framework echelon -q -o tiny.json")
          .exit_code == 0);
  for (const std::string command :
       {"predict folder", "explain folder", "compare folder plan.json", "--model ./folder --gpus 8",
        "--model 7b --gpus 8 --cluster ./folder", "topo check folder",
        "--model 7b --gpus 8 --calibration ./folder", "validate folder", "fit folder -o rates.json",
        "import folder", "explain --from folder", "export megatron-lm folder", "run folder",
        "models ./folder", "run tiny.json --data folder"}) {
    CAPTURE(command);
    const ProcessResult ran = sandbox.plan(command);
    INFO(ran.err);
    CHECK(ran.exit_code == 2);
    CHECK(lacks(ran.err, "is a directory") == "");
  }
}
