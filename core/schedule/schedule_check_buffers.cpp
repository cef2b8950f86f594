// The checker's rules within one rank: dependencies, buffer contents, the end of the step.
#include <fmt/format.h>

#include <map>
#include <optional>
#include <utility>

#include "core/schedule/schedule_check_rules.hpp"

namespace echelon::schedule_check {

using enum ScheduleFaultKind;

HappensBefore::HappensBefore(const Program& program) : instructions_(&program.instructions) {
  Latest last;  // on each queue
  known_.resize(program.instructions.size());
  for (const Instruction& i : program.instructions) {
    auto& known = known_[i.id];
    const auto learn = [&](std::uint32_t id) {
      const Latest& other = known_[id];
      for (std::size_t q = 0; q < kQueues; ++q) known[q] = std::max(known[q], other[q]);
      const auto queue = static_cast<std::size_t>(program.instructions[id].queue);
      known[queue] = std::max(known[queue], std::optional(id));
    };
    auto& previous = last[static_cast<std::size_t>(i.queue)];
    if (previous) learn(*previous);
    for (const std::uint32_t id : i.after) learn(id);
    previous = i.id;
  }
}

namespace {

bool any_of(Op op, std::initializer_list<Op> ops) {
  return std::find(ops.begin(), ops.end(), op) != ops.end();
}

bool is_forward(Op op) { return op == Op::forward; }
bool is_input_gradient(Op op) { return any_of(op, {Op::backward, Op::backward_input}); }

/// Whether `reader` of a rank may read the value that `writer` wrote.
bool may_read(const Schedule& s, int rank, const Instruction& reader, const Instruction& writer) {
  if (reader.chunk != writer.chunk) {
    // Between two stages of one rank: an activation goes up, its gradient down.
    if (!reader.chunk || !writer.chunk || reader.microbatch != writer.microbatch) return false;
    const int from = s.stage(rank, *writer.chunk);
    const int up = s.stage(rank, *reader.chunk) - from;
    if (s.placement().leaves(up == 1 ? from : from - 1)) return false;  // another pipeline
    const bool computes = is_input_gradient(reader.op) || reader.op == Op::backward_weight;
    return up == 1 ? is_forward(writer.op) && (is_forward(reader.op) || computes)
                   : up == -1 && is_input_gradient(writer.op) && is_input_gradient(reader.op);
  }
  if (writer.op == Op::gather_parameters) {
    return reader.unit == writer.unit &&
           any_of(reader.op, {Op::forward, Op::backward, Op::backward_input, Op::backward_weight,
                              Op::release_parameters});
  }
  if (reader.microbatch != writer.microbatch) return false;
  const bool kept = any_of(writer.op, {Op::load_batch, Op::recv_activation, Op::forward});
  switch (reader.op) {
    case Op::forward: return kept;
    case Op::backward: return kept || any_of(writer.op, {Op::recv_gradient, Op::backward});
    case Op::backward_input:
      return kept || any_of(writer.op, {Op::recv_gradient, Op::backward_input});
    case Op::backward_weight: return kept || writer.op == Op::backward_input;
    case Op::send_activation: return writer.op == Op::forward;
    case Op::send_gradient: return any_of(writer.op, {Op::backward, Op::backward_input});
    default: return false;
  }
}

/// Walks one rank's list and tracks the content of each buffer.
class BufferWalk {
 public:
  BufferWalk(const Schedule& s, int rank, Faults& faults)
      : s_(s),
        rank_(rank),
        program_(s.programs[static_cast<std::size_t>(rank)]),
        faults_(faults),
        before_(program_),
        holds_(program_.buffers.size()) {
    for (const Instruction& i : program_.instructions) {
      gathers_ = gathers_ || i.op == Op::gather_parameters;
    }
  }

  void run() {
    for (const Instruction& i : program_.instructions) {
      for (const std::int32_t b : i.reads) read(i, b);
      check_inputs(i);
      for (const std::int32_t b : i.writes) write(i, b);
    }
  }

 private:
  struct Held {
    std::optional<std::uint32_t> writer;
    std::array<std::optional<std::uint32_t>, kQueues> readers;  // last on each queue
  };

  [[nodiscard]] const Instruction& at(std::uint32_t id) const { return program_.instructions[id]; }
  [[nodiscard]] std::string name(const Instruction& i) const { return describe(rank_, i); }
  [[nodiscard]] std::string_view kind(std::int32_t b) const {
    return name_of(program_.buffers[static_cast<std::size_t>(b)].kind);
  }

