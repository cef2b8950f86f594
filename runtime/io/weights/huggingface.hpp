// Weights in HuggingFace's directories: config.json and model.safetensors; adapters in PEFT's.
//
// Families: GPT-2 (transformers, modeling_gpt2.py: Conv1D matrices are [in, out], q, k, v are one),
// and Llama, Mistral, Qwen2, Qwen3, Mixtral, Qwen2-MoE, Qwen3-MoE, GLM-4.5, DeepSeek-V2 and -V3
// (modeling_llama.py ...: matrices as ours, in latent attention with rotated pairs that are
// neighbours; the experts' with the names of the files on the Hub, a tensor for each).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/base/result.hpp"
#include "core/model/model.hpp"
#include "runtime/io/weights/checkpoint.hpp"
#include "runtime/io/weights/safetensors.hpp"

namespace echelon {

/// Those of families with experts differ from Llama's in those of the experts; Qwen2-MoE's and
/// Qwen3-MoE's are the same, and so are GLM-4.5's, DeepSeek-V2's and -V3's.
enum class HuggingFaceNames { gpt2, llama, mixtral, qwen_moe, deepseek };

/// The place of a parameter in HuggingFace's tensors.
struct ForeignPlace {
  std::string name;                 ///< without "transformer." or "model."
  bool inside = true;               ///< of the transformer or model: has that prefix
  std::vector<std::int64_t> shape;  ///< of the foreign tensor
  bool transposed = false;          ///< [in, out]
  std::int64_t first = 0;           ///< row (transposed: column) of it that is our row 0
};
[[nodiscard]] ForeignPlace foreign_place(HuggingFaceNames names, const Parameter& parameter);

struct HuggingFaceConfig {
  ModelSpec model;  ///< without modules that predict further tokens
  HuggingFaceNames names = HuggingFaceNames::llama;
  int prediction_modules = 0;  ///< whose tensors are those of layers behind the last one
};
/// Errors: those of the model reader; a family whose tensors have other names; those of a run
/// without --init-from, with the same messages (core/plan/executable.hpp).
[[nodiscard]] Result<HuggingFaceConfig> parse_huggingface_config(std::string_view json,
                                                                 std::string_view where);
/// config.json of a model with these shapes and constants. Error: no family supports them.
[[nodiscard]] Result<std::string> huggingface_config(const ModelSpec& model, Element element,
                                                     HuggingFaceNames& names);

class HuggingFaceWeights {
 public:
  /// Errors: config.json is of another model than the plan's (the first difference is reported); a
  /// tensor is missing, has another shape, or is unexpected; damaged files.
  [[nodiscard]] static Result<HuggingFaceWeights> open(const std::string& directory,
                                                       const ModelSpec& planned);
  /// Elements [begin, end) of the parameter's local block, row-major; padding of the vocabulary
  /// becomes 0.
  [[nodiscard]] Status read(const Parameter& parameter, std::int64_t begin, std::int64_t end,
                            void* out, Element element) const;
  /// Since it was opened.
  [[nodiscard]] std::int64_t bytes_read() const { return files_.bytes_read(); }

 private:
  HuggingFaceWeights(HuggingFaceConfig config, TensorFiles files)
      : config_(std::move(config)), files_(std::move(files)) {}
  [[nodiscard]] std::string full_name(const ForeignPlace& place) const;
  [[nodiscard]] Status check_tensors();
  [[nodiscard]] Status check_extra(const std::string& name) const;
  [[nodiscard]] Status check_tied_head() const;
  HuggingFaceConfig config_;
  TensorFiles files_;
  std::string prefix_;
};

/// One of our tensors as a whole, row-major, in the element type of the export.
using ReadWhole = std::function<Status(const Parameter& whole, void* out)>;
/// Writes config.json and model.safetensors, one tensor after the other. Errors: no family has such
/// a model; a full disk; disk errors.
[[nodiscard]] Status export_huggingface(const std::string& directory, const ModelSpec& model,
                                        Element element, const ReadWhole& read,
                                        const Disk& disk = Disk());
/// adapter_config.json of PEFT.
struct PeftConfig {
  int rank = 0;
  double alpha = 0;
  std::vector<std::string> modules;  ///< names of those with an adapter: "q_proj"
  bool conv1d = false;               ///< they keep [in, out]
};
[[nodiscard]] std::string peft_config(const PeftConfig& config);
/// Writes adapter_config.json and adapter_model.safetensors of the run's adapters.
[[nodiscard]] Status export_peft(const std::string& directory, const RunIdentity& run,
                                 Element element, const ReadWhole& read, const Disk& disk = Disk());
/// The same from a checkpoint's weights: of a run of adapters these alone.
[[nodiscard]] Status export_checkpoint(const std::string& checkpoint, const std::string& directory,
                                       const Disk& disk = Disk());

}  // namespace echelon
