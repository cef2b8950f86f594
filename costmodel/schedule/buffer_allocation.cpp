// Ids, waits across queues, and buffers by liveness.
#include <algorithm>
#include <map>
#include <optional>

#include "costmodel/schedule/schedule_draft.hpp"

namespace echelon {
namespace {

constexpr std::int64_t kAlignment = 256;  // of what cudaMalloc returns; keeps vector loads aligned

using PerQueue = std::array<std::optional<std::uint32_t>, kQueues>;  // latest position on each
constexpr std::size_t index(Queue queue) { return static_cast<std::size_t>(queue); }

void merge(PerQueue& into, const PerQueue& other) {
  for (std::size_t q = 0; q < kQueues; ++q) into[q] = std::max(into[q], other[q]);
}

/// One buffer while values come and go.
struct Slot {
  Buffer buffer;
  std::uint32_t uses_left = 0;  // of its present value
  Seconds free;                 // end of all uses so far
  PerQueue users;               // of its present or latest value
};

/// What is known about items across ranks.
struct Placement {
  std::vector<std::uint32_t> position;            // per item, in its rank's list
  std::vector<PerQueue> waits;                    // per item, positions in the same list
  std::vector<std::optional<std::int32_t>> slot;  // per value; none: not yet placed
};

class RankPlacer {
 public:
  RankPlacer(const ScheduleDraft& draft, const Lowering& lowering, Placement& placement)
      : draft_(draft), lowering_(lowering), placement_(placement) {}

  Program run(const std::vector<std::uint32_t>& list) {
    known_.resize(list.size());
    for (const std::uint32_t item : list) add(item);
    std::int64_t offset = 0;
    for (Slot& slot : slots_) {
      slot.buffer.offset = offset;
      offset += (slot.buffer.bytes + kAlignment - 1) / kAlignment * kAlignment;
      program_.buffers.push_back(slot.buffer);
    }
    return std::move(program_);
  }

 private:
  void add(std::uint32_t item) {
    const DraftItem& from = draft_.items[item];
    Instruction i = from.instruction;
    i.id = static_cast<std::uint32_t>(program_.instructions.size());
    i.sequence = lowering_.sequence[from.node];
    for (std::int32_t& value : i.reads) value = *placement_.slot[static_cast<std::size_t>(value)];
    for (std::int32_t& value : i.writes) {
      std::optional<std::int32_t>& slot = placement_.slot[static_cast<std::size_t>(value)];
      if (!slot) slot = occupy(value, item);
      value = *slot;
    }
    for (const std::int32_t slot : i.reads) use(slot, i.id, from);
    for (const std::int32_t slot : i.writes) {
      if (!i.reads.contains(slot)) use(slot, i.id, from);
    }
    wait(i, placement_.waits[item]);
    program_.instructions.push_back(i);
  }

  /// The first buffer of the right kind that is free by the time `item` starts in the timeline, so
  /// that waiting for it costs nothing; a new one if there is none.
  std::int32_t occupy(std::int32_t value, std::uint32_t item) {
    const DraftValue& v = draft_.values[static_cast<std::size_t>(value)];
    const Seconds start = lowering_.times.start[draft_.items[item].node];
    std::vector<std::int32_t>& alike = classes_[{v.kind, v.bytes}];
    for (const std::int32_t candidate : alike) {
      Slot& slot = slots_[static_cast<std::size_t>(candidate)];
      if (slot.uses_left > 0 || slot.free > start) continue;
      merge(placement_.waits[item], slot.users);
      slot.users = {};
      slot.uses_left = v.uses;
      return candidate;
    }
    alike.push_back(static_cast<std::int32_t>(slots_.size()));
    Slot& slot = slots_.emplace_back();
    slot.buffer = {.kind = v.kind, .bytes = v.bytes};
    slot.uses_left = v.uses;
    return alike.back();
  }

  void use(std::int32_t at, std::uint32_t position, const DraftItem& by) {
    Slot& slot = slots_[static_cast<std::size_t>(at)];
    --slot.uses_left;
    slot.users[index(by.instruction.queue)] = position;
    slot.free = std::max(slot.free, lowering_.times.end[by.node]);
  }

  /// Keeps only the waits that neither the queue's own order nor a later wait implies.
  void wait(Instruction& i, const PerQueue& wanted) {
    PerQueue known;
    const auto learn = [&](std::uint32_t position) {
      merge(known, known_[position]);
      auto& of_queue = known[index(program_.instructions[position].queue)];
      of_queue = std::max(of_queue, std::optional(position));
    };
    std::optional<std::uint32_t>& previous = last_[index(i.queue)];
    if (previous) learn(*previous);
    std::vector<std::uint32_t> latest_first;
    for (std::size_t q = 0; q < kQueues; ++q) {
      if (q != index(i.queue) && wanted[q] > known[q]) latest_first.push_back(*wanted[q]);
    }
    std::sort(latest_first.rbegin(), latest_first.rend());
    for (const std::uint32_t position : latest_first) {
      const Queue other = program_.instructions[position].queue;
      if (known[index(other)] >= position) continue;
      i.after.push_back(position);
      learn(position);
    }
    known_[i.id] = known;
    previous = i.id;
  }

  const ScheduleDraft& draft_;
  const Lowering& lowering_;
  Placement& placement_;
  Program program_;
  std::vector<Slot> slots_;
  std::map<std::pair<BufferKind, std::int64_t>, std::vector<std::int32_t>> classes_;
  std::vector<PerQueue> known_;  // per position: what is over before it starts
  PerQueue last_;
};

}  // namespace

std::vector<Program> place(const ScheduleDraft& draft, const Lowering& lowering) {
  Placement placement;
  placement.position.resize(draft.items.size());
  placement.waits.resize(draft.items.size());
  placement.slot.resize(draft.values.size());
  for (const auto& list : lowering.lists) {
    for (std::size_t at = 0; at < list.size(); ++at) {
      placement.position[list[at]] = static_cast<std::uint32_t>(at);
    }
  }
  for (const auto& [first, second] : draft.orders) {
    const std::uint32_t position = placement.position[first];
    EXPECTS(position < placement.position[second], "the order of a list keeps its dependencies");
    auto& wait = placement.waits[second][index(draft.items[first].instruction.queue)];
    wait = std::max(wait, std::optional(position));
  }
  std::vector<Program> programs;
  for (const auto& list : lowering.lists) {
    programs.push_back(RankPlacer(draft, lowering, placement).run(list));
  }
  return programs;
}

Schedule build_schedule(const ScheduleSpec& spec, const ScheduleCosts& costs) {
  const ScheduleDraft draft = draft_schedule(spec);
  Schedule schedule = draft.frame;
  schedule.programs = place(draft, lower(draft, costs));
  return schedule;
}

}  // namespace echelon
