#include "report/plan_diff.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "core/base/parse_quantity.hpp"
#include "core/plan/plan_fields.hpp"
#include "report/format.hpp"

namespace echelon {
namespace {

const MemoryBreakdown& fullest(const Prediction& costs) {
  return *std::max_element(costs.stages.begin(), costs.stages.end(),
                           [](const auto& a, const auto& b) { return a.total() < b.total(); });
}

}  // namespace

std::vector<TimeDelta> part_deltas(const CostBreakdown& a, const CostBreakdown& b) {
  const std::vector<TimePart> ours = parts_of(a);
  const std::vector<TimePart> theirs = parts_of(b);
  std::vector<TimeDelta> rows;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    if (ours[i].time == Seconds{} && theirs[i].time == Seconds{}) continue;
    rows.push_back({ours[i].name, ours[i].time, theirs[i].time});
  }
  rows.push_back({"step", a.total(), b.total()});
  return rows;
}

std::vector<MemoryDelta> part_deltas(const MemoryBreakdown& a, const MemoryBreakdown& b) {
  const std::vector<MemoryPart> ours = parts_of(a);
  const std::vector<MemoryPart> theirs = parts_of(b);
  std::vector<MemoryDelta> rows;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    if (ours[i].bytes == Bytes{} && theirs[i].bytes == Bytes{}) continue;
    rows.push_back({ours[i].name, ours[i].bytes, theirs[i].bytes});
  }
  rows.push_back({"total", a.total(), b.total()});
  return rows;
}

std::vector<MemoryDelta> fullest_stage_deltas(const Prediction& a, const Prediction& b) {
  std::vector<MemoryDelta> rows = part_deltas(fullest(a), fullest(b));
  rows.push_back({"reserved", a.peak_reserved, b.peak_reserved});
  return rows;
}

std::vector<FieldDelta> field_deltas(const PlanFile& a, const PlanFile& b) {
  std::vector<FieldDelta> rows;
  const auto words = [&](std::string_view name, std::string left, std::string right) {
    if (left != right) rows.push_back({name, std::move(left), std::move(right)});
  };
  const auto number = [&](std::string_view name, auto left, auto right) {
    words(name, std::to_string(left), std::to_string(right));
  };
  const ParallelPlan& x = a.plan;
  const ParallelPlan& y = b.plan;
  words("model", a.model.name, b.model.name);
  words("cluster", a.cluster, b.cluster);
  number("GPUs", a.gpus, b.gpus);
  number("sequence", a.job.sequence, b.job.sequence);
  number("global batch", a.job.global_batch, b.job.global_batch);
  words("precision", a.job.precision.name, b.job.precision.name);
  words("framework", a.framework, b.framework);
  words("calibration", a.calibration, b.calibration);
  for (const PlanField* field : differing_fields(x, y)) {
    std::string left = field_text(*field, x);
    std::string right = field_text(*field, y);
    if (left == right) {  // rounded
      left = value_text(*field, x);
      right = value_text(*field, y);
    }
    rows.push_back({field->label, std::move(left), std::move(right)});
  }
  number("microbatches", x.microbatches_rounded_up(a.job.global_batch),
         y.microbatches_rounded_up(b.job.global_batch));
  return rows;
}

std::vector<FieldDelta> job_deltas(const PlanFile& a, const PlanFile& b) {
  std::vector<FieldDelta> rows;
  const auto add = [&](std::string_view name, std::string left, std::string right) {
    if (left != right) rows.push_back({name, std::move(left), std::move(right)});
  };
  add("model", a.model.name, b.model.name);
  add("sequence", grouped(a.job.sequence), grouped(b.job.sequence));
  add("global batch", grouped(a.job.global_batch), grouped(b.job.global_batch));
  return rows;
}

std::string faster_of(const PlanFile& a, const PlanFile& b) {
  const double x = a.predicted.tokens_per_second;
  const double y = b.predicted.tokens_per_second;
  std::string speeds = fmt::format("{} tokens/s for A, {} for B", human_count(x), human_count(y));
  if (a.gpus != b.gpus && a.gpus > 0 && b.gpus > 0) {
    speeds += fmt::format("; per GPU {} and {}", human_count(x / a.gpus), human_count(y / b.gpus));
  }
  if (const std::vector<FieldDelta> other = job_deltas(a, b); !other.empty()) {
    std::string parts;
    for (const FieldDelta& each : other) {
      parts += fmt::format("{}{} {} and {}", parts.empty() ? "" : ", ", each.name, each.a, each.b);
    }
    return fmt::format("A and B are plans of different jobs ({}): {}.", parts, speeds);
  }
  if (std::abs(y / x - 1) < 5e-4) return "A and B are equally fast: " + speeds + ".";
  return fmt::format("{} is {:.1f} % faster: {}.", y > x ? "B" : "A",
                     100 * (std::max(x, y) / std::min(x, y) - 1), speeds);
}

}  // namespace echelon
