// Settings of one optimizer step, and their defaults.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/flags/settings.hpp"
#include "core/framework/framework.hpp"
#include "core/model/model.hpp"
#include "core/plan/job.hpp"
#include "topologies/topology.hpp"

namespace echelon::cli {

/// Sequence, batch, precision, attention and token budget. Defaults are stated in `assumed`.
[[nodiscard]] Result<TrainingJob> job_of(const Settings& settings, const ModelSpec& model,
                                         const Framework& framework, const ClusterTopology& cluster,
                                         std::vector<std::string>& assumed);

/// Tokens of a sequence where --seq is not given: the model's context, at most 8,192.
[[nodiscard]] int default_sequence(const ModelSpec& model);
/// Tokens of --seq: a whole number, or one of 1,024 or 1,048,576 tokens ("8k", "1M"), as lengths of
/// contexts are named.
[[nodiscard]] Result<int> parse_sequence(const Setting& setting);
/// "bf16" of `--precision bf16:any`, which asks a search to choose the states of that format;
/// nothing for a recipe.
[[nodiscard]] std::optional<std::string> format_of_any(const Settings& settings);

/// The framework's recipes of states of the format, that the cluster's GPUs can run. Errors: the
/// framework has but one.
[[nodiscard]] Result<std::vector<PrecisionRecipe>> state_recipes_of(const Setting& asked,
                                                                    const std::string& format,
                                                                    const Framework& framework,
                                                                    const GpuSpec& gpu);

}  // namespace echelon::cli
