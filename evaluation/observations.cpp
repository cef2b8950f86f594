#include "evaluation/observations.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <variant>

#include "costmodel/calibration/calibration_fields.hpp"
#include "costmodel/calibration/calibration_io.hpp"
#include "evaluation/calibration_set.hpp"
#include "evaluation/cv_folds.hpp"
#include "evaluation/row_quality.hpp"
#include "evaluation/run_cluster.hpp"
#include "evaluation/run_mapping.hpp"

namespace echelon {
namespace {

/// A single iteration is noisy and an odd head size slow, but they are runs of the same machine and
/// software; the robust loss bounds their influence.
bool unusable(const RowQualityFlag& flag) {
  return flag.time && flag.name != "one-iteration" && flag.name != "odd-heads";
}

}  // namespace

void pin(Calibration& calibration, std::span<const PinnedRate> pinned) {
  for (const PinnedRate& rate : pinned) {
    set_rate(calibration, calibration_field(rate.key), rate.value);
  }
}

Observations observe(const std::vector<MeasuredRun>& rows, const WithoutTerm& without) {
  Observations out;
  out.rows = &rows;
  out.memory.emplace(rows);
  out.pinned = without.pinned;
  const CalibrationSet priors{{}};
  RunMapper mapper;
  const auto flags = quality_flags_of(rows);
  const auto publishers = groups_of(rows, LeaveOut::publisher);
  const bool one_site = std::ranges::all_of(
      publishers, [&](const std::string& each) { return each == publishers[0]; });
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const MeasuredRun& row = rows[i];
    const auto leave_out = [&](const std::string& why, std::string detail = {}) {
      ++out.left_out[why];
      out.reasons[i] = detail.empty() ? why : std::move(detail);
    };
    const auto flag = std::ranges::find_if(flags[i], unusable);
    if (!row.step_seconds || row.out_of_memory()) {
      leave_out("without a step time");
    } else if (row.grade == "C") {
      leave_out("of grade C");
    } else if (flag != flags[i].end()) {
      leave_out("flagged for time", fmt::format("{}: {}", flag->name, flag->why));
    } else if (auto mapped = mapper.map(row); std::holds_alternative<SkippedRun>(mapped)) {
      leave_out("not priced", std::get<SkippedRun>(mapped).reason);
    } else {
      MappedRun& run = std::get<MappedRun>(mapped);
      // Their recurrences run at no rate of their own: fitted to, they would bend attention's.
      if (!one_site && (run.model.ssm.layers > 0 || run.model.delta.layers > 0)) {
        leave_out("with a recurrence, which has no rate");
        continue;
      }
      // They tell of the same rates as other runs, and judge alone what adapters change.
      if (!one_site && run.job.adapters) {
        leave_out("of adapters");
        continue;
      }
      const GpuSpec& gpu = run.cluster.gpu();
      Result<Calibration> prior = priors.prior(gpu, run.framework);
      const std::string family(gpu_family(gpu));
      if (!prior || family == "generic") {  // a family of unrelated devices
        leave_out("on a GPU of no family");
        continue;
      }
      // Of another vendor, whose kernels say nothing of the others'; a processor has a fit of its
      // own.
      if (!one_site && gpu.compute_capability <= 0) {
        leave_out("on a GPU without CUDA");
        continue;
      }
      pin(*prior, without.pinned);
      CostModel cost_model(run.model, run.job, run.cluster, run.framework, *prior);
      if (const auto network = measured_network(row, run.cluster)) cost_model.set_network(*network);
      cost_model.ablate(without.ablated);
      out.runs.push_back({i, family, run.framework.calibration_key(), row.source, publishers[i],
                          run.substitute.empty() ? std::string() : row.framework,
                          run.framework.kernels, std::move(cost_model), run.plan,
                          sharding_of(run.plan), *row.step_seconds, *prior});
    }
  }
  return out;
}

std::vector<std::string> left_out_texts(const Observations& all) {
  std::vector<std::string> out;
  for (const auto& [why, count] : all.left_out)
    out.push_back(fmt::format("{} rows {}", count, why));
  return out;
}

}  // namespace echelon
