// Names of the small enumerations in flags and output.
#include <algorithm>
#include <array>
#include <span>
#include <string>

#include "core/base/did_you_mean.hpp"
#include "core/base/text.hpp"
#include "core/plan/cost.hpp"
#include "core/plan/layer_code.hpp"
#include "core/plan/stage_placement.hpp"

namespace echelon {

std::string_view name_of(Evidence evidence) {
  switch (evidence) {
    case Evidence::measured: return "measured";
    case Evidence::calibrated: return "calibrated";
    case Evidence::extrapolated: return "extrapolated";
  }
  return "?";
}

std::string_view name_of(Recompute recompute) {
  switch (recompute) {
    case Recompute::none: return "none";
    case Recompute::selective: return "selective";
    case Recompute::full: return "full";
    case Recompute::mixed: return "mixed";
  }
  return "?";
}

int layers_in_chunk(int layers, int vpp, bool last, int chunk) {
  const int loss = last ? 1 : 0;
  const int places = layers + loss;
  const int larger = chunk >= vpp - places % vpp ? 1 : 0;
  return places / vpp + larger - (chunk == vpp - 1 ? loss : 0);
}

int layers_in_chunk(const ParallelPlan& plan, int rank, int chunk) {
  if (plan.schedule == ScheduleKind::dualpipe) {
    return plan.layers_per_stage[static_cast<std::size_t>(chunk == 0 ? rank : plan.pp - 1 - rank)];
  }
  return layers_in_chunk(plan.layers_per_stage[static_cast<std::size_t>(rank)], plan.vpp,
                         rank == placement_of(plan).last_rank(), chunk);
}

RecomputedLayers recomputed_layers(const ParallelPlan& plan, int rank, int before, int size) {
  const auto s = static_cast<std::size_t>(rank);
  const bool mixed = plan.recompute == Recompute::mixed;
  // 64 bits: a search may evaluate counts given by the user before it validates them.
  const std::int64_t full =
      mixed || plan.recompute == Recompute::full ? plan.recompute_layers[s] : 0;
  std::int64_t selective = mixed ? plan.selective_layers[s] : 0;
  if (plan.recompute == Recompute::selective) selective = plan.layers_per_stage[s];
  const auto within = [&](std::int64_t layers) {
    return static_cast<int>(std::clamp<std::int64_t>(layers - before, 0, size));
  };
  const int fully = within(full);
  return {fully, within(full + selective) - fully};
}

std::string_view name_of(RankOrder order) {
  switch (order) {
    case RankOrder::dp_inside_pp: return "tp-cp-ep-dp-pp";
    case RankOrder::pp_inside_dp: return "tp-cp-ep-pp-dp";
  }
  return "?";
}

std::string_view name_of(CpComm comm) {
  switch (comm) {
    case CpComm::ring: return "p2p";
    case CpComm::all_to_all: return "a2a";
    case CpComm::all_gather: return "all_gather";
  }
  return "?";
}

std::string_view name_of(Dispatcher dispatcher) {
  switch (dispatcher) {
    case Dispatcher::alltoall: return "alltoall";
    case Dispatcher::allgather: return "allgather";
    case Dispatcher::deepep: return "deepep";
    case Dispatcher::hybridep: return "hybridep";
  }
  return "?";
}

std::string_view name_of(CudaGraphs graphs) {
  switch (graphs) {
    case CudaGraphs::none: return "none";
    case CudaGraphs::layers: return "layers";
    case CudaGraphs::full_iteration: return "full_iteration";
  }
  return "?";
}

std::string_view name_of(ScheduleKind schedule) {
  switch (schedule) {
    case ScheduleKind::gpipe: return "gpipe";
    case ScheduleKind::one_f_one_b: return "1f1b";
    case ScheduleKind::interleaved: return "interleaved";
    case ScheduleKind::zero_bubble_h1: return "zb-h1";
    case ScheduleKind::dualpipe_v: return "dualpipev";
    case ScheduleKind::dualpipe: return "dualpipe";
  }
  return "?";
}

std::string_view name_of(LayerCode code) {
  switch (code) {
    case LayerCode::fused: return "fused";
    case LayerCode::liger: return "liger";
    case LayerCode::transformers: return "transformers";
  }
  return "?";
}

namespace {

template <class Enum, std::size_t N>
Result<Enum> parse_name(std::string_view name, std::string_view where, std::string_view what,
                        const std::array<Enum, N>& all) {
  std::vector<std::string> known;
  std::string expected;
  for (const Enum value : all) {
    if (name_of(value) == name) return value;
    known.emplace_back(name_of(value));
    expected += (expected.empty() ? "" : ", ") + known.back();
  }
  return input_error(std::string(where), "unknown " + std::string(what) + " " + in_quotes(name),
                     "one of " + expected, did_you_mean(name, known));
}

}  // namespace

Result<Recompute> parse_recompute(std::string_view name, std::string_view where) {
  return parse_name(
      name, where, "recompute policy",
      std::array{Recompute::none, Recompute::selective, Recompute::full, Recompute::mixed});
}

Result<LayerCode> parse_layer_code(std::string_view text, std::string_view where) {
  return parse_name(text, where, "code of layers",
                    std::array{LayerCode::fused, LayerCode::liger, LayerCode::transformers});
}

Result<RankOrder> parse_rank_order(std::string_view name, std::string_view where) {
  return parse_name(name, where, "rank order",
                    std::array{RankOrder::dp_inside_pp, RankOrder::pp_inside_dp});
}

Result<CpComm> parse_cp_comm(std::string_view name, std::string_view where) {
  return parse_name(name, where, "context-parallel communication",
                    std::array{CpComm::ring, CpComm::all_to_all, CpComm::all_gather});
}

Result<Dispatcher> parse_dispatcher(std::string_view name, std::string_view where) {
  return parse_name(name, where, "token dispatcher",
                    std::array{Dispatcher::alltoall, Dispatcher::allgather, Dispatcher::deepep,
                               Dispatcher::hybridep});
}

Result<CudaGraphs> parse_cuda_graphs(std::string_view name, std::string_view where) {
  return parse_name(name, where, "scope of CUDA graphs",
                    std::array{CudaGraphs::none, CudaGraphs::layers, CudaGraphs::full_iteration});
}

Result<ScheduleKind> parse_schedule(std::string_view name, std::string_view where) {
  return parse_name(
      name, where, "schedule",
      std::array{ScheduleKind::gpipe, ScheduleKind::one_f_one_b, ScheduleKind::interleaved,
                 ScheduleKind::zero_bubble_h1, ScheduleKind::dualpipe_v, ScheduleKind::dualpipe});
}

}  // namespace echelon