  void read(const Instruction& i, std::int32_t b) {
    Held& held = holds_[static_cast<std::size_t>(b)];
    if (!held.writer || at(*held.writer).op == Op::release_parameters) {
      faults_.add(read_before_write,
                  fmt::format("{} reads {} buffer {}, which holds nothing", name(i), kind(b), b));
      return;
    }
    const Instruction& writer = at(*held.writer);
    if (!may_read(s_, rank_, i, writer)) {
      faults_.add(buffer_overwritten, fmt::format("{} reads {} buffer {}, which holds the output "
                                                  "of {}",
                                                  name(i), kind(b), b, name(writer)));
    } else if (!before_(writer.id, i.id)) {
      faults_.add(missing_dependency,
                  fmt::format("{} does not wait for {}, which fills {} buffer {}", name(i),
                              name(writer), kind(b), b));
    }
    held.readers[static_cast<std::size_t>(i.queue)] = i.id;
  }

  void write(const Instruction& i, std::int32_t b) {
    Held& held = holds_[static_cast<std::size_t>(b)];
    const auto wait = [&](const std::optional<std::uint32_t>& user) {
      if (!user || *user == i.id || before_(*user, i.id)) return;
      faults_.add(missing_dependency,
                  fmt::format("{} does not wait for {}, which still uses {} buffer {}", name(i),
                              name(at(*user)), kind(b), b));
    };
    wait(held.writer);
    for (const std::optional<std::uint32_t>& user : held.readers) wait(user);
    held = {};
    held.writer = i.id;
  }

  /// Requires that `i` reads a value written by one of `ops` of its own chunk and microbatch.
  void require_input(const Instruction& i, std::initializer_list<Op> ops, int chunks_away = 0) {
    for (const std::int32_t b : i.reads) {
      const Held& held = holds_[static_cast<std::size_t>(b)];
      if (!held.writer) continue;
      const Instruction& writer = at(*held.writer);
      if (!any_of(writer.op, ops) || !may_read(s_, rank_, i, writer)) continue;
      if (*writer.chunk - *i.chunk == chunks_away) return;
    }
    faults_.add(missing_dependency,
                fmt::format("{} does not read the output of {}", name(i), name_of(*ops.begin())));
  }

  void check_inputs(const Instruction& i) {
    if (!i.chunk) return;
    const int stage = s_.stage(rank_, *i.chunk);
    const UnitRange units = s_.units_of(i);
    const bool first_unit = units.first == 0;
    const bool last_unit = units.end == s_.units;
    const auto local = [&](int below) {  // a boundary inside the rank
      return below >= 0 && s_.ranks > 1 && s_.placement().stays(below);
    };
    const bool from_below = stage > 0 && s_.placement().sends(stage - 1);
    switch (i.op) {
      case Op::forward:
        if (first_unit && s_.placement().enters(stage)) require_input(i, {Op::load_batch});
        if (first_unit && from_below) require_input(i, {Op::recv_activation});
        if (first_unit && local(stage - 1)) require_input(i, {Op::forward}, -1);
        if (!first_unit) require_input(i, {Op::forward});
        break;
      case Op::backward:
      case Op::backward_input:
        require_input(i, {Op::forward});
        if (last_unit && s_.placement().sends(stage)) require_input(i, {Op::recv_gradient});
        if (last_unit && local(stage)) require_input(i, {Op::backward, Op::backward_input}, +1);
        break;
      case Op::backward_weight: require_input(i, {Op::backward_input}); break;
      case Op::send_activation: require_input(i, {Op::forward}); break;
      case Op::send_gradient: require_input(i, {Op::backward, Op::backward_input}); break;
      default: return;
    }
    if (gathers_ &&
        any_of(i.op, {Op::forward, Op::backward, Op::backward_input, Op::backward_weight})) {
      require_input(i, {Op::gather_parameters});
    }
  }

  const Schedule& s_;
  int rank_;
  const Program& program_;
  Faults& faults_;
  HappensBefore before_;
  std::vector<Held> holds_;
  bool gathers_ = false;
};

/// Follows one rank from its last backward to the end of the step.
class StepWalk {
 public:
  StepWalk(const Schedule& s, int rank, Faults& faults)
      : s_(s),
        rank_(rank),
        list_(s.programs[static_cast<std::size_t>(rank)].instructions),
        faults_(faults),
        before_(s.programs[static_cast<std::size_t>(rank)]) {}

