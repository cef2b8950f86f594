#include "runtime/io/weights/checkpoint_layout.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "core/base/content_hash.hpp"
#include "core/base/files.hpp"

namespace echelon {

std::optional<Element> element_of(const StateFormat& format, StateKind kind) {
  switch (kind) {
    case StateKind::weight: return format.weight;
    case StateKind::master: return format.master;
    default: return format.moment;
  }
}

std::vector<StateFile> state_files(const ModelSpec& model, const StateFormat& format,
                                   const std::optional<Adapters>& adapters) {
  const RunParameters parameters = run_parameters(model, adapters);
  std::vector<StateFile> files;
  for (const auto& [kind, name, file_name] : kStateKinds) {
    const std::optional<Element> element = element_of(format, kind);
    if (!element) continue;
    StateFile file;
    file.kind = kind;
    file.element = *element;
    file.name = file_name;
    file.header.metadata["format"] = "pt";
    const auto add = [&](const std::vector<Parameter>& all) {
      for (const Parameter& parameter : all)
        file.header.tensors.push_back({parameter.name, tensor_type(*element), shape_of(parameter)});
    };
    add(parameters.trained);
    if (kind == StateKind::weight) add(parameters.frozen);
    file.head = place_safetensors(file.header);
    files.push_back(std::move(file));
  }
  return files;
}

std::int64_t checkpoint_bytes(const ModelSpec& model, const StateFormat& format,
                              const std::optional<Adapters>& adapters) {
  std::int64_t bytes = 0;
  for (const StateFile& file : state_files(model, format, adapters)) bytes += file.bytes();
  return bytes;
}

std::string checkpoint_path(const std::string& directory, std::int64_t step) {
  return (std::filesystem::path(directory) / ("step_" + std::to_string(step))).string();
}

Result<std::vector<std::int64_t>> checkpoint_steps(const std::string& directory) {
  namespace fs = std::filesystem;
  std::vector<std::int64_t> steps;
  std::error_code error;
  fs::directory_iterator entries(directory, error);
  if (error == std::errc::no_such_file_or_directory) return steps;
  for (; !error && entries != fs::directory_iterator(); entries.increment(error)) {
    const std::string name = entries->path().filename().string();
    if (!name.starts_with("step_")) continue;
    std::int64_t step = 0;
    const char* end = name.data() + name.size();
    const auto [at, bad] = std::from_chars(name.data() + 5, end, step);
    if (bad == std::errc() && at == end && step >= 0) steps.push_back(step);
  }
  if (error) return environment_error(directory, "cannot be listed: " + reason_of(error.value()));
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

Result<std::string> piece_fingerprint(const InputFile& file, std::int64_t piece) {
  const std::int64_t first = piece * kPieceBytes;
  std::string content(static_cast<std::size_t>(std::min(kPieceBytes, file.size() - first)), '\0');
  const Status read = file.read(first, static_cast<std::int64_t>(content.size()), content.data());
  if (!read) return read.error();
  return content_hash(content);
}

}  // namespace echelon
