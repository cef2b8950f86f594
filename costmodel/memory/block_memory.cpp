// Memory of one stage where every block is allocated before the first step
// (Framework::fixed_blocks).
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <optional>
#include <vector>

#include "core/model/attention.hpp"
#include "costmodel/schedule/compute_order.hpp"
#include "costmodel/schedule/gather_slots.hpp"
#include "costmodel/schedule/saved_buffers.hpp"
#include "costmodel/time/pipeline.hpp"
#include "costmodel/time/stage_model.hpp"

namespace echelon {
namespace {

/// Tensors of one boundary that a rank has buffers for at a time: its inputs wait for their
/// backward and arrive while the one before is in use; an output is made while the one before is on
/// its way; gradients are used as soon as they are there.
int boundary_buffers(const ParallelPlan& plan, int stage, int flying, std::int64_t microbatches) {
  const auto m = static_cast<int>(std::min<std::int64_t>(microbatches, 1 << 20));
  const int all = m * plan.vpp;
  const bool first = stage == 0;
  const bool last = stage + 1 == plan.pp;
  if (plan.pp == 1) return 0;
  if (plan.vpp > 1) {
    // The first rank's first chunk receives nothing, nor does the last rank's last one send.
    // With groups of more than pp microbatches, inputs of the first rank and gradients of the last
    // one arrive before the chunk's turn.
    const int group = plan.group_size();
    const int inputs = first ? (plan.vpp - 1) * group : flying + 2;
    const int early = stage + 1 == plan.pp ? group - plan.pp : 0;
    return std::min(all, inputs) + std::min(all, (first ? 5 : 6) + early);
  }
  const int receives = first ? 0 : std::min(flying + 1, m);
  const bool back_to_back = plan.schedule == ScheduleKind::gpipe && last;
  const int returns = first ? 0 : std::min(back_to_back ? 2 : 1, m);
  const int sends = last ? 0 : std::min(2, m) + 1;
  return receives + returns + sends;
}

/// Of attention's kernels, next to their operands.
Bytes attention_workspace(const ModelSpec& model, const ParallelPlan& plan, int sequence,
                          const AttentionMode& mode) {
  const bool ring = plan.cp > 1 && plan.cp_comm == CpComm::ring;  // which cuDNN does not compute
  if (ring || mode.parts <= Bytes{}) return {};
  AttentionShape shape;
  shape.sequence = sequence;
  shape.samples = plan.microbatch;
  shape.heads = model.heads / plan.tp / plan.cp;
  shape.kv_heads = std::max(1, model.kv_heads / plan.tp / plan.cp);
  shape.head_dim = model.head_dim;
  if (model.latent()) shape.v_head_dim = model.mla.v_head_dim;
  const std::optional<AttentionBackward> backward = plan_attention_backward(shape, mode);
  return backward ? backward->workspace : Bytes{};
}

}  // namespace

/// What one chunk saves of a microbatch: its layers' tapes; the input of a chunk that receives it
/// lies in a buffer of its own.
Bytes StageModel::saved_block(const Stage& chunk) const {
  Bytes saved = kept_by_layers(chunk);
  const bool has_input = first(chunk) || chunk.layers.total() == 0;
  if (!has_input) saved -= costs_.layer_input;
  if (last(chunk)) {
    saved += costs_.head_saved;
    if (chunk.layers.total() == 0 && plan_.pp > 1) saved -= costs_.layer_input;
  }
  return saved;
}

/// The plan's schedule of so many microbatches that buffers are used as in the whole step: of the
/// first ones, of some in the middle, which repeat, and of the last ones. None: measured runs may
/// pad what no group of microbatches holds.
std::optional<PipelineShape> StageModel::followed_shape() const {
  const bool grouped = plan_.vpp > 1;
  const std::int64_t group = grouped ? plan_.group_size() : 1;
  const std::int64_t last = microbatches_ % group;
  if (microbatches_ < group || (last > 0 && last < plan_.pp)) return {};
  const std::int64_t most = grouped ? 8 : plan_.pp + 3;
  return PipelineShape{
      .kind = plan_.schedule,
      .ranks = plan_.pp,
      .chunks = plan_.vpp,
      .microbatches = static_cast<int>(std::min(microbatches_ / group, most) * group + last),
      .group = static_cast<int>(group)};
}

std::vector<Stage> StageModel::chunks_of(const Stage& stage) const {
  std::vector<Stage> chunks;
  chunks.reserve(static_cast<std::size_t>(plan_.vpp));
  for (int chunk = 0; chunk < plan_.vpp; ++chunk) chunks.push_back(chunk_of(stage, chunk));
  return chunks;
}

/// Buffers of saved activations, as many as chunks are in flight, each as large as the largest
/// chunk that it serves.
Bytes StageModel::saved_blocks(const Stage& stage, const std::vector<Stage>& chunks) const {
  const std::int64_t flying = chunks_in_flight(plan_.schedule, plan_.pp, plan_.vpp, stage.index,
                                               microbatches_, plan_.group_size());
  std::vector<Bytes> saved;
  saved.reserve(chunks.size());
  for (const Stage& chunk : chunks) saved.push_back(saved_block(chunk));
  const Bytes largest = *std::ranges::max_element(saved);
  const bool equal = std::ranges::all_of(saved, [&](Bytes each) { return each == largest; });
  const std::optional<PipelineShape> shape = equal ? std::nullopt : followed_shape();
  if (!shape) return static_cast<double>(flying) * largest;
  Bytes sum;
  for (const BuffersAlike& alike : saved_buffers(*shape, stage.index)) {
    Bytes size;
    for (const int chunk : alike.chunks) {
      size = std::max(size, saved[static_cast<std::size_t>(chunk)]);
    }
    sum += alike.count * size;
  }
  return sum;
}

/// The word embedding on a stage that holds a tied one; no ZeRO stage divides it.
double StageModel::tied_parameters(const Stage& stage) const {
  if (!cost_model_.model().tied_embeddings || !(first(stage) || last(stage))) return 0.0;
  return padded_vocab(cost_model_.model(), cost_model_.framework(), plan_.tp) / plan_.tp *
         cost_model_.model().hidden;
}

/// Buffers of the lowered schedule (docs/schedules.md), each held by one value at a time:
///
///   saved           saved_blocks()
///   boundaries      boundary_buffers()
///   batch           as saved, and two that are loaded ahead
///   weight inputs   ZB-H1: those of the weight gradients that stage s puts off, and one
Bytes StageModel::schedule_buffers(const Stage& stage, const std::vector<Stage>& chunks) const {
  const double m = static_cast<double>(microbatches_);
  const auto flying = static_cast<double>(chunks_in_flight(
      plan_.schedule, plan_.pp, plan_.vpp, stage.index, microbatches_, plan_.group_size()));
  Bytes buffers = saved_blocks(stage, chunks);
  buffers += boundary_buffers(plan_, stage.index, static_cast<int>(flying), microbatches_) *
             costs_.layer_input;
  if (first(stage) || last(stage)) {
    constexpr double kBytesPerPosition = 8;
    const double tokens =
        static_cast<double>(plan_.microbatch) * cost_model_.job().sequence / plan_.cp;
    buffers += Bytes{std::min(flying + 2, m) * kBytesPerPosition * tokens};
  }
  if (plan_.schedule == ScheduleKind::zero_bubble_h1) {
    const double waiting = std::min(m, static_cast<double>(stage.index) + 1);
    const auto add = [&](const LayerCosts& layer, int LayerCounts::*kind) {
      buffers += waiting * (stage.layers.*kind * layer.weight_inputs +
                            stage.selective.*kind * layer.weight_inputs_selective +
                            stage.recomputed.*kind * layer.weight_inputs_full);
    };
    add(costs_.dense, &LayerCounts::dense);
    add(costs_.moe, &LayerCounts::moe);
  }
  return buffers;
}

/// What a running instruction of a chunk needs: its transients, and what it recomputes.
Bytes StageModel::chunk_workspace(const Stage& chunk) const {
  const Bytes turns = std::max({chunk.layers.dense > 0 ? costs_.dense.transient : Bytes{},
                                chunk.layers.moe > 0 ? costs_.moe.transient : Bytes{},
                                last(chunk) ? costs_.head_transient : Bytes{}});
  Bytes recomputed;
  const auto recompute = [&](const LayerCosts& layer, int LayerCounts::*kind) {
    if (chunk.recomputed.*kind > 0) {
      recomputed = std::max(recomputed, layer.saved - costs_.layer_input);
    } else if (chunk.selective.*kind > 0) {
      recomputed = std::max(recomputed, layer.saved - layer.saved_selective);
    }
  };
  recompute(costs_.dense, &LayerCounts::dense);
  recompute(costs_.moe, &LayerCounts::moe);
  return turns + recomputed;
}

/// The most of any chunk; normalised rows with their mean and deviation; a whole sequence, and its
/// gathered copy; the gradient that runs from layer to layer.
Bytes StageModel::instruction_workspace(const Stage& stage,
                                        const std::vector<Stage>& chunks) const {
  Bytes of_chunk;
  for (const Stage& chunk : chunks) of_chunk = std::max(of_chunk, chunk_workspace(chunk));
  const bool splits = plan_.tp > 1 && plan_.sequence_parallel;
  const Bytes whole = (splits ? plan_.tp : 1) * costs_.layer_input;
  const double rows =
      costs_.layer_input.in(kByte) / (cost_model_.model().hidden * width_of(recipe_.compute));
  Bytes workspace = of_chunk + 2 * costs_.layer_input +
                    Bytes{2 * statistics_width(recipe_.compute) * rows} + (splits ? 2 : 1) * whole +
                    c_.gemm_workspace;
  if (stage.layers.total() > 0) {
    const AttentionMode mode{.deterministic = c_.attention_deterministic > 0,
                             .parts = c_.attention_parts,
                             .limit = attention_limit(cost_model_.cluster().gpu().memory)};
    workspace += attention_workspace(cost_model_.model(), plan_, cost_model_.job().sequence, mode);
  }
  return workspace;
}

/// Parameters that each unit of ZeRO moves, chunk after chunk: of its layers and of the ends,
/// without a tied embedding. Experts that no other rank has are neither gathered nor reduced.
/// Source: runtime/model/parameters.cpp, unit_flat.
std::vector<double> StageModel::moved_units(const Stage& stage, const std::vector<Stage>& chunks,
                                            int units) const {
  const double tied = tied_parameters(stage);
  const double moe = costs_.moe.parameters + moved_experts();
  std::vector<double> moved;
  for (const Stage& chunk : chunks) {
    const auto layer = [&](int unit) {  // where it begins
      const int in_model = chunk.begins.front() + unit * chunk.layers.total() / units;
      return std::min(in_model, cost_model_.model().layers);
    };
    for (int unit = 0; unit < units; ++unit) {
      const int with_experts =
          cost_model_.moe_before(layer(unit + 1)) - cost_model_.moe_before(layer(unit));
      const int dense = layer(unit + 1) - layer(unit) - with_experts;
      double& sum = moved.emplace_back(dense * costs_.dense.parameters + with_experts * moe);
      if (unit == 0 && first(chunk)) sum += costs_.embedding_parameters - tied;
      if (unit == units - 1 && last(chunk))
        sum += head_parameters(stage) - (first(stage) ? 0 : tied);
    }
  }
  return moved;
}

/// Parameters with gradients of the largest unit, where these are those of adapters.
double StageModel::trained_units(const std::vector<Stage>& chunks, int units) const {
  double largest = 0;
  for (const Stage& chunk : chunks) {
    const int layers = chunk.layers.total();
    largest = std::max(largest, std::ceil(static_cast<double>(layers) / units) *
                                    std::max(costs_.dense.adapters, costs_.moe.adapters));
  }
  return largest;
}

/// ZeRO-3's buffers of gathered units, each as large as the largest that a schedule puts there.
double StageModel::gathered_units(const Stage& stage, const std::vector<double>& moved,
                                  int units) const {
  const std::optional<PipelineShape> shape = followed_shape();
  if (!shape) return kGatherSlots * *std::ranges::max_element(moved);
  std::vector<GatherUnit> uses;
  for (const ComputeStep& step : compute_order(*shape, stage.index)) {
    // One unit's weight gradient is an instruction of the whole chunk.
    const bool whole = step.op == Op::backward_weight && units == 1;
    for (int i = 0; i < units; ++i) {
      const int unit = step.op == Op::forward ? i : units - 1 - i;
      uses.push_back({step.chunk, whole ? std::nullopt : std::optional(unit)});
    }
  }
  std::array<double, kGatherSlots> largest{};
  const std::vector<GatherSlot> slots = gather_slots(uses, kGatherSlots);
  for (std::size_t use = 0; use < uses.size(); ++use) {
    const int number = uses[use].chunk * units + uses[use].unit.value_or(0);
    double& most = largest[slots[use].slot];
    most = std::max(most, moved[static_cast<std::size_t>(number)]);
  }
  return std::accumulate(largest.begin(), largest.end(), 0.0);
}

/// The same in closed form for layers of one kind. Of two kinds, whose places are not known, the
/// least: the ends lie with the smaller kind, and the two gathered units differ.
StageModel::MovedUnits StageModel::units_alike(const Stage& stage, int units) const {
  const double tied = tied_parameters(stage);
  const double dense = costs_.dense.parameters;
  const double moe = costs_.moe.parameters + moved_experts();
  const bool differ = stage.layers.dense > 0 && stage.layers.moe > 0;
  const double larger = stage.layers.moe == 0 ? dense : differ ? std::max(dense, moe) : moe;
  const double smaller = differ ? std::min(dense, moe) : larger;
  const double first_end = first(stage) ? costs_.embedding_parameters - tied : 0.0;
  double last_end = 0;
  if (last(stage)) last_end = head_parameters(stage) - (first(stage) ? 0 : tied);
  const double layers = stage.layers.total();
  const double of_unit = layers > 0 ? std::max(1.0, std::ceil(layers / plan_.vpp / units)) : 0.0;
  const double ends = units == 1 ? first_end + last_end : std::max(first_end, last_end);
  MovedUnits moved;
  moved.largest = std::max(larger + (of_unit - 1) * smaller, of_unit * smaller + ends);
  // One microbatch after another, a unit is gathered where the one before the last was.
  const bool same_place = plan_.pp == 1 && units % 2 == 1;
  moved.gathered = of_unit * (larger + smaller) +
                   (same_place ? std::max(first_end, last_end) : first_end + last_end);
  if (units * plan_.vpp == 1) {
    // ZB-H1 gathers a unit again for its weight gradient.
    moved.gathered =
        plan_.schedule == ScheduleKind::zero_bubble_h1 ? 2 * moved.largest : moved.largest;
  }
  return moved;
}

/// What ZeRO moves. A unit is a layer; the first and the last hold the ends too. ZeRO-2/3 make a
/// unit's gradients in one of two blocks as large as the largest, the other being reduced; ZeRO-3
/// gathers units into two.
Bytes StageModel::zero_buffers(const Stage& stage, const std::vector<Stage>& chunks,
                               int zero) const {
  if (zero < 2) return {};
  const int units = std::max(1, *std::ranges::min_element(plan_.layers_per_stage) / plan_.vpp);
  MovedUnits moved;
  if (stage.begins.empty()) {
    moved = units_alike(stage, units);
  } else {
    const std::vector<double> each = moved_units(stage, chunks, units);
    moved.largest = *std::ranges::max_element(each);
    if (zero == 3) moved.gathered = gathered_units(stage, each, units);
  }
  const double open =
      plan_.schedule == ScheduleKind::zero_bubble_h1
          ? std::min(static_cast<double>(microbatches_), static_cast<double>(stage.index) + 1) *
                units
          : 1;
  const double made = freezes() ? (open + 1) * trained_units(chunks, units)
                                : (open + 1) * moved.largest + tied_parameters(stage);
  Bytes buffers = Bytes{made * recipe_.main_gradient};
  if (zero == 3) buffers += Bytes{moved.gathered * recipe_.gathered_weight};
  return buffers;
}

/// States, and the buffers above.
/// Source: runtime/training/cpu_device.cpp, states.cpp; runtime/model/chunk_layout.hpp.
/// Checked by: tests/runtime/predicted_memory_test.cpp (2 % of what is allocated).
MemoryBreakdown StageModel::block_memory(const Stage& stage) const {
  MemoryBreakdown out;
  const std::vector<Stage> chunks = chunks_of(stage);
  const Parameters p = parameters(stage);
  const int shards = plan_.shard_group;
  const int zero = shards * expert_shard_ > 1 ? plan_.zero : 0;
  const double tied = tied_parameters(stage);
  const double all = p.replicated + p.experts;
  const double part = owned(p, zero > 0 ? plan_.zero : 4);
  const Parameters t = trained(stage);
  const auto states = [&](int from_zero) { return owned(t, zero >= from_zero ? from_zero : 4); };
  out.weights = Bytes{(zero == 3 ? part + tied * (1 - 1.0 / shards) : all) * recipe_.weight};
  out.gradients = Bytes{states(2) * (recipe_.gradient + recipe_.main_gradient)};
  out.optimizer = Bytes{states(1) * (recipe_.master + recipe_.moments)};
  out.activations = schedule_buffers(stage, chunks);
  out.workspace = instruction_workspace(stage, chunks);
  out.communication = zero_buffers(stage, chunks, zero) + nccl_;
  out.context = c_.context;
  return out;
}

}  // namespace echelon
