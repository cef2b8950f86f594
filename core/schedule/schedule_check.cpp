#include "core/schedule/schedule_check.hpp"

#include <fmt/format.h>

#include "core/schedule/schedule_check_rules.hpp"

namespace echelon {

std::string_view name_of(ScheduleFaultKind kind) {
  using enum ScheduleFaultKind;
  switch (kind) {
    case malformed: return "malformed";
    case duplicate_id: return "duplicate-id";
    case unknown_rank: return "unknown-rank";
    case unknown_dependency: return "unknown-dependency";
    case unknown_buffer: return "unknown-buffer";
    case missing_forward: return "missing-forward";
    case missing_backward: return "missing-backward";
    case repeated_compute: return "repeated-compute";
    case compute_order: return "compute-order";
    case too_many_in_flight: return "too-many-in-flight";
    case unmatched_message: return "unmatched-message";
    case message_bytes: return "message-bytes";
    case message_order: return "message-order";
    case communication_order: return "communication-order";
    case cycle: return "cycle";
    case missing_dependency: return "missing-dependency";
    case read_before_write: return "read-before-write";
    case buffer_overwritten: return "buffer-overwritten";
    case buffer_overlap: return "buffer-overlap";
    case step_order: return "step-order";
  }
  return "?";
}

std::int64_t max_in_flight(const Schedule& schedule, int rank) {
  const std::int64_t p = schedule.ranks;
  const std::int64_t v = schedule.chunks;
  const std::int64_t all = v * schedule.microbatches;
  switch (schedule.kind) {
    case ScheduleKind::gpipe: return all;
    case ScheduleKind::one_f_one_b: return std::min(all, p - rank);
    case ScheduleKind::interleaved: {
      const std::int64_t group = std::max<std::int64_t>(p, schedule.group);
      return std::min(all, 2 * (p - rank) - 1 + (v - 1) * group);
    }
    case ScheduleKind::zero_bubble_h1: return std::min(all, p);
    case ScheduleKind::dualpipe_v: return std::min(all, 2 * p + 1);
    case ScheduleKind::dualpipe: return std::min(all, p + 1);
  }
  return all;
}

std::vector<ScheduleFault> check_schedule(const Schedule& schedule) {
  using namespace schedule_check;
  Faults faults;
  check_form(schedule, faults);
  if (!faults.none()) return faults.release();  // later checks use these values as indices
  check_compute(schedule, faults);
  if (!faults.none()) return faults.release();  // larger counts would overflow below
  check_messages(schedule, faults);
  check_deadlock(schedule, faults);
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    check_buffers(schedule, rank, faults);
    check_step(schedule, rank, faults);
  }
  return faults.release();
}

