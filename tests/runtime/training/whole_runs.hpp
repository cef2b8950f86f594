// Whole runs of small models, as plan-run starts them.
#pragma once

#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "runtime/training/run.hpp"
#include "tests/runtime/training/trained.hpp"
#include "tests/support/temp_dir.hpp"

namespace echelon {

/// The settings from `plan run`: a small model, 8 samples of 8 tokens per step.
inline PlanFile plan_file(const TrainedCase& c) {
  PlanFile file;
  file.model = c.model;
  file.job = job_of(c);
  file.plan = c.plan;
  file.program = to_text(program_of(c));
  file.predicted.stages.resize(static_cast<std::size_t>(c.plan.pp));
  file.predicted.tokens_per_second = 1;
  return file;
}

inline RunSettings settings_for(std::int64_t steps) {
  RunSettings s;
  s.steps = steps;
  s.learning_rate = 1e-2;
  s.min_lr = 1e-3;
  s.lr_decay_steps = 6;
  s.timeout = Seconds{60};
  return s;
}

/// A run and its messages.
struct Ran {
  RunReport report;
  std::vector<RunEvent> events;
  [[nodiscard]] std::string notes() const {
    std::string all;
    for (const RunEvent& event : events) {
      if (event.kind == RunEvent::Kind::note) all += event.text + "\n";
    }
    return all;
  }
  [[nodiscard]] int exit_code() const { return exit_code_of(report); }
};

inline Ran run(const PlanFile& plan, const RunSettings& settings, RunContext context = {}) {
  Ran out;
  const auto also = context.notify;
  context.notify = [&](const RunEvent& event) {
    out.events.push_back(event);
    also(event);
  };
  Result<RunReport> report = run_plan(plan, settings, context);
  INFO((report ? "" : report.error().message()));
  REQUIRE(report.ok());
  out.report = *std::move(report);
  return out;
}

/// Each of these plans saves after two of four steps, and the next goes on.
inline void check_resumed_by_next(const std::vector<PlanFile>& plans) {
  const Ran whole = run(plans.front(), settings_for(4));
  const TempDir folder;
  for (std::size_t from = 0; from < plans.size(); ++from) {
    CAPTURE(from);
    RunSettings settings = settings_for(2);
    settings.checkpoint_dir = (folder.path() / std::to_string(from)).string();
    (void)run(plans[from], settings);
    settings.resume = Resume::yes;
    const Ran rest = run(plans[(from + 1) % plans.size()], settings);
    REQUIRE(rest.report.steps.size() == 2);
    for (std::size_t i = 0; i < 2; ++i)
      CHECK(std::abs(rest.report.steps[i].loss - whole.report.steps[i + 2].loss) < 1e-12);
  }
}

/// Every tensor of two checkpoints.
inline void check_same_files(const std::filesystem::path& one, const std::filesystem::path& other) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(one)) {
    if (entry.path().extension() != ".safetensors") continue;
    ++files;
    INFO(entry.path());
    CHECK(slurp(entry.path()) == slurp(other / entry.path().filename()));
  }
  CHECK(files >= 3);
}

}  // namespace echelon
