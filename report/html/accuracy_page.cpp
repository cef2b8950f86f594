#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <vector>

#include "report/format.hpp"
#include "report/text/table.hpp"
#include "report/validation.hpp"

namespace echelon {

namespace {

/// The accuracy of another tool's predictions of the same rows.
struct Rival {
  std::string_view tool;
  std::string_view rows;   ///< our `source` of these rows
  double time_mean = 0;    ///< mean absolute error of step times
  double memory_mean = 0;  ///< of peak memory; 0: not given for these rows
  std::string_view how;
};
// Checked by: tests/report/html/accuracy_page_test.cpp, against the figures of the rows.
constexpr std::array kRivals = {
    Rival{"Calculon caa4b11", "selene-2022", 0.0365, 0,
          "its own published validation, repeated; the figure is in-sample"},
    Rival{"SimuMax 1.2 (4dcaae5)", "simumax-b200", 0.0475, 0.0033,
          "its predictions are in the `notes` of the rows; its table of kernel efficiencies was "
          "measured on B200 with the kernels of these runs (its "
          "docs/b200/b200_real_repro_guide.md, sections 5 and 8)"},
};

using PagePairs = std::map<std::string, ValidationPair>;

const ValidationPair* find_pair(const PagePairs& pairs, const std::string& name) {
  const auto found = pairs.find(name);
  return found == pairs.end() ? nullptr : &found->second;
}

std::string mean_and_median(const ErrorSummary& errors) {
  if (errors.rows == 0) return "-";
  return fmt::format("{} / {}", percent(errors.mean_abs), percent(errors.median_abs));
}

/// "82.3 %", marked if a band judged out of fold misses its target; "-" without one.
std::string band_share(const ErrorSummary& errors, bool out_of_fold) {
  if (!errors.in_band) return "-";
  return percent(*errors.in_band) + (out_of_fold && misses_band(errors) ? " **missed**" : "");
}

/// One line: in fold, out of fold, and out of fold without the flagged rows.
std::string error_line(const std::string& name, const ErrorSummary& judged,
                       const ErrorSummary& unflagged, const ErrorSummary* in_fold,
                       const ErrorSummary* prior, bool out_of_fold) {
  if (judged.rows == 0) return {};
  const bool flagged = unflagged.rows < judged.rows;
  return fmt::format(
      "| {} | {} | {} | {} | {} | {} | {} | {} .. {} | {} | {} |\n", name, grouped(judged.rows),
      in_fold != nullptr ? mean_and_median(*in_fold) : "-", mean_and_median(judged),
      prior != nullptr ? mean_and_median(*prior) : "-", percent(judged.p90_abs),
      signed_percent(judged.bias), percent(judged.mean_80.low), percent(judged.mean_80.high),
      band_share(judged, out_of_fold),
      !flagged ? "the same"
      : unflagged.in_band
          ? fmt::format("{}, in the band {} ({})", mean_and_median(unflagged),
                        band_share(unflagged, out_of_fold), counted(unflagged.rows, "row"))
          : fmt::format("{} ({})", mean_and_median(unflagged), counted(unflagged.rows, "row")));
}

std::string errors_section(const ValidationReport& judged, const ValidationReport* in_fold,
                           std::string_view title, ErrorSummary ValidationSummary::*which) {
  std::string out = fmt::format(
      "\n## {}\n\n| source | rows | in fold, mean / median | {}, mean / median | priors alone | "
      "90th percentile | bias | mean, 80 % interval | in the 80 % band | without flagged rows "
      "|\n|---|---|---|---|---|---|---|---|---|---|\n",
      title, judged.out_of_fold ? "out of fold" : "as shipped, in fold");
  const auto add = [&](const std::string& name, const ValidationPair& pair,
                       const ValidationPair* seen) {
    const bool time = which == &ValidationSummary::time && pair.prior_time.rows > 0;
    out += error_line(name, pair.*which, pair.unflagged.*which,
                      seen != nullptr ? &(seen->*which) : nullptr,
                      time ? &pair.prior_time : nullptr, judged.out_of_fold);
  };
  add("**all**", judged, in_fold);
  for (const auto& [source, pair] : judged.by_source) {
    add(source, pair, in_fold != nullptr ? find_pair(in_fold->by_source, source) : nullptr);
    for (const auto& [part, summary] : judged.by_part) {
      const bool whole = (summary.*which).rows == (pair.*which).rows;
      if (whole || !part.starts_with(source + ", ")) continue;
      add(part, summary, in_fold != nullptr ? find_pair(in_fold->by_part, part) : nullptr);
    }
  }
  return out;
}

/// Groups that were left out of the fit, flagged rows not counted.
std::string left_out_section(const ValidationReport& judged) {
  if (judged.by_left_out.empty()) return {};
  std::string out =
      "\n## Step time of publishers left out\n\nRows that are not flagged, each publisher's "
      "predicted by calibrations fitted to all others, next to the priors alone.\n\n| publisher | "
      "rows | mean | median | bias | priors alone, mean | in the 80 % band "
      "|\n|---|---|---|---|---|---|---|\n";
  const auto line = [&](const std::string& name, const ValidationSummary& summary) {
    const ErrorSummary& time = summary.time;
    if (time.rows == 0) return;
    out += fmt::format("| {} | {} | {} | {} | {} | {} | {} |\n", name, grouped(time.rows),
                       percent(time.mean_abs), percent(time.median_abs), signed_percent(time.bias),
                       percent(summary.prior_time.mean_abs), band_share(time, true));
  };
  for (const auto& [name, pair] : judged.by_left_out) line(name, pair.unflagged);
  line("**all rows**", judged.unflagged);
  const GroupMeans means = means_over_unflagged(judged.by_left_out);
  return out + fmt::format("| **mean over {} publishers** | | {} | | | {} | |\n", means.groups,
                           percent(means.time), percent(means.prior_time));
}

std::string fits_section(const ValidationReport& judged) {
  std::string out =
      "\n## Does it fit?\n\n| source | rows | ran | predicted to fit, ran out of memory | "
      "predicted not to fit, ran | without flagged rows |\n|---|---|---|---|---|---|\n";
  const auto line = [&](const std::string& name, const ValidationPair& pair) {
    const FitsSummary& all = pair.fits;
    const FitsSummary& some = pair.unflagged.fits;
    if (all.rows == 0) return;
    out += fmt::format("| {} | {} | {} | {} | {} | {} and {} of {} |\n", name, grouped(all.rows),
                       grouped(all.ran), grouped(all.false_fits), grouped(all.false_ooms),
                       grouped(some.false_fits), grouped(some.false_ooms), grouped(some.rows));
  };
  line("**all**", judged);
  for (const auto& [source, pair] : judged.by_source) {
    if (pair.fits.ran < pair.fits.rows || pair.fits.false_ooms > 0) line(source, pair);
  }
  return out;
}

std::string probability_section(const ValidationReport& judged) {
  if (judged.by_framework.empty()) return {};
  std::string out =
      "\n## How likely does it fit?\n\nP(fits) follows from the predicted need and the memory band "
      "of the calibration (docs/formulas.md): *measured* on runs that ended out of memory, "
      "*extrapolated* from the peaks of runs that ran, or *assumed*. Flagged rows are left out; "
      "the "
      "band is that of the first row, since each publisher has its own. The Brier score is the "
      "mean "
      "of (P(fits) - outcome)^2; a hard limit where P(fits) is 50 % scores its share of wrong "
      "answers.\n\n| framework | memory band | rows | ran | predicted to fit, ran out of memory | "
      "predicted not to fit, ran | Brier score | of a hard limit "
      "|\n|---|---|---|---|---|---|---|---|\n";
  const auto line = [&](const std::string& name, const std::string& band, const FitsSummary& fits) {
    out += fmt::format("| {} | {} | {} | {} | {} | {} | {:.4f} | {:.4f} |\n", name, band,
                       grouped(fits.rows), grouped(fits.ran), grouped(fits.false_fits),
                       grouped(fits.false_ooms), fits.brier, fits.hard_brier());
  };
  line("**all**", "", judged.unflagged.fits);
  for (const auto& [name, one] : judged.by_framework) line(name, words_of(one.band), one.fits);
  out +=
      "\n| spare memory, predicted | rows | share that ran | mean P(fits) |\n|---|---|---|---|\n";
  const FitsSummary& all = judged.unflagged.fits;
  for (std::size_t i = 0; i < all.bins.size(); ++i) {
    const SpareBin& bin = all.bins[i];
    out += fmt::format("| {} | {} | {} | {} |\n", spare_of(all, i), grouped(bin.rows),
                       percent(static_cast<double>(bin.ran) / bin.rows), percent(bin.probability));
  }
  return out;
}

std::string ranking_section(const ValidationReport& judged) {
  std::string out =
      "\n## Is the ranking correct?\n\nGroups of three or more plans for one job. Regret: how much "
      "slower our first choice ran than the best plan measured; then the same for the best of our "
      "first three. Rank correlation is Spearman's, averaged over the groups. A source without "
      "such groups is not in the table.\n\n| source | groups | regret, mean / median | best of the "
      "first three, mean / median | rank correlation |\n|---|---|---|---|---|\n";
  const auto line = [&](const std::string& name, const std::vector<Ranking>& ranking) {
    if (ranking.empty()) return;
    const RankingSummary all = summarize_ranking(ranking);
    out += fmt::format("| {} | {} | {} / {} | {} / {} | {:.2f} |\n", name, all.groups,
                       percent(all.regret_mean), percent(all.regret_median),
                       percent(all.regret3_mean), percent(all.regret3_median), all.spearman_mean);
  };
  line("**all**", judged.ranking);
  line("**all**, without flagged rows", judged.unflagged.ranking);
  for (const auto& [source, pair] : judged.by_source) {
    line(source, pair.ranking);
    for (const auto& [part, summary] : judged.by_part) {
      if (part.starts_with(source + ", ")) line(part, summary.ranking);
    }
  }
  return out;
}

std::string noise_section(const ValidationReport& judged) {
  std::string out =
      "\n## The noise floor\n\nOne configuration measured more than once: the longest step over "
      "the shortest, minus one. No model can be expected to be more accurate.\n\n| source | "
      "configurations | rows | mean | median | largest |\n|---|---|---|---|---|---|\n";
  for (const auto& [source, floor] : judged.noise) {
    out += fmt::format("| {} | {} | {} | {} | {} | {} |\n", source, floor.groups, floor.rows,
                       percent(floor.mean), percent(floor.median), percent(floor.largest));
  }
  return out;
}

std::string rivals_section(const ValidationReport& judged) {
  std::string out =
      "\n## Other tools on the same rows\n\nAs their authors validate them. What they predict for "
      "the other rows: [accuracy-notes.md](accuracy-notes.md#other-tools-on-the-same-rows).\n\n| "
      "tool | rows | its time error, mean | ours | its "
      "memory error, mean | ours | origin |\n|---|---|---|---|---|---|---|\n";
  for (const Rival& rival : kRivals) {
    const ValidationPair* ours = find_pair(judged.by_source, std::string(rival.rows));
    if (ours == nullptr) continue;
    const bool memory = rival.memory_mean > 0 && ours->memory.rows > 0;
    out += fmt::format("| {} | {} {} | {} | {} | {} | {} | {} |\n", rival.tool, ours->time.rows,
                       rival.rows, percent(rival.time_mean), percent(ours->time.mean_abs),
                       memory ? percent(rival.memory_mean) : "-",
                       memory ? percent(ours->memory.mean_abs) : "-", rival.how);
  }
  return out;
}

std::string apart_section(const ValidationReport& judged) {
  std::string out =
      "\n## Flagged rows\n\nThey count in every figure above except those \"without flagged "
      "rows\". The rules use no prediction; the rows are in tests/validation/flags.csv.\n\n| flag "
      "| rows | reason |\n|---|---|---|\n";
  for (const RowQualityFlag& flag : row_quality_flags()) {
    const auto rows = std::ranges::count_if(judged.rows, [&](const ValidatedRow& row) {
      return std::ranges::count(row.flags, flag) > 0;
    });
    if (rows > 0) out += fmt::format("| {} | {} | {} |\n", flag.name, rows, flag.why);
  }
  std::map<std::string, int> reasons;
  for (const ValidatedRow& row : judged.rows) {
    if (!row.skipped.empty()) ++reasons[row.skipped];
  }
  std::vector<std::pair<std::string, int>> sorted(reasons.begin(), reasons.end());
  std::ranges::stable_sort(sorted, std::ranges::greater{},
                           [](const auto& one) { return one.second; });
  out += "\n## Rows that are not predicted\n\n| rows | reason |\n|---|---|\n";
  for (const auto& [reason, rows] : sorted) out += fmt::format("| {} | {} |\n", rows, reason);
  return out;
}

std::string ablation_section(std::span<const AblatedTerm> terms) {
  if (terms.empty()) return {};
  std::string out =
      "\n## What each term is worth\n\nMean error of step times out of fold, over the rows whose "
      "prediction the term changes by more than 1 %, flagged rows left out: with all terms, and "
      "with the term left out and everything else fitted again (folds distributed over four "
      "parts).\n\n| term | rows | with it | without it |\n|---|---|---|---|\n";
  for (const AblatedTerm& term : terms) {
    out += fmt::format("| {} ({}) | {} | {} | {} |\n", term.name, term.what, grouped(term.rows),
                       term.rows > 0 ? percent(term.with_term) : "-",
                       term.rows > 0 ? percent(term.without_term) : "-");
  }
  return out;
}

}  // namespace

std::string accuracy_page(const ValidationReport& judged, const ValidationReport* in_fold,
                          std::string_view picture, std::span<const AblatedTerm> terms) {
  const auto predicted = std::ranges::count_if(
      judged.rows, [](const ValidatedRow& row) { return row.skipped.empty(); });
  std::string out = fmt::format(
      "# How accurate the predictions are\n\nWritten by `scripts/accuracy.sh`; do not edit. {} of "
      "{} published runs (tests/validation/README.md) are predicted. Errors are |predicted / "
      "measured - 1|; the bias keeps the sign. *Out of fold*: no parameter was fitted to a row of "
      "{}. *In fold*: fitted to the row too{}. *Priors alone*: data sheets and published "
      "benchmarks, "
      "nothing fitted. Each mean has an interval of 80 % confidence, from resampling whole "
      "folds. The form of the model and the priors were chosen with these rows in view; only "
      "fitted numbers are independent of the rows on which they are judged. Targets, misses and "
      "their causes: [accuracy-notes.md](accuracy-notes.md).\n",
      grouped(predicted), grouped(static_cast<std::int64_t>(judged.rows.size())),
      judged.by_left_out.empty()
          ? "the same software, model, GPU and number of GPUs, or to a near-duplicate"
          : "the same publisher (all documents of one are left out together)",
      in_fold == nullptr && !judged.out_of_fold
          ? "; the calibrations used here may have been fitted to every row"
      : in_fold == nullptr
          ? " (\"-\": nothing is fitted, the shipped data-sheet calibrations are used)"
          : "");
  if (!picture.empty()) {
    out +=
        fmt::format("\n![Predicted over measured step times, a panel per source]({})\n", picture);
  }
  out += errors_section(judged, in_fold, "Step time", &ValidationSummary::time);
  if (judged.out_of_fold) {
    out +=
        "\n**missed**: in a source of 30 rows or more, less than 75 % or more than 85 % are in the "
        "80 % band. The band of a row is derived from other rows, each predicted by a calibration "
        "that was not fitted to it.\n";
  }
  out += left_out_section(judged);
  if (judged.first_runs) out += first_runs_page(*judged.first_runs);
  out += errors_section(judged, in_fold, "Peak memory", &ValidationSummary::memory);
  out += fits_section(judged) + probability_section(judged) + ranking_section(judged) +
         noise_section(judged);
  return out + rivals_section(judged) + ablation_section(terms) + apart_section(judged);
}

std::vector<RivalFigures> rival_figures() {
  std::vector<RivalFigures> figures;
  for (const Rival& rival : kRivals) {
    figures.push_back({std::string(rival.rows), rival.time_mean, rival.memory_mean});
  }
  return figures;
}

std::string ablation_text(std::span<const AblatedTerm> terms, const TextStyle& style) {
  if (terms.empty()) return {};
  Table table({{"left out", Table::Align::left}, {"rows"}, {"mean error with it"}, {"without"}});
  for (const AblatedTerm& term : terms) {
    table.add({std::string(term.name), grouped(term.rows),
               term.rows > 0 ? percent(term.with_term) : "-",
               term.rows > 0 ? percent(term.without_term) : "-"});
  }
  return "\n" + table.text(style);
}

}  // namespace echelon
