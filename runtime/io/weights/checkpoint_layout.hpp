// The files and places of a checkpoint's tensors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/io/weights/manifest.hpp"
#include "runtime/io/weights/safetensors.hpp"

namespace echelon {

struct StateFile {
  StateKind kind = StateKind::weight;
  Element element = Element::f32;
  std::string name;
  std::string head;
  SafetensorsHeader header;
  [[nodiscard]] std::int64_t bytes() const {
    return header.data + (header.tensors.empty() ? 0 : header.tensors.back().end);
  }
};
/// The layout of the model's tensors in this format: the same for every member.
[[nodiscard]] std::vector<StateFile> state_files(const ModelSpec& model, const StateFormat& format,
                                                 const std::optional<Adapters>& adapters = {});

/// "DIRECTORY/step_N".
[[nodiscard]] std::string checkpoint_path(const std::string& directory, std::int64_t step);
/// The steps of all entries with a checkpoint's name, newest first; an environment error if the
/// directory cannot be listed, nothing if it does not exist.
[[nodiscard]] Result<std::vector<std::int64_t>> checkpoint_steps(const std::string& directory);

/// Fingerprint of piece `piece` of an open file.
[[nodiscard]] Result<std::string> piece_fingerprint(const InputFile& file, std::int64_t piece);
[[nodiscard]] constexpr std::int64_t piece_count(std::int64_t bytes) {
  return (bytes + kPieceBytes - 1) / kPieceBytes;
}

}  // namespace echelon
