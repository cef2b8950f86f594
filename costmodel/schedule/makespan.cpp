#include "costmodel/schedule/makespan.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <tuple>

namespace echelon {
namespace {

constexpr std::uint32_t kNoMessage = 0xffffffff;

/// Messages are numbered by direction, sender's stage and microbatch.
struct Message {
  Seconds takes;
  std::array<std::int32_t, 2> ends;  // ranks: sender, receiver
  std::optional<Seconds> end;        // nothing: not over yet
  Seconds ready;                     // second pass: the later of its ends
  std::uint32_t depth = 0;  // first pass: steps and messages on the longest chain before it
  bool made = false;        // second pass; at `ready`
  bool one_end_arrived = false;
};

/// One forward or backward: the message it waits for, the message it makes.
struct Step {
  Seconds takes;
  std::uint32_t needs = kNoMessage;
  std::uint32_t makes = kNoMessage;
};

/// What one rank computes, and what it has done of it.
struct Worker {
  std::vector<Step> steps;
  std::size_t at = 0;
  Seconds free;
  std::uint32_t depth = 0;
};

/// Messages of one direction of one rank.
struct Link {
  std::vector<std::uint32_t> sent;   // in compute order
  std::vector<std::uint32_t> queue;  // sent and received
  std::size_t at = 0;
  Seconds free;
  bool waits_for_other_end = false;
};

Seconds time_of(const ChunkTimes& t, Op op) {
  switch (op) {
    case Op::forward: return t.forward;
    case Op::backward: return t.backward();
    case Op::backward_input: return t.recompute + t.backward_input;
    default: return t.backward_weight;
  }
}

class Makespan {
 public:
  Makespan(const PipelineShape& shape, const ScheduleCosts& costs)
      : s_(shape),
        gradients_(static_cast<std::uint32_t>(s_.stages()) *
                   static_cast<std::uint32_t>(s_.microbatches)),
        workers_(static_cast<std::size_t>(s_.ranks)),
        lines_(2 * workers_.size()) {
    for (int rank = 0; rank < s_.ranks; ++rank) add_steps(rank, costs);
    if (s_.ranks > 1) add_messages(costs);
  }

  Seconds run(Messages messages) {
    first_pass();
    if (messages == Messages::one_at_a_time) {
      queue_up();
      second_pass();
    }
    Seconds end;
    for (const Worker& w : workers_) {
      EXPECTS(w.at == w.steps.size(), "lowered schedules run to their end");
      end = std::max(end, w.free);
    }
    return end;
  }

 private:
  [[nodiscard]] Worker& worker(int rank) { return workers_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] Link& line(int rank, bool gradient) {
    return lines_[2 * static_cast<std::size_t>(rank) + (gradient ? 1 : 0)];
  }
  [[nodiscard]] bool is_gradient(std::uint32_t message) const { return message >= gradients_; }

  void add_steps(int rank, const ScheduleCosts& costs) {
    const int last = s_.stages() - 1;
    for (const ComputeStep& step : compute_order(s_, rank)) {
      const int stage = s_.stage(rank, step.chunk);
      Step made{.takes = time_of(costs.stages[static_cast<std::size_t>(stage)], step.op)};
      const auto activation = [&](int sender) {
        return static_cast<std::uint32_t>(sender) * static_cast<std::uint32_t>(s_.microbatches) +
               static_cast<std::uint32_t>(step.microbatch);
      };
      if (s_.ranks > 1 && step.op == Op::forward) {
        if (stage > 0) made.needs = activation(stage - 1);
        if (stage < last) made.makes = activation(stage);
      } else if (s_.ranks > 1 && step.op != Op::backward_weight) {
        if (stage < last) made.needs = gradients_ + activation(stage + 1);
        if (stage > 0) made.makes = gradients_ + activation(stage);
      }
      worker(rank).steps.push_back(made);
      if (made.makes == kNoMessage) continue;
      line(rank, is_gradient(made.makes)).sent.push_back(made.makes);
    }
  }

  void add_messages(const ScheduleCosts& costs) {
    messages_.resize(2 * std::size_t{gradients_});
    for (std::size_t message = 0; message < messages_.size();) {
      const bool gradient = is_gradient(static_cast<std::uint32_t>(message));
      const int stage = static_cast<int>((message - (gradient ? gradients_ : 0)) /
                                         static_cast<std::size_t>(s_.microbatches));
      const int from = stage % s_.ranks;
      const int to = (from + (gradient ? s_.ranks - 1 : 1)) % s_.ranks;
      const Seconds hop = costs.hops[static_cast<std::size_t>(gradient ? to : from)];
      for (int i = 0; i < s_.microbatches; ++i, ++message) {
        messages_[message].takes = hop;
        messages_[message].ends = {from, to};
      }
    }
  }

