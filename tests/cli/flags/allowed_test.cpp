// --allow and --forbid.
#include "cli/flags/allowed.hpp"

#include <string>

#include "tests/cli/program.hpp"

using namespace echelon;
using echelon::test::complaint;
using echelon::test::document;
using echelon::test::lacks;
using echelon::test::Sandbox;

namespace {

/// The value that a restriction gives to a flag; "" if it leaves the flag alone.
std::string restricted(const std::string& by, const std::string& list, const std::string& flag) {
  cli::Settings settings;
  settings.set(by, {list, "--" + by});
  const Result<cli::Settings> out = cli::with_restrictions(settings);
  REQUIRE(out.ok());
  const cli::Setting* setting = out->find(flag);
  return setting == nullptr ? "" : setting->value;
}

}  // namespace

TEST_CASE("an axis that is not allowed has degree 1, and techniques stay free") {
  CHECK(restricted("allow", "tp,dp", "pp") == "1");
  CHECK(restricted("allow", "tp,dp", "cp") == "1");
  CHECK(restricted("allow", "tp,dp", "etp") == "1");
  CHECK(restricted("allow", "tp,dp", "tp") == "");
  CHECK(restricted("allow", "tp,dp", "zero") == "");
  CHECK(restricted("allow", "tp,dp", "vpp") == "");
}

TEST_CASE("a forbidden technique gets the value of a plan without it") {
  CHECK(restricted("forbid", "pp,zero,recompute", "pp") == "1");
  CHECK(restricted("forbid", "pp,zero,recompute", "zero") == "0");
  CHECK(restricted("forbid", "pp,zero,recompute", "recompute") == "none");
  CHECK(restricted("forbid", "pp,zero,recompute", "tp") == "");
  CHECK(restricted("forbid", "sequence-parallel,offload", "offload") == "optimizer=0");
  CHECK(restricted("forbid", "sequence-parallel,offload", "sequence-parallel") == "false");
}

TEST_CASE("a search keeps to the axes it may use") {
  const Sandbox sandbox;
  const std::string job = "--model llama2-13b --gpus 16 --json --no-config ";
  const auto forbidden = document(sandbox.plan(job + "--forbid pp,zero,sequence-parallel"));
  const auto pinned = document(sandbox.plan(job + "--pp 1 --zero 0 --no-sequence-parallel"));
  CHECK(forbidden["winner"] == pinned["winner"]);
  CHECK(forbidden["candidates"] == pinned["candidates"]);
  const auto free = document(sandbox.plan(job));
  CHECK(free["winner"]["plan"] != forbidden["winner"]["plan"]);
  const auto allowed = document(sandbox.plan(job + "--allow dp,pp"));
  for (const auto& candidate : allowed["candidates"]) {
    CHECK(candidate["plan"]["tp"] == 1);
    CHECK(candidate["plan"]["cp"] == 1);
  }
  for (const char* technique : {"cp", "ep", "etp", "vpp", "recompute", "offload"}) {
    CAPTURE(technique);
    CHECK(sandbox.plan(job + "--forbid " + technique).exit_code == 0);
  }
  CHECK(sandbox.plan("--model mixtral-8x7b --gpus 16 --forbid ep,etp -q").exit_code == 0);
  CHECK(sandbox.plan("explain --model 7b --gpus 8 --forbid pp -q").exit_code == 0);
}

TEST_CASE("restrictions are checked like every other flag") {
  const Sandbox sandbox;
  const auto says = [&](const std::string& flags, const std::string& part) {
    return lacks(complaint(sandbox.plan("--model 7b --gpus 8 " + flags), 2), part);
  };
  CHECK(says("--forbid zro", "did you mean 'zero'?") == "");
  CHECK(says("--forbid tp,,pp", "--forbid: ''") == "");
  CHECK(says("--allow tp,zero", "a list of tp, pp, dp, cp, ep, etp") == "");
  CHECK(says("--tp 8 --forbid tp", "--tp: '8', while --forbid leaves tp out") == "");
  CHECK(says("--pp 2 --allow tp,dp", "--pp: '2', while --allow leaves pp out") == "");
  CHECK(sandbox.plan("--model 7b --gpus 8 --tp 1 --forbid tp -q").exit_code == 0);
  CHECK(lacks(complaint(sandbox.plan("predict --model 7b --gpus 8 --forbid tp"), 2),
              "plan predict does not take it") == "");
}
