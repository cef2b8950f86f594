// Strict JSON for every *_io.cpp: bounds, checks and error messages in one place. Only *_io.cpp
// files include it.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/files.hpp"
#include "core/base/result.hpp"

namespace echelon {

using Json = nlohmann::ordered_json;  ///< keeps the order of keys: same bytes out

/// Parses one document. Errors (with line and column): not JSON, truncated, not UTF-8, a duplicate
/// key in an object, more than 64 nested levels, longer than 64 MiB.
[[nodiscard]] Result<Json> parse_json(std::string_view text, std::string_view where);
/// The same for a file; directories and files longer than 64 MiB are rejected before reading.
[[nodiscard]] Result<Json> read_json(const std::string& path);

/// Limit of numbers in files that have no other: sums and products of several stay finite.
inline constexpr double kLargestNumber = 1e30;

/// A number in a report. JSON has no infinite numbers or NaN: they become the strings "inf", "-inf"
/// and "nan". JsonReader::any_number reads them.
[[nodiscard]] Json any_number_json(double value);

/// Reads one object of a document: typed access with errors that contain the JSON pointer, and a
/// final check for unread keys (an unknown key is an error that names the nearest known key).
class JsonReader {
 public:
  /// `where`: the file; `pointer`: the position inside it ("" is the root).
  JsonReader(const Json& object, std::string where, std::string pointer = "");

  // These functions record the first error and return a harmless value after it, so that a reader
  // is a list of fields followed by one call of `finish()`.
  std::int64_t integer(std::string_view key, std::int64_t min, std::int64_t max);
  std::int64_t integer_or(std::string_view key, std::int64_t min, std::int64_t max,
                          std::int64_t fallback);
  double number(std::string_view key, double min, double max = kLargestNumber);
  double number_or(std::string_view key, double min, double max, double fallback);
  /// Any number, finite or not, in the format of any_number_json.
  double any_number(std::string_view key);
  bool boolean(std::string_view key);
  bool boolean_or(std::string_view key, bool fallback);
  std::string string(std::string_view key);
  std::string string_or(std::string_view key, std::string fallback);
  /// One of `allowed`; otherwise an error that names the nearest.
  std::string choice(std::string_view key, std::initializer_list<std::string_view> allowed);
  /// True if the key is present and not null.
  [[nodiscard]] bool has(std::string_view key) const;
  /// True if the key was asked for, not only ignored, and is absent or null.
  [[nodiscard]] bool lacks(std::string_view key) const;
  /// The raw member, marked as read, or null if absent; an object needs its own reader.
  const Json* member(std::string_view key);
  /// Marks keys as read that are known but deliberately unused.
  void ignore(std::initializer_list<std::string_view> keys);
  /// Marks all remaining keys as read (for foreign formats such as HuggingFace's).
  void ignore_rest();
  /// Keys not read so far, in the order of the file, without null, false and empty members, which
  /// mean that a feature is unused.
  [[nodiscard]] std::vector<std::string> unread() const;

  void fail(std::string_view key, std::string found, std::string expected, std::string hint = {});
  [[nodiscard]] bool failed() const { return error_.has_value(); }
  /// The first error, or an error for the first unread key, or success.
  [[nodiscard]] Status finish();
  [[nodiscard]] const std::string& where() const { return where_; }
  [[nodiscard]] std::string pointer_to(std::string_view key) const;

 private:
  const Json* find(std::string_view key, const char* expected, bool required);
  const Json& object_;
  std::string where_;
  std::string pointer_;
  std::vector<std::string> known_;
  std::vector<std::string> asked_;  ///< … without those that are ignored
  std::string missing_;             ///< the missing required key, if that is the error
  bool rest_ignored_ = false;
  std::optional<Error> error_;
};

}  // namespace echelon
