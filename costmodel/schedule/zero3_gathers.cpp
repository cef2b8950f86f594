#include <algorithm>
#include <map>
#include <optional>

#include "costmodel/schedule/gather_slots.hpp"
#include "costmodel/schedule/schedule_builder.hpp"

namespace echelon {
namespace {

/// Gathered units of one rank, use after use.
class Residents {
 public:
  Residents(const ScheduleSpec& spec, int rank, ScheduleBuilder& out)
      : spec_(spec),
        rank_(rank),
        out_(out),
        compute_(out.draft.compute[static_cast<std::size_t>(rank)]) {}

  void run() {
    find_uses();
    const std::vector<GatherSlot> slots = gather_slots(units_, spec_.gather_slots);
    for (std::size_t use = 0; use < uses_.size(); ++use) {
      const auto& [slot, gathered] = slots[use];
      if (slot == held_.size()) held_.emplace_back();
      Held& held = held_[slot];
      if (gathered) {
        std::optional<std::uint32_t> freed;
        if (held.value) freed = release(held);
        held = {units_[use], fetch(units_[use], freed), use};
      }
      out_.read(uses_[use], held.value);
      held.last = use;
    }
    std::ranges::sort(held_, {}, &Held::unit);
    for (const Held& held : held_) release(held);
    insert_releases();
  }

 private:
  struct Held {
    GatherUnit unit;
    std::optional<std::int32_t> value;
    std::size_t last = 0;  ///< latest use
  };

  /// The compute items that need parameters.
  void find_uses() {
    for (const std::uint32_t item : compute_) {
      const Instruction& i = out_.draft.items[item].instruction;
      // A weight gradient makes norms and activations again, for which it needs their parameters.
      if (i.op == Op::forward || i.op == Op::backward || i.op == Op::backward_input ||
          i.op == Op::backward_weight) {
        uses_.push_back(item);
        units_.push_back({*i.chunk, i.unit});
      }
    }
  }

  /// After its last use.
  std::uint32_t release(const Held& held) {
    const std::uint32_t item =
        out_.add(rank_, Op::release_parameters, held.unit.chunk, {}, held.unit.unit);
    compute_.pop_back();  // its place is after the last use, not at the end
    out_.read(item, held.value);
    out_.write(item, *held.value);
    releases_[uses_[held.last]].push_back(item);
    return item;
  }

  /// Into the place that `freed` leaves, or one that was never used.
  std::int32_t fetch(const GatherUnit& unit, std::optional<std::uint32_t> freed) {
    const std::uint32_t item = out_.add(rank_, Op::gather_parameters, unit.chunk, {}, unit.unit);
    const int stage = spec_.shape.stage(rank_, unit.chunk);
    const std::int64_t bytes = out_.bytes(stage).parameters;
    out_.draft.items[item].instruction.bytes = bytes;
    const std::int32_t value = out_.value(BufferKind::parameters, bytes);
    out_.write(item, value);
    if (freed) out_.order(*freed, item);
    return value;
  }

  void insert_releases() {
    std::vector<std::uint32_t> merged;
    for (const std::uint32_t item : compute_) {
      merged.push_back(item);
      const auto due = releases_.find(item);
      if (due == releases_.end()) continue;
      merged.insert(merged.end(), due->second.begin(), due->second.end());
    }
    compute_ = std::move(merged);
  }

  const ScheduleSpec& spec_;
  int rank_;
  ScheduleBuilder& out_;
  std::vector<std::uint32_t>& compute_;
  std::vector<std::uint32_t> uses_;
  std::vector<GatherUnit> units_;                                 ///< of each use
  std::vector<Held> held_;                                        ///< per slot
  std::map<std::uint32_t, std::vector<std::uint32_t>> releases_;  // by the use they follow
};

}  // namespace

void gather_parameters(const ScheduleSpec& spec, int rank, ScheduleBuilder& out) {
  Residents(spec, rank, out).run();
}

}  // namespace echelon
