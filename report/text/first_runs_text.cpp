#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "report/format.hpp"
#include "report/text/table.hpp"
#include "report/validation.hpp"

namespace echelon {

namespace {

/// "12.6 % to 5.0 %"; "-" without rows.
std::string fall_text(const FirstRunsErrors& errors) {
  if (errors.rows == 0) return "-";
  return fmt::format("{} to {}", percent(errors.before), percent(errors.after));
}

std::string ratio_text(const FirstRunsErrors& errors) {
  if (errors.rows == 0 || errors.before <= 0) return "-";
  return fmt::format("{:.2f}, {:.0f} % in the band", errors.after / errors.before,
                     100 * errors.in_band);
}

std::string sources_counted(const FirstRunsErrors& mean) { return counted(mean.rows, "source"); }

}  // namespace

std::string first_runs_text(const FirstRuns& all, const TextStyle& style) {
  std::vector<Table::Column> columns = {{"after first runs of a source", Table::Align::left, 0},
                                        {"rows"}};
  for (const FirstRunsErrors& mean : all.means) {
    columns.push_back({fmt::format("0 to {}, mean error", mean.runs)});
  }
  Table table(std::move(columns));
  const auto add = [&](const std::string& name, const std::string& rows,
                       const std::vector<FirstRunsErrors>& errors, const auto& text) {
    std::vector<Cell> cells = {name, rows};
    for (const FirstRunsErrors& one : errors) cells.emplace_back(text(one));
    table.add(std::move(cells));
  };
  for (const FirstRunsSource& source : all.sources) {
    add(source.source, grouped(source.rows), source.errors, fall_text);
  }
  add("mean over the sources", "", all.means, fall_text);
  add("... error after / before", "", all.means, ratio_text);
  return "\n" + table.text(style);
}

std::string first_runs_page(const FirstRuns& all) {
  std::string out = fmt::format(
      "\n## After the first runs of a source\n\nMean error of the rest of a left-out source after "
      "`plan fit` of k of its runs on the same GPU and framework, from the calibration that has "
      "not "
      "seen its publisher: before and after, of the same rest. Sources of {} rows or more that are "
      "not flagged; k runs are drawn at random {} times, with a fixed seed. A GPU and framework of "
      "k "
      "rows or fewer is left out, so the sources differ between the columns.\n\n| source | rows |",
      kFewestRowsOfSource, kDrawsOfFirstRuns);
  for (const FirstRunsErrors& mean : all.means) out += fmt::format(" k = {} |", mean.runs);
  out += "\n|---|---|";
  for (std::size_t i = 0; i < all.means.size(); ++i) out += "---|";
  out += "\n";
  const auto line = [&](const std::string& name, const std::string& rows,
                        const std::vector<FirstRunsErrors>& errors, const auto& text) {
    out += fmt::format("| {} | {} |", name, rows);
    for (const FirstRunsErrors& one : errors) out += fmt::format(" {} |", text(one));
    out += "\n";
  };
  for (const FirstRunsSource& source : all.sources) {
    line(source.source, grouped(source.rows), source.errors, fall_text);
  }
  line("**mean over the sources**", "", all.means, fall_text);
  line("**after / before**", "", all.means, ratio_text);
  line("sources", "", all.means, sources_counted);
  return out;
}

}  // namespace echelon