namespace schedule_check {
namespace {

/// Whether the instructions of an op have a field.
enum class Has { never, maybe, always };

struct Fields {
  Has chunk = Has::never;
  Has microbatch = Has::never;
  Has unit = Has::never;
  Has peer = Has::never;
};

/// Communications, and only they, have a sequence number too.
Fields fields_of(Op op) {
  using enum Has;
  switch (op) {
    case Op::load_batch: return {.chunk = always, .microbatch = always};
    case Op::forward:
    case Op::backward:
    case Op::backward_input:
    case Op::backward_weight: return {.chunk = always, .microbatch = always, .unit = maybe};
    case Op::send_activation:
    case Op::recv_activation:
    case Op::send_gradient:
    case Op::recv_gradient: return {.chunk = always, .microbatch = always, .peer = always};
    case Op::gather_parameters:
    case Op::release_parameters: return {.chunk = always, .unit = maybe};
    case Op::reduce_gradients: return {.chunk = always, .microbatch = maybe, .unit = maybe};
    case Op::gather_updated: return {.chunk = always};
    case Op::reduce_tied_embedding: return {.peer = always};
    case Op::norm_reduce:
    case Op::clip:
    case Op::optimizer_step:
    case Op::zero_gradients: return {};
  }
  return {};
}

bool is_compute_of_chunk(Op op) {
  return op == Op::forward || op == Op::backward || op == Op::backward_input ||
         op == Op::backward_weight;
}

/// Checks that an instruction has the fields of its op, each in its range.
void check_fields(const Schedule& s, const Instruction& i, const std::string& name,
                  Faults& faults) {
  using enum ScheduleFaultKind;
  const auto check = [&](std::string_view field, const std::optional<std::int32_t>& value, Has has,
                         std::int64_t limit, ScheduleFaultKind beyond = malformed) {
    if (!value) {
      if (has == Has::always) faults.add(malformed, fmt::format("{} has no {}", name, field));
    } else if (has == Has::never) {
      faults.add(malformed,
                 fmt::format("{} has the {} {}; {} has none", name, field, *value, name_of(i.op)));
    } else if (*value < 0 || *value >= limit) {
      faults.add(beyond, fmt::format("{} has the {} {} of {}", name, field, *value, limit));
    }
  };
  const Fields fields = fields_of(i.op);
  check("chunk", i.chunk, fields.chunk, s.chunks);
  check("microbatch", i.microbatch, fields.microbatch, s.microbatches);
  check("unit", i.unit, fields.unit, s.units);
  check("peer rank", i.peer, fields.peer, s.ranks, unknown_rank);
  check("position in the order of communications", i.sequence,
        is_communication(i.op) ? Has::always : Has::never, std::int64_t{1} << 31);
  const bool on_wire = i.queue != Queue::compute && i.queue != Queue::host;
  if (on_wire != is_communication(i.op) || (i.queue == Queue::host) != (i.op == Op::load_batch)) {
    faults.add(malformed, fmt::format("{} is on the queue {}", name, name_of(i.queue)));
  }
  if (i.bytes < 0) faults.add(malformed, fmt::format("{} has {} bytes", name, i.bytes));
}

void check_instruction(const Schedule& s, int rank, std::uint32_t position, Faults& faults) {
  using enum ScheduleFaultKind;
  const Program& program = s.programs[static_cast<std::size_t>(rank)];
  const Instruction& i = program.instructions[position];
  const std::string name = describe(rank, i);
  if (i.id != position) {
    faults.add(duplicate_id, fmt::format("{} is entry {} of its list", name, position));
    return;
  }
  check_fields(s, i, name, faults);
  for (const std::uint32_t id : i.after) {
    if (id >= i.id || program.instructions[id].queue == i.queue) {
      faults.add(unknown_dependency, fmt::format("{} waits for #{}", name, id));
    }
  }
  const auto exists = [&](std::int32_t b) {
    if (b >= 0 && static_cast<std::size_t>(b) < program.buffers.size()) return;
    faults.add(unknown_buffer, fmt::format("{} uses buffer {}", name, b));
  };
  for (const std::int32_t b : i.reads) exists(b);
  for (const std::int32_t b : i.writes) exists(b);
}

void check_arena(int rank, const Program& program, Faults& faults) {
  std::vector<Buffer> sorted = program.buffers;
  std::erase_if(sorted, [](const Buffer& b) { return b.bytes == 0 && b.offset >= 0; });
  std::sort(sorted.begin(), sorted.end(),
            [](const Buffer& a, const Buffer& b) { return a.offset < b.offset; });
  std::int64_t end = 0;
  for (const Buffer& buffer : sorted) {
    if (buffer.offset < end || buffer.bytes < 0 ||
        buffer.bytes > std::numeric_limits<std::int64_t>::max() - buffer.offset) {
      faults.add(ScheduleFaultKind::buffer_overlap,
                 fmt::format("rank {}: the {} buffer at {} lies inside another or past the end",
                             rank, name_of(buffer.kind), buffer.offset));
      return;
    }
    end = buffer.offset + buffer.bytes;
  }
}

/// Progress of one chunk with one microbatch, in completed units.
struct Progress {
  std::int32_t forward = 0;
  std::int32_t input = 0;   ///< backward and backward_input
  std::int32_t weight = 0;  ///< backward and backward_weight
  bool whole_backward = false;
};

/// Walks one rank's compute queue.
class ComputeWalk {
 public:
  ComputeWalk(const Schedule& schedule, int rank, Faults& faults)
      : s_(schedule), rank_(rank), faults_(faults) {}

  void run() {
    const auto& list = s_.programs[static_cast<std::size_t>(rank_)].instructions;
    const std::int64_t pairs = std::int64_t{s_.chunks} * s_.microbatches;
    if (pairs > static_cast<std::int64_t>(list.size())) {
      faults_.add(ScheduleFaultKind::missing_forward,
                  fmt::format("rank {}: {} forwards needed in a list of {} instructions", rank_,
                              pairs, list.size()));
      return;
    }
    progress_.resize(static_cast<std::size_t>(pairs));
    for (const Instruction& i : list) {
      if (is_compute_of_chunk(i.op)) step(i);
    }
    if (peak_ > max_in_flight(s_, rank_)) {
      faults_.add(ScheduleFaultKind::too_many_in_flight,
                  fmt::format("rank {} holds {} forwards without backward; {} allows {}", rank_,
                              peak_, name_of(s_.kind), max_in_flight(s_, rank_)));
    }
    for (std::size_t at = 0; at < progress_.size(); ++at) missing(at);
  }

