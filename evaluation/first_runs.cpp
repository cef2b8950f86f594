#include "evaluation/first_runs.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <random>
#include <utility>

#include "core/base/expects.hpp"
#include "evaluation/calibration_set.hpp"
#include "evaluation/fit.hpp"
#include "evaluation/observations.hpp"
#include "evaluation/row_quality.hpp"
#include "evaluation/site_fit.hpp"

namespace echelon {
namespace {

/// The runs of a source on one GPU under one framework, and the calibration they start from.
struct SiteOfSource {
  Runs runs;
  Calibration start;
};
using SitesOfSource = std::map<std::string, SiteOfSource>;

/// Sites by source, of the sources with enough rows.
std::map<std::string, SitesOfSource> sites_by_source(Observations& all, const FoldedFit& fit) {
  std::vector<CalibrationSet> sets;
  for (const auto& set : fit.sets) sets.emplace_back(set);
  const auto flags = quality_flags_of(*all.rows);
  std::map<std::string, SitesOfSource> out;
  std::map<std::string, int> counts;
  for (Observation& run : all.runs) {
    if (std::ranges::any_of(flags[run.row], &RowQualityFlag::time)) continue;
    const GpuSpec& gpu = run.cost_model.cluster().gpu();
    const Framework& framework = run.cost_model.framework();
    Result<Calibration> start = sets[fit.part[run.row]].pick(gpu, framework);
    if (!start) continue;
    start->sources.clear();
    SiteOfSource& site = out[run.source][(*all.rows)[run.row].gpu + "|" + framework.name];
    site.start = *std::move(start);
    site.runs.push_back(&run);
    ++counts[run.source];
  }
  std::erase_if(out, [&](const auto& one) { return counts[one.first] < kFewestRowsOfSource; });
  return out;
}

/// The first `count` of `size` items in a random order that depends on `draw` alone. Fisher and
/// Yates; no distribution of the library, which differ between systems.
std::vector<std::size_t> drawn(std::size_t size, std::size_t count, int draw) {
  std::vector<std::size_t> order(size);
  std::iota(order.begin(), order.end(), std::size_t{0});
  constexpr std::uint64_t kSeed = 18;
  std::mt19937_64 random(kSeed + static_cast<std::uint64_t>(draw));
  for (std::size_t i = 0; i < count; ++i) std::swap(order[i], order[i + random() % (size - i)]);
  order.resize(count);
  return order;
}

/// RestTotals over the rest of one site, over all draws.
struct RestTotals {
  double before = 0, after = 0, inside = 0, predictions = 0;
};

RestTotals errors_of(const SiteOfSource& site, std::size_t count) {
  RestTotals out;
  for (int draw = 0; draw < kDrawsOfFirstRuns; ++draw) {
    std::vector<bool> first(site.runs.size());
    Runs runs;
    for (const std::size_t i : drawn(site.runs.size(), count, draw)) {
      first[i] = true;
      runs.push_back(site.runs[i]);
    }
    SiteFit fit = fit_site(runs, site.start, std::vector<std::string>(count));
    fit.calibration.sources.clear();
    const double band = std::log(1 + fit.calibration.time_band);
    for (std::size_t i = 0; i < site.runs.size(); ++i) {
      if (first[i]) continue;
      const double after = log_error(*site.runs[i], fit.calibration);
      out.before += std::abs(std::exp(log_error(*site.runs[i], site.start)) - 1);
      out.after += std::abs(std::exp(after) - 1);
      out.inside += std::abs(after) <= band;
      ++out.predictions;
    }
  }
  return out;
}

/// Of all sites with more than `count` runs, every row with the same weight.
FirstRunsErrors errors_of(const SitesOfSource& sites, int count) {
  FirstRunsErrors out{count};
  for (const auto& [name, site] : sites) {
    const auto size = static_cast<int>(site.runs.size());
    if (size <= count) continue;
    const RestTotals totals = errors_of(site, static_cast<std::size_t>(count));
    out.rows += size;
    out.before += size * totals.before / totals.predictions;
    out.after += size * totals.after / totals.predictions;
    out.in_band += size * totals.inside / totals.predictions;
  }
  if (out.rows == 0) return out;
  for (double* sum : {&out.before, &out.after, &out.in_band}) *sum /= out.rows;
  return out;
}

}  // namespace

FirstRuns judge_first_runs(const std::vector<MeasuredRun>& rows, const FoldedFit& fit,
                           std::span<const int> counts, const FitProgress& progress) {
  EXPECTS(fit.part.size() == rows.size(), "a part for every row");
  Observations all = observe(rows);
  FirstRuns out;
  for (const int count : counts) out.means.push_back({count});
  const auto sources = sites_by_source(all, fit);
  for (const auto& [name, sites] : sources) {
    FirstRunsSource source{name, 0, {}};
    for (const auto& [kind, site] : sites) source.rows += static_cast<int>(site.runs.size());
    for (std::size_t i = 0; i < counts.size(); ++i) {
      const FirstRunsErrors errors = errors_of(sites, counts[i]);
      source.errors.push_back(errors);
      FirstRunsErrors& mean = out.means[i];
      if (errors.rows == 0) continue;
      ++mean.rows;
      mean.before += errors.before;
      mean.after += errors.after;
      mean.in_band += errors.in_band;
    }
    out.sources.push_back(std::move(source));
    if (progress)
      progress(static_cast<double>(out.sources.size()) / static_cast<double>(sources.size()));
  }
  for (FirstRunsErrors& mean : out.means) {
    if (mean.rows == 0) continue;
    for (double* sum : {&mean.before, &mean.after, &mean.in_band}) *sum /= mean.rows;
  }
  return out;
}

}  // namespace echelon
