// Features of a plan that this runtime refuses.
#include "core/model/model_io.hpp"
#include "runtime/training/run.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/text.hpp"

using namespace echelon;
using echelon::test::lacks;

TEST_CASE("a plan with attention that keeps its scores is refused, not run with flash attention") {
  PlanFile file;
  file.model = load_model("gpt2-tiny").value();
  file.job.precision = find_precision("fp32").value();
  file.job.sequence = 32;
  file.job.global_batch = 8;
  CHECK(check_executable(file, "cpu").ok());
  file.job.flash_attention = false;
  const Status refused = check_executable(file, "cpu");
  REQUIRE_FALSE(refused.ok());
  CHECK(lacks(refused.error().message(), "keeps its sequence x sequence matrix") == "");
  CHECK(lacks(refused.error().message(), "--flash-attention") == "");
}

TEST_CASE("a plan that recomputes modules is refused, not run with another recomputation") {
  PlanFile file;
  file.model = load_model("gpt2-tiny").value();
  file.job.precision = find_precision("fp32").value();
  file.job.sequence = 32;
  file.job.global_batch = 8;
  file.plan.recompute = Recompute::selective;
  CHECK(check_executable(file, "cpu").ok());
  file.plan.recompute_modules = {RecomputeModule::mlp};
  const Status refused = check_executable(file, "cpu");
  REQUIRE_FALSE(refused.ok());
  CHECK(lacks(refused.error().message(), "recomputed modules mlp") == "");
  CHECK(lacks(refused.error().message(), "the attention core or whole layers") == "");
}

TEST_CASE("a plan whose stages run back over the ranks is refused") {
  PlanFile file;
  file.model = load_model("gpt2-tiny").value();
  file.job.precision = find_precision("fp32").value();
  file.job.sequence = 32;
  file.job.global_batch = 8;
  file.plan.pp = 2;
  file.plan.vpp = 2;
  file.plan.schedule = ScheduleKind::interleaved;
  CHECK(check_executable(file, "cpu").ok());
  file.plan.schedule = ScheduleKind::dualpipe_v;
  const Status refused = check_executable(file, "cpu");
  REQUIRE_FALSE(refused.ok());
  CHECK(lacks(refused.error().message(), "schedule dualpipev") == "");
  CHECK(lacks(refused.error().message(), "1f1b, interleaved") == "");
}

TEST_CASE("latent attention is executed on GPUs with DeepSeek's heads, and else refused by name") {
  PlanFile file;
  file.model = load_model("deepseek-v2-lite").value();
  file.model.moe = {};
  file.job.sequence = 32;
  file.job.global_batch = 8;
  file.job.precision = find_precision("bf16:adam-fp32-master").value();
  CHECK(check_executable(file, "cuda").ok());
  file.model.mla.v_head_dim = 192;
  CHECK(check_executable(file, "cpu").ok());
  const Status refused = check_executable(file, "cuda");
  REQUIRE_FALSE(refused.ok());
  CHECK(lacks(refused.error().message(),
              "heads of 192 for queries and keys and of 192 for "
              "values") == "");
  CHECK(lacks(refused.error().message(), "v_head_dim 128") == "");
}

TEST_CASE("a plan with experts is executed if every tensor-parallel rank has a part of each") {
  PlanFile file;
  file.model = load_model("mixtral-8x7b").value();
  file.job.precision = find_precision("fp32").value();
  file.job.sequence = 32;
  file.job.global_batch = 8;
  CHECK(check_executable(file, "cpu").ok());
  file.plan.tp = file.plan.etp = 2;
  CHECK(check_executable(file, "cpu").ok());
  file.plan.etp = 1;
  const Status refused = check_executable(file, "cpu");
  REQUIRE_FALSE(refused.ok());
  CHECK(lacks(refused.error().message(), "etp 1 with tp 2") == "");
  file.plan.etp = 2;
  const auto message_of = [&](auto change) {
    PlanFile changed = file;
    change(changed.plan);
    const Status done = check_executable(changed, "cpu");
    return done ? std::string() : done.error().message();
  };
  using Plan = ParallelPlan;
  CHECK(message_of([](Plan& p) { p.dp = 4, p.ep = 4; }).empty());
  CHECK(lacks(message_of([](Plan& p) { p.dp = 3, p.ep = 3; }), "ep 3 of 8 experts") == "");
  CHECK(lacks(message_of([](Plan& p) { p.dp = 2, p.ep = 4; }), "2 data-parallel ranks") == "");
  CHECK(lacks(message_of([](Plan& p) { p.dp = 4, p.ep = 4, p.zero = 1, p.shard_group = 2; }),
              "ep 4 with ZeRO groups of 2") == "");
  CHECK(lacks(message_of([](Plan& p) { p.dp = 4, p.ep = 4, p.dispatcher = Dispatcher::allgather; }),
              "dispatcher allgather") == "");
  file.model.moe.shared_ffn_hidden = 9;
  const Status shared = check_executable(file, "cpu");
  REQUIRE_FALSE(shared.ok());
  CHECK(lacks(shared.error().message(), "shared experts of width 9 over tp 2") == "");
  file.model.moe.expert_ffn_hidden = 7;
  const Status uneven = check_executable(file, "cpu");
  REQUIRE_FALSE(uneven.ok());
  CHECK(lacks(uneven.error().message(), "experts of width 7 over tp 2") == "");
}

TEST_CASE("context parallelism is executed by a ring or by exchanging heads, where these divide") {
  PlanFile file;
  file.model = load_model("gpt2-tiny").value();
  file.job.precision = find_precision("fp32").value();
  file.job.sequence = 32;
  file.job.global_batch = 8;
  file.plan.cp = 2;
  file.plan.cp_comm = CpComm::all_gather;
  const Status gathered = check_executable(file, "cpu");
  REQUIRE_FALSE(gathered.ok());
  CHECK(lacks(gathered.error().message(), "cp 2 by all_gather") == "");
  CHECK(lacks(gathered.error().message(), "--cp-comm p2p") == "");
  for (const CpComm comm : {CpComm::ring, CpComm::all_to_all}) {
    file.plan.cp_comm = comm;
    CHECK(check_executable(file, "cpu").ok());
  }
  REQUIRE(file.model.heads == 4);
  const auto refusal = [&](auto change) {
    PlanFile other = file;
    change(other);
    const Status refused = check_executable(other, "cpu");
    return refused.ok() ? std::string() : refused.error().message();
  };
  CHECK(lacks(refusal([](PlanFile& f) { f.plan.cp_comm = CpComm::ring, f.job.sequence = 34; }),
              "a sequence of 34 over 2 x cp 2") == "");
  CHECK(refusal([](PlanFile& f) { f.plan.cp_comm = CpComm::ring, f.model.kv_heads = 1; }) == "");
  CHECK(lacks(refusal([](PlanFile& f) { f.plan.cp = 3, f.job.sequence = 33; }),
              "4 heads over tp 1 x cp 3") == "");
  CHECK(lacks(refusal([](PlanFile& f) { f.plan.tp = 4; }), "4 heads over tp 4 x cp 2") == "");
  CHECK(lacks(refusal([](PlanFile& f) { f.model.kv_heads = 1; }),
              "1 key-value heads over tp 1 x cp 2") == "");
  CHECK(lacks(refusal([](PlanFile& f) { f.job.sequence = 33; }), "a sequence of 33 over cp 2") ==
        "");
}
