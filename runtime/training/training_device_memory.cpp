// TrainingDevice: what a rank allocates before the first step.
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
  const RecomputedLayers again = recomputed_layers(plan, rank, before, size);
  std::vector<Recompute> out(static_cast<std::size_t>(size), Recompute::none);
  std::fill_n(out.begin(), again.full, Recompute::full);
  std::fill_n(out.begin() + again.full, again.selective, Recompute::selective);
  return out;
}

ChunkSpec chunk_spec(const Training& training, const Schedule& schedule, const Coordinates& at,
                     int chunk, int shards) {
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
  spec.sequence_parallel = plan.sequence_parallel && plan.tp > 1;
  spec.microbatch = plan.microbatch;
  spec.sequence = training.job.sequence;
  spec.recompute = policies(plan, at.pp, before, spec.layers);
  spec.shards = shards;
  spec.padded_vocab = rounded_up_to(training.model.vocab, kVocabMultiple * plan.tp);
  return spec;
}

Sharing sharing_of(World& world, int rank, const ParallelPlan& plan, const Coordinates& at) {
  Sharing s;
  const int group = plan.zero > 0 ? plan.shard_group : 1;
  s.zero = group > 1 ? plan.zero : 0;
  s.shards = group;
  s.shard = at.dp % group;
  s.replicas = plan.dp / group;
  s.replica = at.dp / group;
  s.reduce_replicas = &world.at(rank, group > 1 ? Line::replica_reduce : Line::dp_reduce);
  if (plan.zero == 0) return s;
  s.reduce_shards = &world.at(rank, Line::shard_reduce);
  s.gather_shards = &world.at(rank, Line::shard_gather);
  s.step_shards = &world.at(rank, Line::shard_compute);
  return s;
}

}  // namespace

