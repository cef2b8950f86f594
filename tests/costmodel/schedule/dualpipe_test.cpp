// DualPipeV: published order, bubble and activations; pairs; the placement of its stages.
#include <map>
#include <set>

#include "core/schedule/schedule_check.hpp"
#include "costmodel/schedule/makespan.hpp"
#include "costmodel/time/pipeline.hpp"
#include "tests/costmodel/schedule/schedule_cases.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

namespace {

PipelineShape v_shape(int ranks, int microbatches) {
  return {
      .kind = ScheduleKind::dualpipe_v, .ranks = ranks, .chunks = 2, .microbatches = microbatches};
}

Schedule built_v(const PipelineShape& shape, const ScheduleCosts& costs) {
  ScheduleSpec spec;
  spec.shape = shape;
  return build_schedule(spec, costs);
}

/// "F0 F1 B1&", a letter and a chunk per pass; & ends a pair.
std::string order_text(const PipelineShape& shape, int rank) {
  std::string text;
  bool paired = false;
  for (const ComputeStep& step : compute_order(shape, rank)) {
    const std::map<Op, char> letters = {{Op::forward, 'F'},
                                        {Op::backward, 'B'},
                                        {Op::backward_input, 'I'},
                                        {Op::backward_weight, 'W'}};
    text += (text.empty() ? "" : paired ? "&" : " ");
    text += letters.at(step.op) + std::to_string(step.chunk);
    paired = step.paired;
  }
  return text;
}

double pass_time(const ChunkTimes& t, Op op) {
  switch (op) {
    case Op::forward: return t.forward.in(1_s);
    case Op::backward: return t.backward().in(1_s);
    case Op::backward_input: return (t.recompute + t.backward_input).in(1_s);
    default: return t.backward_weight.in(1_s);
  }
}

/// Every backward's inputs and every forward's output, traced by rules written down here: the
/// longest chain through the passes of all ranks without messages. Pairs run as one.
double longest_chain(const PipelineShape& s, const ScheduleCosts& costs) {
  std::map<std::tuple<bool, int, int>, double> ended;  // backward, stage, microbatch
  std::vector<std::vector<ComputeStep>> orders;
  for (int rank = 0; rank < s.ranks; ++rank) orders.push_back(compute_order(s, rank));
  std::vector<std::size_t> at(orders.size(), 0);
  std::vector<double> now(orders.size(), 0);
  const int last = 2 * s.ranks - 1;
  const auto stage = [&](std::size_t rank, const ComputeStep& step) {
    return step.chunk == 0 ? static_cast<int>(rank) : last - static_cast<int>(rank);
  };
  // Nothing where the input has not arrived.
  const auto ready = [&](std::size_t rank, const ComputeStep& step) -> std::optional<double> {
    if (step.op == Op::backward_weight) return 0.0;
    const bool back = step.op != Op::forward;
    const int needed = stage(rank, step) + (back ? 1 : -1);
    if (needed < 0 || needed > last) return 0.0;
    const auto found = ended.find({back, needed, step.microbatch});
    if (found == ended.end()) return {};
    return found->second;
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t rank = 0; rank < orders.size(); ++rank) {
      while (at[rank] < orders[rank].size()) {
        const std::size_t count = orders[rank][at[rank]].paired ? 2 : 1;
        double start = now[rank];
        double time = 0;
        bool waits = false;
        for (std::size_t k = 0; k < count; ++k) {
          const ComputeStep& step = orders[rank][at[rank] + k];
          const std::optional<double> input = ready(rank, step);
          waits = waits || !input;
          start = std::max(start, input.value_or(0));
          time += pass_time(costs.stages[static_cast<std::size_t>(stage(rank, step))], step.op);
        }
        if (waits) break;
        now[rank] = start + time;
        for (std::size_t k = 0; k < count; ++k) {
          const ComputeStep& step = orders[rank][at[rank] + k];
          if (step.op == Op::backward_weight) continue;
          ended[{step.op != Op::forward, stage(rank, step), step.microbatch}] = now[rank];
        }
        at[rank] += count;
        moved = true;
      }
    }
  }
  for (std::size_t rank = 0; rank < orders.size(); ++rank) {
    REQUIRE(at[rank] == orders[rank].size());
  }
  return *std::max_element(now.begin(), now.end());
}

}  // namespace

