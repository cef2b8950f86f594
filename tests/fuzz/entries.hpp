// The fuzz targets: one function per reader. Any bytes are refused with a reason, or read as a
// value that is unchanged after writing and reading.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace echelon::fuzz {

// Each returns "" or the reader's error; a crash needs no report.
[[nodiscard]] std::string plan_file(std::string_view input);
/// Plan files with valid hashes, whatever their content: the checks behind the hashes.
[[nodiscard]] std::string resealed_plan_file(std::string_view input);
[[nodiscard]] std::string packed_text(std::string_view input);
[[nodiscard]] std::string schedule_text(std::string_view input);
/// Our own model files and HuggingFace's config.json: one reader distinguishes them.
[[nodiscard]] std::string model(std::string_view input);
[[nodiscard]] std::string topology(std::string_view input);
/// Output of nvidia-smi and NCCL for a node, and the description derived from it.
[[nodiscard]] std::string wiring(std::string_view input);
[[nodiscard]] std::string calibration(std::string_view input);
[[nodiscard]] std::string runs(std::string_view input);
/// Training logs of every format, judged, and as rows of a table.
[[nodiscard]] std::string training_log(std::string_view input);
/// A safetensors file; only its header is read.
[[nodiscard]] std::string safetensors(std::string_view input);
[[nodiscard]] std::string safetensors_index(std::string_view input);
/// Megatron's index, with data of the length that the first index of the corpus describes.
[[nodiscard]] std::string token_index(std::string_view input);
/// Checkpoint manifests with a valid hash, whatever their content.
[[nodiscard]] std::string resealed_manifest(std::string_view input);
[[nodiscard]] std::string huggingface_config(std::string_view input);

/// Configurations of other frameworks: what is read is read the same way again.
[[nodiscard]] std::string config_script(std::string_view input);
[[nodiscard]] std::string config_toml(std::string_view input);
[[nodiscard]] std::string config_python(std::string_view input);
[[nodiscard]] std::string config_yaml(std::string_view input);
[[nodiscard]] std::string config_json(std::string_view input);

struct Entry {
  std::string_view name;  ///< of the function
  std::string (*run)(std::string_view);
  std::string_view corpus;  ///< folder of inputs
  std::string_view more;    ///< inputs that other tests have anyway; may be empty
};
[[nodiscard]] std::span<const Entry> entries();

}  // namespace echelon::fuzz
