// The two file formats that describe a model, each read from one parsed document. For *_io.cpp
// only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/result.hpp"
#include "core/json/json_io.hpp"
#include "core/model/model.hpp"

namespace echelon {

// Bounds of what a model file may say: far above any model, low enough that counts fit 63 bits.
inline constexpr std::int64_t kMostLayers = 100'000;
inline constexpr std::int64_t kMostHidden = 10'000'000;
inline constexpr std::int64_t kMostHeads = 100'000;
inline constexpr std::int64_t kMostHeadDim = 100'000;
inline constexpr std::int64_t kMostFfn = 100'000'000;
inline constexpr std::int64_t kMostVocab = 100'000'000;
inline constexpr std::int64_t kMostExperts = 100'000;
inline constexpr std::int64_t kMostPositions = 1'000'000'000;
inline constexpr double kLeastTheta = 1.001;  // 1 turns all pairs alike
inline constexpr double kMostTheta = 1e15;
inline constexpr double kLeastRope = 1e-6;  // of the factors of a rotary embedding
inline constexpr double kMostRope = 1e9;

/// A file of ours and what only catalog files carry beside the shapes.
struct ModelFile {
  ModelSpec model;
  std::vector<std::string> aliases;
  std::int64_t published_parameters = 0;  ///< 0: nobody published an exact count
};

/// Our own format (key "schema"); strict: every key must be known.
[[nodiscard]] Result<ModelFile> read_model_file(const Json& document, std::string_view where);

/// HuggingFace config.json. Keys that change neither shapes nor numbers are ignored; what changes
/// numbers and has no field is named in constants->other_arithmetic.
[[nodiscard]] Result<ModelSpec> read_huggingface(const Json& document, std::string_view where);

}  // namespace echelon
