#include "gui/writer.hpp"

#include <fmt/format.h>

#include <utility>

#include "core/base/files.hpp"
#include "core/plan/plan_file.hpp"
#include "planner/close_up.hpp"
#include "report/plan_files.hpp"
#include "report/run.hpp"

namespace echelon::gui {

namespace {

/// Shares of the time, about: the schedule is lowered or simulated, then becomes text.
constexpr double kBegun = 0.05;
constexpr double kLowered = 0.6;
constexpr double kMade = 0.9;

Error nobody_waits() { return environment_error("file", "it was cancelled", "nothing"); }

}  // namespace

Result<std::string> plan_file_text(const ShownPlan& plan, const Progress& progress) {
  if (!progress(kBegun)) return nobody_waits();
  const Result<PlanFile> file =
      complete_plan_file(plan.asked.request, plan.candidate, plan.asked.provenance);
  if (!file) return file.error();
  if (!progress(kLowered)) return nobody_waits();
  return plan_file_to_json(*file);
}

Result<std::string> trace_text(const ShownPlan& plan, const Progress& progress) {
  const PlanRequest& request = plan.asked.request;
  constexpr double kMostInTrace = 1e6;  // 250 bytes each; Perfetto opens no more than some
  const double instructions = instructions_of(request, plan.candidate);
  if (instructions > kMostInTrace) {
    return input_error("trace", fmt::format("a step of about {:.2g} instructions", instructions),
                       fmt::format("at most {:.2g}", kMostInTrace),
                       "a larger microbatch or fewer chunks make fewer");
  }
  if (!progress(kBegun)) return nobody_waits();
  const SimulatedStep simulated = simulate_plan(request, plan.candidate);
  if (!progress(kLowered)) return nobody_waits();
  return step_trace(simulated);
}

Writer::Writer(QObject* parent) : QObject(parent), worker_(this) {
  connect(&worker_, &Worker::progressed, this, &Writer::progressed);
  connect(&worker_, &Worker::finished, this, &Writer::finished);
}

bool Writer::write(const QString& path, Make make) {
  if (busy()) return false;
  path_ = path;
  worker_.start([this, path, make = std::move(make)](const Worker::Ticket& ticket) {
    const Result<std::string> text = make([&](double share) { return ticket.progress(share); });
    if (!ticket.progress(kMade)) return;
    const Status status = text ? write_file(path.toStdString(), *text) : Status(text.error());
    ticket.deliver([this, path, status] { Q_EMIT written(path, status); });
  });
  return true;
}

}  // namespace echelon::gui
