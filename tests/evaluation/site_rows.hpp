// Runs of a site whose rates are known: published jobs with the step times of the cost model.
#pragma once

#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "costmodel/calibration/calibration_io.hpp"
#include "evaluation/calibration_set.hpp"
#include "tests/evaluation/table_rows.hpp"

namespace echelon {

/// Every `every`-th published job of LLM Foundry on A100, stepping as on a machine with the rates
/// that `change` makes of the prior.
inline std::vector<MeasuredRun> site_rows(const std::function<void(Calibration&)>& change,
                                          std::size_t every) {
  std::vector<MeasuredRun> kept;
  std::size_t number = 0;
  for (const MeasuredRun& row : whole_table()) {
    if (row.source != "mosaic" || !row.gpu.starts_with("A100") || number++ % every != 0) continue;
    kept.push_back(row);
    const MappedRun run = mapped(row);
    Calibration truth = prior_calibration(run.cluster.gpu(), run.framework).value();
    change(truth);
    const CostModel cost_model(run.model, run.job, run.cluster, run.framework, truth);
    kept.back().step_seconds = cost_model.price(run.plan).time.step.in(kSecond);
  }
  return kept;
}

/// The prior that they start from.
inline Calibration site_prior() {
  const MappedRun run = mapped(site_rows([](Calibration&) {}, 200).front());
  return prior_calibration(run.cluster.gpu(), run.framework).value();
}

}  // namespace echelon
