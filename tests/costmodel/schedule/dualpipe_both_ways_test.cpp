// DualPipe: the order of DeepSeek's program, bubble and activations, two pipelines in one program.
#include <map>
#include <set>

#include "core/schedule/schedule_check.hpp"
#include "core/schedule/stage_waits.hpp"
#include "costmodel/schedule/makespan.hpp"
#include "costmodel/schedule/makespan_bound.hpp"
#include "costmodel/time/pipeline.hpp"
#include "tests/costmodel/schedule/schedule_cases.hpp"
#include "tests/support/catch.hpp"

namespace echelon {
namespace {

/// `all` microbatches of both directions.
PipelineShape both_ways(int ranks, int all) {
  return {.kind = ScheduleKind::dualpipe, .ranks = ranks, .chunks = 2, .microbatches = all / 2};
}

/// As a plan of ZeRO-1 is lowered: reductions in buckets, and parameters gathered at the end.
Schedule reduced_both_ways(const PipelineShape& shape, const ScheduleCosts& costs) {
  ScheduleSpec spec;
  spec.shape = shape;
  spec.units = 2;
  spec.reduce_gradients = true;
  spec.gather_updated = true;
  spec.clip = true;
  return build_schedule(spec, costs);
}

/// "F0 F1&B0": a letter and a chunk per pass; & joins a pair.
std::string text_of_order(const PipelineShape& shape, int rank) {
  std::string text;
  bool paired = false;
  for (const ComputeStep& step : compute_order(shape, rank)) {
    const char letter = step.op == Op::forward          ? 'F'
                        : step.op == Op::backward       ? 'B'
                        : step.op == Op::backward_input ? 'I'
                                                        : 'W';
    text += (text.empty() ? "" : paired ? "&" : " ");
    text += letter + std::to_string(step.chunk);
    paired = step.paired;
  }
  return text;
}

Seconds time_of_pass(const ChunkTimes& t, Op op) {
  switch (op) {
    case Op::forward: return t.forward;
    case Op::backward: return t.backward();
    case Op::backward_input: return t.recompute + t.backward_input;
    default: return t.backward_weight;
  }
}

struct Traced {
  std::optional<double> end;  ///< none: the orders wait for one another, or repeat a pass
  std::vector<int> most_in_flight;
};

/// Runs the orders of all ranks with rules written down here, without messages: direction 0 goes
/// from rank 0 to the last, direction 1 back; a forward needs the rank before it in its direction,
/// a backward its own forward and the backward of the rank behind; a pair starts with the inputs of
/// both.
class Trace {
 public:
  Trace(const PipelineShape& s, const ScheduleCosts& costs)
      : s_(s), costs_(costs), at_(ranks(), 0), now_(ranks(), 0), in_flight_(ranks(), 0) {
    for (int rank = 0; rank < s.ranks; ++rank) orders_.push_back(compute_order(s, rank));
    most_.assign(ranks(), 0);
  }

