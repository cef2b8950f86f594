// Where a simulated pipeline repeats itself: step 3 of MakespanSimulator.
#include <algorithm>
#include <cstdlib>

#include "costmodel/schedule/makespan.hpp"

namespace echelon {

/// Rows of the fill, of one round before it is compared with the next, of the two windows.
int MakespanSimulator::fewest_rows(int window) const {
  const int round = group_ * s_.chunks;
  return ahead_[0] + 2 * window + std::max(round, 2 * s_.ranks);
}

/// Whether the times of rows [from, to) are those of `period` rows earlier plus the shifts.
bool MakespanSimulator::repeats(const Direction& d, int from, int to, int period, Messages messages,
                                Ticks shift, Ticks passing_shift) const {
  const std::int32_t deeper = ties_ ? d.depth[at(1, from - row_of_first(d, 1))] -
                                          d.depth[at(1, from - period - row_of_first(d, 1))]
                                    : 0;
  for (int rank = 0; rank < s_.ranks; ++rank) {
    const int zero = row_of_first(d, rank);
    for (int k = from - zero; k < to - zero; ++k) {
      const std::size_t now = at(rank, k);
      const std::size_t then = at(rank, k - period);
      if (d.passing[now] - d.passing[then] != passing_shift) return false;
      if (ties_ && d.depth[now] - d.depth[then] != deeper) return false;
      if (messages == Messages::passing) continue;
      if (d.ready[now] - d.ready[then] != shift) return false;
      if (sends(d, rank, k) && d.arrives[now] - d.arrives[then] != shift) return false;
    }
  }
  return true;
}

/// Whether on every link the messages of rows [from, to) come between those of the other end that
/// are `near` rows earlier and later.
bool MakespanSimulator::stays_near(const Direction& d, int from, int to, int near) const {
  for (int rank = 0; rank < s_.ranks; ++rank) {
    const int zero = row_of_first(d, rank);
    for (const int up : {-1, 1}) {
      const int other = neighbour(rank, up);
      if (s_.chunks == 1 && std::abs(rank - other) > 1) continue;  // no link
      const int its = row_of_first(d, other);
      for (int row = from; row < to; ++row) {
        const Ticks now = d.passing[at(rank, row - zero)];
        const int low = row - near - its;
        const int high = row + near - its;
        if (low >= 0 && low < n_ && d.passing[at(other, low)] >= now) return false;
        if (high >= 0 && high < n_ && d.passing[at(other, high)] <= now) return false;
      }
    }
  }
  return true;
}

/// Looks for the shortest period at the end of the rows that are whole on every rank.
MakespanSimulator::Period MakespanSimulator::repetition(int window, Messages messages) const {
  const int round = group_ * s_.chunks;
  const int end = n_ - ahead_[0];
  const int from = end - 2 * window;
  const Direction& forwards = directions_[0];
  for (int rows = round; from - rows >= s_.ranks; rows += round) {
    const std::size_t now = at(0, end - 1 + ahead_[0]);
    const std::size_t then = now - static_cast<std::size_t>(rows);
    const Ticks passing_shift = forwards.passing[now] - forwards.passing[then];
    const Ticks shift =
        messages == Messages::passing ? passing_shift : forwards.ready[now] - forwards.ready[then];
    const auto same = [&](const Direction& d) {
      return repeats(d, from, end, rows, messages, shift, passing_shift);
    };
    if (!same(directions_[0]) || !same(directions_[1])) continue;
    const int near = window / 2;
    const auto nearby = [&](const Direction& d) {
      return messages == Messages::passing ||
             stays_near(d, std::max(0, from + window - rows - near), from + window + near, near);
    };
    if (nearby(directions_[0]) && nearby(directions_[1])) return {rows, shift};
    return {};
  }
  return {};
}

}  // namespace echelon
