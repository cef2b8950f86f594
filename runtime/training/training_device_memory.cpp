// TrainingDevice: the allocations of a rank before the first step.
#include <algorithm>
#include <string>

#include "runtime/training/training_rank.hpp"

namespace echelon {
namespace {

constexpr std::int64_t kVocabMultiple = 128;  // times tp: Megatron-LM's padding, as priced

std::int64_t rounded_up_to(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

/// Policy of each layer of a chunk of `size` layers that follows `before` others of its rank.
std::vector<Recompute> policies(const ParallelPlan& plan, int rank, int before, int size) {
  const RecomputedLayers recomputed = recomputed_layers(plan, rank, before, size);
  std::vector<Recompute> out(static_cast<std::size_t>(size), Recompute::none);
  std::fill_n(out.begin(), recomputed.full, Recompute::full);
  std::fill_n(out.begin() + recomputed.full, recomputed.selective, Recompute::selective);
  return out;
}

ChunkSpec chunk_spec(const Training& training, const Schedule& schedule, const Coordinates& at,
                     int chunk, const ZeroGroups& zero_groups, const ZeroGroups& of_experts,
                     const Communicator* ep) {
  const ParallelPlan& plan = training.plan;
  ChunkSpec spec;
  spec.model = training.model;
  int before = 0;
  for (int c = 0; c < plan.vpp; ++c) {
    for (int rank = 0; rank < plan.pp; ++rank) {
      const int size = layers_in_chunk(plan, rank, c);
      if (c < chunk || (c == chunk && rank < at.pp)) spec.first_layer += size;
      if (c < chunk && rank == at.pp) before += size;
    }
  }
  spec.layers = layers_in_chunk(plan, at.pp, chunk);
  spec.embedding = chunk == 0 && at.pp == 0;
  spec.loss = chunk + 1 == plan.vpp && at.pp + 1 == plan.pp;
  spec.units = schedule.units;
  spec.tp = plan.tp;
  spec.tp_rank = at.tp;
  spec.cp = plan.cp;
  spec.cp_comm = plan.cp_comm;
  spec.cp_rank = at.cp;
  spec.sequence_parallel = plan.sequence_parallel && plan.tp > 1;
  spec.microbatch = plan.microbatch;
  spec.sequence = training.job.sequence;
  spec.recompute = policies(plan, at.pp, before, spec.layers);
  if (ep != nullptr) {
    spec.ep = ep->size();
    spec.ep_rank = ep->rank();
  }
  spec.shards = zero_groups.shards;
  spec.expert_shards = of_experts.shards;
  spec.adapters = training.job.adapters;
  if (spec.adapters) spec.adapter_scale = training.lora_alpha / spec.adapters->rank;
  spec.padded_vocab = rounded_up_to(training.model.vocab, kVocabMultiple * plan.tp);
  return spec;
}

ZeroGroups zero_groups_of(World& world, int rank, const ParallelPlan& plan, const Coordinates& at) {
  ZeroGroups s;
  const int group = plan.zero > 0 ? plan.shard_group : 1;
  s.zero = group > 1 ? plan.zero : 0;
  s.shards = group;
  const int place = at.dp * plan.cp + at.cp;  // as in ProcessGrid::data_group
  s.shard = place % group;
  s.replicas = plan.dp * plan.cp / group;
  s.replica = place / group;
  s.reduce_replicas = &world.at(rank, group > 1 ? GroupRole::replica_reduce : GroupRole::dp_reduce);
  if (plan.zero == 0) return s;
  s.reduce_shards = &world.at(rank, GroupRole::shard_reduce);
  s.gather_shards = &world.at(rank, GroupRole::shard_gather);
  if (plan.zero == 3) s.step_shards = &world.at(rank, GroupRole::shard_compute);
  return s;
}

/// Of experts that several ranks share.
ZeroGroups expert_groups_of(World& world, int rank, const ParallelPlan& plan) {
  ZeroGroups s;
  if (plan.ep == 1) return s;
  s.reduce_replicas = &world.at(rank, GroupRole::expert_replica_reduce);
  s.replicas = s.reduce_replicas->size();
  s.replica = s.reduce_replicas->rank();
  if (plan.zero == 0) return s;
  s.reduce_shards = &world.at(rank, GroupRole::expert_shard_reduce);
  s.gather_shards = &world.at(rank, GroupRole::expert_shard_gather);
  s.shards = s.reduce_shards->size();
  s.shard = s.reduce_shards->rank();
  s.zero = s.shards > 1 ? plan.zero : 0;
  return s;
}

/// By instruction id: forwards that the backward of the same microbatch follows at once, and these
/// backwards. Both are on the compute queue, where nothing comes between them.
std::vector<bool> backwards_at_once(const Program& program) {
  std::vector<bool> at_once(program.instructions.size(), false);
  const Instruction* last = nullptr;
  for (const Instruction& i : program.instructions) {
    if (i.queue != Queue::compute) continue;
    const bool goes_back = i.op == Op::backward || i.op == Op::backward_input;
    if (last != nullptr && last->op == Op::forward && goes_back && i.chunk == last->chunk &&
        i.microbatch == last->microbatch)
      at_once[last->id] = at_once[i.id] = true;
    last = &i;
  }
  return at_once;
}

}  // namespace

/// Step 1: workspaces of kernels, while most memory is free to try algorithms. Step 2: chunks with
/// their states. Step 3: the program's buffers. Step 4: gradient buffers and per-instruction
/// workspaces.
template <class T>
void TrainingDevice<T>::allocate(RankState& r) {
  const ZeroGroups zero_groups = zero_groups_of(backend_.world(), r.rank, training_.plan, r.at);
  const ZeroGroups of_experts = expert_groups_of(backend_.world(), r.rank, training_.plan);
  std::vector<ChunkSpec> specs;
  for (int c = 0; c < training_.plan.vpp; ++c) {
    specs.push_back(chunk_spec(training_, schedule_, r.at, c, zero_groups, of_experts, r.ep.get()));
  }
  r.processor.prepare(specs, r.memory);
  for (const ChunkSpec& spec : specs) {
    auto& each = r.chunks.emplace_back();
    each.chunk = std::make_unique<Chunk<T>>(r.processor.on(Queue::compute), spec,
                                            r.tp->size() > 1 ? r.tp.get() : nullptr,
                                            r.kv->size() > 1 ? r.kv.get() : nullptr,
                                            r.cp->size() > 1 ? r.cp.get() : nullptr, r.ep.get());
    each.states = std::make_unique<OptimizerState<T>>(each.chunk->parameters(), zero_groups,
                                                      of_experts, r.memory);
    each.backwards.assign(at_index(schedule_.units), 0);
    each.reductions.assign(at_index(schedule_.units), 0);
  }
  r.loss_in_backward = backwards_at_once(schedule_.programs[at_index(r.at.pp)]);
  allocate_buffers(r);
  allocate_workspace(r, zero_groups.zero >= 2);
}

/// The program's buffers, each as large as its largest content, and their numbers by chunk,
/// microbatch and kind.
template <class T>
void TrainingDevice<T>::allocate_buffers(RankState& r) {
  const Program& program = schedule_.programs[at_index(r.at.pp)];
  const std::int64_t boundary =
      r.chunks.front().chunk->boundary_count() * static_cast<std::int64_t>(sizeof(T));
  std::vector<std::int64_t> bytes(program.buffers.size(), 0);
  r.places.resize(at_index(training_.plan.vpp) * at_index(schedule_.microbatches));
  const auto note_use = [&](const Instruction& i, std::int32_t number) {
    if (!i.chunk) return;  // the end of the step uses no buffers
    const BufferKind kind = program.buffers[at_index(number)].kind;
    std::int64_t& largest = bytes[at_index(number)];
    const Chunk<T>& chunk = *r.chunks[at_index(*i.chunk)].chunk;
    if (kind == BufferKind::batch) {
      largest = 2 * chunk.shape().rows * static_cast<std::int64_t>(sizeof(std::int32_t));
    } else if (kind == BufferKind::saved) {
      largest = std::max(largest, chunk.memory().saved);
    } else if (kind == BufferKind::weight_inputs) {
      largest = std::max(largest, chunk.memory().weight_inputs);
    } else if (kind == BufferKind::parameters) {
      const int unit = schedule_.units_of(i).first;
      std::int64_t gathered = chunk.parameters().flat_params[at_index(unit)].padded;
      const auto* const other = r.chunks[at_index(*i.chunk)].states->gathered_with(unit);
      if (other != nullptr) gathered += other->layout->padded;
      largest = std::max(largest, gathered * static_cast<std::int64_t>(sizeof(T)));
    } else {
      largest = boundary;
    }
    if (i.microbatch && kind != BufferKind::parameters) {
      r.places[at_index(*i.chunk) * at_index(schedule_.microbatches) + at_index(*i.microbatch)]
              [at_index(static_cast<int>(kind))] = number;
    }
  };
  for (const Instruction& i : program.instructions) {
    for (const std::int32_t number : i.reads) note_use(i, number);
    for (const std::int32_t number : i.writes) note_use(i, number);
  }
  for (std::size_t b = 0; b < bytes.size(); ++b) {
    const bool gathered = program.buffers[b].kind == BufferKind::parameters;
    const auto part = gathered ? &MemoryBreakdown::communication : &MemoryBreakdown::activations;
    const std::string what = std::string(name_of(program.buffers[b].kind)) + " buffers";
    r.buffers.push_back(r.memory.template allocate<std::byte>(part, bytes[b], what.c_str()));
  }
}

template <class T>
void TrainingDevice<T>::allocate_workspace(RankState& r, bool with_gradient_buffers) {
  std::int64_t workspace = 0;
  std::int64_t largest = 0;
  for (const auto& each : r.chunks) {
    workspace = std::max(workspace, each.chunk->memory().workspace);
    for (int unit = 0; unit < schedule_.units; ++unit) {
      std::int64_t made = each.states->flat_states()[at_index(unit)].layout->padded;
      const FlatState<T>* const experts = each.states->experts_of(unit);
      if (experts != nullptr && each.states->merges(*experts)) made += experts->layout->padded;
      largest = std::max(largest, made);
    }
  }
  r.workspace =
      r.memory.template allocate<std::byte>(&MemoryBreakdown::workspace, workspace, "workspace");
  r.upstream_gradient = r.memory.template allocate<T>(&MemoryBreakdown::workspace,
                                                      r.chunks.front().chunk->boundary_count(),
                                                      "the upstream gradient");
  r.sums = r.memory.template allocate<typename RankState::StepSums>(&MemoryBreakdown::workspace, 1,
                                                                    "sums of a step");
  if (with_gradient_buffers) {
    const Program& program = schedule_.programs[at_index(r.at.pp)];
    r.gradient_buffers.resize(at_index(gradient_buffers_of(program)));
    for (auto& gradient_buffer : r.gradient_buffers) {
      gradient_buffer.block = r.memory.template allocate<Wide<T>>(
          &MemoryBreakdown::communication, largest, "gradients to be reduced");
    }
  }
}

/// Units whose gradients of one microbatch are computed at a time, plus one that is being reduced.
template <class T>
int TrainingDevice<T>::gradient_buffers_of(const Program& program) const {
  int open = 0;
  int largest = 0;
  for (const Instruction& i : program.instructions) {
    const int units = schedule_.units_of(i).count();
    if (i.op == Op::backward_input || i.op == Op::backward) open += units;
    largest = std::max(largest, open);
    if (i.op == Op::backward_weight || i.op == Op::backward) open -= units;
  }
  return largest + 1;
}

template <class T>
std::vector<std::uint32_t> TrainingDevice<T>::issue_order(int rank) const {
  const RankState& r = state(rank);
  const Program& program = schedule_.programs[at_index(r.at.pp)];
  const auto units = [&](const Instruction& i) { return schedule_.units_of(i).count(); };
  std::vector<const Instruction*> reductions;
  for (const Instruction& i : program.instructions) {
    if (i.op == Op::reduce_gradients) reductions.push_back(&i);
  }
  std::vector<std::uint32_t> order;
  std::size_t reduced = 0;
  int free = static_cast<int>(r.gradient_buffers.size());
  for (const Instruction& i : program.instructions) {
    const bool fills = i.op == Op::backward_input || i.op == Op::backward;
    if (!r.gradient_buffers.empty() && fills) {
      for (; free < units(i); ++reduced) {
        EXPECTS(reduced < reductions.size(), "gradients that are made are reduced");
        order.push_back(reductions[reduced]->id);
        free += units(*reductions[reduced]);
      }
      free -= units(i);
    }
    if (i.op == Op::reduce_gradients) {
      if (reduced < reductions.size() && reductions[reduced] == &i) {
        order.push_back(i.id);
        free += units(i);
        ++reduced;
      }
      continue;  // or it was called for already
    }
    order.push_back(i.id);
  }
  return order;
}

#define ECHELON_MEMORY(T)                                                \
  template void TrainingDevice<T>::allocate(RankState&);                 \
  template void TrainingDevice<T>::allocate_buffers(RankState&);         \
  template void TrainingDevice<T>::allocate_workspace(RankState&, bool); \
  template std::vector<std::uint32_t> TrainingDevice<T>::issue_order(int) const;
ECHELON_MEMORY(double)
ECHELON_MEMORY(float)
ECHELON_MEMORY(Bfloat16)
#undef ECHELON_MEMORY

}  // namespace echelon
