#include "gui/app/file_writer.hpp"

#include <utility>

#include "core/base/files.hpp"
#include "core/plan/plan_file.hpp"
#include "planner/explain/plan_detail.hpp"
#include "report/plan_files.hpp"
#include "report/run.hpp"

namespace echelon::gui {

namespace {

/// Approximate shares of the time: the schedule is lowered or simulated, then written as text.
constexpr double kStarted = 0.05;
constexpr double kLowered = 0.6;
constexpr double kMade = 0.9;

Error cancelled() { return environment_error("file", "cancelled", "nothing"); }

}  // namespace

Result<std::string> plan_file_text(const PlanResult& plan, const Progress& progress) {
  if (!progress(kStarted)) return cancelled();
  const Result<PlanFile> file =
      complete_plan_file(plan.resolved.request, plan.candidate, plan.resolved.provenance);
  if (!file) return file.error();
  if (!progress(kLowered)) return cancelled();
  return plan_file_to_json(*file);
}

Result<std::string> trace_text(const PlanResult& plan, const Progress& progress) {
  const PlanRequest& request = plan.resolved.request;
  if (const Status short_enough = check_traceable(request, plan.candidate); !short_enough) {
    return short_enough.error();
  }
  if (!progress(kStarted)) return cancelled();
  const SimulatedStep simulated = simulate_plan(request, plan.candidate);
  if (!progress(kLowered)) return cancelled();
  return step_trace(simulated);
}

FileWriter::FileWriter(QObject* parent) : QObject(parent), worker_(this) {
  connect(&worker_, &Worker::progressed, this, &FileWriter::progressed);
  connect(&worker_, &Worker::finished, this, &FileWriter::finished);
}

bool FileWriter::write(const QString& path, Make make) {
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
