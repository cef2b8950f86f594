// The checker's rules between ranks: messages, collectives, one global order, no cycle.
#include <fmt/format.h>

#include <map>
#include <optional>
#include <tuple>

#include "core/schedule/schedule_check_rules.hpp"

namespace echelon::schedule_check {
namespace {

using enum ScheduleFaultKind;

/// A communication instruction of one rank.
struct Endpoint {
  Operation operation;
  int rank;
  const Instruction* instruction;
  [[nodiscard]] std::string name() const { return describe(rank, *instruction); }
};

std::vector<Endpoint> all_endpoints(const Schedule& s) {
  std::vector<Endpoint> ends;
  for (int rank = 0; rank < s.ranks; ++rank) {
    for (const Instruction& i : s.programs[static_cast<std::size_t>(rank)].instructions) {
      if (is_communication(i.op)) ends.push_back({operation_of(s, rank, i), rank, &i});
    }
  }
  return ends;
}

bool is_backward(Op op) { return op == Op::send_gradient || op == Op::recv_gradient; }

/// The rank at the other end of a message.
int neighbour(const Schedule& s, int rank, const Instruction& i) {
  const bool up = is_send(i.op) != is_backward(i.op);  // activations go up, gradients down
  return s.placement().rank_of(s.stage(rank, *i.chunk) + (up ? 1 : -1));
}

/// Checks a send and a receive of the same message.
void check_pair(const Schedule& s, const Endpoint& a, const Endpoint& b, Faults& faults) {
  for (const Endpoint* end : {&a, &b}) {
    const Instruction& i = *end->instruction;
    if (i.peer == neighbour(s, end->rank, i)) continue;
    faults.add(unmatched_message, fmt::format("{} names rank {} as its peer; its neighbour is {}",
                                              end->name(), *i.peer, neighbour(s, end->rank, i)));
  }
  if (a.rank == b.rank) {
    faults.add(unmatched_message, fmt::format("{} is a message to its own rank", a.name()));
  }
  const Instruction& x = *a.instruction;
  const Instruction& y = *b.instruction;
  if (x.queue != y.queue) {
    faults.add(unmatched_message, fmt::format("{} is on {}, {} on {}", a.name(), name_of(x.queue),
                                              b.name(), name_of(y.queue)));
  }
  if (x.bytes != y.bytes) {
    faults.add(message_bytes,
               fmt::format("{} is {} bytes, {} is {}", a.name(), x.bytes, b.name(), y.bytes));
  }
}

/// The ranks of a collective, in order.
std::vector<int> members_of(const Schedule& s, const Operation& operation) {
  std::vector<int> ranks;
  for (int rank = 0; rank < s.ranks; ++rank) {
    const int stage = operation.a;  // of the model, which two ranks hold
    const bool takes_part = operation.family == 2   ? true
                            : operation.family == 3 ? rank == 0 || rank == s.placement().last_rank()
                                                    : rank == stage || rank == s.ranks - 1 - stage;
    if (takes_part) ranks.push_back(rank);
  }
  return ranks;
}

/// Checks the endpoints of one operation: a send and a receive for a message, every
/// participating rank for a collective.
void check_members(const Schedule& s, const Endpoint* first, const Endpoint* last, Faults& faults) {
  const auto members = last - first;
  const int family = first->operation.family;
  if (family <= 1) {
    const bool paired =
        members == 2 && is_send(first->instruction->op) != is_send(first[1].instruction->op);
    if (paired) return check_pair(s, first[0], first[1], faults);
    const bool send = is_send(first->instruction->op);
    faults.add(unmatched_message,
               members == 1
                   ? fmt::format("{} has no matching {}", first->name(), send ? "receive" : "send")
                   : fmt::format("{} appears {} times", first->name(), members));
    return;
  }
  if (family == 4) return;
  const std::vector<int> expected = members_of(s, first->operation);
  bool same = members == static_cast<std::ptrdiff_t>(expected.size());
  for (std::size_t k = 0; same && k < expected.size(); ++k) {
    same = first[k].rank == expected[k] && first[k].instruction->bytes == first->instruction->bytes;
  }
  if (!same) {
    faults.add(unmatched_message,
               fmt::format("{}: not exactly once, with equal bytes, on each of its {} ranks",
                           first->name(), expected.size()));
  }
}

void check_matching(const Schedule& s, std::vector<Endpoint> ends, Faults& faults) {
  std::stable_sort(ends.begin(), ends.end(),
                   [](const Endpoint& a, const Endpoint& b) { return a.operation < b.operation; });
  std::int64_t messages = 0;
  for (std::size_t at = 0; at < ends.size();) {
    std::size_t next = at;
    while (next < ends.size() && ends[next].operation == ends[at].operation) ++next;
    check_members(s, ends.data() + at, ends.data() + next, faults);
    messages += ends[at].operation.family <= 1 ? 1 : 0;
    at = next;
  }
  std::int64_t boundaries = 0;
  for (int stage = 0; stage < s.ranks * s.chunks; ++stage) {
    boundaries += s.placement().sends(stage) ? 1 : 0;
  }
  const std::int64_t needed = 2 * boundaries * s.microbatches;
  if (messages < needed) {
    faults.add(unmatched_message, fmt::format("{} of {} messages between stages are missing",
                                              needed - messages, needed));
  }
}

/// Checks that both sides of an ordered pair of ranks and communicator list the messages in the
/// same order.
void check_pair_order(const std::vector<Endpoint>& ends, Faults& faults) {
  using Channel = std::tuple<int, int, Queue>;
  std::map<Channel, std::array<std::vector<const Endpoint*>, 2>> channels;
  for (const Endpoint& end : ends) {
    const Instruction& i = *end.instruction;
    if (!is_message(i.op)) continue;
    const bool send = is_send(i.op);
    const Channel channel{send ? end.rank : *i.peer, send ? *i.peer : end.rank, i.queue};
    channels[channel][send ? 0 : 1].push_back(&end);
  }
  for (const auto& [channel, sides] : channels) {
    const std::size_t both = std::min(sides[0].size(), sides[1].size());
    for (std::size_t k = 0; k < both; ++k) {
      if (sides[0][k]->operation == sides[1][k]->operation) continue;
      faults.add(message_order,
                 fmt::format("{} is paired with {}", sides[0][k]->name(), sides[1][k]->name()));
      break;
    }
  }
}

/// Checks that the sequence numbers form one order: equal numbers mean the same operation, and the
/// numbers increase along every rank's list.
void check_sequence(std::vector<Endpoint> ends, Faults& faults) {
  for (std::size_t k = 1; k < ends.size(); ++k) {
    if (ends[k].rank != ends[k - 1].rank ||
        ends[k].instruction->sequence > ends[k - 1].instruction->sequence) {
      continue;
    }
    faults.add(communication_order,
               fmt::format("{} is number {} of all communications but comes after number {}",
                           ends[k].name(), *ends[k].instruction->sequence,
                           *ends[k - 1].instruction->sequence));
  }
  const auto by = [](auto key) {
    return [key](const Endpoint& a, const Endpoint& b) { return key(a) < key(b); };
  };
  const auto sequence_of = [](const Endpoint& e) { return e.instruction->sequence; };
  const auto operation = [](const Endpoint& e) { return e.operation; };
  const auto differ = [&](auto same, auto other, std::string_view what) {
    std::stable_sort(ends.begin(), ends.end(), by(same));
    for (std::size_t k = 1; k < ends.size(); ++k) {
      if (same(ends[k]) != same(ends[k - 1]) || other(ends[k]) == other(ends[k - 1])) continue;
      faults.add(communication_order,
                 fmt::format("{} and {} {}", ends[k - 1].name(), ends[k].name(), what));
      return;
    }
  };
  differ(sequence_of, operation, "have the same position in the order of communications");
  differ(operation, sequence_of,
         "are one communication with two positions in the order of communications");
}

/// The graph whose cycles are deadlocks: a node per instruction, but one node for all endpoints of
/// a communication; an edge from each predecessor that must complete first.
class WaitGraph {
 public:
  explicit WaitGraph(const Schedule& s) : s_(s) {
    for (int rank = 0; rank < s.ranks; ++rank) {
      offset_.push_back(node_.size());
      for (const Instruction& i : s.programs[static_cast<std::size_t>(rank)].instructions) {
        auto node = static_cast<std::uint32_t>(ends_.size());
        if (is_communication(i.op)) {
          node = shared_.try_emplace(operation_of(s, rank, i), node).first->second;
        }
        if (node == ends_.size()) ends_.emplace_back();
        if (ends_[node].size() < 2) ends_[node].push_back({rank, i.id});
        node_.push_back(node);
      }
    }
    for (int rank = 0; rank < s.ranks; ++rank) connect(rank);
  }

