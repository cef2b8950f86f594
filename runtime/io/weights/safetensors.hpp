// safetensors: named tensors in one file, read in parts.
//
//   u64 N, little-endian; N bytes of JSON {name: {"dtype", "shape", "data_offsets": [begin, end]}},
//   "__metadata__" from text to text among them; then the tensors, row-major, without gaps
//
// Source: github.com/huggingface/safetensors, README "Format" and safetensors/src/tensor.rs.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/result.hpp"
#include "runtime/comm/element.hpp"
#include "runtime/io/input_file.hpp"

namespace echelon {

enum class TensorType : std::uint8_t {
  f64,
  f32,
  f16,
  bf16,
  f8_e4m3,
  f8_e5m2,
  i64,
  i32,
  i16,
  i8,
  u64,
  u32,
  u16,
  u8,
  boolean
};
[[nodiscard]] std::int64_t bytes_of(TensorType type);
[[nodiscard]] std::string_view name_of(TensorType type);  ///< as in the file: "BF16"
[[nodiscard]] TensorType tensor_type(Element element);

struct TensorEntry {
  std::string name;
  TensorType type = TensorType::f32;
  std::vector<std::int64_t> shape;  ///< empty: a single number
  std::int64_t begin = 0;           ///< bytes, from the end of the header
  std::int64_t end = 0;
  bool operator==(const TensorEntry&) const = default;
  [[nodiscard]] std::int64_t count() const { return (end - begin) / bytes_of(type); }
};
/// "[768, 3072]".
[[nodiscard]] std::string shape_text(const std::vector<std::int64_t>& shape);

struct SafetensorsHeader {
  std::vector<TensorEntry> tensors;             ///< as they lie in the file
  std::map<std::string, std::string> metadata;  ///< sorted: the same file for the same contents
  std::int64_t data = 0;                        ///< the file's byte where the tensors begin
};

/// Total bytes of header and length, from the file's first 8 bytes (fewer are an error).
[[nodiscard]] Result<std::int64_t> safetensors_head(std::string_view first, std::int64_t file_bytes,
                                                    std::string_view where);
/// `head`: that many bytes. Errors: invalid JSON, a duplicate tensor, a shape that does not match
/// its bytes, gaps, overlaps, an end that is not the file's. A header whose length is not a
/// multiple of 8 is read (files of early versions, such as gpt2's), but never written.
[[nodiscard]] Result<SafetensorsHeader> parse_safetensors(std::string_view head,
                                                          std::int64_t file_bytes,
                                                          std::string_view where);
/// Sorts the tensors by size of type, largest first, then name, and places them, so that each is
/// aligned to its type; returns the head of the file, which is padded to a multiple of 8 bytes.
/// `header.data` is set. A header above 64 MiB could not be read again: EXPECTS.
[[nodiscard]] std::string place_safetensors(SafetensorsHeader& header);

/// The file of each tensor in a directory: model.safetensors.index.json.
[[nodiscard]] Result<std::map<std::string, std::string>> parse_safetensors_index(
    std::string_view json, std::string_view where);

class SafetensorsFile {
 public:
  [[nodiscard]] static Result<SafetensorsFile> open(const std::string& path);
  [[nodiscard]] const std::string& path() const { return file_.path(); }
  [[nodiscard]] const SafetensorsHeader& header() const { return header_; }
  /// Null if there is none of that name.
  [[nodiscard]] const TensorEntry* find(const std::string& name) const;
  /// Elements [first, first + count) of the row-major tensor as `element`s into `out`; rounded to
  /// nearest if that is narrower. Errors: a type that cannot be converted; disk errors.
  [[nodiscard]] Status read(const TensorEntry& tensor, std::int64_t first, std::int64_t count,
                            void* out, Element element) const;
  /// Header and tensors.
  [[nodiscard]] std::int64_t bytes_read() const { return file_.bytes_read(); }

 private:
  SafetensorsFile(InputFile file, SafetensorsHeader header);
  InputFile file_;
  SafetensorsHeader header_;
  std::map<std::string, std::size_t> places_;
};

/// The tensors of a model in one file or in several.
class TensorFiles {
 public:
  struct Found {
    const SafetensorsFile* file;
    const TensorEntry* tensor;
  };
  /// model.safetensors of the directory, or the files its model.safetensors.index.json names.
  /// Errors: neither exists; a file of the index is missing, lacks a tensor of the index, or
  /// contains one that the index does not list.
  [[nodiscard]] static Result<TensorFiles> open(const std::string& directory);
  [[nodiscard]] const std::string& where() const { return where_; }
  [[nodiscard]] const std::map<std::string, Found>& tensors() const { return tensors_; }
  [[nodiscard]] std::int64_t bytes_read() const;

 private:
  std::string where_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, Found> tensors_;
};

}  // namespace echelon
