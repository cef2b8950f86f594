#include <fmt/format.h>

#include <string>

#include "core/json/json_io.hpp"
#include "core/plan/process_grid.hpp"
#include "planner/explain/plan_detail.hpp"
#include "report/run.hpp"

namespace echelon {

namespace {

constexpr int kExecuted = 1;
constexpr int kSimulated = 2;

void name_process(Json& events, int process, const char* name) {
  events.push_back(
      {{"ph", "M"}, {"name", "process_name"}, {"pid", process}, {"args", {{"name", name}}}});
}

/// One bar. A thread is a rank's queue.
void add_bar(Json& events, int process, int rank, const Instruction& i, Seconds start,
             Seconds end) {
  Json bar{{"ph", "X"},
           {"name", std::string(name_of(i.op)) +
                        (i.microbatch ? " m" + std::to_string(*i.microbatch) : "")},
           {"cat", name_of(i.queue)},
           {"pid", process},
           {"tid", rank * kQueues + static_cast<int>(i.queue)},
           {"ts", start.in(1_us)},
           {"dur", (end - start).in(1_us)},
           {"args", {{"instruction", i.id}, {"rank", rank}}}};
  if (i.chunk) bar["args"]["chunk"] = *i.chunk;
  if (i.unit) bar["args"]["unit"] = *i.unit;
  if (i.bytes > 0) bar["args"]["bytes"] = i.bytes;
  events.push_back(std::move(bar));
}

void name_threads(Json& events, int process, int ranks) {
  for (int rank = 0; rank < ranks; ++rank) {
    for (int queue = 0; queue < kQueues; ++queue) {
      const std::string name =
          "rank " + std::to_string(rank) + " " + std::string(name_of(static_cast<Queue>(queue)));
      events.push_back({{"ph", "M"},
                        {"name", "thread_name"},
                        {"pid", process},
                        {"tid", rank * kQueues + queue},
                        {"args", {{"name", name}}}});
    }
  }
}

void add_simulated(Json& events, const SimulatedStep& simulated) {
  name_process(events, kSimulated, "simulated");
  name_threads(events, kSimulated, simulated.schedule.ranks);
  for (const Span& span : simulated.timeline.spans) {
    const auto& program = simulated.schedule.programs[static_cast<std::size_t>(span.rank)];
    add_bar(events, kSimulated, span.rank, program.instructions[span.id], span.start, span.end);
  }
}

std::string document_of(Json events) {
  return Json{{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}}.dump() + "\n";
}

}  // namespace

std::string run_trace(const RunReport& report, const SimulatedStep& simulated) {
  Json events = Json::array();
  const ProcessGrid grid(report.plan.plan);
  const auto program = [&](int stage) -> const std::vector<Instruction>& {
    return simulated.schedule.programs[static_cast<std::size_t>(stage)].instructions;
  };
  name_process(events, kExecuted, "executed");
  name_threads(events, kExecuted, grid.ranks());
  for (const ExecutedSpan& span : report.spans) {
    const Instruction& i = program(grid.coordinates(span.rank).pp)[span.instruction];
    add_bar(events, kExecuted, span.rank, i, span.start, span.end);
  }
  add_simulated(events, simulated);
  return document_of(std::move(events));
}

Status check_traceable(const PlanRequest& request, const Candidate& candidate) {
  constexpr double kMaxInTrace = 1e6;  // 250 bytes each; Perfetto cannot open many more
  const double instructions = instructions_of(request, candidate);
  if (instructions <= kMaxInTrace) return Done{};
  return input_error("trace", fmt::format("a step of about {:.2g} instructions", instructions),
                     fmt::format("at most {:.2g}", kMaxInTrace),
                     "use a larger microbatch or fewer chunks");
}

std::string step_trace(const SimulatedStep& simulated) {
  Json events = Json::array();
  add_simulated(events, simulated);
  return document_of(std::move(events));
}

}  // namespace echelon
