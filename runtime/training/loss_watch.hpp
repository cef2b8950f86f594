// Monitors loss and gradient norm: spikes, divergence, NaN and infinity.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

namespace echelon {

/// Assessment of a step's loss. A spike is reported and training continues; so does it after a
/// step whose gradients are NaN or infinite, which changed nothing, up to `max_skipped` in a row;
/// divergence ends the run.
class LossWatch {
 public:
  explicit LossWatch(std::int64_t max_skipped = 0) : max_skipped_(max_skipped) {}

  enum class Level { fine, spike, skipped, diverged };
  struct Assessment {
    Level level = Level::fine;
    std::string what;  ///< "loss spike: 9.10 after 4.20", "loss is NaN"
  };

  /// Spike: more than kSpike robust deviations (1.4826 · median absolute deviation, at least 1 % of
  /// the median) above the median of the last kWindow losses. Skipped: the norm is not finite.
  /// Diverged: the same in too many steps in a row; a loss that is not finite with a norm that is;
  /// kPatience steps in a row above 1.5 times the median of the first kWindow losses; or one loss
  /// above both kHopeless and ten times the first one.
  [[nodiscard]] Assessment assess(double loss, double gradient_norm);

  /// Skipped steps in all.
  [[nodiscard]] std::int64_t skipped() const { return skipped_; }

  static constexpr std::size_t kWindow = 20;
  static constexpr double kSpike = 6;
  static constexpr int kPatience = 20;
  static constexpr double kFarAbove = 1.5;
  /// Nats per token. Guessing costs ln(vocabulary), at most 13: from here no run has come back.
  static constexpr double kHopeless = 100;
  static constexpr double kTimesTheFirst = 10;

 private:
  [[nodiscard]] Assessment not_finite(double loss, double gradient_norm);

  std::int64_t max_skipped_;
  std::int64_t skipped_ = 0;
  std::int64_t in_a_row_ = 0;
  std::deque<double> recent_;
  std::optional<double> first_;
  std::optional<double> beginning_;  ///< median of the first window
  int far_above_ = 0;
};

}  // namespace echelon
