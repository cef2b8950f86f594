// Random plan files.
#pragma once

#include <string>

#include "core/plan/plan_file.hpp"
#include "tests/support/numbers.hpp"

namespace echelon {

/// A random number; magnitudes vary.
inline double any_number(Numbers& draw) {
  const double number = draw.unit();
  return number * (draw.upto(3) == 0 ? 1e12 : 1);
}

inline PlanFile any_plan_file(Numbers& draw) {
  PlanFile f;
  f.version = "0." + std::to_string(draw.upto(99));
  f.model.name = draw.coin() ? "tiny" : "name \"with\" \\ and é";
  f.model.architecture = "llama";
  f.model.source = "a test";
  f.model.heads = f.model.kv_heads = 1 << draw.upto(4);
  f.model.head_dim = 32;
  f.model.hidden = 32 * f.model.heads;
  f.model.layers = 1 + draw.upto(40);
  f.model.ffn_hidden = 100 + draw.upto(1000);
  f.model.vocab = 100 + draw.upto(100'000);
  f.model.max_positions = draw.upto(8192);
  f.model.tied_embeddings = draw.coin();
  f.job.sequence = 1 + draw.upto(8192);
  f.job.global_batch = 1 + draw.upto(1'000'000);
  f.job.precision = *find_precision(draw.coin() ? "bf16" : "fp8");
  f.job.flash_attention = draw.coin();
  if (draw.coin()) f.job.expert_imbalance = 1.25;
  if (draw.coin()) f.job.documents = *parse_document_lengths("lognormal:1000:1.25", "test");
  if (draw.coin()) f.job.token_budget = 1 + any_number(draw);
  f.cluster = draw.coin() ? "dgx-h100" : "/a path/with spaces.json";
  f.gpus = 1 + draw.upto(100'000);
  f.framework = "megatron-core";
  f.calibration = "hopper";
  if (draw.coin()) f.calibration_path = "mine.json";
  f.keep_free = Bytes{double(draw.upto(1 << 30))};
  if (draw.coin()) f.max_memory = Bytes{1.0 + draw.upto(1 << 30)};
  for (int i = draw.upto(5); i > 0; --i) f.assumptions.push_back("number " + std::to_string(i));
  f.cluster_hash = std::string(31, '0') + static_cast<char>('a' + draw.upto(5));
  f.calibration_hash = std::string(32, static_cast<char>('0' + draw.upto(9)));
  f.plan.tp = 1 << draw.upto(3);
  f.plan.cp = 1 << draw.upto(2);
  f.plan.cp_comm = draw.coin() ? CpComm::ring : CpComm::all_to_all;
  f.plan.dp = 1 + draw.upto(64);
  f.plan.pp = 1 + draw.upto(15);
  f.plan.vpp = 1 + draw.upto(3);
  f.plan.microbatch = 1 + draw.upto(7);
  f.plan.zero = draw.upto(3);
  f.plan.shard_group = 1 + draw.upto(64);
  f.plan.sequence_parallel = draw.coin();
  f.plan.recompute = static_cast<Recompute>(draw.upto(2));
  if (draw.coin()) f.plan.recompute_modules = {RecomputeModule::moe_act, RecomputeModule::moe};
  f.plan.schedule = static_cast<ScheduleKind>(draw.upto(3));
  f.plan.rank_order = draw.coin() ? RankOrder::dp_inside_pp : RankOrder::pp_inside_dp;
  if (draw.coin()) f.plan.offload_optimizer = 0.25;
  if (draw.coin()) f.plan.offload_modules = {OffloadModule::core_attn, OffloadModule::attn_proj};
  f.plan.overlap_dp = draw.coin();
  f.plan.overlap_tp = draw.coin();
  f.plan.overlap_pp = draw.coin();
  f.plan.overlap_ep = draw.coin();
  f.plan.overlap_shared = draw.coin();
  f.plan.dispatcher = static_cast<Dispatcher>(draw.upto(3));
  f.plan.cuda_graphs = static_cast<CudaGraphs>(draw.upto(2));
  for (int i = 0; i < f.plan.pp; ++i) {
    f.plan.layers_per_stage.push_back(1 + draw.upto(9));
    f.plan.recompute_layers.push_back(f.plan.recompute == Recompute::full ? draw.upto(3) : 0);
    MemoryBreakdown stage;
    stage.weights = Bytes{double(draw.upto(1 << 30))};
    stage.activations = Bytes{double(draw.upto(1 << 30))};
    f.predicted.stages.push_back(stage);
  }
  if (draw.coin()) f.plan.bucket = Bytes{1.0 + draw.upto(1 << 30)};
  f.predicted.evidence = static_cast<Evidence>(draw.upto(2));
  f.predicted.fits = draw.coin();
  if (draw.coin()) f.predicted.fits_probability = 1.0 / (1 + draw.upto(1 << 20));
  f.predicted.capacity = 80_GiB;
  f.predicted.peak = Bytes{double(draw.upto(1 << 30))};
  f.predicted.time.compute = Seconds{any_number(draw)};
  f.predicted.time.fill_drain = Seconds{any_number(draw) / 3};
  f.predicted.time.imbalance = Seconds{any_number(draw)};
  f.predicted.time.stragglers = 2 * f.predicted.time.imbalance;
  for (int i = 0; i < f.plan.pp; ++i) {
    StageTime time;
    time.compute = Seconds{any_number(draw)};
    time.imbalance = Seconds{any_number(draw)};
    time.stragglers = 2 * time.imbalance;
    f.predicted.stage_times.push_back(time);
  }
  if (draw.coin()) f.predicted.closed_form = Seconds{any_number(draw)};
  f.predicted.low = Seconds{any_number(draw)};
  f.predicted.high = Seconds{any_number(draw)};
  f.predicted.tokens_per_second = any_number(draw);
  f.predicted.model_flops_per_gpu = FlopsPerSecond{any_number(draw) * 1e12};
  f.predicted.mfu = any_number(draw) / 1e12;
  f.program = "echelon-schedule 1\npipeline " + std::string(name_of(f.plan.schedule)) + " ranks " +
              std::to_string(f.plan.pp) + " chunks " + std::to_string(f.plan.vpp) +
              " microbatches " +
              std::to_string(f.plan.microbatches_rounded_up(f.job.global_batch)) + " units 1\n";
  for (int i = draw.upto(3) == 0 ? 8000 : draw.upto(20); i > 0; --i) {
    f.program += std::to_string(draw.upto(1 << 20)) + " F c0 m1\n";
  }
  return f;
}

}  // namespace echelon
