#include <map>
#include <optional>

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
    for (std::size_t use = 0; use < uses_.size(); ++use) {
      const Unit unit = unit_of(use);
      if (!held_.contains(unit)) {
        if (held_.size() == static_cast<std::size_t>(spec_.gather_slots)) make_room(use);
        fetch(unit);
      }
      Held& held = held_.at(unit);
      out_.read(uses_[use], held.value);
      held.last = use;
      held.next = next_[use];
    }
    while (!held_.empty()) release(held_.begin());
    insert_releases();
  }

 private:
  using Unit = std::pair<std::int32_t, std::optional<std::int32_t>>;  // of a chunk; none: all
  struct Held {
    std::int32_t value = 0;
    std::size_t last = 0;  // latest use, and the one after it
    std::size_t next = 0;
  };
  using Place = std::map<Unit, Held>::iterator;

  [[nodiscard]] Unit unit_of(std::size_t use) const {
    const Instruction& i = out_.draft.items[uses_[use]].instruction;
    return {*i.chunk, i.unit};
  }

  /// The compute items that need parameters, and when each one's unit is needed next.
  void find_uses() {
    for (const std::uint32_t item : compute_) {
      const Op op = out_.draft.items[item].instruction.op;
      // A weight gradient makes norms and activations again, for which it needs their parameters.
      if (op == Op::forward || op == Op::backward || op == Op::backward_input ||
          op == Op::backward_weight) {
        uses_.push_back(item);
      }
    }
    next_.assign(uses_.size(), uses_.size());  // behind the last use: never again
    std::map<Unit, std::size_t> later;
    for (std::size_t use = uses_.size(); use-- > 0;) {
      const auto [known, fresh] = later.try_emplace(unit_of(use), use);
      if (!fresh) next_[use] = std::exchange(known->second, use);
    }
  }

  /// Releases the unit that is needed last, before `use`.
  void make_room(std::size_t use) {
    Place leaving = held_.end();
    for (Place it = held_.begin(); it != held_.end(); ++it) {
      const bool runs_meanwhile = spec_.gather_slots > 1 && it->second.last + 1 == use;
      if (runs_meanwhile) continue;
      if (leaving == held_.end() || it->second.next > leaving->second.next) leaving = it;
    }
    freed_ = release(leaving);
  }

  std::uint32_t release(Place leaving) {
    const auto [unit, held] = *leaving;
    const std::uint32_t item = out_.add(rank_, Op::release_parameters, unit.first, {}, unit.second);
    compute_.pop_back();  // its place is after the last use, not at the end
    out_.read(item, held.value);
    out_.write(item, held.value);
    releases_[uses_[held.last]].push_back(item);
    held_.erase(leaving);
    return item;
  }

  void fetch(const Unit& unit) {
    const std::uint32_t item = out_.add(rank_, Op::gather_parameters, unit.first, {}, unit.second);
    const int stage = spec_.shape.stage(rank_, unit.first);
    const std::int64_t bytes = out_.bytes(stage).parameters;
    out_.draft.items[item].instruction.bytes = bytes;
    const std::int32_t value = out_.value(BufferKind::parameters, bytes);
    out_.write(item, value);
    if (freed_) out_.order(*freed_, item);
    freed_.reset();
    held_[unit].value = value;
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
  std::vector<std::size_t> next_;
  std::map<Unit, Held> held_;
  std::optional<std::uint32_t> freed_;
  std::map<std::uint32_t, std::vector<std::uint32_t>> releases_;  // by the use they follow
};

}  // namespace

void gather_parameters(const ScheduleSpec& spec, int rank, ScheduleBuilder& out) {
  Residents(spec, rank, out).run();
}

}  // namespace echelon
