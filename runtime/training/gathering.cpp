#include "runtime/training/gathering.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "core/plan/process_grid.hpp"
#include "runtime/training/measured_step.hpp"
#include "runtime/training/rank_times.hpp"

namespace echelon {
namespace {

/// A rank's message to rank 0 about its measured step: begin, end, then every span.
constexpr int kSpanNumbers = 3 + kWithins;

std::vector<double> packed(const StepTimes& times, std::size_t spans) {
  std::vector<double> out{times.begin.in(kSecond), times.end.in(kSecond)};
  for (const InstructionSpan& span : times.spans) {
    out.push_back(span.start.in(kSecond));
    out.push_back(span.end.in(kSecond));
    out.push_back(span.waited.in(kSecond));
    for (const Seconds part : span.within) out.push_back(part.in(kSecond));
  }
  out.resize(2 + spans * kSpanNumbers, 0);
  return out;
}

StepTimes unpacked(const double* from, std::size_t spans, int rank, int pipeline_rank) {
  StepTimes times;
  times.rank = rank;
  times.pipeline_rank = pipeline_rank;
  times.begin = Seconds{from[0]};
  times.end = Seconds{from[1]};
  times.spans.resize(spans);
  const double* at = from + 2;
  for (InstructionSpan& span : times.spans) {
    span.start = Seconds{at[0]};
    span.end = Seconds{at[1]};
    span.waited = Seconds{at[2]};
    for (int w = 0; w < kWithins; ++w)
      span.within[static_cast<std::size_t>(w)] = Seconds{at[3 + w]};
    at += kSpanNumbers;
  }
  return times;
}

/// Memory of the process, its copy of a checkpoint, its own computing, and its view of the
/// machine's cores.
constexpr std::size_t kComputes = kMemoryParts.size();
constexpr std::size_t kProcess = kComputes + 1;
constexpr std::size_t kCopy = kProcess + 1;
constexpr std::size_t kUse = kCopy + 1;
constexpr std::size_t kRankNumbers = kUse + ProcessUse::kNumbers;

/// As text, for the report.
void tell_use(const CoreUse& use, std::int64_t steps, RunReport& report) {
  const auto cores = [&](double used) { return fmt::format("{:.2f} of {}", used, use.cores); };
  report.environment["cores used by the run"] = cores(use.own);
  report.environment[kOtherPrograms] = cores(use.others);
  if (steps > 0) {
    report.environment[kProcessorTime] =
        fmt::format("{:.4g} s", use.processor_time.in(kSecond) / static_cast<double>(steps));
  }
}

/// Everybody's values, by rank, on rank 0; elsewhere the own ones.
template <class Value>
std::vector<Value> gathered(Communicator& all, std::vector<Value> own, Element element) {
  const auto count = static_cast<std::int64_t>(own.size());
  if (all.rank() != 0) {
    all.send(own.data(), count, element, 0);
    return own;
  }
  own.resize(own.size() * static_cast<std::size_t>(all.size()));
  for (int rank = 1; rank < all.size(); ++rank)
    all.receive(own.data() + rank * count, count, element, rank);
  return own;
}

/// The number of rank 0's median step, sent to all; nothing if no step was measured.
std::optional<std::size_t> median_step(Communicator& all, const std::vector<StepTimes>& steps) {
  std::array<std::int32_t, 2> chosen{};  // whether there is one, and its number
  if (all.rank() == 0 && !steps.empty()) {
    std::vector<std::int32_t> order(steps.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int32_t>(i);
    std::sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
      const StepTimes& x = steps[static_cast<std::size_t>(a)];
      const StepTimes& y = steps[static_cast<std::size_t>(b)];
      return x.end - x.begin < y.end - y.begin;
    });
    chosen = {1, order[order.size() / 2]};
  }
  if (all.size() > 1) all.broadcast(chosen.data(), 2, Element::i32, 0);
  if (chosen[0] == 0) return std::nullopt;
  return static_cast<std::size_t>(chosen[1]);
}

/// Each rank hashes the plan with its own program as it executed it: rank 0 finds the plan's hash
/// if all executed the plan.
std::string hash_of_all(Communicator& all, const RankMeasurements& own, const Schedule& schedule,
                        const std::string& planned) {
  std::vector<Program> programs = schedule.programs;
  programs[static_cast<std::size_t>(own.pipeline_rank)] = own.record.executed();
  const std::string hash = executed_hash(schedule, programs);
  const std::vector<std::int32_t> letters =
      gathered(all, std::vector<std::int32_t>(hash.begin(), hash.end()), Element::i32);
  for (std::size_t at = 0; at < letters.size(); at += hash.size()) {
    std::string other;
    for (std::size_t i = at; i < at + hash.size(); ++i)
      other.push_back(static_cast<char>(letters[i]));
    if (other != planned) return other;
  }
  return planned;
}

}  // namespace

