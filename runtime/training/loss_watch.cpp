#include "runtime/training/loss_watch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace echelon {
namespace {

double median_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

/// The optimizer does nothing where the norm is not finite (Kernels::clip_scale).
LossWatch::Assessment LossWatch::not_finite(double loss, double gradient_norm) {
  const bool of_loss = !std::isfinite(loss);
  const std::string what =
      fmt::format("the {} is {}", of_loss ? "loss" : "gradient norm",
                  std::isnan(of_loss ? loss : gradient_norm) ? "NaN" : "infinite");
  if (std::isfinite(gradient_norm)) return {Level::diverged, what};
  ++in_a_row_;
  if (in_a_row_ <= max_skipped_) {
    ++skipped_;
    return {Level::skipped, what + ": the step was skipped"};
  }
  if (max_skipped_ == 0) return {Level::diverged, what};
  return {Level::diverged, fmt::format("{}, in {} steps in a row; --max-skipped-steps allows {}",
                                       what, in_a_row_, max_skipped_)};
}

LossWatch::Assessment LossWatch::assess(double loss, double gradient_norm) {
  if (!std::isfinite(loss) || !std::isfinite(gradient_norm)) return not_finite(loss, gradient_norm);
  in_a_row_ = 0;
  if (!first_) first_ = loss;
  if (loss > kHopeless && loss > kTimesTheFirst * *first_) {
    return {Level::diverged, fmt::format("the loss is {:.3g}, {:.1g} times that of the first step",
                                         loss, loss / *first_)};
  }
  Assessment assessment;
  if (recent_.size() == kWindow) {
    const std::vector<double> window(recent_.begin(), recent_.end());
    const double middle = median_of(window);
    if (!beginning_) beginning_ = middle;
    std::vector<double> distances;
    for (const double each : window) distances.push_back(std::abs(each - middle));
    const double deviation = std::max(1.4826 * median_of(distances), 0.01 * std::abs(middle));
    if (loss > middle + kSpike * deviation) {
      assessment = {Level::spike, fmt::format("loss spike: {:.3f} after {:.3f}", loss, middle)};
    }
    far_above_ = loss > kFarAbove * *beginning_ ? far_above_ + 1 : 0;
    if (far_above_ >= kPatience) {
      return {Level::diverged,
              fmt::format(
                  "the loss has been above {:.3f}, {} times that of the beginning, for {} steps",
                  kFarAbove * *beginning_, kFarAbove, kPatience)};
    }
    recent_.pop_front();
  }
  recent_.push_back(loss);
  return assessment;
}

}  // namespace echelon
