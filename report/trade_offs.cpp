#include "report/trade_offs.hpp"

#include <fmt/format.h>

#include "core/base/parse_quantity.hpp"
#include "report/format.hpp"

namespace echelon {

std::string enumerated(const std::vector<std::string>& parts) {
  std::string out;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const bool last = i + 1 == parts.size();
    out += (i == 0 ? "" : last ? " and " : ", ") + parts[i];
  }
  return out;
}

std::vector<std::string> more_unusual(const Candidate& plan, const Candidate& other) {
  using enum UnusualFeature;
  const UnusualFeatures& its = plan.score.unusual;
  std::vector<std::string> out;
  for (const FeaturePrice& each : kFeaturePrices) {
    if (!its.has(each.feature) || other.score.unusual.has(each.feature)) continue;
    if (each.feature == own_layout && its.has(unequal_chunks)) continue;  // they need one
    out.emplace_back(each.label);
  }
  return out;
}

std::string drawbacks(const Candidate& plan, const Candidate& other) {
  const std::optional<double> its = plan.score.fits_probability;
  const std::optional<double> others = other.score.fits_probability;
  const std::vector<std::string> unusual = more_unusual(plan, other);
  constexpr double kLikely = 0.98;
  std::string out;
  if (its && others && *its < *others && probability(*its) != probability(*others)) {
    out = *its < kLikely ? "is only " + likely_to_fit(*its)
                         : fmt::format("is less likely to fit ({} against {})", probability(*its),
                                       probability(*others));
  } else if (unusual.empty()) {
    return "has less memory to spare";
  }
  if (unusual.empty()) return out;
  return out + (out.empty() ? "has " : " and has ") + enumerated(unusual);
}

std::string chance_of(const Candidate& plan) {
  const std::optional<double> likely = plan.score.fits_probability;
  return likely ? ", " + likely_to_fit(*likely) : "";
}

std::string limit_text(const PlanRequest& request) {
  return fmt::format("at most {} {}", with_gib(request.usable_memory()),
                     request.max_memory ? std::string("may be used (--max-memory)")
                                        : fmt::format("are likely to fit (memory band: {})",
                                                      name_of(memory_band_of(request).kind)));
}

std::string without_savings(const PlanRequest& request) {
  const std::vector<std::string>& all = request.unpriced_savings;
  if (all.empty()) return {};
  return fmt::format(" without {} that your job has, which {} no price", enumerated(all),
                     all.size() == 1 ? "has" : "have");
}

std::string why_slower(const Candidate& best, const Candidate& other) {
  const TimePrediction& ours = best.prediction.time;
  const TimePrediction& its = other.prediction.time;
  if (const auto part = largest_increase(ours.parts, its.parts)) {
    return fmt::format("{} more {}", duration(part->more()), part->name);
  }
  return its.step > ours.step ? "small losses in many parts" : "the same speed, and more memory";
}

std::string trade_of(const Candidate& best, const Candidate& other) {
  const bool slower = other.prediction.time.step > best.prediction.time.step;
  std::string out = slower ? why_slower(best, other) : "faster, but " + drawbacks(other, best);
  const std::vector<std::string> more = more_unusual(other, best);
  if (slower && !more.empty()) out += "; has " + enumerated(more);
  const std::vector<std::string> fewer = more_unusual(best, other);
  if (!fewer.empty()) out += "; without " + enumerated(fewer);
  return out;
}

}  // namespace echelon
