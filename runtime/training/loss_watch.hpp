// Monitors loss and gradient norm: spikes, divergence, NaN and infinity.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

namespace echelon {

/// Assessment of a step's loss. A spike is reported and training continues; divergence ends the
/// run.
class LossWatch {
 public:
  enum class Level { fine, spike, diverged };
  struct Assessment {
    Level level = Level::fine;
    std::string what;  ///< "loss spike: 9.10 after 4.20", "loss is NaN"
  };

  /// Spike: more than kSpike robust deviations (1.4826 · median absolute deviation, at least 1 % of
  /// the median) above the median of the last kWindow losses. Diverged: loss or norm not finite;
  /// kPatience steps in a row above 1.5 times the median of the first kWindow losses; or one loss
  /// above both kHopeless and ten times the first one.
  [[nodiscard]] Assessment assess(double loss, double gradient_norm);

  static constexpr std::size_t kWindow = 20;
  static constexpr double kSpike = 6;
  static constexpr int kPatience = 20;
  static constexpr double kFarAbove = 1.5;
  /// Nats per token. Guessing costs ln(vocabulary), at most 13: from here no run has come back.
  static constexpr double kHopeless = 100;
  static constexpr double kTimesTheFirst = 10;

 private:
  std::deque<double> recent_;
  std::optional<double> first_;
  std::optional<double> beginning_;  ///< median of the first window
  int far_above_ = 0;
};

}  // namespace echelon
