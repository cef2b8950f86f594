#include <algorithm>
#include <cmath>
#include <map>
#include <regex>
#include <string>

#include "evaluation/measured_runs_csv_io.hpp"
#include "report/validation.hpp"
#include "tests/places.hpp"
#include "tests/support/catch.hpp"

namespace echelon {
namespace {

std::vector<MeasuredRun> rows_of(const std::string& source) {
  auto rows = read_runs(ECHELON_SOURCE_DIR "/tests/validation/runs.csv");
  REQUIRE(rows.ok());
  std::erase_if(*rows, [&](const MeasuredRun& row) { return row.source != source; });
  return *rows;
}

RivalFigures rival_on(const std::string& source) {
  const auto figures = rival_figures();
  const auto found = std::ranges::find(figures, source, &RivalFigures::source);
  REQUIRE(found != figures.end());
  return *found;
}

TEST_CASE("SimuMax's figures on the page are those noted in its own rows") {
  const auto rows = rows_of("simumax-b200");
  REQUIRE(rows.size() == 24);
  const std::regex noted("simulator predicted ([0-9.]+) ms / ([0-9.]+) GiB");
  double time = 0;
  double memory = 0;
  for (const MeasuredRun& row : rows) {
    std::smatch match;
    REQUIRE(std::regex_search(row.notes, match, noted));
    time += std::abs(std::stod(match[1]) / 1000 / *row.step_seconds - 1);
    memory += std::abs(std::stod(match[2]) * std::pow(2.0, 30) / *row.peak_memory_bytes - 1);
  }
  CHECK(time / 24 == Approx(rival_on("simumax-b200").time_mean).margin(5e-5));
  CHECK(memory / 24 == Approx(rival_on("simumax-b200").memory_mean).margin(5e-5));
}

TEST_CASE("Calculon's figure on the page follows from its predictions of the same rows") {
  const auto rows = rows_of("selene-2022");
  // Printed by its own validation at caa4b11, in the order of the rows.
  const double predicted[] = {1.40, 1.14, 18.03, 13.64, 49.89, 34.47, 90.08, 66.04};
  REQUIRE(rows.size() == std::size(predicted));
  double sum = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    sum += std::abs(predicted[i] / *rows[i].step_seconds - 1);
  }
  CHECK(sum / 8 == Approx(rival_on("selene-2022").time_mean).margin(1e-3));
}

TEST_CASE("the page shows in-fold next to out-of-fold figures, and every reason for skipping") {
  auto rows = rows_of("selene-2022");
  rows[0].microbatch.reset();
  rows[0].grad_accumulation.reset();
  ValidationOptions priors;
  priors.sets.emplace_back(std::vector<Calibration>{});
  priors.part.assign(rows.size(), 0);
  const auto report = validate(rows, priors);
  REQUIRE(report.ok());
  CHECK(report->out_of_fold);
  ValidationReport better = *report;
  better.time.mean_abs = 0.0123;
  const std::string page = accuracy_page(*report, &better, "accuracy.svg");
  CHECK(page.find("1.2 % /") != std::string::npos);
  CHECK(page.find("(accuracy.svg)") != std::string::npos);
  CHECK(page.find("| 1 | the source does not say the microbatch |") != std::string::npos);
  CHECK(page.find("Calculon") != std::string::npos);
  CHECK(page.find("no-microbatch | 1 |") != std::string::npos);
  CHECK(page.find("## How likely does it fit?") != std::string::npos);
  for (const auto& [framework, one] : report->by_framework) {
    CHECK(page.find("| " + framework + " | assumed, normal, bias ") != std::string::npos);
  }
  const FitsSummary& fits = report->unflagged.fits;
  REQUIRE_FALSE(fits.bins.empty());
  for (std::size_t i = 0; i < fits.bins.size(); ++i) {
    CHECK(page.find("\n| " + spare_of(fits, i) + " | ") != std::string::npos);
  }
  CHECK(accuracy_page(*report, nullptr, "").find("nothing is fitted") != std::string::npos);
  better.out_of_fold = false;
  const std::string shipped = accuracy_page(better, nullptr, "");
  CHECK(shipped.find("as shipped, in fold") != std::string::npos);
  CHECK(shipped.find("nothing is fitted") == std::string::npos);
}

TEST_CASE("the ranking is reported by source and by part, in text and on the page") {
  auto rows = rows_of("zero-bubble");
  const auto more = rows_of("simumax-b200");
  rows.insert(rows.end(), more.begin(), more.end());
  const auto report = validate(rows);
  REQUIRE(report.ok());
  const RankingSummary ours = summarize_ranking(report->by_source.at("simumax-b200").ranking);
  REQUIRE(ours.groups == 4);
  const std::string page = accuracy_page(*report, nullptr, "");
  const std::string text = validation_text(*report, {}, TextStyle{});
  CHECK(page.find("| simumax-b200 | 4 | ") != std::string::npos);
  CHECK(page.find("| zero-bubble | 6 | ") != std::string::npos);
  CHECK(page.find("| zero-bubble, grade A | ") != std::string::npos);
  const std::size_t table = text.find("ranking by source");
  REQUIRE(table != std::string::npos);
  CHECK(text.find("simumax-b200", table) != std::string::npos);
  const std::string json = validation_json(*report);
  CHECK(json.find("\"regret_median\"") != std::string::npos);
}

TEST_CASE("a band that misses its share is marked, only out of fold") {
  ValidationReport report;
  ValidationPair pair;
  pair.time.rows = pair.unflagged.time.rows = 40;
  pair.time.in_band = pair.unflagged.time.in_band = 0.7;
  report.by_source["narrow"] = pair;
  pair.time.in_band = pair.unflagged.time.in_band = 0.8;
  report.by_source["sound"] = pair;
  const std::string page = accuracy_page(report, nullptr, "");
  const std::string text = validation_text(report, {}, TextStyle{.width = 200});
  CHECK(page.find("70.0 % **missed** | the same |") != std::string::npos);
  CHECK(page.find("80.0 % **missed**") == std::string::npos);
  CHECK(text.find("70.0 % !") != std::string::npos);
  CHECK(text.find("80.0 % !") == std::string::npos);
  report.out_of_fold = false;
  CHECK(accuracy_page(report, nullptr, "").find("missed**") == std::string::npos);
  CHECK(validation_text(report, {}, TextStyle{.width = 200}).find(" !") == std::string::npos);
}

TEST_CASE("the plot has a point for every row with an error and marks the flagged ones") {
  auto rows = rows_of("selene-2022");
  rows[0].grade = "C";
  const auto report = validate(rows);
  REQUIRE(report.ok());
  const std::string svg = validation_svg(*report);
  const auto count = [&](std::string_view what) {
    int found = 0;
    for (std::size_t at = svg.find(what); at != std::string::npos; at = svg.find(what, at + 1)) {
      ++found;
    }
    return found;
  };
  CHECK(count("<circle") == 8);
  CHECK(count("class=\"flagged\"") == 1);
  CHECK(count("class=\"band\"") == 1);
  CHECK(svg.find("nan") == std::string::npos);
  CHECK(validation_svg(ValidationReport{}).find("No row was predicted") != std::string::npos);
}

}  // namespace
}  // namespace echelon
