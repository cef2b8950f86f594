// Readers of the two model file formats, from a parsed document. For *_io.cpp only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/result.hpp"
#include "core/json/json_io.hpp"
#include "core/model/model.hpp"
#include "core/model/model_io.hpp"

namespace echelon {

inline int small(std::int64_t value) { return static_cast<int>(value); }  // bounded by the reader

// Bounds of the numbers in a model file: far above any model, low enough that counts fit 63 bits.
inline constexpr std::int64_t kMaxLayers = 100'000;
inline constexpr std::int64_t kMaxHidden = 10'000'000;
inline constexpr std::int64_t kMaxHeads = 100'000;
inline constexpr std::int64_t kMaxHeadDim = 100'000;
inline constexpr std::int64_t kMaxFfn = 100'000'000;
inline constexpr std::int64_t kMaxVocab = 100'000'000;
inline constexpr std::int64_t kMaxExperts = 100'000;
inline constexpr std::int64_t kMaxPositions = 1'000'000'000;
inline constexpr double kMinTheta = 1.001;  // with 1 all pairs would rotate by the same angle
inline constexpr double kMaxTheta = 1e15;
inline constexpr double kMinRope = 1e-6;  // for the factors of a rotary embedding
inline constexpr double kMaxRope = 1e9;

/// A model file, including the keys of catalog files.
struct ModelFile {
  ModelSpec model;
  std::vector<std::string> aliases;
  std::int64_t published_parameters = 0;  ///< 0: no exact count was published
};

/// Echelon's own format (key "schema"); strict: every key must be known.
[[nodiscard]] Result<ModelFile> read_model_file(const Json& document, std::string_view where);

/// HuggingFace config.json. Keys that change neither shapes nor numbers are ignored; keys that
/// change numbers but have no field are listed in constants->other_arithmetic.
[[nodiscard]] Result<ModelReading> read_huggingface(const Json& document, std::string_view where);

}  // namespace echelon