  /// Messages take their time and hold up nothing.
  void first_pass() {
    std::vector<std::uint32_t> waits_for(workers_.size(), kNoMessage);
    for (int rank = s_.ranks; rank-- > 0;) todo_.push_back({rank, 0});
    while (!todo_.empty()) {
      const int rank = todo_.back().rank;
      todo_.pop_back();
      Worker& w = worker(rank);
      for (; w.at < w.steps.size(); ++w.at) {
        const Step& step = w.steps[w.at];
        waits_for[static_cast<std::size_t>(rank)] = step.needs;
        if (step.needs != kNoMessage) {
          const Message& needed = messages_[step.needs];
          if (!needed.end) break;
          w.free = std::max(w.free, *needed.end);
          w.depth = std::max(w.depth, needed.depth);
        }
        w.free += step.takes;
        ++w.depth;
        if (step.makes == kNoMessage) continue;
        Message& made = messages_[step.makes];
        made.end = w.free + made.takes;
        made.depth = w.depth + 1;
        const int to = made.ends[1];
        if (waits_for[static_cast<std::size_t>(to)] == step.makes) todo_.push_back({to, 0});
      }
    }
  }

  /// Each direction of each rank: what it sends and what it receives, merged by the first pass.
  void queue_up() {
    const auto key = [&](std::uint32_t m) {
      return std::tuple(messages_[m].end, messages_[m].depth, m);
    };
    const auto earlier = [&](std::uint32_t a, std::uint32_t b) { return key(a) < key(b); };
    for (int rank = 0; rank < s_.ranks && s_.ranks > 1; ++rank) {
      for (const bool gradient : {false, true}) {
        const int from = (rank + (gradient ? 1 : s_.ranks - 1)) % s_.ranks;
        Link& mine = line(rank, gradient);
        const std::vector<std::uint32_t>& received = line(from, gradient).sent;
        mine.queue.resize(mine.sent.size() + received.size());
        std::merge(mine.sent.begin(), mine.sent.end(), received.begin(), received.end(),
                   mine.queue.begin(), earlier);
      }
    }
    for (Message& message : messages_) message.end.reset();
    for (Worker& w : workers_) {
      w.at = 0;
      w.free = {};
    }
  }

  /// Each direction of each rank does one thing at a time.
  void second_pass() {
    for (int rank = 0; rank < s_.ranks; ++rank) {
      todo_.push_back({rank, kCompute});
      while (!todo_.empty()) {
        const Todo next = todo_.back();
        todo_.pop_back();
        if (next.what == kCompute)
          compute(next.rank);
        else
          communicate(next.rank, next.what == kGradients);
      }
    }
  }

  void compute(int rank) {
    Worker& w = worker(rank);
    for (; w.at < w.steps.size(); ++w.at) {
      const Step& step = w.steps[w.at];
      if (step.needs != kNoMessage) {
        const std::optional<Seconds>& arrived = messages_[step.needs].end;
        if (!arrived) break;
        w.free = std::max(w.free, *arrived);
      }
      w.free += step.takes;
      if (step.makes == kNoMessage) continue;
      Message& made = messages_[step.makes];
      made.made = true;
      made.ready = std::max(made.ready, w.free);
      communicate(rank, is_gradient(step.makes));
    }
    // What it waits for may wait for nothing but its turn here.
    if (w.at < w.steps.size()) communicate(rank, is_gradient(w.steps[w.at].needs));
  }

  /// Runs messages of one direction until one has to wait.
  void communicate(int rank, bool gradient) {
    Link& mine = line(rank, gradient);
    while (mine.at < mine.queue.size() && !mine.waits_for_other_end) {
      Message& message = messages_[mine.queue[mine.at]];
      const bool sends = message.ends[0] == rank;
      if (sends && !message.made) return;
      message.ready = std::max(message.ready, mine.free);
      const int other = message.ends[sends ? 1 : 0];
      if (!message.one_end_arrived) {
        message.one_end_arrived = mine.waits_for_other_end = true;
        todo_.push_back({other, gradient ? kGradients : kActivations});
        return;
      }
      message.end = message.ready + message.takes;
      for (const int end : message.ends) {
        Link& its = line(end, gradient);
        its.free = *message.end;
        its.waits_for_other_end = false;
        ++its.at;
      }
      todo_.push_back({other, gradient ? kGradients : kActivations});
      todo_.push_back({message.ends[1], kCompute});
    }
  }

  enum What { kCompute, kActivations, kGradients };
  struct Todo {
    int rank;
    int what;
  };

  const PipelineShape& s_;
  std::uint32_t gradients_;  // number of the first gradient
  std::vector<Worker> workers_;
  std::vector<Link> lines_;  // per rank and direction
  std::vector<Message> messages_;
  std::vector<Todo> todo_;
};

}  // namespace

Seconds simulate_makespan(const PipelineShape& shape, const ScheduleCosts& costs,
                          Messages messages) {
  EXPECTS(costs.stages.size() == static_cast<std::size_t>(shape.stages()) &&
              costs.hops.size() == static_cast<std::size_t>(shape.ranks),
          "times of every stage and every hop");
  return Makespan(shape, costs).run(messages);
}

}  // namespace echelon