  void run() {
    for (const Instruction& i : list_) collect(i);
    if (steps_.size() != 1) {
      return fault(fmt::format("rank {} has {} optimizer steps", rank_, steps_.size()));
    }
    for (const Instruction* i : reductions_) check_reduction(*i);
    for (const auto& [part, times] : reduced_) {
      if (times != 1) fault(fmt::format("rank {} reduces a bucket {} times", rank_, times));
    }
    check_coverage();
    for (const Instruction* i : tied_) require_after(*i, reductions_);
    reductions_.insert(reductions_.end(), tied_.begin(), tied_.end());
    for (const Instruction* i : norms_) require_after(*i, reductions_);
    for (const Instruction* i : clips_) require_after(*i, norms_);
    for (const Instruction* step : steps_) {
      require_after(*step, backwards_.empty() ? backwards_ : Pointers{backwards_.back()});
      require_after(*step, reductions_);
      require_after(*step, clips_);
      for (const Instruction* i : updates_) require_after(*i, steps_);
    }
    for (const Instruction* zero : zeros_) check_zero(*zero);
  }

 private:
  using Pointers = std::vector<const Instruction*>;
  using Microbatches = std::pair<int, std::optional<int>>;   // of a chunk: one, or all
  using Part = std::pair<Microbatches, std::optional<int>>;  // one unit, or the whole chunk

  void fault(std::string what) { faults_.add(step_order, std::move(what)); }

  void collect(const Instruction& i) {
    switch (i.op) {
      case Op::backward:
      case Op::backward_weight:
        backwards_.push_back(&i);
        for (const Microbatches& of :
             {Microbatches{*i.chunk, i.microbatch}, Microbatches{*i.chunk, std::nullopt}}) {
          last_[Part{of, i.unit}] = last_of_any_unit_[of] = i.id;
        }
        break;
      case Op::reduce_gradients:
        ++reduced_[Part{{*i.chunk, i.microbatch}, i.unit}];
        reductions_.push_back(&i);
        break;
      case Op::reduce_tied_embedding: tied_.push_back(&i); break;
      case Op::norm_reduce: norms_.push_back(&i); break;
      case Op::clip: clips_.push_back(&i); break;
      case Op::optimizer_step: steps_.push_back(&i); break;
      case Op::gather_updated: updates_.push_back(&i); break;
      case Op::zero_gradients: zeros_.push_back(&i); break;
      default: break;
    }
  }

  /// Requires that `later` waits for all of `earlier`.
  void require_after(const Instruction& later, const Pointers& earlier) {
    for (const Instruction* i : earlier) {
      if (i->id < later.id && before_(i->id, later.id)) continue;
      fault(fmt::format("{} does not wait for {}", describe(rank_, later), describe(rank_, *i)));
      return;
    }
  }

  /// Checks that a reduction waits for the backwards whose gradients it reduces.
  void check_reduction(const Instruction& i) {
    const Microbatches of{*i.chunk, i.microbatch};
    const auto require_last = [&](const auto& backwards, const auto& key) {
      const auto last = backwards.find(key);
      if (last != backwards.end()) require_after(i, {&list_[last->second]});
    };
    if (!i.unit) return require_last(last_of_any_unit_, of);
    require_last(last_, Part{of, i.unit});
    require_last(last_, Part{of, std::nullopt});  // backwards of the whole chunk
  }

  /// If any gradient is reduced, all must be: units · microbatches pieces per chunk.
  void check_coverage() {
    if (reduced_.empty()) return;
    double pieces = 0;
    for (const auto& [part, times] : reduced_) {
      const auto& [of, unit] = part;
      pieces += (of.second ? 1.0 : s_.microbatches) * (unit ? 1.0 : s_.units);
    }
    const double all = 1.0 * s_.chunks * s_.microbatches * s_.units;
    if (pieces < all || pieces > all) {
      fault(fmt::format("rank {} reduces {} of {} pieces of its gradients", rank_, pieces, all));
    }
  }

  void check_zero(const Instruction& zero) {
    if (backwards_.empty() || zero.id < backwards_.front()->id) return;
    require_after(zero, steps_);
  }

  const Schedule& s_;
  int rank_;
  const std::vector<Instruction>& list_;
  Faults& faults_;
  HappensBefore before_;
  Pointers backwards_, reductions_, tied_, norms_, clips_, steps_, updates_, zeros_;
  std::map<Part, std::uint32_t> last_;  // backward of exactly this
  std::map<Microbatches, std::uint32_t> last_of_any_unit_;
  std::map<Part, int> reduced_;
};

}  // namespace

void check_buffers(const Schedule& schedule, int rank, Faults& faults) {
  BufferWalk(schedule, rank, faults).run();
}

void check_step(const Schedule& schedule, int rank, Faults& faults) {
  StepWalk(schedule, rank, faults).run();
}

}  // namespace echelon::schedule_check