  Traced run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t rank = 0; rank < ranks(); ++rank) {
        while (at_[rank] < orders_[rank].size() && advance(rank)) moved = true;
      }
    }
    for (std::size_t rank = 0; rank < ranks(); ++rank) {
      if (at_[rank] != orders_[rank].size()) return {};
    }
    const std::size_t passes = 2 * ranks() * static_cast<std::size_t>(s_.microbatches);
    if (repeated_ || ended_.size() != 2 * passes || weights_.size() != passes) return {};
    return {*std::max_element(now_.begin(), now_.end()), most_};
  }

 private:
  [[nodiscard]] std::size_t ranks() const { return static_cast<std::size_t>(s_.ranks); }

  /// When the input of a pass is there; none: not yet.
  [[nodiscard]] std::optional<double> input_of(int rank, const ComputeStep& step) const {
    const int ahead = step.chunk == 0 ? 1 : -1;  // where its activations go
    const bool back = step.op != Op::forward;
    if (step.op == Op::backward_weight) {
      if (!input_gradients_.contains({rank, step.chunk, step.microbatch})) return {};
      return 0.0;
    }
    if (back && !ended_.contains({false, step.chunk, rank, step.microbatch})) return {};
    const int needed = rank + (back ? ahead : -ahead);
    if (needed < 0 || needed >= s_.ranks) return 0.0;  // begins with the batch, or with the loss
    const auto found = ended_.find({back, step.chunk, needed, step.microbatch});
    if (found == ended_.end()) return {};
    return found->second;
  }

  /// Runs the next pass or pair, if its inputs are there.
  bool advance(std::size_t r) {
    const int rank = static_cast<int>(r);
    const std::size_t count = orders_[r][at_[r]].paired ? 2 : 1;
    double start = now_[r];
    double time = 0;
    for (std::size_t k = 0; k < count; ++k) {
      const ComputeStep& step = orders_[r][at_[r] + k];
      const std::optional<double> input = input_of(rank, step);
      if (!input) return false;
      start = std::max(start, *input);
      const int stage = step.chunk == 0 ? rank : 2 * s_.ranks - 1 - rank;
      time += time_of_pass(costs_.stages[static_cast<std::size_t>(stage)], step.op).in(1_s);
    }
    now_[r] = start + time;
    for (std::size_t k = 0; k < count; ++k) end_pass(rank, orders_[r][at_[r] + k]);
    at_[r] += count;
    return true;
  }

  void end_pass(int rank, const ComputeStep& step) {
    const auto r = static_cast<std::size_t>(rank);
    const std::tuple pass(rank, step.chunk, step.microbatch);
    const bool forward = step.op == Op::forward;
    if (forward) most_[r] = std::max(most_[r], ++in_flight_[r]);
    if (step.op == Op::backward_input) input_gradients_.insert(pass);
    if (step.op == Op::backward_weight || step.op == Op::backward) {
      repeated_ = !weights_.insert(pass).second || repeated_;
      --in_flight_[r];
    }
    if (step.op == Op::backward_weight) return;
    const std::tuple of(!forward, step.chunk, rank, step.microbatch);
    repeated_ = !ended_.emplace(of, now_[r]).second || repeated_;
  }

  const PipelineShape& s_;
  const ScheduleCosts& costs_;
  std::vector<std::vector<ComputeStep>> orders_;
  std::vector<std::size_t> at_;
  std::vector<double> now_;
  std::vector<int> in_flight_, most_;
  // When a pass ended: backward or not, direction, rank, microbatch.
  std::map<std::tuple<bool, int, int, int>, double> ended_;
  std::set<std::tuple<int, int, int>> input_gradients_, weights_;
  bool repeated_ = false;
};

Traced traced(const PipelineShape& s, const ScheduleCosts& costs) { return Trace(s, costs).run(); }

std::string first_fault_of(const Schedule& schedule) {
  const std::vector<ScheduleFault> faults = check_schedule(schedule);
  return faults.empty() ? "" : std::string(name_of(faults[0].kind));
}

}  // namespace

TEST_CASE("DualPipe computes in the order of DeepSeek's own program") {
  // Printed by deepseek-ai/DualPipe @3da1bbe, dualpipe/dualpipe.py, `step`, for four ranks and ten
  // microbatches: its calls replaced by their names, phases by directions. All ranks of all p up to
  // 16 and m up to 4p + 2 were compared once.
  const PipelineShape shape = both_ways(4, 10);
  CHECK(text_of_order(shape, 0) ==
        "F0 F0 F0 F1 I1 W1 F1 F0&B1 F1&B0 F0&B1 F1&B0 B1 F1&B0 B1 I0 W0 I0 W0");
  CHECK(text_of_order(shape, 1) ==
        "F0 F1 F0 F1 F0 B1 F1&B0 F0&B1 F1&B0 F0&B1 F1&B0 B1 B0 I1 I0 W1 W0");
  CHECK(text_of_order(shape, 2) ==
        "F1 F0 F1 F0 F1 B0 F0&B1 F1&B0 F0&B1 F1&B0 F0&B1 B0 B1 I0 I1 W0 W1");
  CHECK(text_of_order(shape, 3) ==
        "F1 F1 F1 F0 I0 W0 F0 F1&B0 F0&B1 F1&B0 F0&B1 B0 F0&B1 B0 I1 W1 I1 W1");
}

TEST_CASE("the stages of DualPipe are the model once in each direction") {
  const StagePlacement placement{ScheduleKind::dualpipe, 4, 2};
  std::vector<int> ranks, hops, ends;
  for (int stage = 0; stage < placement.stages(); ++stage) {
    ranks.push_back(placement.rank_of(stage));
    CHECK(placement.stage(placement.rank_of(stage), stage / 4) == stage);
    if (placement.sends(stage)) hops.push_back(placement.hop(stage));
    if (placement.enters(stage)) ends.push_back(stage);
    if (placement.leaves(stage)) ends.push_back(stage);
    CHECK_FALSE(placement.stays(stage));
  }
  CHECK(ranks == std::vector{0, 1, 2, 3, 3, 2, 1, 0});
  CHECK(hops == std::vector{0, 1, 2, 2, 1, 0});
  CHECK(ends == std::vector{0, 3, 4, 7});
}

