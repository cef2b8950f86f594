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

LossWatch::Assessment LossWatch::assess(double loss, double gradient_norm) {
  if (!std::isfinite(loss)) {
    return {Level::diverged, fmt::format("the loss is {}", std::isnan(loss) ? "NaN" : "infinite")};
  }
  if (!std::isfinite(gradient_norm)) {
    return {Level::diverged,
            fmt::format("the gradient norm is {}", std::isnan(gradient_norm) ? "NaN" : "infinite")};
  }
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