/// Step 1: what kernels need, while there is most room to try them. Step 2: chunks with their
/// states. Step 3: the program's buffers, each as large as what it will hold. Step 4: gradients on
/// their way, and what a running instruction needs.
template <class T>
void TrainingDevice<T>::allocate(RankState& r) {
  const ParallelPlan& plan = training_.plan;
  World& world = backend_.world();
  const Sharing sharing = sharing_of(world, r.rank, plan, r.at);
  std::vector<ChunkSpec> specs;
  for (int c = 0; c < plan.vpp; ++c) {
    specs.push_back(chunk_spec(training_, schedule_, r.at, c, sharing.shards));
  }
  r.processor.prepare(specs, r.memory);
  for (const ChunkSpec& spec : specs) {
    auto& each = r.chunks.emplace_back();
    each.chunk = std::make_unique<Chunk<T>>(r.processor.on(Queue::compute), spec,
                                            r.tp->size() > 1 ? r.tp.get() : nullptr,
                                            r.kv->size() > 1 ? r.kv.get() : nullptr);
    each.states = std::make_unique<States<T>>(each.chunk->parameters(), sharing, r.memory);
    each.backwards.assign(at_index(schedule_.units), 0);
    each.reductions.assign(at_index(schedule_.units), 0);
  }

  const Program& program = schedule_.programs[at_index(r.at.pp)];
  const std::int64_t boundary =
      r.chunks.front().chunk->boundary_count() * static_cast<std::int64_t>(sizeof(T));
  std::vector<std::int64_t> bytes(program.buffers.size(), 0);
  typename RankState::Places none;
  none.fill(-1);
  r.places.assign(at_index(plan.vpp) * at_index(schedule_.microbatches), none);
  const auto learn = [&](const Instruction& i, std::int32_t number) {
    const BufferKind kind = program.buffers[at_index(number)].kind;
    std::int64_t& most = bytes[at_index(number)];
    const Chunk<T>& chunk = *r.chunks[at_index(std::max(0, i.chunk))].chunk;
    if (kind == BufferKind::batch) {
      most = 2 * chunk.shape().rows * static_cast<std::int64_t>(sizeof(std::int32_t));
    } else if (kind == BufferKind::saved) {
      most = std::max(most, chunk.memory().saved);
    } else if (kind == BufferKind::weight_inputs) {
      most = std::max(most, chunk.memory().weight_inputs);
    } else if (kind == BufferKind::parameters) {
      const Region& region = chunk.parameters().regions[at_index(std::max(0, i.unit))];
      most = std::max(most, region.padded * static_cast<std::int64_t>(sizeof(T)));
    } else {
      most = boundary;
    }
    if (i.microbatch >= 0 && i.chunk >= 0 && kind != BufferKind::parameters) {
      r.places[at_index(i.chunk) * at_index(schedule_.microbatches) + at_index(i.microbatch)]
              [at_index(static_cast<int>(kind))] = number;
    }
  };
  for (const Instruction& i : program.instructions) {
    for (const std::int32_t number : i.reads) learn(i, number);
    for (const std::int32_t number : i.writes) learn(i, number);
  }
  for (std::size_t b = 0; b < bytes.size(); ++b) {
    const bool gathered = program.buffers[b].kind == BufferKind::parameters;
    const auto part = gathered ? &MemoryBreakdown::communication : &MemoryBreakdown::activations;
    const std::string what = std::string(name_of(program.buffers[b].kind)) + " buffers";
    r.buffers.push_back(r.memory.template allocate<std::byte>(part, bytes[b], what.c_str()));
  }

  std::int64_t workspace = 0;
  std::int64_t largest = 0;
  for (const auto& each : r.chunks) {
    workspace = std::max(workspace, each.chunk->memory().workspace);
    for (const RegionState<T>& region : each.states->regions()) {
      if (!region.tied) largest = std::max(largest, region.region->padded);
    }
  }
  r.workspace =
      r.memory.template allocate<std::byte>(&MemoryBreakdown::workspace, workspace, "workspace");
  r.running = r.memory.template allocate<T>(&MemoryBreakdown::workspace,
                                            r.chunks.front().chunk->boundary_count(),
                                            "the running gradient");
  r.sums = r.memory.template allocate<typename RankState::Sums>(&MemoryBreakdown::workspace, 1,
                                                                "sums of a step");
  if (sharing.zero >= 2) {
    r.slots.resize(at_index(slots_of(program)));
    for (auto& slot : r.slots) {
      slot.block = r.memory.template allocate<Wide<T>>(&MemoryBreakdown::communication, largest,
                                                       "gradients to be reduced");
    }
  }
}

/// Units of one microbatch whose gradients are being made at a time, and one that is reduced
/// meanwhile.
template <class T>
int TrainingDevice<T>::slots_of(const Program& program) const {
  int open = 0;
  int most = 0;
  for (const Instruction& i : program.instructions) {
    const int units = i.unit < 0 ? schedule_.units : 1;
    if (i.op == Op::backward_input || i.op == Op::backward) open += units;
    most = std::max(most, open);
    if (i.op == Op::backward_weight || i.op == Op::backward) open -= units;
  }
  return most + 1;
}

template <class T>
std::vector<std::uint32_t> TrainingDevice<T>::issue_order(int rank) const {
  const RankState& r = state(rank);
  const Program& program = schedule_.programs[at_index(r.at.pp)];
  const auto units = [&](const Instruction& i) { return i.unit < 0 ? schedule_.units : 1; };
  std::vector<const Instruction*> reductions;
  for (const Instruction& i : program.instructions) {
    if (i.op == Op::reduce_gradients) reductions.push_back(&i);
  }
  std::vector<std::uint32_t> order;
  std::size_t reduced = 0;
  int free = static_cast<int>(r.slots.size());
  for (const Instruction& i : program.instructions) {
    const bool fills = i.op == Op::backward_input || i.op == Op::backward;
    if (!r.slots.empty() && fills) {
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

#define ECHELON_MEMORY(T)                                \
  template void TrainingDevice<T>::allocate(RankState&); \
  template std::vector<std::uint32_t> TrainingDevice<T>::issue_order(int) const;
ECHELON_MEMORY(double)
ECHELON_MEMORY(float)
ECHELON_MEMORY(Bfloat16)
#undef ECHELON_MEMORY

}  // namespace echelon
