#include "runtime/executor/buffer_hazard_checker.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/threads/failure.hpp"

namespace echelon {

/// Walks the list once. Places after the buffers: gradients per chunk and unit, gradients per
/// microbatch, chunk and unit (if each is reduced), all backwards, norm, weights.
struct BufferHazardRules::Builder {
  struct State {
    std::optional<std::uint32_t> writer;
    std::int32_t readers = 0;
  };

  BufferHazardRules& rules;
  std::vector<State> state;
  std::vector<std::int32_t> reads;
  std::vector<std::int32_t> writes;

  explicit Builder(BufferHazardRules& to) : rules(to), state(to.places()) {}

  /// Of one microbatch, or the sum over all.
  [[nodiscard]] std::int32_t gradients(int chunk, int unit,
                                       std::optional<int> microbatch = {}) const {
    const int set = microbatch ? 1 + *microbatch : 0;
    return static_cast<std::int32_t>(rules.buffers_) +
           (set * rules.s_.chunks + chunk) * rules.s_.units + unit;
  }
  [[nodiscard]] std::int32_t last(int from_end) const {
    return static_cast<std::int32_t>(rules.places()) - 1 - from_end;
  }
  [[nodiscard]] std::int32_t weights() const { return last(0); }
  [[nodiscard]] std::int32_t norm() const { return last(1); }
  [[nodiscard]] std::int32_t backwards() const { return last(2); }

  void add(const Instruction& i) {
    reads.assign(i.reads.begin(), i.reads.end());
    writes.assign(i.writes.begin(), i.writes.end());
    add_implied_uses(i);
    rules.first_.push_back(rules.uses_.size());
    for (const std::int32_t place : reads) {
      if (std::find(writes.begin(), writes.end(), place) == writes.end()) use(i, place, false);
    }
    for (const std::int32_t place : writes) use(i, place, true);
  }

  void use(const Instruction& i, std::int32_t place, bool write) {
    State& now = state[static_cast<std::size_t>(place)];
    rules.uses_.push_back({place, write, now.writer, now.readers});
    if (write)
      now = {i.id, 0};
    else
      ++now.readers;
  }

  template <class Each>
  void for_units(const Instruction& i, const Each& each) const {
    const UnitRange units = rules.s_.units_of(i);
    for (int unit = units.first; unit < units.end; ++unit) each(unit);
  }
  void all_gradients(std::vector<std::int32_t>& to) const {
    for (int c = 0; c < rules.s_.chunks; ++c) {
      for (int unit = 0; unit < rules.s_.units; ++unit) to.push_back(gradients(c, unit));
    }
  }

