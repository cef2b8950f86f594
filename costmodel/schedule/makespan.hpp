// How long a pipeline takes, without building its schedule: what the search asks for its finalists.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "costmodel/schedule/compute_order.hpp"
#include "costmodel/schedule/costs.hpp"

namespace echelon {

/// How messages share a rank's link.
enum class Messages {
  one_at_a_time,  ///< per direction; what the simulator and in-order streams do
  passing,        ///< each takes its time and holds up nothing; what bounds in closed form assume
};

/// Which microbatches are simulated.
enum class Rounds {
  skip_repeated,  ///< once the pipeline repeats itself, its remaining rounds are multiplied
  all,            ///< every one, for tests: the same result
};

/// Simulates pipelines; keeps its arrays between calls. Not to be shared between threads.
///
/// Times are whole numbers of ticks, 2^-62 of a bound on the step, so that sums are exact: chains
/// of the same passes and messages end at the same tick, and rounds that repeat do so exactly.
///
/// DualPipeV and DualPipe, whose passes are in no such rows, are lowered instead
/// (schedule_draft.hpp). The others:
///
/// 1. Messages pass one another: every pass ends at max(rank free, message arrived) + its time. A
///    rank's row i is its i-th backward and the forward before it; all that row i of rank r needs
///    is on the diagonal a·i + (p − 1 − r) before it (a = 2, interleaved 1), so that no event has
///    to be looked for.
/// 2. Each direction of each rank sends and receives one message at a time, in the order of 1. The
///    next message of a rank goes when it is earlier in that order than the next of both
///    neighbours.
/// 3. Repetition: the events depend on one another by max and + alone. Let the rows [c − W, c + W)
///    of all ranks equal the rows P earlier but for one shift of all times, and let nothing look
///    further than W rows. Then another copy of the rows [c − P, c) at c, and everything later
///    shifted once more, satisfies the same equations, which have one solution. So a short step of
///    n rows that repeats itself gives the long one of N: + (N − n)/P shifts. Where no repetition
///    is found, more microbatches are simulated, in the end all of them.
/// Source of 3: periodicity of max-plus linear systems, Baccelli et al., Synchronization and
/// Linearity (1992), section 3.7; here it is verified in every case and not assumed.
class MakespanSimulator {
 public:
  /// Time from the first forward to the last backward: exactly the makespan that `simulate` finds
  /// for the schedule that `build_schedule` makes of the same shape and costs when nothing but
  /// forwards, backwards and messages takes time (`costs.ranks` is not looked at). For costs that
  /// are not on_exact_grid() rounding may order messages differently that end at the same time.
  /// Checked by: tests/costmodel/schedule/makespan_test.cpp.
  [[nodiscard]] Seconds run(const PipelineShape& shape, const ScheduleCosts& costs,
                            Messages messages = Messages::one_at_a_time,
                            Rounds rounds = Rounds::skip_repeated);
  /// Microbatches times chunks that the last call simulated, of all it was asked for.
  [[nodiscard]] int simulated() const { return n_; }

 private:
  using Ticks = std::int64_t;

  /// Messages of one direction, by sender and number: the k-th forward (backward) of rank r sends
  /// message k of rank r. The next rank's k-th needs it, from the last rank (first) back to the
  /// first (last) that of the same microbatch one chunk later.
  struct Direction {
    std::vector<Ticks> takes;         // of a pass: rank, chunk in the order they run
    std::vector<Ticks> hop;           // of a message: rank
    std::vector<Ticks> passing;       // end of a message in step 1: rank, number
    std::vector<std::int32_t> depth;  // … and passes and messages on the longest chain to it
    std::vector<Ticks> ready;         // end of the pass in step 2
    std::vector<Ticks> arrives;       // end of the message in step 2
    std::vector<std::int32_t> done;   // passes of a rank that have run
    std::vector<std::int32_t> next;   // next message of a rank; those that do not exist skipped
    std::vector<Ticks> key;           // … its end in step 1; kNever: none is left
    std::vector<Ticks> line;          // when the rank's link is free
    int last = 0;                     // rank from which messages go back to the first
    int up = 1;                       // from a rank to the next
    bool gradient = false;
  };
  /// A repetition: after `rows` all times of step 2 (1 if passing) are later by `shift`.
  struct Period {
    int rows = 0;  // 0: none
    Ticks shift = 0;
  };

  void set_up(const PipelineShape& shape, const ScheduleCosts& costs);
  void set_times(const ScheduleCosts& costs);
  void number_passes(int n);
  [[nodiscard]] int fewest_rows(int window) const;
  Ticks simulate(int n, Messages messages);
  void first_pass();
  void first_pass_row(int rank, int row);
  void second_pass();
  void compute(int rank);
  bool compute_one(Direction& d, int rank, int number);
  void send(Direction& d, int rank);
  void to_next_message(Direction& d, int rank);
  [[nodiscard]] bool earlier(const Direction& d, int rank, int other);
  [[nodiscard]] Period repetition(int window, Messages messages) const;
  [[nodiscard]] bool repeats(const Direction& d, int from, int to, int period, Messages messages,
                             Ticks shift, Ticks passing_shift) const;
  [[nodiscard]] bool stays_near(const Direction& d, int from, int to, int near) const;

  [[nodiscard]] std::size_t at(int rank, int number) const {
    return static_cast<std::size_t>(rank) * static_cast<std::size_t>(n_) +
           static_cast<std::size_t>(number);
  }
  [[nodiscard]] int row_of_first(const Direction& d, int rank) const {
    return d.gradient ? 0 : -ahead_[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] bool sends(const Direction& d, int rank, int number) const {
    return rank != d.last || chunk_[static_cast<std::size_t>(number)] < s_.chunks - 1;
  }
  [[nodiscard]] int neighbour(int rank, int up) const {
    const int other = rank + up;
    return other == s_.ranks ? 0 : other < 0 ? s_.ranks - 1 : other;
  }

  PipelineShape s_;
  int group_ = 1;      // microbatches that pass through a chunk in turn
  int all_ = 0;        // forwards of a rank in the whole step
  int n_ = 0;          // … in what is simulated
  double second_ = 1;  // in ticks
  bool ties_ = false;  // two messages of a link that end at the same time in step 1
  std::array<Direction, 2> directions_;
  std::vector<Ticks> weight_;         // weight gradient of a rank; ZB-H1 alone
  std::vector<std::int32_t> ahead_;   // forwards before a rank's first backward
  std::vector<std::int32_t> chunk_;   // of the k-th pass, in the order the chunks run
  std::vector<std::int32_t> before_;  // number of the same microbatch one chunk earlier, if any
  std::vector<Ticks> free_;           // of a rank
  std::vector<std::int32_t> depth_;
  std::vector<char> waiting_;  // ranks for which something has changed
};

/// One call of a new MakespanSimulator.
[[nodiscard]] Seconds simulate_makespan(const PipelineShape& shape, const ScheduleCosts& costs,
                                        Messages messages = Messages::one_at_a_time);

}  // namespace echelon
