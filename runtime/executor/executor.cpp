#include "runtime/executor/executor.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <new>
#include <numeric>
#include <optional>

namespace echelon {
namespace {

constexpr std::size_t place_of(Queue queue) { return static_cast<std::size_t>(queue); }

/// For RunThreads::set_activity: steps in their order, in each its instructions, then its end.
constexpr std::uint64_t order_of(std::int64_t step, std::uint32_t instruction) {
  return (static_cast<std::uint64_t>(step + 1) << 24) | instruction;
}
constexpr std::uint32_t kEndOfStep = (1U << 24) - 1;

/// Each once, after the instructions it waits for and the earlier ones of its queue.
void check_order(const Program& program, const std::vector<std::uint32_t>& order) {
  EXPECTS(order.size() == program.instructions.size(), "an order of all instructions");
  std::vector<bool> called(order.size(), false);
  std::array<std::optional<std::uint32_t>, kQueues> last;
  for (const std::uint32_t id : order) {
    EXPECTS(id < called.size() && !called[id], "each instruction once");
    const Instruction& i = program.instructions[id];
    for (const std::uint32_t before : i.after) EXPECTS(called[before], "what it waits for first");
    EXPECTS(last[place_of(i.queue)] < id, "the order of its queue");
    last[place_of(i.queue)] = id;
    called[id] = true;
  }
}

}  // namespace

Executor::Prepared::Prepared(const Schedule& schedule, int pipeline_rank)
    : program(schedule.programs[static_cast<std::size_t>(pipeline_rank)]),
      rules(schedule, pipeline_rank) {
  std::vector<std::uint32_t> count;  // per instruction: done on its queue when it is over
  for (const Instruction& i : program.instructions) {
    EXPECTS(i.id == names.size(), "a schedule that check_schedule accepts");
    QueueProgram& queue_program = queue_programs[place_of(i.queue)];
    used_queues += queue_program.ids.empty() ? 1 : 0;
    queue_program.ids.push_back(i.id);
    count.push_back(static_cast<std::uint32_t>(queue_program.ids.size()));
    names.push_back(rules.name_of_instruction(i.id));
    std::vector<QueueProgram::Wait>& waits = queue_program.waits.emplace_back();
    for (const std::uint32_t id : i.after) {
      waits.push_back({id, place_of(program.instructions[id].queue), count[id]});
    }
  }
  EXPECTS(used_queues > 0, "a program has instructions");
}

Executor::Rank::Rank(RunThreads& run_threads, const Prepared& what, int global, int pipeline)
    : prepared(what),
      global(global),
      hazard_checker(what.rules, global),
      record(what.program),
      over(run_threads) {
  for (Measured& each : measured) {
    each.times.rank = global;
    each.times.pipeline_rank = pipeline;
  }
  for (int queue = 0; queue < kQueues; ++queue) queues.emplace_back(run_threads);
}

Executor::Executor(RunThreads& run_threads, const Schedule& schedule, const ProcessGrid& grid,
                   Device& device, ExecutorOptions options)
    : run_threads_(run_threads),
      schedule_(schedule),
      device_(device),
      options_(std::move(options)) {
  EXPECTS(grid.degree(Axis::pp) == schedule.ranks, "a grid with the schedule's pipeline ranks");
  if (options_.local.empty()) {
    options_.local.resize(static_cast<std::size_t>(grid.ranks()));
    std::iota(options_.local.begin(), options_.local.end(), 0);
  }
  prepared_.resize(static_cast<std::size_t>(schedule.ranks));
  for (const int rank : options_.local) {
    const int pipeline_rank = grid.coordinates(rank).pp;
    auto& program = prepared_[static_cast<std::size_t>(pipeline_rank)];
    if (!program) program = std::make_unique<Prepared>(schedule, pipeline_rank);
    ranks_.emplace_back(run_threads, *program, rank, pipeline_rank);
  }
}

void Executor::add_threads() {
  for (Rank& rank : ranks_) {
    begin_step(rank, 0);
    if (options_.in_order) {
      rank.order = device_.issue_order(rank.global);
      if (rank.order.empty()) {
        rank.order.resize(rank.prepared.program.instructions.size());
        std::iota(rank.order.begin(), rank.order.end(), 0U);
      }
      check_order(rank.prepared.program, rank.order);
      run_threads_.add(
          fmt::format("rank {}", rank.global), [this, &rank] { run_steps_in_order(rank); },
          rank.global);
      continue;
    }
    for (std::size_t queue = 0; queue < kQueues; ++queue) {
      if (rank.prepared.queue_programs[queue].ids.empty()) continue;
      const auto which = static_cast<Queue>(queue);
      run_threads_.add(
          fmt::format("rank {} {}", rank.global, name_of(which)),
          [this, &rank, which] { run_rank_queue(rank, which); }, rank.global);
    }
  }
}

void Executor::run_rank_queue(Rank& rank, Queue queue) {
  std::int64_t step = 0;
  do run_queue(rank, queue, step);
  while (end_step_on_queue(rank, step++));
}

void Executor::run_steps_in_order(Rank& rank) {
  std::int64_t ended = 0;  // steps
  for (std::int64_t step = 0;; ++step) {
    run_in_order(rank, step);
    close_step(rank, step);
    bool more = ended == step || end_step(rank, ended++, true);
    if (!more || !options_.awaited || options_.awaited(step)) {
      const bool goes_on = end_step(rank, step, false);
      EXPECTS(more || !goes_on, "a step after the last one");
      more = goes_on;
      ended = step + 1;
    }
    if (!more) return;
    begin_step(rank, step + 1);
  }
}

void Executor::run_queue(Rank& rank, Queue queue, std::int64_t step) {
  const QueueProgram& queue_program = rank.prepared.queue_programs[place_of(queue)];
  QueueState& state = rank.queues[place_of(queue)];
  const std::string prefix = fmt::format("step {} ", options_.first_step + step);
  std::string at;
  for (std::size_t k = 0; k < queue_program.ids.size(); ++k) {
    const Instruction& i = rank.prepared.program.instructions[queue_program.ids[k]];
    at.assign(prefix).append(rank.prepared.names[i.id]);
    wait(rank, queue_program.waits[k], at);
    run_threads_.set_activity(at, order_of(step, i.id));
    execute(rank, i, step);
    state.monitor.change(
        [&] { state.done.store(static_cast<std::uint32_t>(k + 1), std::memory_order_release); });
  }
}

void Executor::run_in_order(Rank& rank, std::int64_t step) {
  const std::string prefix = fmt::format("step {} ", options_.first_step + step);
  std::string at;
  for (const std::uint32_t id : rank.order) {
    const Instruction& i = rank.prepared.program.instructions[id];
    at.assign(prefix).append(rank.prepared.names[i.id]);
    run_threads_.set_activity(at, order_of(step, id));
    execute(rank, i, step);
  }
}

void Executor::wait(Rank& rank, const std::vector<QueueProgram::Wait>& waits,
                    const std::string& at) {
  const auto over = [&](const QueueProgram::Wait& wait) {
    return rank.queues[wait.queue].done.load(std::memory_order_acquire) >= wait.count;
  };
  if (run_threads_.directed()) {  // one choice before each instruction, even without a wait
    run_threads_.set_activity(at + " waits for its turn");
    return rank.over.await([&] { return std::all_of(waits.begin(), waits.end(), over); });
  }
  for (const QueueProgram::Wait& wait : waits) {
    if (over(wait)) continue;
    run_threads_.set_activity(at + " waits for " + rank.prepared.names[wait.id]);
    rank.queues[wait.queue].monitor.await([&] { return over(wait); });
  }
}

void Executor::execute(Rank& rank, const Instruction& i, std::int64_t step) {
  using Kind = RunFailure::Kind;
  const Rank::Measured& now = measured(rank, step);
  Work work{.rank = rank.global,
            .pipeline_rank = now.times.pipeline_rank,
            .step = step,
            .instruction = i,
            .timed = now.timed,
            .ready = {},
            .transfer_began = {},
            .within = {},
            .times_done = 0,
            .done = {}};
  const auto describe_failure = [&](const char* what) {
    return fmt::format("step {}, {}: {}", options_.first_step + step, describe(rank.global, i),
                       what);
  };
  rank.hazard_checker.begin(i);
  try {
    carry_out(rank, i, work);
  } catch (const RunFailure& failure) {
    throw RunFailure(failure.kind(), describe_failure(failure.what()));
  } catch (const std::bad_alloc&) {
    throw RunFailure(Kind::out_of_memory, describe_failure("out of memory"));
  } catch (const std::exception& failure) {
    throw RunFailure(Kind::defect, describe_failure(failure.what()));
  }
  rank.hazard_checker.end(i);
}

void Executor::carry_out(Rank& rank, const Instruction& i, Work& work) {
  const auto now = [&] { return device_.now(work.rank, i.queue); };
  const Seconds start = work.timed ? now() : Seconds{};
  device_.execute(work);
  if (work.timed) {
    const Seconds ready = work.ready.value_or(start);
    const Seconds transfer_began = work.transfer_began.value_or(ready);
    measured(rank, work.step).times.spans[i.id] = {
        .start = transfer_began,
        .end = now(),
        .within = work.within,
        .waited = std::max(Seconds{}, transfer_began - ready)};
  }
  rank.record.add(i, work.done, work.times_done);
  if (work.times_done == 1 && work.done == i) return;
  throw RunFailure(RunFailure::Kind::defect,
                   work.times_done == 1
                       ? "the device did " + describe(work.rank, work.done) + " instead"
                       : fmt::format("the device did it {} times", work.times_done));
}

bool Executor::end_step_on_queue(Rank& rank, std::int64_t step) {
  const bool last_queue =
      rank.over.change([&] { return ++rank.ended == rank.prepared.used_queues; });
  if (!last_queue) {
    run_threads_.set_activity(
        fmt::format("step {} is over on this queue", options_.first_step + step));
    if (!run_threads_.directed())
      rank.over.await([&] { return rank.ended == rank.prepared.used_queues || rank.step > step; });
    // What on_step_end waits for has deadlines of its own, which may be longer: a checkpoint's.
    constexpr Seconds kNoDeadline{30.0 * 24 * 3600};
    const LongWait patient(kNoDeadline);
    rank.over.await([&] { return rank.step > step; });
    return !rank.last;
  }
  close_step(rank, step);
  const bool more = end_step(rank, step, false);
  if (more) begin_step(rank, step + 1);
  rank.over.change([&] {
    rank.ended = 0;
    rank.step = step + 1;
    rank.last = !more;
  });
  return more;
}

void Executor::close_step(Rank& rank, std::int64_t step) {
  if (const Instruction* first_irregular = rank.record.first_irregular();
      first_irregular != nullptr) {
    throw RunFailure(RunFailure::Kind::defect,
                     fmt::format("step {}, {}: not executed as planned", options_.first_step + step,
                                 describe(rank.global, *first_irregular)));
  }
  device_.close_step(rank.global);
}

bool Executor::end_step(Rank& rank, std::int64_t step, bool next_issued) {
  const std::int64_t issued = step + (next_issued ? 1 : 0);
  run_threads_.set_activity(
      next_issued ? fmt::format("step {} is issued, the end of step {} awaited",
                                options_.first_step + issued, options_.first_step + step)
                  : fmt::format("step {} is issued", options_.first_step + issued),
      order_of(issued, kEndOfStep));
  const auto& [times, timed] = measured(rank, step);
  StepTimes& own = measured(rank, step).times;
  device_.end_step(rank.global, step, timed ? &own : nullptr);
  for (const InstructionSpan& span : times.spans) own.end = std::max(own.end, span.end);
  return options_.on_step_end && options_.on_step_end({.rank = rank.global,
                                                       .pipeline_rank = times.pipeline_rank,
                                                       .step = step,
                                                       .times = timed ? &times : nullptr,
                                                       .record = rank.record,
                                                       .next_issued = next_issued});
}

/// While none of its queues runs.
void Executor::begin_step(Rank& rank, std::int64_t step) {
  rank.hazard_checker.begin_step();
  rank.record.begin_step();
  for (QueueState& queue : rank.queues) queue.done.store(0, std::memory_order_relaxed);
  auto& [times, timed] = measured(rank, step);
  timed = options_.measured && options_.measured(step);
  times.spans.clear();
  if (timed) {
    times.step = step;
    times.spans.resize(rank.prepared.program.instructions.size());
    times.begin = times.end = device_.now(rank.global, Queue::compute);
  }
  device_.begin_step(rank.global, step, timed);
}

}  // namespace echelon
