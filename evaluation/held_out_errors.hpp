// The band that a calibration deserves by its errors on runs it was not fitted to.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "costmodel/calibration/calibration.hpp"
#include "evaluation/fit_levels.hpp"

namespace echelon {

/// ln-errors of runs, each predicted by a calibration fitted without the run's part.
class HeldOutErrors {
 public:
  /// `sites`: with Sites::any a band must hold for publishers that were not seen.
  explicit HeldOutErrors(Sites sites) : sites_(sites) {}

  /// The error of a run of `part` under the calibration called `name`.
  void add(const std::string& name, const Observation& run, int part, double error);

  /// Sets the time band: the least β so that 80 % of the measured steps lie between step / (1 + β)
  /// and step · (1 + β), over the errors of all parts but `left_out`. Of the errors under the
  /// calibration's own name, or else of software with the same kernels, or else of all software:
  /// the first that has eight errors and, with Sites::any, three publishers. n errors of one
  /// publisher weigh 1/√n each, as in a fit. Without such errors the band stays.
  void set_band(Calibration& calibration, std::optional<int> left_out = {}) const;

 private:
  struct One {
    int part = 0;
    double error = 0;
    std::string publisher;
  };
  [[nodiscard]] std::optional<double> band_of(const std::string& key,
                                              std::optional<int> left_out) const;

  Sites sites_;
  std::map<std::string, std::vector<One>> errors_;  ///< by name, kernels, and all under ""
};

}  // namespace echelon
