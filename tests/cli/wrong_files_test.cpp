// Files given in the place of others, and descriptions that contradict themselves.
#include <string>

#include "tests/cli/program.hpp"

using namespace echelon;
using echelon::test::complaint;
using echelon::test::lacks;
using echelon::test::Sandbox;

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
