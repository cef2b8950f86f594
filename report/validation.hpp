// Predicted versus measured, for `plan validate`.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "evaluation/ablate.hpp"
#include "evaluation/validate.hpp"
#include "report/terminal_style.hpp"

namespace echelon {

/// Summaries, then every skipped reason with its count and the worst rows. `limit` is the mean
/// absolute error of step times that the user accepts.
[[nodiscard]] std::string validation_text(const ValidationReport& report,
                                          std::optional<double> limit, const TextStyle& style);
[[nodiscard]] std::string validation_json(const ValidationReport& report);
/// Predicted over measured step times, both logarithmic, one panel per source (sources of fewer
/// than four rows share the last one): an SVG that shows the line of equality, the 80 % band, and
/// flagged rows hollow.
[[nodiscard]] std::string validation_svg(const ValidationReport& report);
/// The same as a page in Markdown (docs/accuracy.md): figures out of fold next to those in fold,
/// where `in_fold` gives them; other tools on the same rows; what is flagged and what is skipped.
/// `picture` is the file of the plot, seen from the page; "" for none.
[[nodiscard]] std::string accuracy_page(const ValidationReport& judged,
                                        const ValidationReport* in_fold, std::string_view picture,
                                        std::span<const AblatedTerm> terms = {});
/// The bin of spare memory, as a share of a GPU's: "below 0 %", "5 to 10 %", "50 % and more".
[[nodiscard]] std::string spare_of(const FitsSummary& fits, std::size_t bin);
/// The errors of left-out sources after their first runs: as a table, and as a section of the page.
[[nodiscard]] std::string first_runs_text(const FirstRuns& all, const TextStyle& style);
[[nodiscard]] std::string first_runs_page(const FirstRuns& all);
/// The effect of leaving out each term; "" without terms.
[[nodiscard]] std::string ablation_text(std::span<const AblatedTerm> terms, const TextStyle& style);
/// Mean absolute errors of another tool on the rows of one source, as the page shows them.
struct RivalFigures {
  std::string source;
  double time_mean = 0;
  double memory_mean = 0;  ///< 0: none given
};
[[nodiscard]] std::vector<RivalFigures> rival_figures();
/// One line per row, including skipped ones, as comma-separated values (RFC 4180): the
/// measurements, the prediction with its parts and band, in seconds and bytes; errors are ratios.
[[nodiscard]] std::string validation_rows_csv(const ValidationReport& report);

}  // namespace echelon