 private:
  void fault(ScheduleFaultKind kind, const Instruction& i, std::string_view what) {
    faults_.add(kind, fmt::format("{} {}", describe(rank_, i), what));
  }

  void step(const Instruction& i) {
    using enum ScheduleFaultKind;
    Progress& p =
        progress_[static_cast<std::size_t>(*i.chunk) * static_cast<std::size_t>(s_.microbatches) +
                  static_cast<std::size_t>(*i.microbatch)];
    const bool forward = i.op == Op::forward;
    if (!forward && p.forward < s_.units)
      return fault(compute_order, i, "comes before its forward");
    if (i.op == Op::backward_weight && (p.input < s_.units || p.whole_backward)) {
      return fault(p.whole_backward ? repeated_compute : compute_order, i,
                   "does not follow its input gradient");
    }
    const bool mixed =
        i.op == Op::backward ? p.weight != p.input : i.op == Op::backward_input && p.whole_backward;
    if (mixed) return fault(repeated_compute, i, "mixes a whole backward with a split one");
    std::int32_t& done = forward ? p.forward : i.op == Op::backward_weight ? p.weight : p.input;
    if (done >= s_.units) return fault(repeated_compute, i, "is done twice");
    const std::int32_t expected = forward ? done : s_.units - 1 - done;
    if (i.unit ? *i.unit != expected : done != 0) {
      return fault(compute_order, i, "is a unit out of order");
    }
    if (forward && done == 0) peak_ = std::max(peak_, ++in_flight_);
    done += s_.units_of(i).count();
    if (i.op == Op::backward) {
      p.whole_backward = true;
      p.weight = p.input;
    }
    if (!forward && p.weight == s_.units) --in_flight_;
  }

  void missing(std::size_t at) {
    const Progress& p = progress_[at];
    const auto microbatches = static_cast<std::size_t>(s_.microbatches);
    const auto report = [&](ScheduleFaultKind kind, std::string_view what) {
      faults_.add(kind, fmt::format("rank {} chunk {} microbatch {} has no {}", rank_,
                                    at / microbatches, at % microbatches, what));
    };
    if (p.forward < s_.units) return report(ScheduleFaultKind::missing_forward, "whole forward");
    if (p.weight < s_.units) report(ScheduleFaultKind::missing_backward, "whole backward");
  }

  const Schedule& s_;
  int rank_;
  Faults& faults_;
  std::vector<Progress> progress_;
  std::int64_t in_flight_ = 0;
  std::int64_t peak_ = 0;
};

}  // namespace

void check_form(const Schedule& s, Faults& faults) {
  if (s.ranks < 1 || s.chunks < 1 || s.microbatches < 1 || s.units < 1 ||
      s.programs.size() != static_cast<std::size_t>(s.ranks) ||
      std::int64_t{s.ranks} * s.chunks > std::numeric_limits<std::int32_t>::max()) {
    faults.add(ScheduleFaultKind::malformed,
               "needs one program per rank, and at least one rank, "
               "chunk, microbatch and unit");
    return;
  }
  const bool grouped = s.kind == ScheduleKind::interleaved && s.group <= s.microbatches;
  if (s.group < 1 || (s.group > 1 && !grouped)) {
    faults.add(ScheduleFaultKind::malformed,
               fmt::format("groups of {} of {} microbatches in a {} schedule", s.group,
                           s.microbatches, name_of(s.kind)));
    return;
  }
  if (s.kind == ScheduleKind::dualpipe_v && (s.chunks != 2 || s.ranks < 2)) {
    faults.add(ScheduleFaultKind::malformed,
               fmt::format("{} chunks on {} ranks in a dualpipev schedule, which has 2 on several",
                           s.chunks, s.ranks));
    return;
  }
  if (s.kind == ScheduleKind::dualpipe && (s.chunks != 2 || s.ranks % 2 != 0)) {
    faults.add(ScheduleFaultKind::malformed,
               fmt::format("{} chunks on {} ranks in a dualpipe schedule, which has 2 on an even "
                           "number",
                           s.chunks, s.ranks));
    return;
  }
  for (int rank = 0; rank < s.ranks; ++rank) {
    const Program& program = s.programs[static_cast<std::size_t>(rank)];
    for (std::uint32_t at = 0; at < program.instructions.size(); ++at) {
      check_instruction(s, rank, at, faults);
    }
    check_arena(rank, program, faults);
  }
}

void check_compute(const Schedule& schedule, Faults& faults) {
  for (int rank = 0; rank < schedule.ranks; ++rank) ComputeWalk(schedule, rank, faults).run();
}

}  // namespace schedule_check
}  // namespace echelon
