// --allow and --forbid.
#include "cli/flags/allowed.hpp"

#include <algorithm>
#include <array>
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
  CHECK(restricted("forbid", "cp-comm,rank-order", "cp-comm") == "p2p");
  CHECK(restricted("forbid", "cp-comm,rank-order", "rank-order") == "tp-cp-ep-dp-pp");
  CHECK(restricted("forbid", "dispatcher,cuda-graphs", "dispatcher") == "alltoall");
  CHECK(restricted("forbid", "dispatcher,cuda-graphs", "cuda-graphs") == "none");
  // The other overlaps, and whole layers, stay free.
  CHECK(restricted("forbid", "overlap-ep,recompute-modules", "overlap") == "");
  CHECK(restricted("forbid", "overlap-ep,recompute-modules", "recompute") == "");
}

TEST_CASE("each technique that a search chooses disappears from its plans once it is forbidden") {
  const Sandbox sandbox;
  // Each job's winner, or a plan listed next to it, has the technique.
  struct Job {
    std::string technique, flags;
    bool (*uses)(const nlohmann::json& plan);
  };
  const std::string experts =
      "--model mixtral-8x7b --gpus 64 --global-batch 256 --seq 4096 --pp 2 --cp 1 --tp 1 ";
  const auto has_modules = [](const nlohmann::json& plan) {
    return plan.contains("recompute_modules") && !plan["recompute_modules"].empty();
  };
  const std::array jobs = {
      Job{"overlap-ep", experts,
          [](const nlohmann::json& plan) {
            const auto& overlap = plan["overlap"];
            return std::find(overlap.begin(), overlap.end(), "ep") != overlap.end();
          }},
      Job{"recompute-modules", experts, has_modules},
      Job{"recompute", experts,
          [](const nlohmann::json& plan) { return plan["recompute"] != "none"; }},
      Job{"dispatcher", "--model qwen3-30b-a3b --gpus 16 --seq 4096 --global-batch 64 --pp 1 ",
          [](const nlohmann::json& plan) {
            return plan.value("dispatcher", "alltoall") != "alltoall";
          }},
      Job{"cuda-graphs", "--model gpt2 --gpus 8 --seq 512 --global-batch 8 ",
          [](const nlohmann::json& plan) { return plan.value("cuda_graphs", "none") != "none"; }},
      Job{"offload",
          "--model llama2-13b --gpus 8 --cluster aws-p4d --seq 4096 --global-batch 64 --prefer "
          "fastest --pp 1 ",
          [](const nlohmann::json& plan) { return !plan["offload"].empty(); }},
      Job{"cp-comm", "--model 7b --gpus 16 --seq 131072 --global-batch 16 ",
          [](const nlohmann::json& plan) { return plan.value("cp_comm", "p2p") == "a2a"; }},
      Job{"rank-order",
          "--model llama2-13b --gpus 32 --cluster a100-pcie --pp 4 --zero 1 --prefer fastest "
          "--global-batch 32 --cp 1 ",
          [](const nlohmann::json& plan) {
            return plan.value("rank_order", "tp-cp-ep-dp-pp") != "tp-cp-ep-dp-pp";
          }},
  };
  for (const Job& job : jobs) {
    CAPTURE(job.technique);
    const std::string flags = job.flags + "--json --no-config --quiet --top 20 ";
    const auto uses = [&](const nlohmann::json& answer) {
      int plans = 0;
      for (const auto& candidate : answer["candidates"]) plans += job.uses(candidate["plan"]);
      return plans;
    };
    const auto free = document(sandbox.plan(flags));
    CHECK(uses(free) > 0);
    const auto without = document(sandbox.plan(flags + "--forbid " + job.technique));
    CHECK(uses(without) == 0);
    CHECK(without["candidates"].size() > 0);
  }
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
  CHECK(says("--allow tp,vpp",
             "'vpp', a technique; expected a list of tp, pp, dp, cp, ep, etp; techniques are "
             "searched unless --forbid names them") == "");
  CHECK(says("--tp 8 --forbid tp", "--tp: '8', while --forbid leaves tp out") == "");
  CHECK(says("--pp 2 --allow tp,dp", "--pp: '2', while --allow leaves pp out") == "");
  CHECK(says("--overlap dp,ep --forbid overlap-ep", "--forbid leaves overlap-ep out") == "");
  CHECK(says("--recompute selective:mlp --forbid recompute-modules",
             "--forbid leaves recompute-modules out") == "");
  CHECK(sandbox.plan("--model 7b --gpus 8 --overlap dp --forbid overlap-ep -q").exit_code == 0);
  for (const char* technique :
       {"overlap-ep", "recompute-modules", "dispatcher", "cuda-graphs", "cp-comm", "rank-order"}) {
    CAPTURE(technique);
    for (const char* job : {"--model 7b --gpus 8 -q --framework deepspeed --forbid ",
                            "--model mixtral-8x7b --gpus 16 -q --framework torchtitan --forbid "}) {
      CHECK(sandbox.plan(std::string(job) + technique).exit_code == 0);
    }
  }
  CHECK(sandbox.plan("--model 7b --gpus 8 --tp 1 --forbid tp -q").exit_code == 0);
  CHECK(lacks(complaint(sandbox.plan("predict --model 7b --gpus 8 --forbid tp"), 2),
              "plan predict does not take it") == "");
}
