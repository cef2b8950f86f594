#include "costmodel/schedule/simulator.hpp"

#include <fmt/format.h>

#include <optional>

namespace echelon {
namespace {

// Indices into the flat arrays are no std::optional, which would double the size of what the
// simulation walks through (docs/decisions/0011).
constexpr std::uint32_t kNone = 0xffffffff;
constexpr std::uint32_t kOtherEnd = 0xfffffffe;

/// What the simulation needs of one instruction: a third of its size, so that more stay in cache.
struct Node {
  Seconds takes;
  std::uint32_t next = kNone;  // on the same queue
  std::uint32_t meeting = kNone;
  std::uint32_t after = 0;  // where its waits begin; they end where those of the next begin
  Queue queue = Queue::compute;
};

struct Times {
  Seconds start;
  std::optional<Seconds> end;  // nothing: has not run
};

/// All ends of one communication; complete when `arrived` reaches `ends`.
struct Meeting {
  Seconds ready;
  Seconds takes;
  std::uint32_t ends = 0;
  std::uint32_t arrived = 0;
  std::uint32_t last = kNone;  // queue of the last that arrived; chained through QueueState::before
};

/// One queue of one rank.
struct QueueState {
  std::uint32_t head = kNone;     // place of the next instruction in the flat arrays
  std::uint32_t blocked = kNone;  // place its head waits for, or kOtherEnd
  std::uint32_t before = kNone;   // queue that arrived earlier at the same meeting
  Seconds free;                   // end of the instruction before
};

/// Advances queues until none can. A queue's head is looked at when it becomes the head and when
/// what it was last seen waiting for completes, so no event list is needed.
class Simulation {
 public:
  Simulation(const Schedule& schedule, const ScheduleCosts& costs) : s_(schedule) {
    std::size_t total = 0;
    for (const Program& program : s_.programs) total += program.instructions.size();
    EXPECTS(total < kOtherEnd, "instructions are numbered in 32 bits");
    nodes_.reserve(total + 1);
    after_.reserve(total);
    times_.reserve(total);
    meetings_.reserve(total / 2);
    lines_.resize(s_.programs.size() * kQueues);
    for (std::size_t rank = 0; rank < s_.programs.size(); ++rank) add_program(rank, costs);
    nodes_.push_back({.takes = {}, .after = static_cast<std::uint32_t>(after_.size())});
  }

  Timeline run() {
    for (std::uint32_t line = 0; line < lines_.size(); ++line) {
      todo_.push_back(line);
      while (!todo_.empty()) {
        const std::uint32_t next = todo_.back();
        todo_.pop_back();
        advance(next);
      }
    }
    Timeline timeline;
    report(timeline);
    return timeline;
  }

 private:
  /// Copies one rank's list into the flat arrays.
  void add_program(std::size_t rank, const ScheduleCosts& costs) {
    const auto base = static_cast<std::uint32_t>(nodes_.size());
    std::array<std::uint32_t, kQueues> last;
    last.fill(kNone);
    for (const Instruction& i : s_.programs[rank].instructions) {
      const auto place = static_cast<std::uint32_t>(nodes_.size());
      const Seconds takes = duration_of(costs, s_, static_cast<int>(rank), i);
      nodes_.push_back({.takes = takes,
                        .meeting = i.sequence ? announce(*i.sequence, takes) : kNone,
                        .after = static_cast<std::uint32_t>(after_.size()),
                        .queue = i.queue});
      for (const std::uint32_t id : i.after) after_.push_back(base + id);
      times_.emplace_back();
      std::uint32_t& previous = last[static_cast<std::size_t>(i.queue)];
      if (previous == kNone)
        lines_[rank * kQueues + static_cast<std::size_t>(i.queue)].head = place;
      else
        nodes_[previous].next = place;
      previous = place;
    }
  }

  /// The meeting at this position in the order of communications.
  std::uint32_t announce(std::int32_t position, Seconds takes) {
    const auto sequence = static_cast<std::uint32_t>(position);
    if (sequence >= meetings_.size()) {
      EXPECTS(sequence < nodes_.capacity(), "communications are numbered without gaps");
      meetings_.resize(std::size_t{sequence} + 1);
    }
    ++meetings_[sequence].ends;
    meetings_[sequence].takes = std::max(meetings_[sequence].takes, takes);
    return sequence;
  }

