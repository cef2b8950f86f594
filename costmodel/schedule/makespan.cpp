#include "costmodel/schedule/makespan.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "costmodel/schedule/schedule_draft.hpp"

namespace echelon {
namespace {

constexpr std::int64_t kNeverTicks = std::numeric_limits<std::int64_t>::max();

std::size_t place(int i) { return static_cast<std::size_t>(i); }

}  // namespace

/// Numbers and times of the passes, which do not depend on how many microbatches are simulated.
void MakespanSimulator::set_up(const PipelineShape& shape, const ScheduleCosts& costs) {
  s_ = shape;
  group_ = s_.kind == ScheduleKind::interleaved ? s_.in_turn() : 1;
  all_ = s_.microbatches * s_.chunks;
  ahead_.resize(place(s_.ranks));
  for (int rank = 0; rank < s_.ranks; ++rank) {
    const int after = s_.ranks - 1 - rank;
    // More than there are means: all of them. GPipe's backwards follow all forwards.
    int& ahead = ahead_[place(rank)];
    if (s_.kind == ScheduleKind::interleaved)
      ahead = 2 * after + (s_.chunks - 1) * group_;
    else
      ahead = after + (s_.kind == ScheduleKind::gpipe ? all_ : 0);
  }
  for (const bool gradient : {false, true}) {
    Direction& d = directions_[gradient ? 1 : 0];
    d.gradient = gradient;
    d.up = gradient ? -1 : 1;
    d.last = gradient ? 0 : s_.ranks - 1;
  }
  set_times(costs);
}

void MakespanSimulator::set_times(const ScheduleCosts& costs) {
  Seconds all;
  for (const ChunkTimes& chunk : costs.stages) all += chunk.total();
  for (const Seconds hop : costs.hops) all += 2.0 * s_.chunks * hop;
  const double bound = s_.microbatches * all.in(kSecond);
  EXPECTS(std::isfinite(bound) && bound >= 0, "times of passes and messages");
  second_ = bound > 0 ? std::ldexp(1.0, std::min(1000, 61 - std::ilogb(bound))) : 1.0;
  const auto ticks = [&](Seconds time) -> Ticks { return std::llround(time.in(kSecond)*second_); };
  const bool split = s_.kind == ScheduleKind::zero_bubble_h1;
  weight_.assign(place(s_.ranks), 0);
  for (Direction& d : directions_) {
    d.takes.resize(place(s_.stages()));
    d.hop.resize(place(s_.ranks));
    for (int rank = 0; rank < s_.ranks; ++rank) {
      d.hop[place(rank)] = ticks(costs.hops[place(d.gradient ? neighbour(rank, -1) : rank)]);
      for (int i = 0; i < s_.chunks; ++i) {
        const int chunk = d.gradient ? s_.chunks - 1 - i : i;
        const ChunkTimes& t = costs.stages[place(s_.stage(rank, chunk))];
        const Ticks input = ticks(t.recompute) + ticks(t.backward_input);
        if (split) weight_[place(rank)] = ticks(t.backward_weight);
        d.takes[place(rank * s_.chunks + i)] = !d.gradient ? ticks(t.forward)
                                               : split     ? input
                                                           : input + ticks(t.backward_weight);
      }
    }
  }
}

/// Groups of microbatches, all chunks of a group in turn; the last group may be smaller.
void MakespanSimulator::number_passes(int n) {
  n_ = n;
  chunk_.resize(place(n));
  before_.resize(place(n));
  for (int first = 0; first < n;) {
    const int size = std::min(group_, (n - first) / s_.chunks);
    for (int chunk = 0; chunk < s_.chunks; ++chunk) {
      for (int i = 0; i < size; ++i, ++first) {
        chunk_[place(first)] = chunk;
        if (chunk > 0) before_[place(first)] = first - size;
      }
    }
  }
}

MakespanSimulator::Ticks MakespanSimulator::simulate(int n, Messages messages) {
  number_passes(n);
  ties_ = false;
  first_pass();
  if (messages == Messages::one_at_a_time) second_pass();
  return *std::max_element(free_.begin(), free_.end());
}

/// Messages take their time and hold up nothing.
void MakespanSimulator::first_pass() {
  const std::size_t all = place(s_.ranks) * place(n_);
  for (Direction& d : directions_) {
    d.passing.resize(all);
    d.depth.resize(all);
  }
  free_.assign(place(s_.ranks), 0);
  depth_.assign(place(s_.ranks), 0);
  const int p = s_.ranks;
  const int step = s_.kind == ScheduleKind::interleaved ? 1 : 2;
  for (int diagonal = p - 1 - step * ahead_[0]; diagonal <= step * (n_ - 1) + p - 1; ++diagonal) {
    const int first = step == 2 && (diagonal - (p - 1)) % 2 != 0 ? 1 : 0;
    for (int rank = first; rank < p; rank += step) {
      first_pass_row(rank, (diagonal - (p - 1 - rank)) / step);
    }
  }
}

inline void MakespanSimulator::first_pass_row(int rank, int row) {
  const std::size_t r = place(rank);
  Ticks time = free_[r];
  std::int32_t depth = depth_[r];
  const auto run = [&](Direction& d, int k) {
    const bool first = rank == s_.ranks - 1 - d.last;
    if (!first || chunk_[place(k)] > 0) {
      const int needed = first ? before_[place(k)] : k;
      const std::size_t message = at(first ? d.last : rank - d.up, needed);
      time = std::max(time, d.passing[message]);
      depth = std::max(depth, d.depth[message]);
    }
    time += d.takes[r * place(s_.chunks) + place(chunk_[place(k)])];
    ++depth;
    d.passing[at(rank, k)] = time + d.hop[r];
    d.depth[at(rank, k)] = depth + 1;
  };
  const int forward = row + ahead_[r];
  if (forward >= 0 && forward < n_) run(directions_[0], forward);
  if (row >= 0 && row < n_) {
    run(directions_[1], row);
    if (s_.kind == ScheduleKind::zero_bubble_h1) {
      // Weight gradients: `rank` rows later, from the last forward on without delay, then the rest.
      const bool drains = row + std::min(ahead_[r], n_) >= n_;
      const int begun = n_ - std::min(ahead_[r], n_);  // first row that drains
      int weights = row >= rank || drains ? 1 : 0;
      if (row == n_ - 1) weights += std::min(rank, begun);
      time += weights * weight_[r];
      depth += weights;
    }
  }
  free_[r] = time;
  depth_[r] = depth;
}

/// Each direction of each rank does one thing at a time.
void MakespanSimulator::second_pass() {
  const std::size_t all = place(s_.ranks) * place(n_);
  for (Direction& d : directions_) {
    d.ready.resize(all);
    d.arrives.resize(all);
    d.done.assign(place(s_.ranks), 0);
    d.next.assign(place(s_.ranks), -1);
    d.key.resize(place(s_.ranks));
    d.line.assign(place(s_.ranks), 0);
    for (int rank = 0; rank < s_.ranks; ++rank) to_next_message(d, rank);
  }
  free_.assign(place(s_.ranks), 0);
  waiting_.assign(place(s_.ranks), 1);
  const auto visit = [&](int rank) {
    if (waiting_[place(rank)] == 0) return false;
    waiting_[place(rank)] = 0;
    compute(rank);
    for (Direction& d : directions_) send(d, rank);
    return true;
  };
  for (bool any = true; any;) {
    any = false;
    for (int rank = 0; rank < s_.ranks; ++rank) any |= visit(rank);
    for (int rank = s_.ranks; rank-- > 0;) any |= visit(rank);
  }
  for (const std::int32_t done : directions_[1].done) {
    EXPECTS(done == n_, "lowered schedules run to their end");
  }
}

bool MakespanSimulator::compute_one(Direction& d, int rank, int number) {
  const std::size_t r = place(rank);
  const bool first = rank == s_.ranks - 1 - d.last;
  if (!first || chunk_[place(number)] > 0) {
    const int needed = first ? before_[place(number)] : number;
    const int sender = first ? d.last : rank - d.up;
    if (d.next[place(sender)] <= needed) return false;
    free_[r] = std::max(free_[r], d.arrives[at(sender, needed)]);
  }
  free_[r] += d.takes[r * place(s_.chunks) + place(chunk_[place(number)])];
  d.ready[at(rank, number)] = free_[r];
  ++d.done[r];
  return true;
}

/// Runs passes of a rank until one has to wait.
void MakespanSimulator::compute(int rank) {
  const std::size_t r = place(rank);
  const int ahead = std::min(ahead_[r], n_);
  while (true) {
    const int forward = directions_[0].done[r];
    const int row = directions_[1].done[r];
    if (forward < n_ && forward - ahead <= row) {
      if (!compute_one(directions_[0], rank, forward)) return;
      continue;
    }
    if (row == n_ || !compute_one(directions_[1], rank, row)) return;
    if (s_.kind != ScheduleKind::zero_bubble_h1) continue;
    const bool drains = row + ahead >= n_;
    int weights = row >= rank || drains ? 1 : 0;
    if (row == n_ - 1) weights += std::min(rank, n_ - ahead);
    free_[r] += weights * weight_[r];
  }
}

inline void MakespanSimulator::to_next_message(Direction& d, int rank) {
  std::int32_t& next = d.next[place(rank)];
  ++next;
  if (rank == d.last) {
    while (next < n_ && !sends(d, rank, next)) ++next;
  }
  d.key[place(rank)] = next < n_ ? d.passing[at(rank, next)] : kNeverTicks;
}

/// Whether the next message of `rank` comes before that of a neighbour on the link they share.
inline bool MakespanSimulator::earlier(const Direction& d, int rank, int other) {
  const Ticks mine = d.key[place(rank)];
  const Ticks its = d.key[place(other)];
  if (mine != its) return mine < its;
  ties_ = true;
  // As in the lowering: the longest chain, then the sender's stage.
  const auto order = [&](int sender) {
    const int number = d.next[place(sender)];
    const int chunk = chunk_[place(number)];
    return std::pair(d.depth[at(sender, number)],
                     s_.stage(sender, d.gradient ? s_.chunks - 1 - chunk : chunk));
  };
  return order(rank) < order(other);
}

/// Runs messages of one rank until one has to wait.
void MakespanSimulator::send(Direction& d, int rank) {
  const std::size_t r = place(rank);
  const int to = neighbour(rank, d.up);
  const int from = neighbour(rank, -d.up);
  while (d.next[r] < d.done[r] && earlier(d, rank, to) && earlier(d, rank, from)) {
    const std::size_t message = at(rank, d.next[r]);
    const Ticks start = std::max({d.ready[message], d.line[r], d.line[place(to)]});
    d.arrives[message] = d.line[r] = d.line[place(to)] = start + d.hop[r];
    to_next_message(d, rank);
    waiting_[place(to)] = waiting_[place(from)] = 1;
  }
}

Seconds MakespanSimulator::run(const PipelineShape& shape, const ScheduleCosts& costs,
                               Messages messages, Rounds rounds) {
  EXPECTS(costs.stages.size() == static_cast<std::size_t>(shape.stages()) &&
              costs.hops.size() == static_cast<std::size_t>(shape.ranks),
          "times of every stage and every hop");
  EXPECTS(2.0 * shape.stages() * shape.microbatches < 0x1p30, "passes are numbered in 32 bits");
  if (runs_both_ways(shape.kind)) {
    n_ = shape.microbatches * shape.chunks;
    return lowered_makespan(shape, costs, messages);
  }
  EXPECTS(shape.kind == ScheduleKind::interleaved || shape.chunks == 1,
          "only interleaved schedules have chunks");
  set_up(shape, costs);
  if (s_.ranks == 1) {
    n_ = 0;
    const Ticks each = directions_[0].takes[0] + directions_[1].takes[0] + weight_[0];
    return Seconds{static_cast<double>(s_.microbatches * each) / second_};
  }
  const int round = group_ * s_.chunks;
  // W: passes look at most one group or all ranks away, messages a few rows if stages do not differ
  // much; repetition() verifies it.
  int window = s_.chunks > 1 ? 2 * (std::max(s_.ranks, group_) + 2) : 12;
  int n = all_;
  if (rounds == Rounds::skip_repeated && s_.kind != ScheduleKind::gpipe) n = fewest_rows(window);
  while (true) {
    n += (all_ - n) % round;  // whole rounds are left out
    if (n > all_ / 4 * 3) n = all_;
    const Ticks end = simulate(n, messages);
    const auto seconds = [&](Ticks ticks) { return Seconds{static_cast<double>(ticks) / second_}; };
    if (n == all_) return seconds(end);
    const Period period = repetition(window, messages);
    if (period.rows == 0) {
      n *= 2;
      window = std::max(window, 2 * (s_.ranks + 2));
    } else if ((all_ - n) % period.rows != 0) {
      n += (all_ - n) % period.rows;
    } else {
      return seconds(end + (all_ - n) / period.rows * period.shift);
    }
  }
}

Seconds simulate_makespan(const PipelineShape& shape, const ScheduleCosts& costs,
                          Messages messages) {
  return MakespanSimulator().run(shape, costs, messages);
}

}  // namespace echelon