  /// The nodes of a cycle, in order; empty if there is none.
  [[nodiscard]] std::vector<std::uint32_t> cycle() const {
    const std::vector<char> stuck = unreached();
    std::uint32_t at = 0;
    while (at < stuck.size() && stuck[at] == 0) ++at;
    if (at == stuck.size()) return {};
    // Every stuck node has a stuck predecessor: walk back until one repeats.
    std::vector<std::uint32_t> back(stuck.size(), 0);
    for (const auto& [from, to] : edges_) {
      if (stuck[from] != 0) back[to] = from;
    }
    std::vector<char> seen(stuck.size(), 0);
    for (; seen[at] == 0; at = back[at]) seen[at] = 1;
    std::vector<std::uint32_t> found{at};
    for (std::uint32_t n = back[at]; n != at; n = back[n]) found.push_back(n);
    std::reverse(found.begin(), found.end());
    return found;
  }

  /// "rank 0 #7 send_f c0 m1 = rank 1 #5 recv_f c0 m1": an instruction, or both endpoints of a
  /// message.
  [[nodiscard]] std::string name(std::uint32_t node) const {
    std::string text;
    for (const auto& [rank, id] : ends_[node]) {
      const Program& program = s_.programs[static_cast<std::size_t>(rank)];
      text += (text.empty() ? "" : " = ") + describe(rank, program.instructions[id]);
    }
    return text;
  }