  /// Runs heads of one queue until one has to wait.
  void advance(std::uint32_t at) {
    QueueState& line = lines_[at];
    if (line.blocked == kOtherEnd) return;  // has arrived already
    while (line.head != kNone) {
      const Node& node = nodes_[line.head];
      Seconds ready = line.free;
      const std::uint32_t end = (&node)[1].after;
      for (std::uint32_t k = node.after; k < end; ++k) {
        const std::optional<Seconds>& over = times_[after_[k]].end;
        if (!over) {
          line.blocked = after_[k];
          return;
        }
        ready = std::max(ready, *over);
      }
      if (node.meeting == kNone)
        complete(at, ready, ready + node.takes);
      else if (!meet(at, meetings_[node.meeting], ready))
        return;
    }
  }

  /// Takes the head of a queue to its meeting; true when that lets it run.
  bool meet(std::uint32_t at, Meeting& meeting, Seconds ready) {
    meeting.ready = std::max(meeting.ready, ready);
    lines_[at].before = meeting.last;
    meeting.last = at;
    if (++meeting.arrived < meeting.ends) {
      lines_[at].blocked = kOtherEnd;
      return false;
    }
    for (std::uint32_t line = at; line != kNone; line = lines_[line].before) {
      complete(line, meeting.ready, meeting.ready + meeting.takes);
      if (line != at) todo_.push_back(line);
    }
    return true;
  }

  void complete(std::uint32_t at, Seconds start, Seconds end) {
    QueueState& line = lines_[at];
    const std::uint32_t place = line.head;
    times_[place] = {start, end};
    line.free = end;
    line.blocked = kNone;
    line.head = nodes_[place].next;
    const std::uint32_t first = at / kQueues * kQueues;
    for (std::uint32_t other = first; other < first + kQueues; ++other) {
      if (lines_[other].blocked != place) continue;
      lines_[other].blocked = kNone;
      todo_.push_back(other);
    }
  }

  void report(Timeline& timeline) {
    timeline.spans.reserve(times_.size());
    std::size_t place = 0;
    for (std::size_t rank = 0; rank < s_.programs.size(); ++rank) {
      const auto count = static_cast<std::uint32_t>(s_.programs[rank].instructions.size());
      for (std::uint32_t id = 0; id < count; ++id, ++place) {
        const Times& times = times_[place];
        if (!times.end) continue;
        timeline.spans.push_back({.rank = static_cast<std::int32_t>(rank),
                                  .id = id,
                                  .queue = nodes_[place].queue,
                                  .start = times.start,
                                  .end = *times.end});
        timeline.makespan = std::max(timeline.makespan, *times.end);
      }
    }
    if (timeline.spans.size() < times_.size()) tell_deadlock(timeline);
  }

  void tell_deadlock(Timeline& timeline) {
    std::vector<std::uint32_t> first;  // place of each rank's first instruction
    std::uint32_t next = 0;
    for (const Program& program : s_.programs) {
      first.push_back(next);
      next += static_cast<std::uint32_t>(program.instructions.size());
    }
    for (std::size_t at = 0; at < lines_.size(); ++at) {
      const QueueState& line = lines_[at];
      if (line.head == kNone) continue;
      const std::size_t rank = at / kQueues;
      const auto instruction = [&](std::uint32_t place) -> const Instruction& {
        return s_.programs[rank].instructions[place - first[rank]];
      };
      const auto name = [&](std::uint32_t place) {
        return describe(static_cast<int>(rank), instruction(place));
      };
      timeline.deadlock.push_back(
          {.rank = static_cast<std::int32_t>(rank),
           .id = instruction(line.head).id,
           .what = fmt::format("{} waits for {}", name(line.head),
                               line.blocked == kOtherEnd ? "its other end" : name(line.blocked))});
    }
  }

  const Schedule& s_;
  std::vector<Node> nodes_;           // all ranks one after the other, in the order of their lists
  std::vector<std::uint32_t> after_;  // places
  std::vector<Times> times_;          // as nodes_
  std::vector<Meeting> meetings_;     // per place in the order of communications
  std::vector<QueueState> lines_;     // per rank and queue
  std::vector<std::uint32_t> todo_;
};

}  // namespace

Timeline simulate(const Schedule& schedule, const ScheduleCosts& costs) {
  return Simulation(schedule, costs).run();
}

double idle_share(const Timeline& timeline, int ranks) {
  if (timeline.makespan <= Seconds{}) return 0;
  Seconds busy;
  for (const Span& span : timeline.spans) {
    if (span.queue == Queue::compute) busy += span.end - span.start;
  }
  return 1 - busy / (ranks * timeline.makespan);
}

}  // namespace echelon
