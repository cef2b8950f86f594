// Headers of safetensors files: JSON to tensors and back.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>

#include <fmt/format.h>

#include "core/json/json_io.hpp"
#include "runtime/io/weights/safetensors.hpp"

namespace echelon {
namespace {

static_assert(std::endian::native == std::endian::little, "files are read as they lie");

constexpr std::int64_t kLengthBytes = 8;
constexpr std::int64_t kLongestHeader = std::int64_t{64} << 20;  // the limit of parse_json

struct TypeName {
  TensorType type;
  std::string_view name;
  std::int64_t bytes;
};
constexpr std::array kTypeNames = {
    TypeName{TensorType::f64, "F64", 8},         TypeName{TensorType::f32, "F32", 4},
    TypeName{TensorType::f16, "F16", 2},         TypeName{TensorType::bf16, "BF16", 2},
    TypeName{TensorType::f8_e4m3, "F8_E4M3", 1}, TypeName{TensorType::f8_e5m2, "F8_E5M2", 1},
    TypeName{TensorType::i64, "I64", 8},         TypeName{TensorType::i32, "I32", 4},
    TypeName{TensorType::i16, "I16", 2},         TypeName{TensorType::i8, "I8", 1},
    TypeName{TensorType::u64, "U64", 8},         TypeName{TensorType::u32, "U32", 4},
    TypeName{TensorType::u16, "U16", 2},         TypeName{TensorType::u8, "U8", 1},
    TypeName{TensorType::boolean, "BOOL", 1}};

const TypeName& named(TensorType type) { return kTypeNames.at(static_cast<std::size_t>(type)); }

/// Number of elements of a tensor; `max_count` + 1 if there are more than `max_count`.
std::int64_t product(const std::vector<std::int64_t>& shape, std::int64_t max_count) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) {
    if (extent > max_count / count) return max_count + 1;
    count *= extent;
  }
  return count;
}

/// A list of non-negative integers; nothing after an error.
std::vector<std::int64_t> numbers(JsonReader& reader, std::string_view key, std::size_t max_count) {
  const Json* list = reader.member(key);
  if (list == nullptr || !list->is_array() || list->size() > max_count) {
    reader.fail(key, list == nullptr ? "no list" : "not a list as expected",
                fmt::format("a list of at most {} whole numbers", max_count));
    return {};
  }
  std::vector<std::int64_t> values;
  for (const Json& value : *list) {
    const bool whole = value.is_number_integer() && (value.is_number_unsigned() || value >= 0) &&
                       value.get<std::uint64_t>() <= static_cast<std::uint64_t>(INT64_MAX);
    if (!whole) {
      reader.fail(key, "an entry that is no whole number", "whole numbers, 0 or more");
      return {};
    }
    values.push_back(value.get<std::int64_t>());
  }
  return values;
}

Result<TensorEntry> read_entry(const std::string& name, const Json& json, std::int64_t data_bytes,
                               JsonReader& outer) {
  JsonReader reader(json, outer.where(), outer.pointer_to(name).substr(outer.where().size() + 4));
  TensorEntry entry;
  entry.name = name;
  const std::string type =
      reader.choice("dtype", {"F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2", "I64", "I32",
                              "I16", "I8", "U64", "U32", "U16", "U8", "BOOL"});
  for (const TypeName& each : kTypeNames) {
    if (each.name == type) entry.type = each.type;
  }
  constexpr std::size_t kMaxExtents = 16;
  entry.shape = numbers(reader, "shape", kMaxExtents);
  const std::vector<std::int64_t> offsets = numbers(reader, "data_offsets", 2);
  if (!reader.failed() && offsets.size() != 2) {
    reader.fail("data_offsets", fmt::format("{} numbers", offsets.size()), "begin and end");
  }
  if (!reader.failed()) {
    entry.begin = offsets[0];
    entry.end = offsets[1];
    if (entry.begin > entry.end || entry.end > data_bytes) {
      reader.fail("data_offsets", fmt::format("bytes {} to {}", entry.begin, entry.end),
                  fmt::format("a range within the {} bytes behind the header", data_bytes),
                  "the file is cut off or damaged");
    }
  }
  if (!reader.failed()) {
    const std::int64_t size = bytes_of(entry.type);
    const std::int64_t bytes = entry.end - entry.begin;
    if (bytes % size != 0 || product(entry.shape, bytes / size) != bytes / size) {
      reader.fail(
          "shape",
          fmt::format("{} of {} in {} bytes", shape_text(entry.shape), name_of(entry.type), bytes),
          "a shape as long as its bytes");
    }
  }
  const Status read = reader.finish();
  if (!read) return read.error();
  return entry;
}

void read_metadata(JsonReader& outer, const Json& json,
                   std::map<std::string, std::string>& metadata) {
  if (!json.is_object()) {
    outer.fail("__metadata__", "not an object", "an object from text to text");
    return;
  }
  for (const auto& [key, value] : json.items()) {
    if (!value.is_string()) {
      outer.fail("__metadata__", "a value that is no text", "an object from text to text");
      return;
    }
    metadata[key] = value.get<std::string>();
  }
}

