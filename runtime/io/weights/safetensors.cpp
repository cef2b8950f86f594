#include "runtime/io/weights/safetensors.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>

#include <fmt/format.h>

#include "core/base/files.hpp"

namespace echelon {
namespace {

/// IEEE 754 binary16; every value is a float exactly.
struct Float16 {
  std::uint16_t bits;
  explicit operator float() const {
    const auto sign = static_cast<std::uint32_t>(bits & 0x8000U) << 16U;
    const std::uint32_t exponent = (bits >> 10U) & 31U;
    const std::uint32_t fraction = bits & 1023U;
    if (exponent == 0) {  // zero and subnormals: fraction · 2⁻²⁴
      const float small = static_cast<float>(fraction) * 0x1p-24F;
      return sign != 0 ? -small : small;
    }
    const std::uint32_t wide = exponent == 31 ? 255U : exponent + 112U;
    return std::bit_cast<float>(sign | wide << 23U | fraction << 13U);
  }
};

/// double to bf16 in one rounding: to a float rounded to odd, then to nearest (Boldo and
/// Melquiond, "Emulation of FMA and correctly rounded sums", IEEE TC 57(4), 2008, section 3).
float rounded_to_odd(double value) {
  const auto near = static_cast<float>(value);
  const auto bits = std::bit_cast<std::uint32_t>(near);
  if (static_cast<double>(near) == value || near != near || (bits & 1U) != 0) return near;
  // An even neighbour was chosen, so the odd one lies on the other side of the value.
  const bool larger = std::abs(static_cast<double>(near)) > std::abs(value);
  return std::bit_cast<float>(larger ? bits - 1 : bits + 1);
}

template <class To, class From>
To converted(From value) {
  if constexpr (std::is_same_v<From, double> && std::is_same_v<To, Bfloat16>) {
    return Bfloat16(rounded_to_odd(value));
  } else if constexpr (std::is_same_v<From, double> || std::is_same_v<From, float>) {
    return static_cast<To>(value);
  } else {
    return static_cast<To>(static_cast<float>(value));
  }
}

template <class To, class From>
void convert(const char* raw, void* out, std::int64_t count) {
  auto* to = static_cast<To*>(out);
  for (std::int64_t i = 0; i < count; ++i) {
    From value;
    std::memcpy(&value, raw + i * static_cast<std::int64_t>(sizeof(From)), sizeof(From));
    to[i] = converted<To>(value);
  }
}

using Convert = void (*)(const char*, void*, std::int64_t);

template <class From>
Convert converter_from(Element element) {
  switch (element) {
    case Element::f64: return convert<double, From>;
    case Element::f32: return convert<float, From>;
    case Element::bf16: return convert<Bfloat16, From>;
    case Element::i32: return nullptr;
  }
  return nullptr;
}

/// Null: the type cannot be converted to this element type.
Convert converter(TensorType type, Element element) {
  switch (type) {
    case TensorType::f64: return converter_from<double>(element);
    case TensorType::f32: return converter_from<float>(element);
    case TensorType::f16: return converter_from<Float16>(element);
    case TensorType::bf16: return converter_from<Bfloat16>(element);
    default: return nullptr;
  }
}

}  // namespace

TensorType tensor_type(Element element) {
  switch (element) {
    case Element::f32: return TensorType::f32;
    case Element::f64: return TensorType::f64;
    case Element::bf16: return TensorType::bf16;
    case Element::i32: return TensorType::i32;
  }
  return TensorType::f32;
}

SafetensorsFile::SafetensorsFile(InputFile file, SafetensorsHeader header)
    : file_(std::move(file)), header_(std::move(header)) {
  for (std::size_t i = 0; i < header_.tensors.size(); ++i) places_[header_.tensors[i].name] = i;
}

Result<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
  Result<InputFile> file = InputFile::open(path);
  if (!file) return file.error();
  std::string head(static_cast<std::size_t>(std::min<std::int64_t>(8, file->size())), '\0');
  const auto bytes = [&] { return static_cast<std::int64_t>(head.size()); };
  const Status length = file->read(0, bytes(), head.data());
  if (!length) return length.error();
  const Result<std::int64_t> whole = safetensors_head(head, file->size(), path);
  if (!whole) return whole.error();
  head.resize(static_cast<std::size_t>(*whole));
  const Status read = file->read(0, bytes(), head.data());
  if (!read) return read.error();
  Result<SafetensorsHeader> header = parse_safetensors(head, file->size(), path);
  if (!header) return header.error();
  return SafetensorsFile(std::move(*file), std::move(*header));
}

