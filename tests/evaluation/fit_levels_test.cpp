// What runs of several publishers have in common, and what stays with a publisher.
#include "evaluation/fit_levels.hpp"

#include <cmath>

#include "costmodel/calibration/calibration_fields.hpp"
#include "costmodel/calibration/calibration_io.hpp"
#include "evaluation/calibration_set.hpp"
#include "tests/evaluation/table_rows.hpp"

namespace echelon {
namespace {

/// Runs of LLM Foundry on A100, each with the time that its prior predicts times `factor`.
std::vector<Observation> foundry_runs(double factor, bool several_publishers) {
  std::vector<Observation> out;
  for (const MeasuredRun& row : whole_table()) {
    if (row.source != "mosaic" || !row.gpu.starts_with("A100") || out.size() >= 40) continue;
    const MappedRun run = mapped(row);
    const Calibration prior = prior_calibration(run.cluster.gpu(), run.framework).value();
    Observation one{.row = out.size(),
                    .family = "ampere",
                    .framework = "llm-foundry",
                    .source = "mosaic",
                    .publisher = several_publishers ? std::to_string(out.size()) : "one",
                    .other = "",
                    .cost_model = CostModel(run.model, run.job, run.cluster, run.framework, prior),
                    .plan = run.plan,
                    .sharding = sharding_of(run.plan),
                    .measured = 1,
                    .prior = prior};
    one.measured = std::exp(log_error(one, prior)) * factor;
    out.push_back(std::move(one));
  }
  return out;
}

double fitted_gemm(std::vector<Observation>& all, Sites sites) {
  Runs runs;
  for (Observation& run : all) runs.push_back(&run);
  const Moves moves = fit_moves(
      time_parameters(), runs,
      [](const Observation& run) -> const Calibration& { return run.prior; }, sites);
  Calibration moved = all.front().prior;
  moves.apply(moved);
  return moved.gemm_efficiency / all.front().prior.gemm_efficiency;
}

}  // namespace

TEST_CASE("GPUs take rates fitted to their own family, else to the nearest one, extrapolated") {
  const GpuSpec gpu = ClusterTopology::load("vr-nvl72", 72)->gpu();
  const Framework megatron = find_framework("megatron-core").value();
  const Calibration shipped = CalibrationSet().pick(gpu, megatron).value();
  CHECK(shipped.name == "blackwell-megatron-core");
  CHECK(shipped.evidence == Evidence::extrapolated);
  Calibration nearest = shipped_calibration("blackwell-megatron-core").value();
  CHECK(CalibrationSet({nearest}).pick(gpu, megatron)->stands_in_for == "rubin");
  Calibration own = nearest;
  own.name = "rubin-megatron-core";
  const Calibration taken = CalibrationSet({nearest, own}).pick(gpu, megatron).value();
  CHECK(taken.name == own.name);
  CHECK(taken.evidence == Evidence::calibrated);
}

TEST_CASE("what one publisher's runs have in common moves a rate less for other sites") {
  auto runs = foundry_runs(1.2, false);
  const double own = fitted_gemm(runs, Sites::own);
  const double any = fitted_gemm(runs, Sites::any);
  CHECK(own < 0.95);
  CHECK(any > own + 0.015);
}

TEST_CASE("what the runs of many publishers have in common moves the rates for all sites") {
  auto runs = foundry_runs(1.2, true);
  CHECK(fitted_gemm(runs, Sites::any) < 0.95);
}

TEST_CASE("moves are factors of a rate, differences of an additive one, and stay within bounds") {
  const std::vector<FitParameter> parameters = {
      {"gemm_efficiency", "", 0.1, false, 0.2, 0.8},
      {"attention_forward", "attention_backward", 0.1, false, 0.05, 0.9},
      {"dp_overlap", "", 0.1, true, 0, 1}};
  Fit fit;
  fit.rates = {{.key = "gemm_efficiency", .prior = 0.5, .value = 0.6},
               {.key = "attention_forward", .prior = 0.4, .value = 0.2},
               {.key = "dp_overlap", .prior = 0.5, .value = 0.8}};
  const Moves moves(fit, parameters);
  Calibration other;
  other.gemm_efficiency = 0.6;
  other.attention_forward = 0.3;
  other.attention_backward = 0.2;
  other.dp_overlap = 0.1;
  moves.apply(other);
  CHECK(other.gemm_efficiency == Approx(0.72));
  CHECK(other.attention_forward == Approx(0.15));
  CHECK(other.attention_backward == Approx(0.1));
  CHECK(other.dp_overlap == Approx(0.4));
  moves.apply(other);
  CHECK(other.gemm_efficiency == Approx(0.8));  // the bound
}

}  // namespace echelon