TEST_CASE("DualPipeV computes in the order of DeepSeek's own program") {
  // Printed by deepseek-ai/DualPipe @3da1bbe, dualpipe/dualpipev.py, for two ranks and five
  // microbatches: forward, backward and weight steps replaced by their names.
  CHECK(order_text(v_shape(2, 5), 0) ==
        "F0 F0 F0 F1 I1 W1 F1 F0&B1 F1&B0 F0&B1 F1&B0 B1 F1&B0 B1 I0 W0 I0 W0");
  CHECK(order_text(v_shape(2, 5), 1) ==
        "F0 F1 F0 F1 F0 B1 F1&B0 F0&B1 F1&B0 F0&B1 F1&B0 B1 B0 I1 I0 W1 W0");
}

TEST_CASE("the stages of DualPipeV run down the ranks and back") {
  const StagePlacement placement{ScheduleKind::dualpipe_v, 4, 2};
  std::vector<int> ranks, hops;
  for (int stage = 0; stage < placement.stages(); ++stage) {
    ranks.push_back(placement.rank_of(stage));
    CHECK(placement.stage(placement.rank_of(stage), stage / 4) == stage);
    if (placement.sends(stage)) hops.push_back(placement.hop(stage));
  }
  CHECK(ranks == std::vector{0, 1, 2, 3, 3, 2, 1, 0});
  CHECK(hops == std::vector{0, 1, 2, 2, 1, 0});  // none inside rank 3
  CHECK(placement.last_rank() == 0);
}

TEST_CASE("DualPipeV has the bubble and the activations of table 2 of DeepSeek-V3") {
  // Table 2 of arXiv 2412.19437 counts 2p stages: (2p/2 − 1)(F&B + B − 3W), 2p + 1 activations of a
  // stage. Nothing is hidden here, so F&B is F + B. Exact where the input gradient takes as long as
  // the forward and the weight gradient no longer.
  for (const int p : {2, 4, 8, 16}) {
    for (const double w : {1.0, 0.75, 0.5}) {
      for (const int m : {2 * p, 2 * p + 3, 5 * p}) {
        const PipelineShape shape = v_shape(p, m);
        const ScheduleCosts costs = ScheduleCosts::uniform(
            p, 2, {.forward = 1_s, .backward_input = 1_s, .backward_weight = Seconds{w}});
        const double b = 1 + w;
        const double bubble = (p - 1) * ((1 + b) + b - 3 * w);
        const Schedule schedule = built_v(shape, costs);
        INFO(name_of(shape) << " weight gradient " << w);
        CHECK(simulate(schedule, costs).makespan.in(1_s) == Approx(2 * m * (1 + b) + bubble));
        for (int rank = 0; rank < p; ++rank) {
          CHECK(max_in_flight(schedule, rank) == 2 * p + 1);
          CHECK(chunks_in_flight(shape.kind, p, 2, rank, m) == 2 * p + 1);
        }
      }
    }
  }
}

TEST_CASE("pairs of neighbours run in lock step: p microbatches wait for 2(p - 1) hops") {
  for (const int p : {2, 4, 8, 16}) {
    for (const double hop : {0.05, 0.2}) {
      const auto time = [&](int m) {
        const PipelineShape shape = v_shape(p, m);
        return simulate_makespan(shape, one_second_each(shape, Seconds{hop})).in(1_s);
      };
      const double more = time(8 * p) - time(4 * p);
      INFO("p " << p << " hop " << hop);
      CHECK(more == Approx(4 * p * 6 + 4 * 2 * (p - 1) * hop));
    }
  }
}

TEST_CASE("any chunks take the longest chain of passes that need one another") {
  Numbers draw(21);
  for (int round = 0; round < 300; ++round) {
    const int p = 2 + draw.upto(6);
    const PipelineShape shape = v_shape(p, 2 * p + draw.upto(12));
    ScheduleCosts costs = random_costs(shape, draw);
    costs.ranks.clear();
    costs.hops.assign(costs.hops.size(), Seconds{});
    INFO(name_of(shape) << " round " << round);
    const double expected = longest_chain(shape, costs);
    CHECK(simulate(built_v(shape, costs), costs).makespan.in(1_s) == Approx(expected));
    CHECK(simulate_makespan(shape, costs).in(1_s) == Approx(expected));
  }
}

