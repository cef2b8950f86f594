// The smallest and largest 32- and 64-bit numbers, for every numeric flag.
#include <string>
#include <vector>

#include "cli/commands/command_table.hpp"
#include "cli/flags/table.hpp"
#include "tests/cli/program.hpp"

using namespace echelon;
using echelon::cli::Command;
using echelon::cli::Flag;
using echelon::test::complaint;
using echelon::test::lacks;
using echelon::test::Sandbox;

namespace {

const std::vector<std::string> kExtremes = {"1", "2147483647", "1048576", "9223372036854775807",
                                            "0", "-1"};
constexpr const char* kSeconds = "60";

bool takes_numbers(const Flag& flag) {
  for (const char* placeholder :
       {"N", "K", "SIZE", "TIME", "RATE", "SECONDS", "0-3", "A,B,...", "N|A,B,...", "LIST"}) {
    if (flag.value == placeholder) return flag.name != "why-not";
  }
  return false;
}

/// Runs one command per line in one shell; "" if each ends with 0, 1 or 2 in time, else the
/// commands that did not.
std::string misbehaving(const Sandbox& sandbox, const std::vector<std::string>& arguments) {
  std::string script;
  for (const std::string& each : arguments) {
    script += "timeout " + std::string(kSeconds) + " " + sandbox.program() + " " + each +
              " >/dev/null 2>err; rc=$?; [ $rc -le 2 ] || { echo \"$rc: plan " + each +
              "\"; head -c 300 err; }\n";
  }
  sandbox.write("all.sh", script);
  return sandbox.shell("sh all.sh 2>&1").out;
}

std::vector<std::string> commands_of(const std::string& command_name) {
  const Command& command = *cli::find_command(command_name);
  std::vector<std::string> out;
  for (const Flag& flag : cli::flags()) {
    if (!takes(command, flag) || !takes_numbers(flag)) continue;
    const bool sets_gpus = flag.name == "gpus" || flag.name == "max-gpus";
    const std::string prefix = flag.name == "offload" ? "optimizer=" : "";
    for (const std::string& value : kExtremes) {
      out.push_back(command_name + " --model gpt2 " + (sets_gpus ? "" : "--gpus 2 ") + "--" +
                    std::string(flag.name) + " " + prefix + value);
    }
  }
  return out;
}

}  // namespace

TEST_CASE("extreme numbers end a prediction with an answer or an error, in time") {
  const Sandbox sandbox;
  const std::vector<std::string> commands = commands_of("predict");
  CHECK(commands.size() > 100);
  CHECK(misbehaving(sandbox, commands) == "");
}

TEST_CASE("extreme numbers end a search with an answer or an error, in time") {
  const Sandbox sandbox;
  CHECK(misbehaving(sandbox, commands_of("search")) == "");
}

TEST_CASE("extreme numbers end an explanation with an answer or an error, in time") {
  const Sandbox sandbox;
  CHECK(misbehaving(sandbox, commands_of("explain")) == "");
}

TEST_CASE("extreme numbers in a why-not configuration are compared with a plan") {
  const Sandbox sandbox;
  std::vector<std::string> commands;
  for (const char* key : {"tp", "pp", "dp", "vpp", "cp", "ep", "etp", "microbatch",
                          "zero-group-size", "layers-per-stage", "recompute-layers", "bucket"}) {
    for (const std::string& value : kExtremes) {
      commands.push_back("explain --model gpt2 --gpus 2 --why-not " + std::string(key) + "=" +
                         value);
    }
  }
  CHECK(misbehaving(sandbox, commands) == "");
}

TEST_CASE("products of degrees beyond 64 bits are reported as such") {
  const Sandbox sandbox;
  const ProcessResult asked = sandbox.plan(
      "explain --model llama3-70b --gpus 256 --why-not "
      "tp=64,cp=1048576,pp=1048576,dp=262144");
  CHECK(asked.exit_code == 0);
  CHECK(lacks(asked.out, "more than 9.2e18") == "");
  // 2^64 and 2^32 wrapped around to no GPUs and no chunks.
  CHECK(lacks(complaint(sandbox.plan("predict --model gpt2 --gpus 8 --tp 1048576 --cp 1048576 --pp "
                                     "16777216"),
                        2),
              "a multiple of tp x cp x pp") == "");
  CHECK(lacks(complaint(sandbox.plan("--model 7b --gpus 8 --pp 4 --vpp 1073741824"), 2),
              "32 layers on pp 4 x vpp 1073741824") == "");
  CHECK(lacks(complaint(sandbox.plan("predict --model 7b --gpus 8 --pp 4 --vpp 1073741824"), 2),
              "chunks") == "");
  CHECK(lacks(complaint(sandbox.plan("--model gpt2 --gpus 2 --top 1000000"), 2), "--top") == "");
}

TEST_CASE("a search over more microbatches than can be simulated still answers") {
  const Sandbox sandbox;
  CHECK(misbehaving(sandbox, {"--model gpt2 --gpus 4 --pp 4 --seq 1 --global-batch 1000000000000",
                              "--model gpt2 --gpus 2 --global-batch 2147483647"}) == "");
}
