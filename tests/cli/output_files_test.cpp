// Files that flags name: checked before the work, and no answer is lost when one cannot be written.
#include <string>

#include "tests/cli/program.hpp"
#include "tests/support/skip.hpp"

using namespace echelon;
using echelon::test::complaint;
using echelon::test::lacks;
using echelon::test::Sandbox;

namespace {

const std::string kSmallJob = "--model gpt2 --gpus 8";

}  // namespace

TEST_CASE("a path that cannot be written is refused before the work") {
  const Sandbox sandbox;
  REQUIRE(sandbox.plan(kSmallJob + " -q -o plan.json").exit_code == 0);
  sandbox.write("runs.csv", "not a table\n");
  // What is wrong besides would be found first if the command had started.
  for (const std::string command :
       {"search --model nosuch --gpus 8", "predict --model nosuch --gpus 8", "calibrate",
        "fit runs.csv", "fit runs.csv --catalog", "export nosuch plan.json",
        "topo collectives --cluster nosuch", "import plan.json"}) {
    CAPTURE(command);
    const std::string message = complaint(sandbox.plan(command + " -o none/such"), 3);
    CHECK(lacks(message, "--output: none/such") == "");
  }
  for (const char* flag : {"predictions", "plot", "page"}) {
    CAPTURE(flag);
    const std::string message =
        complaint(sandbox.plan(std::string("validate runs.csv --") + flag + " none/such"), 3);
    CHECK(lacks(message, "--" + std::string(flag) + ": none/such") == "");
  }
}

TEST_CASE("an answer whose file cannot be written is printed, and the error after it") {
  const Sandbox sandbox;
  if (!std::filesystem::exists("/dev/full")) return skip("this system has no /dev/full");
  for (const std::string& command :
       {"search " + kSmallJob, "search " + kSmallJob + " --json", "predict " + kSmallJob}) {
    CAPTURE(command);
    const ProcessResult whole = sandbox.plan(command + " -o plan.json");
    const ProcessResult lost = sandbox.plan(command + " -o /dev/full");
    CHECK(lost.exit_code == 3);
    CHECK(lacks(lost.err, "--output: /dev/full") == "");
    CHECK(lacks(lost.err, "no space left") == "");
    CHECK(lost.out.size() + 200 > whole.out.size());  // but for the sentence about the file
    CHECK(lacks(lost.out, "The plan is in") != "");
    CHECK_FALSE(lost.out.empty());
  }
}
