#include "report/csv/plans_csv.hpp"

#include <algorithm>
#include <sstream>

#include "report/metrics.hpp"
#include "tests/core/plan/one_field_changed.hpp"
#include "tests/planner/requests.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

namespace {

PlanRequest csv_request() {
  PlanRequest r = request_for("gpt2-xl", "dgx-h100", 8);
  r.job.sequence = 1024;
  r.job.global_batch = 16;
  return r;
}

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  std::istringstream in(line);
  for (std::string cell; std::getline(in, cell, ',');) cells.push_back(cell);
  return cells;
}

}  // namespace

TEST_CASE("plans as CSV: a header, one row each in the given order, figures at full precision") {
  const PlanRequest request = csv_request();
  const SearchOutcome report = search(request).value();
  std::vector<RankedPlan> plans = plans_of(request, report);
  REQUIRE(plans.size() > 2);
  std::ranges::reverse(plans);
  std::istringstream in(plans_csv(request, plans));
  std::string line;
  std::getline(in, line);
  const std::vector<std::string> header = cells_of(line.substr(0, line.size() - 1));
  CHECK(header[0] == "rank");
  const auto column = [&](std::string_view name) {
    const auto found = std::ranges::find(header, name);
    REQUIRE(found != header.end());
    return static_cast<std::size_t>(found - header.begin());
  };
  int fastest = 0;
  for (const RankedPlan& plan : plans) {
    REQUIRE(std::getline(in, line));
    REQUIRE(line.back() == '\r');
    line.pop_back();
    const std::vector<std::string> cells = cells_of(line);
    REQUIRE(cells.size() == header.size());
    CHECK(cells[column("tp")] == std::to_string(plan.candidate->plan.tp));
    CHECK(std::stod(cells[column("step_seconds")]) ==
          plan.candidate->prediction.time.step.in(kSecond));
    CHECK(std::stod(cells[column("peak_reserved_bytes")]) ==
          plan.candidate->prediction.memory.peak_reserved.in(kByte));
    CHECK(std::stod(cells[column("closed_form_seconds")]) ==
          plan.candidate->prediction.time.closed_form.in(kSecond));
    CHECK(std::stod(cells[column("expected_seconds")]) == plan.candidate->expected().in(kSecond));
    CHECK(std::stod(cells[column("fits_probability")]) == *plan.candidate->score.fits_probability);
    CHECK(cells[column("simulated")] == "true");
    CHECK(cells[column("fastest")] == (plan.fastest ? "true" : "false"));
    fastest += plan.fastest ? 1 : 0;
    CHECK(cells[0] == (plan.rank ? std::to_string(*plan.rank) : ""));
  }
  CHECK_FALSE(std::getline(in, line));
  CHECK(fastest == 1);
}

TEST_CASE("plans that differ in one field differ only in the cells of its column") {
  const PlanRequest request = csv_request();
  Candidate a = *search(request).value().winner();
  a.plan = plain_plan();
  for (const PlanField& field : plan_fields()) {
    CAPTURE(field.key);
    Candidate b = a;
    b.plan = with_changed(field, a.plan);
    const std::vector<RankedPlan> plans = {{.candidate = &a}, {.candidate = &b}};
    std::istringstream in(plans_csv(request, plans));
    std::string header;
    std::string left;
    std::string right;
    std::getline(in, header);
    std::getline(in, left);
    std::getline(in, right);
    const std::vector<std::string> names = cells_of(header);
    const std::vector<std::string> x = cells_of(left);
    const std::vector<std::string> y = cells_of(right);
    REQUIRE(x.size() == names.size());
    REQUIRE(y.size() == names.size());
    for (std::size_t i = 0; i < names.size(); ++i) {
      CAPTURE(names[i]);
      const bool derived = names[i].starts_with("gpus");  // the product of the degrees
      if (!derived) CHECK((x[i] != y[i]) == (names[i] == field.key));
    }
  }
}

TEST_CASE("each figure has a key, a column, a formula and a text") {
  const PlanRequest request = csv_request();
  const Candidate candidate = *search(request).value().winner();
  const Economics money = economics_of(request, candidate.prediction.time);
  for (const MetricInfo& facts : metrics()) {
    INFO(facts.key);
    CHECK(&info_of(facts.figure) == &facts);
    CHECK_FALSE(facts.formula.empty());
    const auto value = value_of(facts.figure, request, candidate, money);
    REQUIRE(value);
    CHECK_FALSE(format(facts.figure, *value).empty());
    const MetricScale scale = scale_of(facts.figure, *value);
    CHECK(*value / scale.scale > 1e-6);
    CHECK(*value / scale.scale < 1e6);
  }
  CHECK(format(Metric::step, 0.25) == "250 ms");
  CHECK(format(Metric::mfu, 0.475) == "47.5 %");
  CHECK(format(Metric::gpu_hours_per_step, 0.01234) == "0.0123");
  CHECK(format(Metric::usd_per_step, 2.1) == "2.10");
  CHECK(format(Metric::usd_per_step, 12345.6) == "12,346");
  CHECK(scale_of(Metric::step, 0.02).unit == "ms");
  CHECK(scale_of(Metric::memory, 3e7).unit == "MiB");
}

TEST_CASE("headroom and peak memory make up the memory of a GPU") {
  const PlanRequest request = csv_request();
  const Candidate candidate = *search(request).value().winner();
  const double peak = *value_of(Metric::memory, request, candidate, {});
  const double rest = *value_of(Metric::headroom, request, candidate, {});
  CHECK(peak + rest == Approx(request.capacity().in(kByte)));
  CHECK_FALSE(value_of(Metric::usd_per_step, request, candidate, {}));  // no price, no cost
}