TEST_CASE("DualPipe has the bubble and the activations of table 2 of DeepSeek-V3") {
  // (p/2 − 1)(F&B + B − 3W), p + 1 activations of a stage (arXiv 2412.19437). Nothing is hidden
  // here, so F&B is F + B. Exact where the input gradient takes as long as the forward and the
  // weight gradient no longer.
  for (const int p : {2, 4, 8, 16}) {
    for (const double w : {1.0, 0.75, 0.5}) {
      for (const int m : {2 * p, 2 * p + 2, 5 * p}) {
        const PipelineShape shape = both_ways(p, m);
        const ScheduleCosts costs = ScheduleCosts::uniform(
            p, 2, {.forward = 1_s, .backward_input = 1_s, .backward_weight = Seconds{w}});
        const double b = 1 + w;
        const double bubble = (p / 2.0 - 1) * ((1 + b) + b - 3 * w);
        const Schedule schedule = reduced_both_ways(shape, costs);
        INFO(name_of(shape) << " weight gradient " << w);
        CHECK(first_fault_of(schedule) == "");
        CHECK(simulate(schedule, costs).makespan.in(1_s) == Approx(m * (1 + b) + bubble));
        const Traced trace = traced(shape, costs);
        REQUIRE(trace.end);
        CHECK(*trace.end == Approx(m * (1 + b) + bubble));
        for (int rank = 0; rank < p; ++rank) {
          CHECK(trace.most_in_flight[static_cast<std::size_t>(rank)] == p + 1);
          CHECK(max_in_flight(schedule, rank) == p + 1);
          CHECK(chunks_in_flight(shape.kind, p, 2, rank, m / 2) == p + 1);
        }
      }
    }
  }
}

TEST_CASE("the closed form of DualPipe is its simulation for equal thirds") {
  for (const int p : {2, 4, 6, 12}) {
    for (const int m : {2 * p, 4 * p + 2}) {
      const PipelineShape shape = both_ways(p, m);
      const Seconds rank = 6_s;  // both chunks
      const Seconds closed = pipeline_time(shape.kind, p * rank, rank, 2, m / 2);
      CHECK(simulate_makespan(shape, one_second_each(shape)).in(1_s) == Approx(closed.in(1_s)));
      const Seconds bubble = imposed_waiting(shape.kind, 2, m / 2, (p - 1.0) * rank, rank);
      CHECK((closed - m / 2 * rank).in(1_s) == Approx(bubble.in(1_s)).margin(1e-12));
      const PipelineOutline outline{.schedule = shape.kind,
                                    .pp = p,
                                    .vpp = 2,
                                    .microbatches = m / 2,
                                    .sum = p * rank,
                                    .slowest = rank,
                                    .hop = {},
                                    .least_chunk = {}};
      CHECK(least_pipeline_time(outline) <= closed);
    }
  }
}

TEST_CASE("any chunks of DualPipe take the longest chain of passes that need one another") {
  Numbers draw(31);
  for (int round = 0; round < 200; ++round) {
    const int p = 2 + 2 * draw.upto(3);
    const PipelineShape shape = both_ways(p, 2 * p + 2 * draw.upto(8));
    ScheduleCosts costs = random_costs(shape, draw);
    costs.ranks.clear();
    costs.hops.assign(costs.hops.size(), Seconds{});
    INFO(name_of(shape) << " round " << round);
    const Schedule schedule = reduced_both_ways(shape, costs);
    CHECK(first_fault_of(schedule) == "");
    const Traced trace = traced(shape, costs);
    REQUIRE(trace.end);
    CHECK(simulate(schedule, costs).makespan.in(1_s) == Approx(*trace.end));
    CHECK(simulate_makespan(shape, costs).in(1_s) == Approx(*trace.end));
    CHECK(least_makespan(shape, costs) <= simulate_makespan(shape, costs));
  }
}

