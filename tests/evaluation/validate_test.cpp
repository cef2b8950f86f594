#include "evaluation/validate.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "costmodel/calibration/calibration_io.hpp"
#include "tests/places.hpp"
#include "tests/support/catch.hpp"
#include "topologies/topology.hpp"

namespace echelon {
namespace {

std::vector<MeasuredRun> published() {
  auto rows = read_runs(ECHELON_SOURCE_DIR "/tests/evaluation/runs/published.csv");
  REQUIRE(rows.ok());
  return *rows;
}

ValidationReport report_of(const std::vector<MeasuredRun>& rows,
                           const ValidationOptions& options = {}) {
  auto report = validate(rows, options);
  REQUIRE(report.ok());
  return *report;
}

MeasuredRun one(const std::string& id) {
  const auto rows = published();
  const auto found = std::ranges::find(rows, id, &MeasuredRun::row_id);
  REQUIRE(found != rows.end());
  return *found;
}

ValidatedRow validated(const MeasuredRun& row, const ValidationOptions& options = {}) {
  return report_of({row}, options).rows.at(0);
}

TEST_CASE("a summary gives mean, median and 90th percentile of sizes, and the signed mean") {
  const ErrorSummary summary = summarize({-0.1, 0.2, -0.3, 0.4, 0.0});
  CHECK(summary.rows == 5);
  CHECK(summary.mean_abs == Approx(0.2));
  CHECK(summary.median_abs == Approx(0.2));
  CHECK(summary.p90_abs == Approx(0.36));  // 0.3 + 0.6 · 0.1
  CHECK(summary.bias == Approx(0.04));
}

TEST_CASE("a summary of no rows is zero") {
  CHECK(summarize({}).rows == 0);
  CHECK(summarize({}).p90_abs == 0);
}

TEST_CASE("a correct order has no regret and rank correlation one, whatever the scale") {
  const Ranking ranking = rank_group("g", {1, 2, 3}, {10, 20, 40});
  CHECK(ranking.regret == 0);
  CHECK(ranking.regret3 == 0);
  CHECK(ranking.spearman == Approx(1));
}

TEST_CASE("regret is the cost of the first choice, regret3 that of the best of three") {
  const Ranking ranking = rank_group("g", {1, 2, 3, 4}, {15, 12, 20, 10});
  CHECK(ranking.regret == Approx(0.5));
  CHECK(ranking.regret3 == Approx(0.2));
}

TEST_CASE("rank correlation averages ties and is minus one for a reversed order") {
  CHECK(rank_group("g", {3, 2, 1}, {1, 2, 3}).spearman == Approx(-1));
  CHECK(rank_group("g", {1, 1, 2}, {1, 2, 3}).spearman == Approx(0.8660254));
  CHECK(rank_group("g", {1, 1, 1}, {1, 2, 3}).spearman == 0);
}

TEST_CASE("every row is predicted or skipped with a reason, in the table's order") {
  const auto rows = published();
  const ValidationReport report = report_of(rows);
  REQUIRE(report.rows.size() == rows.size());
  int predicted = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const ValidatedRow& row = report.rows[i];
    CHECK(row.row_id == rows[i].row_id);
    CHECK(row.skipped.empty() == row.predicted_step.has_value());
    predicted += row.skipped.empty();
    if (row.predicted_step) CHECK(*row.predicted_step > Seconds{});
  }
  CHECK(predicted == 38);
}

TEST_CASE("predictions of the published sample stay close to the measurements") {
  const ValidationReport report = report_of(published());
  CHECK(report.time.rows == 36);
  CHECK(report.time.median_abs < 0.5);
  CHECK(report.memory.rows == 21);
  CHECK(report.memory.median_abs < 0.4);
}

TEST_CASE("errors are predicted over measured minus one") {
  const ValidatedRow row = validated(one("zero-bubble-0008"));
  REQUIRE(row.time_error.has_value());
  CHECK(*row.time_error == Approx(*row.predicted_step / *row.measured_step - 1));
  CHECK(*row.memory_error == Approx(*row.predicted_peak / *row.measured_peak - 1));
}

TEST_CASE("a run out of memory has no time error but counts as not fitting") {
  const ValidationReport report = report_of({one("nanotron-oom-0009")});
  CHECK(report.time.rows == 0);
  CHECK(report.fits.rows == 1);
  CHECK(report.rows[0].measured_fits == false);
  CHECK(report.fits.false_fits == (*report.rows[0].predicted_fits ? 1 : 0));
}

TEST_CASE("a Brier score is the mean square of P(fits) less the outcome, and bins hold all rows") {
  const std::vector<MeasuredRun> rows = {one("nanotron-oom-0009"), one("nanotron-0469")};
  ValidationOptions options;
  options.calibration = pick_calibration(ClusterTopology::load("dgx-h100", 8).value().gpu(),
                                         find_framework("nanotron").value())
                            .value();
  // So wide that neither outcome is certain.
  options.calibration->memory_band = MemoryBand{MemoryBandKind::measured, 0.1, 0.5, "test"};
  const ValidationReport report = report_of(rows, options);
  double sum = 0;
  for (const ValidatedRow& row : report.rows) {
    REQUIRE(row.fits_probability);
    const double need = row.predicted_need->in(1_GiB);
    const double memory = need / (1 - row.spare);
    CHECK(*row.fits_probability ==
          Approx(1 / (1 + std::exp((std::log(need / memory) + 0.1) / 0.5))));
    CHECK(row.predicted_fits == (*row.fits_probability >= 0.5));
    const double miss = *row.fits_probability - (*row.measured_fits ? 1 : 0);
    sum += miss * miss;
  }
  CHECK(report.fits.brier == Approx(sum / 2));
  CHECK(report.fits.hard_brier() ==
        Approx((report.fits.false_fits + report.fits.false_ooms) / 2.0));
  int binned = 0;
  int ran = 0;
  for (const SpareBin& bin : report.fits.bins) {
    binned += bin.rows;
    ran += bin.ran;
    CHECK(bin.probability > 0);
    CHECK(bin.probability < 1);
  }
  CHECK(binned == 2);
  CHECK(ran == 1);
  REQUIRE(report.by_framework.size() == 1);
  CHECK(report.by_framework.at("nanotron").band == *options.calibration->memory_band);
  CHECK(report.by_framework.at("nanotron").fits.brier == Approx(report.fits.brier));
}

TEST_CASE("a malformed row is skipped with the reason from the reader") {
  MeasuredRun row = one("nanotron-0469");
  row.malformed = "row 7: gpus is 'many', expected a whole number of at least 1";
  CHECK(validated(row).skipped == row.malformed);
}

TEST_CASE("memory is compared as the row counts it: allocated, reserved, the whole device") {
  MeasuredRun row = one("simumax-b200-0001");
  const auto predicted = [&](const std::string& kind) {
    row.memory_kind = kind;
    return *validated(row).predicted_peak;
  };
  CHECK(predicted("allocated") <= predicted("reserved"));
  CHECK(predicted("reserved") < predicted("nvidia_smi"));
  CHECK(predicted("unknown") == predicted("reserved"));
  CHECK(validated(row).inferred_what.find("taken for reserved") != std::string::npos);
}

TEST_CASE("a memory figure larger than the GPU's memory is shown but not compared") {
  MeasuredRun row = one("nanotron-0469");
  row.peak_memory_bytes = 200e9;
  const ValidatedRow out = validated(row);
  CHECK(out.measured_peak.has_value());
  CHECK_FALSE(out.memory_error.has_value());
  CHECK(out.inferred);
}

TEST_CASE("nanotron's memory is that of rank 0, on the first stage") {
  MeasuredRun row = one("nanotron-0013");  // pp 4: the last stage holds the logits
  const Bytes first = *validated(row).predicted_peak;
  MeasuredRun largest = row;
  largest.memory_kind = "nvidia_smi";  // compared with the fullest stage
  CHECK(first < *validated(largest).predicted_peak);
}

TEST_CASE("logs of Megatron-Core print rank 0, figures by stage and nvidia-smi show every rank") {
  MeasuredRun row = one("simumax-b200-0001");  // two stages
  row.vocab = 1'000'000;                       // the last one is the fuller
  row.memory_by_stage = "66.5/63.0";
  const Bytes fullest = *validated(row).predicted_peak;
  row.memory_by_stage.clear();
  CHECK(*validated(row).predicted_peak < fullest);
  row.memory_kind = "nvidia_smi";
  CHECK(*validated(row).predicted_peak > fullest);
}

TEST_CASE("a given calibration replaces the shipped ones") {
  const MeasuredRun row = one("mosaic-0081");
  const auto h100 = ClusterTopology::load("dgx-h100", 8);
  REQUIRE(h100.ok());
  auto slow = pick_calibration(h100->gpu(), frameworks().front());
  REQUIRE(slow.ok());
  const Seconds usual = *validated(row, {.calibration = *slow, .where = ""}).predicted_step;
  slow->gemm_efficiency /= 10;
  CHECK(*validated(row, {.calibration = *slow, .where = ""}).predicted_step > 3.0 * usual);
}

TEST_CASE("figures of a fitted calibration are not called out of fold") {
  const MeasuredRun row = one("mosaic-0081");
  CHECK_FALSE(report_of({row}).out_of_fold);  // shipped, and fitted to that very row
  const auto h100 = ClusterTopology::load("dgx-h100", 8);
  REQUIRE(h100.ok());
  auto fitted = prior_calibration(h100->gpu(), frameworks().front());
  REQUIRE(fitted.ok());
  CHECK(report_of({row}, {.calibration = *fitted, .where = ""}).out_of_fold);
  fitted->evidence = Evidence::calibrated;
  CHECK_FALSE(report_of({row}, {.calibration = *fitted, .where = ""}).out_of_fold);
}

TEST_CASE("a filter chooses the rows, and one that cannot be read is an error") {
  const auto rows = published();
  const ValidationReport report = report_of(rows, {.calibration = {}, .where = "source=mosaic"});
  CHECK(report.rows.size() == 4);
  CHECK(report.by_source.size() == 1);
  const auto wrong = validate(rows, {.calibration = {}, .where = "sourse=mosaic"});
  REQUIRE_FALSE(wrong.ok());
  CHECK(wrong.error().where == "--where");
}

TEST_CASE("the sources' rows add up to the whole") {
  const ValidationReport report = report_of(published());
  int time = 0;
  int memory = 0;
  int fits = 0;
  for (const auto& [source, summary] : report.by_source) {
    time += summary.time.rows;
    memory += summary.memory.rows;
    fits += summary.fits.rows;
  }
  CHECK(time == report.time.rows);
  CHECK(memory == report.memory.rows);
  CHECK(fits == report.fits.rows);
}

TEST_CASE("groups of three and more predicted runs are ranked") {
  const ValidationReport report = report_of(published());
  REQUIRE_FALSE(report.ranking.empty());
  for (const Ranking& ranking : report.ranking) {
    CHECK(ranking.rows >= 3);
    CHECK(ranking.regret >= ranking.regret3);
    CHECK(ranking.regret3 >= 0);
    CHECK(std::abs(ranking.spearman) <= 1 + 1e-12);
  }
}

}  // namespace

TEST_CASE("static memory of published runs is right to one per cent") {
  const auto rows = read_runs(ECHELON_SOURCE_DIR "/tests/validation/runs.csv");
  REQUIRE(rows.ok());
  const auto report = validate(*rows, {.calibration = {}, .where = "source=nanotron"});
  REQUIRE(report.ok());
  CHECK(report->static_memory.rows == 1112);
  CHECK(report->static_memory.mean_abs < 0.01);
  CHECK(report->static_memory.p90_abs < 0.01);
}

}  // namespace echelon
