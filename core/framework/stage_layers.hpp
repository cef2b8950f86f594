// Layers per pipeline stage as frameworks deal them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.hpp"
#include "core/framework/framework.hpp"
#include "core/model/model.hpp"

namespace echelon {

/// What the framework deals to `pp` stages without interleaving; nothing where it refuses that
/// number of stages. Not to be asked of a framework whose users choose (StageLayers::chosen).
/// Sources: the tables of the frameworks. Checked by: tests/core/framework/stage_layers_test.cpp.
[[nodiscard]] std::optional<std::vector<int>> dealt_layers(const Framework& framework,
                                                           const ModelSpec& model, int pp);

/// Layers of each stage as nanotron splits them: by cost (a layer 4h² + 3hf, the head V·h) over
/// equal thresholds. Source: nanotron 2411b02, src/nanotron/models/base.py:216-232, build_model.
/// There a stage is left once its cost is above its threshold, so that at an exact tie it takes one
/// layer more; the parameters per rank that published runs printed show that later runs left it at
/// equality. Checked by: tests/core/framework/stage_layers_test.cpp.
[[nodiscard]] std::vector<int> layers_by_cost(const ModelSpec& model, int pp,
                                              bool tie_stays_on_the_earlier_stage);

/// The plan's chunks as Megatron-Core's --pipeline-model-parallel-layout writes them, "Et*3|t*4|L":
/// E embedding, t layer, L loss, | between chunks in the order of the model; equal neighbours are
/// folded, "(t*4|)*3". Source: Megatron-LM core_v0.16.1,
/// megatron/core/transformer/pipeline_parallel_layer_layout.py:274-319.
[[nodiscard]] std::string megatron_layout(const ParallelPlan& plan);

/// Layers of the plan's chunks, in the order of the model.
[[nodiscard]] std::vector<int> layers_of_chunks(const ParallelPlan& plan);

/// The model's layers as Megatron-Core's --hybrid-layer-pattern writes them, "M-M*-|M-M-/*-": a
/// letter for each layer, | between the plan's chunks, / before the layers of each prediction
/// module. Source: Megatron-LM d98e8a64, megatron/core/models/hybrid/hybrid_layer_allocation.py.
/// The model has to state its layer_pattern.
[[nodiscard]] std::string megatron_pattern(const ModelSpec& model, const ParallelPlan& plan);
/// Layers of one prediction module there, as they are priced: "*E", or "*-" without experts.
[[nodiscard]] std::string_view module_pattern(bool experts);

/// Layers in each chunk of a layout such as "Et*3|(tt|)*29m|L", in the order of the model.
/// Source: Megatron-LM core_v0.16.1,
/// megatron/core/transformer/pipeline_parallel_layer_layout.py:274-319. Errors: an unknown symbol,
/// a repetition without number, more than 100,000 symbols.
[[nodiscard]] Result<std::vector<int>> parse_megatron_layout(std::string_view layout,
                                                             std::string_view where);

}  // namespace echelon
