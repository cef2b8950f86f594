#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "report/format.hpp"
#include "report/text/table.hpp"
#include "report/validation.hpp"

namespace echelon {

namespace {

constexpr std::size_t kWorstRows = 8;
constexpr std::size_t kMostReasons = 12;
constexpr std::size_t kInBandColumn = 7;  ///< of summary_table

/// `mark` if a band misses its target, which applies only out of fold.
void add_summary(Table& table, const std::string& name, const ErrorSummary& errors, bool mark) {
  if (errors.rows == 0) return;
  table.add({name, grouped(errors.rows), percent(errors.mean_abs), percent(errors.median_abs),
             percent(errors.p90_abs), signed_percent(errors.bias),
             fmt::format("{} .. {}", percent(errors.mean_80.low), percent(errors.mean_80.high)),
             errors.in_band
                 ? Cell(percent(*errors.in_band) + (mark && misses_band(errors) ? " !" : ""),
                        mark && misses_band(errors) ? Paint::warning : Paint::plain)
                 : Cell("")});
}

Table summary_table(std::string first) {
  return Table({{std::move(first), Table::Align::left, 0},
                {"rows"},
                {"mean"},
                {"median"},
                {"90 % below", Table::Align::right, 1},
                {"bias"},
                {"mean, 80 % sure", Table::Align::right, 3},
                {"in band", Table::Align::right, 2}});
}

void add_pair(Table& table, const std::string& name, const ErrorSummary& all,
              const ErrorSummary& unflagged, bool mark) {
  if (all.rows == 0) return;
  add_summary(table, name, all, mark);
  if (unflagged.rows > 0 && unflagged.rows < all.rows) {
    add_summary(table, "  without flagged rows", unflagged, mark);
  }
}

std::string overall(const ValidationReport& report, const TextStyle& style) {
  Table table = summary_table("absolute error");
  add_pair(table, "step time", report.time, report.unflagged.time, report.out_of_fold);
  add_pair(table, "peak memory", report.memory, report.unflagged.memory, report.out_of_fold);
  add_pair(table, "static memory", report.static_memory, report.unflagged.static_memory,
           report.out_of_fold);
  if (table.empty()) return "No row was predicted and measured.\n";
  return table.text(style);
}

/// Sources, each followed by its parts (grades, networks), with and without flagged rows.
Table source_table(const ValidationReport& report, std::string title,
                   ErrorSummary ValidationSummary::*which) {
  Table table = summary_table(std::move(title));
  for (const auto& [source, pair] : report.by_source) {
    add_pair(table, source, pair.*which, pair.unflagged.*which, report.out_of_fold);
    for (const auto& [part, summary] : report.by_part) {
      const bool whole = (summary.*which).rows == (pair.*which).rows;
      if (whole || !part.starts_with(source + ", ")) continue;
      add_pair(table, " " + part.substr(source.size() + 1), summary.*which,
               summary.unflagged.*which, report.out_of_fold);
    }
  }
  table.drop_constant(kInBandColumn, "");
  return table;
}

std::string by_source(const ValidationReport& report, const TextStyle& style) {
  if (report.by_source.size() < 2 && report.by_part.empty()) return {};
  const Table time = source_table(report, "step time by source", &ValidationSummary::time);
  const Table memory = source_table(report, "memory by source", &ValidationSummary::memory);
  std::string out;
  if (!time.empty()) out += "\n" + time.text(style);
  const auto missed = [](const auto& one) { return misses_band(one.second.time); };
  if (report.out_of_fold && std::ranges::any_of(report.by_source, missed)) {
    out += folded(
        "! The band should hold 80 % of the rows; of 30 and more it holds less than 75 % "
        "or more than 85 %.",
        "", style);
  }
  if (!memory.empty()) out += "\n" + memory.text(style);
  return out;
}

/// Groups that were left out of the fit that predicts them, next to the priors alone.
std::string by_left_out(const ValidationReport& report, const TextStyle& style) {
  if (report.by_left_out.empty()) return {};
  Table table({{"step time, left out of the fit", Table::Align::left, 0},
               {"rows"},
               {"mean"},
               {"median"},
               {"prior alone, mean"},
               {"in band"}});
  const auto add = [&](const std::string& name, const ErrorSummary& errors,
                       const ErrorSummary& prior) {
    if (errors.rows == 0) return;
    table.add({name, grouped(errors.rows), percent(errors.mean_abs), percent(errors.median_abs),
               percent(prior.mean_abs), percent(errors.in_band.value_or(0))});
  };
  for (const auto& [name, pair] : report.by_left_out) add(name, pair.time, pair.prior_time);
  add("all rows", report.time, report.prior_time);
  add("all rows without flagged", report.unflagged.time, report.unflagged.prior_time);
  const auto add_means = [&](const std::string& name, const GroupMeans& means) {
    table.add(
        {name, grouped(means.groups), percent(means.time), "", percent(means.prior_time), ""});
  };
  add_means("mean over the groups", means_over(report.by_left_out));
  add_means("... without flagged rows", means_over_unflagged(report.by_left_out));
  return "\n" + table.text(style);
}

void add_ranking(Table& table, const std::string& name, const std::vector<Ranking>& ranking) {
  if (ranking.empty()) return;
  const RankingSummary all = summarize_ranking(ranking);
  table.add({name, grouped(all.groups), percent(all.regret_mean), percent(all.regret_median),
             percent(all.regret3_mean), percent(all.regret3_median),
             fmt::format("{:.2f}", all.spearman_mean)});
}

/// Sources with groups of plans for one job, each followed by its parts.
std::string ranking_by_source(const ValidationReport& report, const TextStyle& style) {
  if (report.by_source.size() < 2 && report.by_part.empty()) return {};
  Table table({{"ranking by source", Table::Align::left, 0},
               {"groups"},
               {"regret, mean"},
               {"median"},
               {"of three, mean", Table::Align::right, 1},
               {"median", Table::Align::right, 1},
               {"rank corr."}});
  for (const auto& [source, pair] : report.by_source) {
    add_ranking(table, source, pair.ranking);
    for (const auto& [part, summary] : report.by_part) {
      if (!part.starts_with(source + ", ")) continue;
      add_ranking(table, " " + part.substr(source.size() + 1), summary.ranking);
    }
  }
  return table.empty() ? std::string() : "\n" + table.text(style);
}

std::string noise_floor(const ValidationReport& report, const TextStyle& style) {
  if (report.noise.empty()) return {};
  Table table({{"same configuration, measured again", Table::Align::left, 0},
               {"groups"},
               {"rows"},
               {"mean spread"},
               {"median"},
               {"largest"}});
  for (const auto& [source, floor] : report.noise) {
    table.add({source, grouped(floor.groups), grouped(floor.rows), percent(floor.mean),
               percent(floor.median), percent(floor.largest)});
  }
  return "\n" + table.text(style);
}

std::string flagged_rows(const ValidationReport& report, const TextStyle& style) {
  Table table({{"rows"}, {"flag", Table::Align::left, 0}, {"why", Table::Align::left, 0}});
  for (const RowQualityFlag& flag : row_quality_flags()) {
    const auto rows = std::count_if(report.rows.begin(), report.rows.end(), [&](const auto& row) {
      return std::count(row.flags.begin(), row.flags.end(), flag) > 0;
    });
    if (rows > 0) table.add({grouped(rows), std::string(flag.name), std::string(flag.why)});
  }
  if (table.empty()) return {};
  return heading("Flagged rows, counted above with and without", style) + table.text(style);
}

/// P(fits) of each framework with its memory band, then by spare memory.
std::string fits_by_framework(const ValidationReport& report, const TextStyle& style) {
  Table table({{"framework", Table::Align::left},
               {"memory band", Table::Align::left},
               {"rows"},
               {"ran"},
               {"wrongly fit"},
               {"wrongly not"},
               {"Brier"},
               {"of hard limit"}});
  for (const auto& [name, one] : report.by_framework) {
    const FitsSummary& fits = one.fits;
    table.add({name, words_of(one.band), grouped(fits.rows), grouped(fits.ran),
               grouped(fits.false_fits), grouped(fits.false_ooms),
               fmt::format("{:.4f}", fits.brier), fmt::format("{:.4f}", fits.hard_brier())});
  }
  if (table.empty()) return {};
  Table bins({{"spare memory", Table::Align::left}, {"rows"}, {"ran"}, {"predicted"}});
  const FitsSummary& all = report.unflagged.fits;
  for (std::size_t i = 0; i < all.bins.size(); ++i) {
    const SpareBin& bin = all.bins[i];
    bins.add({spare_of(all, i), grouped(bin.rows), percent(static_cast<double>(bin.ran) / bin.rows),
              percent(bin.probability)});
  }
  return heading("Probability of fitting, flagged rows left out", style) + table.text(style) +
         "\n" + bins.text(style);
}

std::string fits_and_ranking(const ValidationReport& report, const TextStyle& style) {
  std::string out;
  if (report.fits.rows > 0) {
    out +=
        folded(fmt::format("Fits: {} known to have run or run out of memory; {} predicted to fit "
                           "ran out, {} predicted not to fit ran.",
                           counted(report.fits.rows, "row"), grouped(report.fits.false_fits),
                           grouped(report.fits.false_ooms)),
               "", style);
  }
  if (!report.ranking.empty()) {
    const RankingSummary all = summarize_ranking(report.ranking);
    out += folded(
        fmt::format("Ranking: in {} of plans for one job, our first choice is {} slower than the "
                    "best measured on average, the best of our first three {}; rank correlation "
                    "{:.2f}.",
                    counted(static_cast<std::int64_t>(all.groups), "group"),
                    percent(all.regret_mean), percent(all.regret3_mean), all.spearman_mean),
        "", style);
  }
  return out.empty() ? out : "\n" + out;
}

std::string worst_rows(const ValidationReport& report, const TextStyle& style) {
  std::vector<const ValidatedRow*> rows;
  for (const ValidatedRow& row : report.rows) {
    if (row.time_error && row.predicted_step && row.measured_step) rows.push_back(&row);
  }
  std::stable_sort(rows.begin(), rows.end(), [](const auto* a, const auto* b) {
    return std::abs(*a->time_error) > std::abs(*b->time_error);
  });
  if (rows.size() > kWorstRows) rows.resize(kWorstRows);
  Table table({{"row", Table::Align::left, 0},
               {"source", Table::Align::left, 1},
               {"measured"},
               {"predicted"},
               {"error"}});
  for (const ValidatedRow* row : rows) {
    table.add({row->row_id, row->source, duration(*row->measured_step),
               duration(*row->predicted_step), signed_percent(*row->time_error)});
  }
  if (table.empty()) return {};
  return heading("Largest errors of the step time", style) + table.text(style);
}

std::string skipped_rows(const ValidationReport& report, const TextStyle& style) {
  std::map<std::string, std::int64_t> reasons;
  std::int64_t skipped = 0;
  for (const ValidatedRow& row : report.rows) {
    if (row.skipped.empty()) continue;
    ++skipped;
    ++reasons[row.skipped];
  }
  if (skipped == 0) return {};
  std::vector<std::pair<std::string, std::int64_t>> sorted(reasons.begin(), reasons.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  Table table({{"rows"}, {"reason", Table::Align::left, 0}});
  for (std::size_t i = 0; i < std::min(sorted.size(), kMostReasons); ++i) {
    table.add({grouped(sorted[i].second), sorted[i].first});
  }
  if (sorted.size() > kMostReasons) {
    table.add({"...", fmt::format("{} other reasons; --json lists every row",
                                  sorted.size() - kMostReasons)});
  }
  return heading(fmt::format("Skipped: {}", counted(skipped, "row")), style) + table.text(style);
}

/// Which rows were predicted with a calibration that was not made for them.
std::string nearest_calibrations(const ValidationReport& report, const TextStyle& style) {
  std::map<std::string, std::int64_t> reasons;
  for (const ValidatedRow& row : report.rows) {
    if (!row.nearest.empty()) ++reasons[row.nearest];
  }
  if (reasons.empty()) return {};
  Table table({{"rows"}, {"calibration", Table::Align::left, 0}});
  for (const auto& [reason, rows] : reasons) table.add({grouped(rows), reason});
  return heading("Predicted with the nearest calibration", style) + table.text(style);
}

std::string verdict(const ErrorSummary& time, double limit, const TextStyle& style) {
  const bool within = time.rows > 0 && time.mean_abs <= limit;
  const std::string text =
      time.rows == 0
          ? std::string("No step time to hold against the limit.")
          : fmt::format("Mean error of the step time {} is {} the limit of {}.",
                        percent(time.mean_abs), within ? "within" : "above", percent(limit));
  return folded(painted(text, within ? Paint::good : Paint::bad, style), "", style);
}

}  // namespace

std::string spare_of(const FitsSummary& fits, std::size_t bin) {
  const double from = fits.bins[bin].from;
  const auto* const next = std::ranges::upper_bound(kSpareBins, from);
  if (next == kSpareBins.end()) return fmt::format("{:.0f} % and more", 100 * from);
  if (from == kSpareBins.front()) return fmt::format("below {:.0f} %", 100 * *next);
  return fmt::format("{:.0f} to {:.0f} %", 100 * from, 100 * *next);
}

std::string validation_text(const ValidationReport& report, std::optional<double> limit,
                            const TextStyle& style) {
  const auto predicted = std::count_if(report.rows.begin(), report.rows.end(),
                                       [](const ValidatedRow& row) { return row.skipped.empty(); });
  const auto inferred = std::count_if(report.rows.begin(), report.rows.end(),
                                      [](const ValidatedRow& row) { return row.inferred; });
  std::string out = folded(
      fmt::format(
          "{}: {} predicted, of these {} with a blank filled in by the default of their framework.",
          counted(static_cast<std::int64_t>(report.rows.size()), "row"), grouped(predicted),
          grouped(inferred)),
      "", style);
  out += "\n" + overall(report, style);
  if (limit) out += "\n" + verdict(report.time, *limit, style);
  out += fits_and_ranking(report, style) + fits_by_framework(report, style) +
         by_left_out(report, style);
  if (report.first_runs) out += first_runs_text(*report.first_runs, style);
  out += by_source(report, style) + ranking_by_source(report, style);
  out += noise_floor(report, style) + worst_rows(report, style) + flagged_rows(report, style);
  return out + nearest_calibrations(report, style) + skipped_rows(report, style);
}

}  // namespace echelon
