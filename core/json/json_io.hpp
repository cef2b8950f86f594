// Strict JSON for every *_io.cpp: one place that bounds, checks and explains. Include it only
// there.
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

using Json = nlohmann::ordered_json;  ///< keeps the order keys were written in: same bytes out

/// Parses one document. Errors (with line and column): not JSON, truncated, not UTF-8, a key twice
/// in one object, nested deeper than 64, longer than 64 MiB.
[[nodiscard]] Result<Json> parse_json(std::string_view text, std::string_view where);
/// The same from a file; refuses directories and files longer than 64 MiB before reading them.
[[nodiscard]] Result<Json> read_json(const std::string& path);

/// A number as a report has it: where it is not finite, which JSON cannot say, the text "inf",
/// "-inf" or "nan". JsonReader::figure reads it.
[[nodiscard]] Json figure_json(double value);

/// One object of a document being read: typed access with errors that carry the JSON pointer, and a
/// final check that no key was left unread (unknown keys are errors with the nearest known key).
class JsonReader {
 public:
  /// `where` is the file; `pointer` the place inside it ("" is the root).
  JsonReader(const Json& object, std::string where, std::string pointer = "");

  // Each records the first error and returns a harmless value after it, so a reader is written as a
  // list of fields and asks `finish()` once at the end.
  std::int64_t integer(std::string_view key, std::int64_t least, std::int64_t most);
  std::int64_t integer_or(std::string_view key, std::int64_t least, std::int64_t most,
                          std::int64_t otherwise);
  double number(std::string_view key, double least, double most);
  double number_or(std::string_view key, double least, double most, double otherwise);
  /// Any number, finite or not, as figure_json writes it.
  double figure(std::string_view key);
  bool boolean(std::string_view key);
  bool boolean_or(std::string_view key, bool otherwise);
  std::string string(std::string_view key);
  std::string string_or(std::string_view key, std::string otherwise);
  /// One of `allowed`, else an error that names the nearest.
  std::string choice(std::string_view key, std::initializer_list<std::string_view> allowed);
  /// True when the key is there and not null.
  [[nodiscard]] bool has(std::string_view key) const;
  /// The raw member (marks it read), or null when absent; objects inside need their own reader.
  const Json* member(std::string_view key);
  /// Marks keys as read that are known and deliberately not used.
  void ignore(std::initializer_list<std::string_view> keys);
  /// Marks every remaining key as read (foreign formats such as HuggingFace's).
  void ignore_rest();
  /// Keys nobody asked for so far, in the order of the file; null, false and empty members, which
  /// say that something is not used, are left out.
  [[nodiscard]] std::vector<std::string> unread() const;

  void fail(std::string_view key, std::string found, std::string expected, std::string hint = {});
  [[nodiscard]] bool failed() const { return error_.has_value(); }
  /// The first error, or the first key nobody asked for, or success.
  [[nodiscard]] Status finish();
  [[nodiscard]] const std::string& where() const { return where_; }
  [[nodiscard]] std::string pointer_to(std::string_view key) const;

 private:
  const Json* find(std::string_view key, const char* expected, bool required);
  const Json& object_;
  std::string where_;
  std::string pointer_;
  std::vector<std::string> known_;
  std::string missing_;  ///< the required key whose absence is the error, if that is the error
  bool rest_ignored_ = false;
  std::optional<Error> error_;
};

}  // namespace echelon
