// What is fuzzed: one function per reader. Any bytes are refused with a reason or mean something
// that, written again, is read as the same.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace echelon::fuzz {

// Each returns "" or what is wrong with what the reader did; a crash speaks for itself.
[[nodiscard]] std::string plan_file(std::string_view input);
/// Plan files whose hashes are right whatever they hold: what lies behind the hashes.
[[nodiscard]] std::string resealed_plan_file(std::string_view input);
[[nodiscard]] std::string packed_text(std::string_view input);
[[nodiscard]] std::string schedule_text(std::string_view input);
/// Our own model files and HuggingFace's config.json: one reader tells them apart.
[[nodiscard]] std::string model(std::string_view input);
[[nodiscard]] std::string topology(std::string_view input);
/// What nvidia-smi and NCCL tell of a node, and the description made of it.
[[nodiscard]] std::string wiring(std::string_view input);
[[nodiscard]] std::string calibration(std::string_view input);
[[nodiscard]] std::string runs(std::string_view input);
/// A safetensors file; only its header is looked at.
[[nodiscard]] std::string safetensors(std::string_view input);
[[nodiscard]] std::string safetensors_index(std::string_view input);
/// Megatron's index, beside data of the length that the first one of the corpus describes.
[[nodiscard]] std::string token_index(std::string_view input);
/// Manifests of checkpoints whose hash is right whatever they hold.
[[nodiscard]] std::string resealed_manifest(std::string_view input);
[[nodiscard]] std::string huggingface_config(std::string_view input);

struct Entry {
  std::string_view name;  ///< of the function
  std::string (*run)(std::string_view);
  std::string_view corpus;  ///< folder of inputs
  std::string_view more;    ///< inputs that other tests have anyway; may be empty
};
[[nodiscard]] std::span<const Entry> entries();

}  // namespace echelon::fuzz
