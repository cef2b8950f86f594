// Reads a checkpoint under any split.
#include <cstring>
#include <filesystem>

#include <fmt/format.h>

#include "runtime/io/weights/checkpoint.hpp"
#include "runtime/io/weights/checkpoint_layout.hpp"

namespace echelon {
namespace {

Status read_span(const SafetensorsFile& file, const StateSpan& span, Element element) {
  const Parameter& parameter = *span.parameter;
  const TensorEntry* tensor = file.find(parameter.name);
  if (tensor == nullptr) {
    return input_error(file.path(), "no tensor " + parameter.name, "all tensors of the model");
  }
  if (tensor->shape != shape_of(parameter) || tensor->type != tensor_type(element)) {
    return input_error(
        file.path(),
        fmt::format("{} is {} {}", parameter.name, name_of(tensor->type),
                    shape_text(tensor->shape)),
        fmt::format("{} {}", name_of(tensor_type(element)), shape_text(shape_of(parameter))));
  }
  const std::int64_t size = bytes_of(element);
  std::memset(span.data, 0, static_cast<std::size_t>((span.end - span.begin) * size));
  Status fine = Done{};
  for_each_piece(parameter, span.begin, span.end,
                 [&](std::int64_t global, std::int64_t local, std::int64_t count) {
                   if (!fine) return;
                   char* data = static_cast<char*>(span.data) + (local - span.begin) * size;
                   fine = file.read(*tensor, global, count, data, element);
                 });
  return fine;
}

}  // namespace

Result<CheckpointReader> CheckpointReader::open(const std::string& path,
                                                const StateFormat& format) {
  CheckpointReader reader(format);
  for (const StateKindInfo& info : kStateKinds) {
    if (!element_of(format, info.kind)) continue;
    Result<SafetensorsFile> file =
        SafetensorsFile::open((std::filesystem::path(path) / info.file).string());
    if (!file) return file.error();
    reader.files_.emplace(info.kind, *std::move(file));
  }
  return reader;
}

Status CheckpointReader::read(std::span<const StateSpan> spans) const {
  for (const StateSpan& span : spans) {
    const auto file = files_.find(span.kind);
    EXPECTS(file != files_.end(), "spans of what the format has");
    const Status read = read_span(file->second, span, *element_of(format_, span.kind));
    if (!read) return read;
  }
  return Done{};
}

std::int64_t CheckpointReader::bytes_read() const {
  std::int64_t bytes = 0;
  for (const auto& [kind, file] : files_) bytes += file.bytes_read();
  return bytes;
}

}  // namespace echelon