const TensorEntry* SafetensorsFile::find(const std::string& name) const {
  const auto at = places_.find(name);
  return at == places_.end() ? nullptr : &header_.tensors[at->second];
}

Status SafetensorsFile::read(const TensorEntry& tensor, std::int64_t first, std::int64_t count,
                             void* out, Element element) const {
  EXPECTS(first >= 0 && count >= 0 && first + count <= tensor.count(), "within the tensor");
  const std::int64_t size = bytes_of(tensor.type);
  const std::int64_t from = header_.data + tensor.begin + first * size;
  if (tensor.type == tensor_type(element)) return file_.read(from, count * size, out);
  const Convert convert_block = converter(tensor.type, element);
  if (convert_block == nullptr) {
    return input_error(path(), fmt::format("{} is {}", tensor.name, name_of(tensor.type)),
                       element == Element::i32 ? "I32" : "F64, F32, F16 or BF16");
  }
  constexpr std::int64_t kBlock = 1 << 16;  // elements
  std::vector<char> raw(static_cast<std::size_t>(std::min(count, kBlock) * size));
  for (std::int64_t done = 0; done < count; done += kBlock) {
    const std::int64_t here = std::min(kBlock, count - done);
    const Status read = file_.read(from + done * size, here * size, raw.data());
    if (!read) return read;
    convert_block(raw.data(), static_cast<char*>(out) + done * bytes_of(element), here);
  }
  return Done{};
}

std::int64_t TensorFiles::bytes_read() const {
  std::int64_t bytes = 0;
  for (const SafetensorsFile& file : files_) bytes += file.bytes_read();
  return bytes;
}

Result<TensorFiles> TensorFiles::open(const std::string& directory) {
  namespace fs = std::filesystem;
  const std::string single = (fs::path(directory) / "model.safetensors").string();
  const std::string index = single + ".index.json";
  TensorFiles all;
  std::map<std::string, std::string> names;  // of the index
  std::error_code ignored;
  const bool sharded = !fs::exists(single, ignored) && fs::exists(index, ignored);
  all.where_ = sharded ? index : single;
  std::vector<std::string> paths{single};
  if (sharded) {
    constexpr std::int64_t kLongestIndex = std::int64_t{64} << 20;
    const Result<std::string> text = read_file(index, kLongestIndex);
    if (!text) return text.error();
    Result<std::map<std::string, std::string>> map = parse_safetensors_index(*text, index);
    if (!map) return map.error();
    names = std::move(*map);
    paths.clear();
    for (const auto& [tensor, file] : names) {
      paths.push_back((fs::path(directory) / file).string());
    }
    std::sort(paths.begin(), paths.end());
    paths.erase(std::unique(paths.begin(), paths.end()), paths.end());
  }
  for (const std::string& path : paths) {
    Result<SafetensorsFile> file = SafetensorsFile::open(path);
    if (!file) return file.error();
    all.files_.push_back(std::move(*file));
  }
  for (const SafetensorsFile& file : all.files_) {
    for (const TensorEntry& tensor : file.header().tensors) {
      const auto listed = names.find(tensor.name);
      const std::string name = fs::path(file.path()).filename().string();
      if (sharded && (listed == names.end() || listed->second != name)) {
        return input_error(file.path(), "holds the tensor " + tensor.name,
                           "only tensors that its index puts there");
      }
      all.tensors_[tensor.name] = {&file, &tensor};
    }
  }
  for (const auto& [tensor, file] : names) {
    if (all.tensors_.contains(tensor)) continue;
    return input_error((fs::path(directory) / file).string(),
                       "the tensor " + tensor + " is missing",
                       "the tensors that its index puts there");
  }
  return all;
}

}  // namespace echelon