/// Step 1: the executed programs. Step 2: memory. Step 3: the times of one step.
void gather_measurements(Communicator& all, const RankMeasurements& own, const Schedule& schedule,
                         RunReport& report) {
  const PlanFile& plan = report.plan;
  const ProcessGrid grid(plan.plan);
  const auto ranks = static_cast<std::size_t>(grid.ranks());
  const std::string hash = hash_of_all(all, own, schedule, report.schedule_hash);

  std::vector<double> numbers;
  for (const NamedMemory& each : kMemoryParts) numbers.push_back((own.held.*each.part).in(kByte));
  const Program& program = schedule.programs[static_cast<std::size_t>(own.pipeline_rank)];
  numbers.push_back(own_compute(program, own.steps).in(kSecond));
  numbers.push_back(own.process_peak.in(kByte));
  numbers.push_back(own.checkpoint_copy.in(kByte));
  for (const double number : own.use.numbers()) numbers.push_back(number);
  const std::vector<double> of_all = gathered(all, numbers, Element::f64);

  std::size_t spans = 0;
  for (const Program& program : schedule.programs)
    spans = std::max(spans, program.instructions.size());
  const std::optional<std::size_t> chosen = median_step(all, own.steps);
  std::vector<double> times;
  if (chosen) times = gathered(all, packed(own.steps.at(*chosen), spans), Element::f64);
  if (all.rank() != 0) return;

  report.executed_hash = hash;
  Prediction measured;
  measured.fits = true;
  measured.capacity = plan.predicted.capacity;
  measured.stages.resize(static_cast<std::size_t>(plan.plan.pp));
  std::vector<ProcessUse> processes;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const double* from = of_all.data() + rank * kRankNumbers;
    processes.push_back(ProcessUse::from(from + kUse));
    MemoryBreakdown of_rank;
    for (std::size_t part = 0; part < kMemoryParts.size(); ++part)
      of_rank.*kMemoryParts[part].part = Bytes{from[part]};
    report.process_peak += Bytes{from[kProcess]};
    report.checkpoint_copy = std::max(report.checkpoint_copy, Bytes{from[kCopy]});
    const auto stage = static_cast<std::size_t>(grid.coordinates(static_cast<int>(rank)).pp);
    report.rank_times.push_back({.rank = static_cast<int>(rank),
                                 .stage = static_cast<int>(stage),
                                 .computes = Seconds{from[kComputes]},
                                 .behind = {}});
    if (of_rank.total() > measured.stages[stage].total()) measured.stages[stage] = of_rank;
    measured.peak = std::max(measured.peak, of_rank.total());
  }
  measured.peak_reserved = measured.peak;
  if (const auto use = core_use(processes)) tell_use(*use, own.measured_steps, report);
  if (!chosen) {
    report.rank_times.clear();
    return;
  }
  compare_ranks(report.rank_times);

  std::vector<StepTimes> of_ranks;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const int stage = grid.coordinates(static_cast<int>(rank)).pp;
    const std::size_t count =
        schedule.programs[static_cast<std::size_t>(stage)].instructions.size();
    of_ranks.push_back(unpacked(times.data() + rank * (2 + spans * kSpanNumbers), count,
                                static_cast<int>(rank), stage));
  }
  write_measured(schedule, of_ranks, std::move(measured), report);
}

}  // namespace echelon