/// Checks that tensors are contiguous and end at the end of the file.
Status check_places(const std::vector<TensorEntry>& tensors, std::int64_t data_bytes,
                    const JsonReader& outer) {
  std::int64_t end = 0;
  for (const TensorEntry& entry : tensors) {
    if (entry.begin != end) {
      return input_error(outer.pointer_to(entry.name),
                         fmt::format("begins at byte {}", entry.begin),
                         fmt::format("byte {}: no gaps and no overlaps", end));
    }
    end = entry.end;
  }
  if (end != data_bytes) {
    return input_error(outer.where(), fmt::format("{} bytes of tensors", data_bytes),
                       fmt::format("{} bytes, as the header says", end),
                       "the file is cut off or damaged");
  }
  return Done{};
}

}  // namespace

std::int64_t bytes_of(TensorType type) { return named(type).bytes; }
std::string_view name_of(TensorType type) { return named(type).name; }

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

Result<std::int64_t> safetensors_head(std::string_view first, std::int64_t file_bytes,
                                      std::string_view where) {
  std::uint64_t length = 0;
  if (first.size() < sizeof(length)) {
    return input_error(std::string(where), fmt::format("{} bytes", first.size()),
                       "a safetensors file");
  }
  std::memcpy(&length, first.data(), sizeof(length));
  const std::int64_t max_count = std::min(kLongestHeader, file_bytes - kLengthBytes);
  if (length < 2 || length > static_cast<std::uint64_t>(max_count)) {
    return input_error(std::string(where), fmt::format("a header of {} bytes", length),
                       fmt::format("2 to {} bytes", max_count),
                       "not a safetensors file, or one that is cut off");
  }
  return kLengthBytes + static_cast<std::int64_t>(length);
}

Result<SafetensorsHeader> parse_safetensors(std::string_view head, std::int64_t file_bytes,
                                            std::string_view where) {
  const Result<std::int64_t> bytes = safetensors_head(head, file_bytes, where);
  if (!bytes) return bytes.error();
  EXPECTS(static_cast<std::int64_t>(head.size()) >= *bytes, "the whole head was read");
  SafetensorsHeader header;
  header.data = *bytes;
  const std::string_view json = head.substr(
      kLengthBytes, static_cast<std::size_t>(*bytes) - static_cast<std::size_t>(kLengthBytes));
  if (json.front() != '{') {
    return input_error(std::string(where), "a header that does not begin with {",
                       "a safetensors file");
  }
  const Result<Json> document = parse_json(json, where);
  if (!document) return document.error();
  JsonReader outer(*document, std::string(where));
  outer.ignore_rest();
  if (outer.failed()) return outer.finish().error();
  const std::int64_t data_bytes = file_bytes - header.data;
  for (const auto& [name, value] : document->items()) {
    if (name == "__metadata__") {
      read_metadata(outer, value, header.metadata);
      continue;
    }
    Result<TensorEntry> entry = read_entry(name, value, data_bytes, outer);
    if (!entry) return entry.error();
    header.tensors.push_back(std::move(*entry));
  }
  const Status read = outer.finish();
  if (!read) return read.error();
  std::sort(header.tensors.begin(), header.tensors.end(), [](const auto& a, const auto& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  const Status placed = check_places(header.tensors, data_bytes, outer);
  if (!placed) return placed.error();
  return header;
}

std::string place_safetensors(SafetensorsHeader& header) {
  std::sort(header.tensors.begin(), header.tensors.end(), [](const auto& a, const auto& b) {
    return std::pair(-bytes_of(a.type), std::string_view(a.name)) <
           std::pair(-bytes_of(b.type), std::string_view(b.name));
  });
  Json document = Json::object();
  auto& members = document.get_ref<Json::object_t&>();
  if (!header.metadata.empty()) members.emplace_back("__metadata__", Json(header.metadata));
  std::int64_t end = 0;
  for (TensorEntry& entry : header.tensors) {
    std::int64_t count = 1;
    for (const std::int64_t extent : entry.shape) count *= extent;
    entry.begin = end;
    entry.end = end += count * bytes_of(entry.type);
    members.emplace_back(entry.name, Json{{"dtype", name_of(entry.type)},
                                          {"shape", entry.shape},
                                          {"data_offsets", {entry.begin, entry.end}}});
  }
  std::string json = document.dump();
  json.append((8 - json.size() % 8) % 8, ' ');
  EXPECTS(static_cast<std::int64_t>(json.size()) <= kLongestHeader, "a header that can be read");
  const std::uint64_t length = json.size();
  std::string head(sizeof(length), '\0');
  std::memcpy(head.data(), &length, sizeof(length));
  header.data = static_cast<std::int64_t>(head.size() + json.size());
  return head + json;
}

Result<std::map<std::string, std::string>> parse_safetensors_index(std::string_view json,
                                                                   std::string_view where) {
  const Result<Json> document = parse_json(json, where);
  if (!document) return document.error();
  JsonReader reader(*document, std::string(where));
  reader.ignore_rest();
  std::map<std::string, std::string> files;
  const Json* map = reader.member("weight_map");
  if (map == nullptr || !map->is_object()) {
    reader.fail("weight_map", map == nullptr ? "the key 'weight_map' is missing" : "not an object",
                "an object from tensors to files");
  } else {
    for (const auto& [name, file] : map->items()) {
      const std::string path = file.is_string() ? file.get<std::string>() : "";
      if (path.empty() || path.find('/') != std::string::npos || path.starts_with('.')) {
        reader.fail("weight_map", "an entry that is no name of a file", "files next to the index");
        break;
      }
      files[name] = path;
    }
  }
  const Status read = reader.finish();
  if (!read) return read.error();
  return files;
}

}  // namespace echelon