  void add_implied_uses(const Instruction& i) {
    switch (i.op) {
      case Op::zero_gradients: return all_gradients(writes);
      case Op::backward:
      case Op::backward_weight:
        for_units(i, [&](int u) {
          writes.push_back(rules.each_microbatch_ ? gradients(*i.chunk, u, i.microbatch)
                                                  : gradients(*i.chunk, u));
        });
        return writes.push_back(backwards());
      case Op::reduce_gradients:
        return for_units(i, [&](int u) {
          writes.push_back(gradients(*i.chunk, u));
          if (rules.each_microbatch_) reads.push_back(gradients(*i.chunk, u, i.microbatch));
        });
      case Op::reduce_tied_embedding: reads.push_back(backwards()); return all_gradients(writes);
      case Op::norm_reduce:
        reads.push_back(backwards());
        writes.push_back(norm());
        return all_gradients(reads);
      case Op::clip: reads.push_back(norm()); return all_gradients(writes);
      case Op::optimizer_step:
        reads.push_back(norm());
        writes.push_back(weights());
        return all_gradients(reads);
      case Op::gather_updated: return writes.push_back(weights());
      case Op::gather_parameters: return reads.push_back(weights());
      default: return;
    }
  }
};

BufferHazardRules::BufferHazardRules(const Schedule& schedule, int pipeline_rank)
    : s_(schedule),
      program_(schedule.programs[static_cast<std::size_t>(pipeline_rank)]),
      buffers_(program_.buffers.size()) {
  for (const Instruction& i : program_.instructions) {
    each_microbatch_ |= i.op == Op::reduce_gradients && i.microbatch;
  }
  const std::size_t sets = each_microbatch_ ? 1 + static_cast<std::size_t>(s_.microbatches) : 1;
  others_ = sets * static_cast<std::size_t>(s_.chunks) * static_cast<std::size_t>(s_.units) + 3;
  Builder builder(*this);
  for (const Instruction& i : program_.instructions) builder.add(i);
  first_.push_back(uses_.size());
}

std::string BufferHazardRules::name(std::int32_t place) const {
  const auto at = static_cast<std::size_t>(place);
  if (at < buffers_) return fmt::format("{} buffer {}", name_of(program_.buffers[at].kind), place);
  switch (places() - 1 - at) {
    case 0: return "the weights";
    case 1: return "the gradient norm";
    case 2: return "all backwards";
    default: break;
  }
  const int unit = static_cast<int>(at - buffers_) % s_.units;
  const int chunk = static_cast<int>(at - buffers_) / s_.units % s_.chunks;
  const int set = static_cast<int>(at - buffers_) / s_.units / s_.chunks;
  return set == 0 ? fmt::format("gradients c{} u{}", chunk, unit)
                  : fmt::format("gradients c{} m{} u{}", chunk, set - 1, unit);
}

std::string BufferHazardRules::name_of_instruction(std::uint32_t id) const {
  const std::string whole = describe(0, program_.instructions[id]);
  return whole.substr(whole.find('#'));
}

void BufferHazardChecker::check(const Instruction& i, const BufferHazardRules::Use& use) const {
  const Place& place = places_[static_cast<std::size_t>(use.place)];
  const auto fail = [&](const std::string& what) {
    throw RunFailure(RunFailure::Kind::defect,
                     fmt::format("{} {} {}, {}", describe(rank_, i), use.write ? "writes" : "reads",
                                 rules_.name(use.place), what));
  };
  const auto name = [&](std::uint32_t id) { return rules_.name_of_instruction(id); };
  if (place.writing) fail(fmt::format("which {} is still writing", name(*place.writing)));
  if (place.writer != use.writer) {
    const std::string holds =
        place.writer ? "what " + name(*place.writer) + " wrote" : "nothing yet";
    const std::string should = use.writer ? "what " + name(*use.writer) + " writes" : "nothing";
    fail(fmt::format("which holds {} and should hold {}", holds, should));
  }
  if (!use.write) {
    if (!use.writer && !rules_.outlives_steps(use.place)) fail("which holds nothing");
    return;
  }
  if (place.reading > 0 || place.readers != use.readers) {
    fail(fmt::format(
        "which is still in use: {} of its {} readers have finished, {} are still reading",
        place.readers, use.readers, place.reading));
  }
}

void BufferHazardChecker::begin(const Instruction& i) {
  const std::lock_guard lock(mutex_);
  for (const BufferHazardRules::Use& use : rules_.uses(i)) check(i, use);
  for (const BufferHazardRules::Use& use : rules_.uses(i)) {
    Place& place = places_[static_cast<std::size_t>(use.place)];
    if (use.write)
      place.writing = i.id;
    else
      ++place.reading;
  }
}

void BufferHazardChecker::end(const Instruction& i) {
  const std::lock_guard lock(mutex_);
  for (const BufferHazardRules::Use& use : rules_.uses(i)) {
    Place& place = places_[static_cast<std::size_t>(use.place)];
    if (use.write) {
      place = {.writer = i.id, .readers = 0, .reading = 0, .writing = {}};
    } else {
      --place.reading;
      ++place.readers;
    }
  }
}

}  // namespace echelon
