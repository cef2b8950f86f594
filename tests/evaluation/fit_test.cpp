// Fitting to tables of runs, on the published rows with generated times.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "core/base/embedded.hpp"
#include "costmodel/calibration/calibration_fields.hpp"
#include "costmodel/calibration/calibration_io.hpp"
#include "costmodel/calibration/fit/fit.hpp"
#include "costmodel/cost_model.hpp"
#include "evaluation/calibration_set.hpp"
#include "evaluation/cv_folds.hpp"
#include "evaluation/fit.hpp"
#include "evaluation/observations.hpp"
#include "evaluation/run_mapping.hpp"
#include "tests/evaluation/table_rows.hpp"
#include "tests/places.hpp"
#include "tests/support/catch.hpp"

namespace echelon {
namespace {

/// The published rows of LLM Foundry on A100, which have no measured network.
const std::vector<MeasuredRun>& foundry_rows() {
  static const std::vector<MeasuredRun> kRows = [] {
    std::vector<MeasuredRun> kept;
    const auto all = read_runs(ECHELON_SOURCE_DIR "/tests/validation/runs.csv");
    for (const MeasuredRun& row : *all) {
      if (row.source == "mosaic" && row.gpu.starts_with("A100")) kept.push_back(row);
    }
    return kept;
  }();
  return kRows;
}

/// Their step times on a machine with these rates.
std::vector<MeasuredRun> planted(const std::function<void(Calibration&)>& change) {
  std::vector<MeasuredRun> rows = foundry_rows();
  RunMapper mapper;
  for (MeasuredRun& row : rows) {
    auto mapped = mapper.map(row);
    auto& run = std::get<MappedRun>(mapped);
    Calibration truth = prior_calibration(run.cluster.gpu(), run.framework).value();
    change(truth);
    const CostModel cost_model(run.model, run.job, run.cluster, run.framework, truth);
    row.step_seconds = cost_model.price(run.plan).time.step.in(kSecond);
  }
  return rows;
}

const FittedCalibration* named(const FitTable& table, const std::string& name) {
  for (const FittedCalibration& one : table.calibrations) {
    if (one.calibration.name == name) return &one;
  }
  return nullptr;
}

/// The fitted rates of a calibration that lie at the bounds of their parameters, a line each. A
/// rate that the runs do not determine (learned at most 1 %) keeps its prior, which may be a bound:
/// no delay of late ranks, hardly a latency of data-parallel rings inside a domain.
std::string rates_at_bounds(const Calibration& calibration) {
  static const std::regex kLearned("learned ([0-9]+) %");
  std::string out;
  for (const FitParameter& parameter : time_parameters()) {
    const double value = rate_of(calibration, calibration_field(parameter.key));
    if (!at_bound(parameter, value) && value != parameter.min) continue;
    const auto source =
        std::ranges::find(calibration.sources, parameter.key, &Calibration::Source::field);
    std::smatch learned;
    if (source != calibration.sources.end() && std::regex_search(source->text, learned, kLearned) &&
        std::stoi(learned[1]) > 1) {
      out += fmt::format("{}: {} {}\n", calibration.name, parameter.key, value);
    }
  }
  return out;
}

}  // namespace

TEST_CASE("the fit recovers the rates that a table of runs was generated with") {
  const auto rows = planted([](Calibration& c) {
    c.gemm_efficiency = 0.7;
    c.attention_forward *= 0.8;
    c.attention_backward *= 0.8;
  });
  const FitTable table = fit_with_bands(rows, 2);
  const FittedCalibration* fitted = named(table, "ampere-llm-foundry");
  REQUIRE(fitted != nullptr);
  CHECK(fitted->base == "prior-ampere-llm-foundry");
  CHECK(fitted->runs == static_cast<int>(rows.size()));
  CHECK(fitted->median < 0.005);
  CHECK(fitted->calibration.gemm_efficiency == Approx(0.7).epsilon(0.03));
  CHECK(fitted->calibration.evidence == Evidence::calibrated);
  for (const FittedRate& rate : fitted->rates) {
    INFO(rate.key);
    CHECK(rate.low <= rate.value);
    CHECK(rate.value <= rate.high);
    if (rate.key == "gemm_efficiency") CHECK(rate.learned > 0.9);
    // No run of the table has experts or a measured network to learn from.
    if (rate.key == "host_experts" || rate.key == "layer_latency_factor")
      CHECK(rate.learned < 0.01);
  }
  // The written calibration can be read back, with the source of each rate.
  const auto read = parse_calibration(calibration_to_json(fitted->calibration), "written");
  REQUIRE(read.ok());
  CHECK(read->gemm_efficiency == Approx(fitted->calibration.gemm_efficiency));
  CHECK(read->fitted_to.find("published runs") != std::string::npos);
}

TEST_CASE("out of fold a row's own time does not influence its prediction") {
  auto rows = planted([](Calibration& c) { c.gemm_efficiency = 0.7; });
  const auto before = validate_folds(rows, fit_folds(rows, 4));
  REQUIRE(before.ok());
  CHECK(before->out_of_fold);
  CHECK(before->time.mean_abs < 0.02);

  const std::vector<std::string> folds = folds_of(rows);
  std::vector<double> expected;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    expected.push_back(before->rows[i].predicted_step->in(kSecond));
  }
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (folds[i] == folds[0]) *rows[i].step_seconds *= 3;
  }
  const auto after = validate_folds(rows, fit_folds(rows, 4));
  REQUIRE(after.ok());
  int others_moved = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const double now = after->rows[i].predicted_step->in(kSecond);
    if (folds[i] == folds[0]) {
      CHECK(now == Approx(expected[i]).epsilon(1e-12));
    } else {
      others_moved += std::abs(now / expected[i] - 1) > 1e-9;
    }
  }
  CHECK(others_moved > 0);  // they did see the tripled runs
}