 private:
  void connect(int rank) {
    const auto& list = s_.programs[static_cast<std::size_t>(rank)].instructions;
    const std::size_t base = offset_[static_cast<std::size_t>(rank)];
    // Per queue, and of all communications.
    std::array<std::optional<std::uint32_t>, kQueues + 1> last;
    for (const Instruction& i : list) {
      const auto chain = [&](std::size_t lane) {
        if (last[lane]) add(node_[base + *last[lane]], i, base);
        last[lane] = i.id;
      };
      chain(static_cast<std::size_t>(i.queue));
      if (is_communication(i.op)) chain(kQueues);
      for (const std::uint32_t id : i.after) add(node_[base + id], i, base);
    }
  }
  void add(std::uint32_t from, const Instruction& to, std::size_t base) {
    edges_.emplace_back(from, node_[base + to.id]);
  }

  /// 1 for every node that never becomes ready to run.
  [[nodiscard]] std::vector<char> unreached() const {
    const std::size_t n = ends_.size();
    std::vector<std::size_t> first(n + 2, 0);
    std::vector<std::uint32_t> waits(n, 0);
    for (const auto& [from, to] : edges_) {
      ++first[from + 2];
      ++waits[to];
    }
    for (std::size_t k = 2; k < first.size(); ++k) first[k] += first[k - 1];
    std::vector<std::uint32_t> next(edges_.size());
    for (const auto& [from, to] : edges_) next[first[from + 1]++] = to;
    std::vector<std::uint32_t> ready;
    std::vector<char> stuck(n, 1);
    for (std::uint32_t k = 0; k < n; ++k) {
      if (waits[k] == 0) ready.push_back(k);
    }
    while (!ready.empty()) {
      const std::uint32_t node = ready.back();
      ready.pop_back();
      stuck[node] = 0;
      for (std::size_t k = first[node]; k < first[node + 1]; ++k) {
        if (--waits[next[k]] == 0) ready.push_back(next[k]);
      }
    }
    return stuck;
  }

  const Schedule& s_;
  std::vector<std::size_t> offset_;                          // per rank, into node_
  std::vector<std::uint32_t> node_;                          // per instruction
  std::vector<Few<std::pair<int, std::uint32_t>, 2>> ends_;  // per node: the first two
  std::map<Operation, std::uint32_t> shared_;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> edges_;
};

}  // namespace

Operation operation_of(const Schedule& s, int rank, const Instruction& i) {
  const auto message = [&](int family, int stages_to_sender) -> Operation {
    return {family, s.stage(rank, *i.chunk) + stages_to_sender, *i.microbatch};
  };
  switch (i.op) {
    case Op::send_activation: return message(0, 0);
    case Op::recv_activation: return message(0, -1);
    case Op::send_gradient: return message(1, 0);
    case Op::recv_gradient: return message(1, +1);
    case Op::norm_reduce: return {2, 0, 0};
    case Op::reduce_tied_embedding: return {3, 0, 0};
    case Op::reduce_gradients:
      if (s.kind != ScheduleKind::dualpipe || i.microbatch)
        return {4, rank, static_cast<int>(i.id)};
      return {5, s.stage(rank, *i.chunk) % s.ranks, i.unit.value_or(-1)};
    case Op::gather_updated:
      if (s.kind != ScheduleKind::dualpipe) return {4, rank, static_cast<int>(i.id)};
      return {6, s.stage(rank, *i.chunk) % s.ranks, 0};
    default: return {4, rank, static_cast<int>(i.id)};
  }
}

void check_messages(const Schedule& schedule, Faults& faults) {
  const std::vector<Endpoint> ends = all_endpoints(schedule);
  check_matching(schedule, ends, faults);
  check_pair_order(ends, faults);
  check_sequence(ends, faults);
}

void check_deadlock(const Schedule& schedule, Faults& faults) {
  const WaitGraph graph(schedule);
  const std::vector<std::uint32_t> cycle = graph.cycle();
  if (cycle.empty()) return;
  constexpr std::size_t kShown = 12;
  std::string text;
  for (std::size_t k = 0; k < std::min(cycle.size(), kShown); ++k) {
    text += graph.name(cycle[k]) + " -> ";
  }
  if (cycle.size() > kShown) text += fmt::format("... ({} more) -> ", cycle.size() - kShown);
  faults.add(ScheduleFaultKind::cycle, text + graph.name(cycle[0]));
}

}  // namespace echelon::schedule_check
