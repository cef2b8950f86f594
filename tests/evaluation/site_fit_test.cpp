// The rates of one site after its first runs.
#include "evaluation/site_fit.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <variant>

#include "evaluation/observations.hpp"
#include "planner/space/legality.hpp"
#include "tests/evaluation/site_rows.hpp"

namespace echelon {
namespace {

/// A fit to the first `count` rows (all, if fewer), and what it is compared with.
struct Fitted {
  std::vector<MeasuredRun> rows;
  Observations all;
  Runs runs;
  SiteFit fit;
};

Fitted site_after(std::vector<MeasuredRun> rows, std::size_t count) {
  Fitted out{std::move(rows), {}, {}, {}};
  out.all = observe(out.rows);
  std::vector<std::string> names;
  for (Observation& run : out.all.runs) {
    if (out.runs.size() == count) break;
    out.runs.push_back(&run);
    names.push_back(out.rows[run.row].row_id);
  }
  out.fit = fit_site(out.runs, site_prior(), names);
  return out;
}

const FittedRate& site_rate(const SiteFit& fit, const std::string& key) {
  const auto found = std::ranges::find(fit.rates, key, &FittedRate::key);
  REQUIRE(found != fit.rates.end());
  return *found;
}

/// Mean size of ln(predicted / measured) over all rows.
double mean_error(Fitted& of, const Calibration& calibration) {
  double sum = 0;
  for (Observation& run : of.all.runs) sum += std::abs(log_error(run, calibration));
  return sum / static_cast<double>(of.all.runs.size());
}

TEST_CASE("a site of 0.8 of the speed takes 1.25 times as long for every plan") {
  // Jobs bound by kernels, by the host, by links and by the network.
  int priced = 0;
  std::size_t number = 0;
  for (const MeasuredRun& row : whole_table()) {
    if (row.out_of_memory() || !row.step_seconds || number++ % 40 != 0) continue;
    auto found = RunMapper().map(row);
    const auto* run = std::get_if<MappedRun>(&found);
    // Kernels that exchange experts' tokens are bound by their SMs, which no rate describes.
    if (run == nullptr || run->plan.dispatcher != Dispatcher::alltoall) continue;
    const Calibration usual = prior_calibration(run->cluster.gpu(), run->framework).value();
    CostModel cost_model(run->model, run->job, run->cluster, run->framework, usual);
    const Seconds before = cost_model.price(run->plan).time.step;
    cost_model.recalibrate(with_speed(usual, 0.8));
    INFO(row.row_id);
    CHECK(cost_model.price(run->plan).time.step / before == Approx(1.25).epsilon(0.02));
    ++priced;
  }
  CHECK(priced > 20);
}

TEST_CASE("one run of a slow site halves the error of its others and narrows the band") {
  Fitted site = site_after(site_rows([](Calibration& c) { c = with_speed(c, 0.8); }, 4), 1);
  REQUIRE(site.runs.size() == 1);
  CHECK(mean_error(site, site_prior()) == Approx(std::log(1.25)).epsilon(0.02));
  CHECK(mean_error(site, site.fit.calibration) < 0.5 * std::log(1.25));
  CHECK(site.fit.calibration.time_band < 0.9 * site_prior().time_band);
  CHECK(site.fit.prior_band == site_prior().time_band);
  CHECK(site.fit.calibration.evidence == Evidence::calibrated);
  CHECK(site.fit.calibration.fitted_to.find("calibrated on 1 of your runs") != std::string::npos);
  CHECK(site.fit.runs.front().after < site.fit.runs.front().measured);  // drawn to the prior
  CHECK(site.fit.runs.front().after > site.fit.runs.front().before);
  const FittedRate& speed = site.fit.rates.front();
  CHECK(speed.key == kSiteSpeed);
  CHECK(speed.prior == 1);
  CHECK(speed.value < 0.95);
  CHECK(speed.learned > 0.1);
  CHECK(site_rate(site.fit, "moe_speed_factor").learned < 0.01);  // no run has experts
  CHECK(site_rate(site.fit, "moe_speed_factor").value ==
        Approx(site_rate(site.fit, "moe_speed_factor").prior));
}

TEST_CASE("many runs recover the rate that was changed and hardly move the site's speed") {
  Fitted site = site_after(site_rows(
                               [](Calibration& c) {
                                 c.attention_forward *= 0.6;
                                 c.attention_backward *= 0.6;
                               },
                               2),
                           1000);
  const FittedRate& attention = site_rate(site.fit, "attention_forward");
  CHECK(attention.value / attention.prior == Approx(0.6).epsilon(0.1));
  CHECK(attention.learned > 0.8);
  CHECK(site.fit.rates.front().value == Approx(1).epsilon(0.03));
  CHECK(site_rate(site.fit, "gemm_efficiency").value ==
        Approx(site_rate(site.fit, "gemm_efficiency").prior).epsilon(0.03));
  CHECK(mean_error(site, site.fit.calibration) < 0.2 * mean_error(site, site_prior()));
}

TEST_CASE("runs that agree with the prior move nothing") {
  Fitted site = site_after(site_rows([](Calibration&) {}, 20), 5);
  for (const FittedRate& each : site.fit.rates) {
    INFO(each.key);
    CHECK(each.value == Approx(each.prior).epsilon(1e-6));
    CHECK(each.low <= each.value);
    CHECK(each.high >= each.value);
  }
  CHECK(mean_error(site, site.fit.calibration) < 1e-6);
}

TEST_CASE("runs that contradict each other widen the band") {
  auto rows = site_rows([](Calibration&) {}, 20);
  const double agreeing = site_after(rows, 4).fit.calibration.time_band;
  for (std::size_t i = 0; i < rows.size(); i += 2) *rows[i].step_seconds *= 1.8;
  CHECK(site_after(rows, 4).fit.calibration.time_band > 1.5 * agreeing);
}

TEST_CASE("a written fit prices like the one it was written from") {
  Fitted site = site_after(site_rows([](Calibration& c) { c = with_speed(c, 0.9); }, 20), 3);
  const auto read = parse_calibration(calibration_to_json(site.fit.calibration), "mine.json");
  REQUIRE(read.ok());
  CHECK(read->fitted_to == site.fit.calibration.fitted_to);
  CHECK(read->time_band == Approx(site.fit.calibration.time_band));
  CHECK(mean_error(site, *read) == Approx(mean_error(site, site.fit.calibration)));
}

TEST_CASE("neighbours of a plan are legal, fit and differ in one choice") {
  Fitted site = site_after(site_rows([](Calibration&) {}, 20), 3);
  int found = 0;
  for (const PlanToPrice& run : plans_of(site.runs, site.fit.calibration)) {
    const CostModel& m = run.cost_model;
    for (const ParallelPlan& plan : neighbours_of(run)) {
      ++found;
      CHECK_FALSE(check_plan(m.model(), m.job(), m.cluster(), m.framework(), plan));
      CHECK(plan.gpus() == run.plan.gpus());
      const int choices = (plan.tp != run.plan.tp) + (plan.pp != run.plan.pp) +
                          (plan.cp != run.plan.cp) + (plan.microbatch != run.plan.microbatch) +
                          (plan.zero != run.plan.zero) + (plan.recompute != run.plan.recompute);
      CHECK(choices == 1);
    }
  }
  CHECK(found >= 3);
}

TEST_CASE("no other neighbour would tell more than the next run") {
  Fitted site = site_after(site_rows([](Calibration&) {}, 40), 2);
  const KnownRates& known = site.fit.known;
  const auto runs = plans_of(site.runs, site.fit.calibration);
  const auto next = next_run(known, runs);
  REQUIRE(next);
  CHECK(next->then < next->uncertainty);

  // By brute force: every candidate's measurement, as the update of the whole covariance.
  const auto slopes = [&](const CostModel& cost_model, const ParallelPlan& plan) {
    CostModel own = cost_model;
    return slopes_at(known.calibration, known.parameters, [&](const Calibration& c) {
      own.recalibrate(known.applied(c));
      return std::log(own.price(plan).time.step.in(kSecond));
    });
  };
  std::vector<std::vector<double>> all;
  std::vector<std::pair<std::size_t, ParallelPlan>> tried;
  for (const PlanToPrice& run : runs) all.push_back(slopes(run.cost_model, run.plan));
  for (std::size_t i = 0; i < runs.size(); ++i) {
    for (const ParallelPlan& plan : neighbours_of(runs[i])) {
      all.push_back(slopes(runs[i].cost_model, plan));
      tried.emplace_back(i, plan);
    }
  }
  const std::size_t n = known.parameters.size();
  double least = 1e9;
  std::pair<std::size_t, ParallelPlan> best;
  for (std::size_t c = 0; c < tried.size(); ++c) {
    const std::vector<double>& g = all[runs.size() + c];
    std::vector<double> image(n, 0);  // C g
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < n; ++j) image[i] += known.covariance[i * n + j] * g[j];
    }
    const double variance = std::inner_product(g.begin(), g.end(), image.begin(), 0.0);
    std::vector<double> after = known.covariance;
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < n; ++j) {
        after[i * n + j] -= image[i] * image[j] / (known.noise * known.noise + variance);
      }
    }
    double sum = 0;
    for (const auto& each : all) sum += covariance_of(each, each, after);
    if (sum >= least) continue;
    least = sum;
    best = tried[c];
  }
  CHECK(next->like == best.first);
  CHECK(next->plan == best.second);
  CHECK(next->then == Approx(std::sqrt(least / static_cast<double>(all.size()))));
}

}  // namespace
}  // namespace echelon
