// Reads a checkpoint under any split.
#include <algorithm>
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

Status read_checkpoint(const std::string& path, const StateFormat& format,
                       std::span<const StateSpan> spans) {
  for (const StateKindInfo& info : kStateKinds) {
    const StateKind kind = info.kind;
    const auto of_kind = [kind](const StateSpan& span) { return span.kind == kind; };
    if (std::none_of(spans.begin(), spans.end(), of_kind)) continue;
    const std::optional<Element> element = element_of(format, kind);
    EXPECTS(element.has_value(), "spans of what the format has");
    const Result<SafetensorsFile> file =
        SafetensorsFile::open((std::filesystem::path(path) / info.file).string());
    if (!file) return file.error();
    for (const StateSpan& span : spans) {
      if (!of_kind(span)) continue;
      const Status read = read_span(*file, span, *element);
      if (!read) return read;
    }
  }
  return Done{};
}

}  // namespace echelon