TEST_CASE("the paired passes of DualPipe are forwards followed by the other direction's backward") {
  for (int p = 2; p <= 10; p += 2) {
    for (const int m : {2 * p, 2 * p + 2, 8 * p}) {
      const PipelineShape shape = both_ways(p, m);
      double mean = 0;
      for (int rank = 0; rank < p; ++rank) {
        const std::vector<ComputeStep> order = compute_order(shape, rank);
        int pairs = 0;
        for (std::size_t k = 0; k + 1 < order.size(); ++k) {
          if (!order[k].paired) continue;
          CHECK(order[k + 1].op == Op::backward);
          CHECK(order[k + 1].chunk == 1 - order[k].chunk);
          ++pairs;
        }
        CHECK(paired_share(shape.kind, p, shape.microbatches, rank) == Approx(pairs / double(m)));
        mean += pairs / double(m) / p;
      }
      CHECK(unpaired_share(shape.kind, p, 2, m / 2) == Approx(1 - mean));
    }
  }
}

TEST_CASE("pairs of DualPipe run in lock step and p microbatches wait for 2(p - 1) hops") {
  for (const int p : {2, 4, 8}) {
    for (const double hop : {0.05, 0.2}) {
      const auto time = [&](int m) {
        const PipelineShape shape = both_ways(p, m);
        return simulate_makespan(shape, one_second_each(shape, Seconds{hop})).in(1_s);
      };
      INFO("p " << p << " hop " << hop);
      CHECK(time(8 * p) - time(4 * p) == Approx(4 * p * 3 + 4 * 2 * (p - 1) * hop));
    }
  }
}

TEST_CASE("both ranks that hold a stage reduce and gather it together") {
  const PipelineShape shape = both_ways(4, 8);
  const Schedule schedule = reduced_both_ways(shape, one_second_each(shape));
  std::map<std::int32_t, std::vector<std::pair<int, int>>> reductions;  // rank, stage of the model
  for (int rank = 0; rank < 4; ++rank) {
    for (const Instruction& i : schedule.programs[static_cast<std::size_t>(rank)].instructions) {
      if (i.op != Op::reduce_gradients && i.op != Op::gather_updated) continue;
      reductions[*i.sequence].emplace_back(rank, schedule.stage(rank, *i.chunk) % 4);
    }
  }
  CHECK(reductions.size() == 4 * (2 + 1));  // a stage's two units, and its gather
  for (const auto& [sequence, ends] : reductions) {
    REQUIRE(ends.size() == 2);
    CHECK(ends[0].first == 3 - ends[1].first);
    CHECK(ends[0].second == ends[1].second);
  }
}

TEST_CASE("the text of a DualPipe program is read as it was written") {
  const PipelineShape shape = both_ways(4, 8);
  const Schedule schedule = reduced_both_ways(shape, one_second_each(shape, Seconds{0.1}));
  const std::string text = to_text(schedule);
  CHECK(text.find("pipeline dualpipe ranks 4 chunks 2 microbatches 4 units 2\n") !=
        std::string::npos);
  const Result<Schedule> read = parse_schedule_text(text, "test");
  REQUIRE(read.ok());
  CHECK(*read == schedule);
}

TEST_CASE("the checker finds what is wrong in a DualPipe") {
  const PipelineShape shape = both_ways(4, 8);
  const Schedule sound = reduced_both_ways(shape, one_second_each(shape));
  REQUIRE(first_fault_of(sound) == "");
  Schedule other = sound;
  other.kind = ScheduleKind::dualpipe_v;  // its second direction goes on where the first ends
  CHECK(first_fault_of(other) != "");
  other = sound;
  other.chunks = 1;
  CHECK(first_fault_of(other) == "malformed");
  other = sound;
  other.programs.pop_back();
  other.ranks = 3;
  CHECK(first_fault_of(other) == "malformed");
  // The second direction needs a batch of its own on the last rank.
  other = sound;
  for (Instruction& i : other.programs[3].instructions) {
    if (i.op == Op::forward && i.chunk == 1 && i.microbatch == 0) i.reads = {};
  }
  CHECK(first_fault_of(other) == "missing-dependency");
  // One of the two that hold a stage reduces more bytes than the other.
  other = sound;
  for (Instruction& i : other.programs[2].instructions) {
    if (i.op == Op::reduce_gradients && i.chunk == 0) i.bytes += 4;
  }
  CHECK(first_fault_of(other) == "unmatched-message");
  other = sound;
  for (Instruction& i : other.programs[1].instructions) {
    if (i.op == Op::send_activation && i.chunk == 1) i.peer = 2;
  }
  CHECK(first_fault_of(other) == "unmatched-message");
}

}  // namespace echelon