TEST_CASE("the share of paired passes is that of forwards followed by the other chunk's backward") {
  for (int p = 2; p <= 9; ++p) {
    for (const int m : {2 * p, 2 * p + 1, 7 * p}) {
      for (int rank = 0; rank < p; ++rank) {
        const PipelineShape shape = v_shape(p, m);
        const std::vector<ComputeStep> order = compute_order(shape, rank);
        int pairs = 0;
        for (std::size_t k = 0; k + 1 < order.size(); ++k) {
          if (!order[k].paired) continue;
          CHECK(order[k].op == Op::forward);
          CHECK(order[k + 1].op == Op::backward);
          CHECK(order[k + 1].chunk == 1 - order[k].chunk);
          ++pairs;
        }
        CHECK(paired_share(shape.kind, p, shape.microbatches, rank) == Approx(pairs / (2.0 * m)));
      }
    }
  }
  CHECK(paired_share(ScheduleKind::one_f_one_b, 4, 9, 1) == 0);
}

TEST_CASE("a pair begins with both inputs and sends when both passes have ended") {
  const PipelineShape shape = v_shape(3, 9);
  Numbers draw(5);
  ScheduleCosts costs = random_costs(shape, draw);
  costs.ranks.clear();
  const Schedule schedule = built_v(shape, costs);
  const Timeline timeline = simulate(schedule, costs);
  std::map<std::tuple<int, Op, int, int>, Span> spans;
  for (const Span& span : timeline.spans) {
    const Instruction& i =
        schedule.programs[static_cast<std::size_t>(span.rank)].instructions[span.id];
    if (i.chunk && i.microbatch) spans[{span.rank, i.op, *i.chunk, *i.microbatch}] = span;
  }
  int pairs = 0;
  for (int rank = 0; rank < 3; ++rank) {
    const std::vector<ComputeStep> order = compute_order(shape, rank);
    for (std::size_t k = 0; k < order.size(); ++k) {
      if (!order[k].paired) continue;
      const ComputeStep& f = order[k];
      const ComputeStep& b = order[k + 1];
      const auto received = spans.find({rank, Op::recv_gradient, b.chunk, b.microbatch});
      const auto sent = spans.find({rank, Op::send_activation, f.chunk, f.microbatch});
      const Span forward = spans.at({rank, Op::forward, f.chunk, f.microbatch});
      const Span backward = spans.at({rank, Op::backward, b.chunk, b.microbatch});
      CHECK(backward.start == forward.end);
      if (received != spans.end()) CHECK(received->second.end <= forward.start);
      if (sent != spans.end()) CHECK(sent->second.start >= backward.end);
      ++pairs;
    }
  }
  CHECK(pairs > 20);
}

TEST_CASE("the checker finds what is wrong in a V") {
  const PipelineShape shape = v_shape(3, 7);
  const Schedule sound = built_v(shape, one_second_each(shape));
  REQUIRE(check_schedule(sound).empty());
  const auto first_fault = [](const Schedule& s) {
    const std::vector<ScheduleFault> faults = check_schedule(s);
    return faults.empty() ? std::string() : std::string(name_of(faults[0].kind));
  };
  Schedule other = sound;
  other.kind = ScheduleKind::interleaved;  // its stages lie elsewhere
  other.group = 3;
  CHECK(first_fault(other) != "");
  other = sound;
  other.chunks = 1;
  CHECK(first_fault(other) == "malformed");
  // The last rank's second chunk needs the output of its first one.
  other = sound;
  for (Instruction& i : other.programs[2].instructions) {
    if (i.op == Op::forward && i.chunk == 1 && i.microbatch == 0) i.reads = {};
  }
  CHECK(first_fault(other) == "missing-dependency");
  other = sound;
  for (Instruction& i : other.programs[0].instructions) {
    if (i.op == Op::send_activation && i.chunk == 0) i.peer = 2;
  }
  CHECK(first_fault(other) == "unmatched-message");
}