TEST_CASE("the band contains four fifths of the held-out rows, and few rows keep the prior's") {
  auto rows = planted([](Calibration&) {});
  for (std::size_t i = 0; i < rows.size(); ++i) {
    *rows[i].step_seconds *= i % 10 < 8 ? 1.0 + 0.01 * static_cast<double>(i % 3) : 1.2;
  }
  const auto judged = validate_folds(rows, fit_folds(rows, 5));
  REQUIRE(judged.ok());
  CHECK(judged->time.in_band > 0.7);
  CHECK(judged->time.in_band < 0.9);

  const std::vector<MeasuredRun> few(rows.begin(), rows.begin() + 3);
  CHECK(fit_with_bands(few, 2).calibrations.empty());
  const auto priors = validate_folds(few, fit_folds(few, 2));
  REQUIRE(priors.ok());
  CHECK(priors->rows[0].calibration == "prior-ampere-llm-foundry");
}

TEST_CASE("every shipped fit can be read and is found for the runs it was fitted to") {
  const auto rows = read_runs(ECHELON_SOURCE_DIR "/tests/validation/runs.csv").value();
  const auto report = validate(rows);
  REQUIRE(report.ok());
  CHECK_FALSE(report->out_of_fold);
  std::set<std::string> used;
  int calibrated = 0;
  for (const ValidatedRow& row : report->rows) {
    if (row.calibration.empty()) continue;
    used.insert(row.calibration);
    calibrated += row.evidence == Evidence::calibrated;
  }
  CHECK(used.contains("hopper-megatron-core"));
  CHECK(used.contains("hopper-nanotron"));
  CHECK(calibrated > 2'500);
  const auto planning = pick_calibration(ClusterTopology::load("dgx-h100", 8)->gpu(),
                                         find_framework("megatron-core").value());
  REQUIRE(planning.ok());
  CHECK(planning->name == "hopper-megatron-core");
  CHECK(planning->evidence == Evidence::calibrated);
}

TEST_CASE("no rate that runs determine lies at the bound of its parameter") {
  std::string found;
  int determined = 0;
  for (const EmbeddedFile& file : embedded_calibrations()) {
    Calibration each = parse_calibration(file.content, file.name).value();
    if (each.evidence != Evidence::calibrated) continue;
    found += rates_at_bounds(each);
    set_rate(each, calibration_field("gemm_efficiency"), 0.2);
    determined += !rates_at_bounds(each).empty();
  }
  CHECK(found == "");
  CHECK(determined > 5);  // a rate put at its bound is found
}

TEST_CASE("the program contains exactly the calibrations that planning may select") {
  for (const EmbeddedFile& file : embedded_calibrations()) {
    const Calibration each = parse_calibration(file.content, file.name).value();
    INFO(file.name);
    const std::string planned = each.gpu_family + "-" + each.framework;
    CHECK((file.name == planned || file.name == "prior-" + planned || each.framework == "any" ||
           file.name == "prior-" + each.framework));
  }
}

TEST_CASE("a group that is left out does not influence its own predictions, and the others' do") {
  auto rows = planted([](Calibration& c) { c.gemm_efficiency = 0.7; });
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i].publisher = i % 3 == 0 ? "one" : "two";
  const auto judged = [&] { return validate_folds(rows, fit_left_out(rows, LeaveOut::publisher)); };
  const auto before = judged();
  REQUIRE(before.ok());
  REQUIRE(before->by_left_out.size() == 2);
  CHECK(before->by_left_out.at("one").time.rows == static_cast<int>(rows.size() + 2) / 3);
  CHECK(before->prior_time.rows == before->time.rows);
  for (MeasuredRun& row : rows) {
    if (row.publisher == "one") *row.step_seconds *= 1.5;
  }
  const auto after = judged();
  REQUIRE(after.ok());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Seconds then = *before->rows[i].predicted_step;
    const Seconds now = *after->rows[i].predicted_step;
    if (rows[i].publisher == "one") {
      CHECK(now / then == Approx(1).epsilon(1e-12));
    } else {
      CHECK(std::abs(now / then - 1) > 1e-6);
    }
  }
}

