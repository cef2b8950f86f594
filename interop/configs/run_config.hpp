// RunConfig: what a configuration of a training framework states, and its fields by name.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/base/result.hpp"
#include "core/model/model.hpp"
#include "core/plan/parallel_plan.hpp"
#include "core/plan/plan_fields.hpp"

namespace echelon {

/// A whole run as configurations of frameworks state it: the model, the work of one step, the
/// number of GPUs and the plan.
struct RunConfig {
  ModelSpec model{};
  std::string model_name{};       ///< of the catalog, where a format names models: "llama3-8b"
  std::string framework{};        ///< whose rules and rates apply: a name of core/framework
  int sequence = 0;               ///< tokens per sample
  std::int64_t global_batch = 0;  ///< samples per optimizer step
  std::string precision{};        ///< name of a recipe (core/plan/job.hpp)
  bool flash_attention = true;
  std::string layer_code{"fused"};  ///< name of a LayerCode
  bool packed_documents = false;    ///< attention stays within the documents of a sequence
  std::string adapters{"none"};     ///< Adapters::text() of those that alone are trained
  std::string quantized{"none"};    ///< QuantizedWeights::text() of all others
  int gpus = 0;
  int gpus_per_node = 0;
  double compute_capability = 0;               ///< of the GPUs; 0: unknown
  std::string gpu_resource{"nvidia.com/gpu"};  ///< as Kubernetes counts them
  ParallelPlan plan{};
};

/// One part of a run: a field of the plan, or a member of the rest.
using ConfigField =
    std::variant<const PlanField*, int RunConfig::*, std::int64_t RunConfig::*, bool RunConfig::*,
                 std::string RunConfig::*, int ModelSpec::*, bool ModelSpec::*, double ModelSpec::*,
                 Normalization ModelSpec::*, Activation ModelSpec::*,
                 PositionEmbedding ModelSpec::*, std::string ModelSpec::*, int MixtureOfExperts::*,
                 bool MixtureOfExperts::*, double MixtureOfExperts::*,
                 RouterScore MixtureOfExperts::*, int LatentAttention::*, int SparseAttention::*,
                 bool SparseAttention::*, int GatedDeltaNet::*, int StateSpace::*,
                 bool StateSpace::*, int GlobalAttention::*, bool GlobalAttention::*,
                 int ShortConvolution::*, bool ShortConvolution::*, double ModelConstants::*,
                 std::vector<std::string> ModelConstants::*, double RotaryEmbedding::*,
                 int RotaryEmbedding::*, bool RotaryEmbedding::*, RopeScaling RotaryEmbedding::*>;

/// All fields of a run that are not fields of the plan, with the names that people read.
struct NamedConfigField {
  ConfigField field;
  std::string_view label;      ///< "sequence length"
  std::string_view flag = "";  ///< of `plan` without dashes, where one sets it: "seq"
};
[[nodiscard]] const std::vector<NamedConfigField>& job_fields();
/// Shapes of the model, by which it is recognized …
[[nodiscard]] const std::vector<NamedConfigField>& model_fields();
/// … and the rest of ModelSpec but its names: what changes the trained model, not its price.
[[nodiscard]] const std::vector<NamedConfigField>& arithmetic_fields();

/// "tp", "sequence length", "layers": for messages. Every field has one.
[[nodiscard]] std::string_view label_of(const ConfigField& field);
/// The flag that sets it, without dashes; a shape of the model: "model".
[[nodiscard]] std::string_view flag_of(const ConfigField& field);

/// The value as text: "4", "true", "full", "8,8". text_of(set_text(text)) is `text` in that form.
[[nodiscard]] std::string text_of(const ConfigField& field, const RunConfig& config);
/// true, yes, on or 1; false, no, off or 0; any case.
[[nodiscard]] Result<bool> parse_bool(std::string_view text, std::string_view where);
/// Sets the field; the error names `where`.
[[nodiscard]] Status set_text(const ConfigField& field, std::string_view text,
                              std::string_view where, RunConfig& config);
/// Numbers that differ only by rounding are the same.
[[nodiscard]] bool same_value(const ConfigField& field, const RunConfig& a, const RunConfig& b);

/// The model of the catalog with the same shapes, if there is one. `any_vocabulary`: those whose
/// other shapes are the same, one of each vocabulary. `theta`: those with this base of rotary
/// positions alone.
[[nodiscard]] std::vector<std::string> catalog_names_of(const ModelSpec& model, bool any_vocabulary,
                                                        std::optional<double> theta = {});

}  // namespace echelon