TEST_CASE("of a group that is left out only the rates that predict it are fitted") {
  std::map<std::string, std::vector<MeasuredRun>> by_source;
  for (const MeasuredRun& row : whole_table()) by_source[row.source].push_back(row);
  std::vector<MeasuredRun> rows;
  for (const char* source : {"mosaic", "torchtitan"}) {
    const auto& all = by_source.at(source);
    rows.insert(rows.end(), all.begin(), all.begin() + 12);
  }
  const FoldedFit fit = fit_left_out(rows, LeaveOut::source);
  std::vector<std::set<std::string>> wanted(2);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const MappedRun run = mapped(rows[i]);
    wanted.at(fit.part[i]).insert(calibration_name(run.cluster.gpu(), run.framework));
  }
  REQUIRE(fit.sets.size() == 2);
  for (std::size_t part = 0; part < 2; ++part) {
    std::set<std::string> fitted;
    for (const Calibration& one : fit.sets[part]) fitted.insert(one.name);
    CHECK(fitted == wanted[part]);
  }
  CHECK(wanted[0] != wanted[1]);
}

TEST_CASE("hybrid models of published tables are judged, those of a site's own table fitted to") {
  std::vector<MeasuredRun> rows = {row_of(whole_table(), "N0624"), row_of(whole_table(), "N0768")};
  CHECK(observe(rows).runs.size() == 2);  // one publisher
  rows.push_back(row_of(whole_table(), "torchtitan-0001"));
  const Observations several = observe(rows);
  CHECK(several.runs.size() == 1);
  CHECK(several.left_out.at("with a recurrence, which has no rate") == 2);
}

}  // namespace echelon
