// JsonReader: typed access to one JSON object.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <utility>

#include "core/base/did_you_mean.hpp"
#include "core/base/text.hpp"
#include "core/json/json_io.hpp"

namespace echelon {

namespace {

/// A value as shown in an error message.
std::string described(const Json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "a list";
  if (value.is_string())
    return "the string \"" + printable(value.get_ref<const std::string&>()) + "\"";
  if (value.is_number_float() && !std::isfinite(value.get<double>())) {  // JSON has no word for it
    const auto number = value.get<double>();
    return std::isnan(number) ? "NaN" : number > 0 ? "Infinity" : "-Infinity";
  }
  return printable(value.dump());
}

/// One segment of a JSON pointer (RFC 6901).
std::string escaped(std::string_view key) {
  std::string result;
  for (const char c : key) {
    if (c == '~') {
      result += "~0";
    } else if (c == '/') {
      result += "~1";
    } else {
      result += c;
    }
  }
  return result;
}

/// A whole number in any spelling (12, 12.0, 1.2e1), if it fits 63 bits.
std::optional<std::int64_t> whole_number(const Json& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<std::uint64_t>();
    if (number > static_cast<std::uint64_t>(INT64_MAX)) return std::nullopt;
    return static_cast<std::int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<std::int64_t>();
  if (!value.is_number_float()) return std::nullopt;
  constexpr double kExact = 0x1p53;  // larger doubles cannot represent every whole number
  const double number = value.get<double>();
  if (std::floor(number) != number || std::abs(number) > kExact) return std::nullopt;
  return static_cast<std::int64_t>(number);
}

}  // namespace

Json any_number_json(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

JsonReader::JsonReader(const Json& object, std::string where, std::string pointer)
    : object_(object), where_(std::move(where)), pointer_(std::move(pointer)) {
  if (!object_.is_object()) {
    error_ = input_error(pointer_.empty() ? where_ : where_ + " at " + pointer_, described(object_),
                         "a JSON object");
  }
}

std::string JsonReader::pointer_to(std::string_view key) const {
  return where_ + " at " + pointer_ + "/" + escaped(printable(key));
}

void JsonReader::fail(std::string_view key, std::string found, std::string expected,
                      std::string hint) {
  if (error_) return;
  error_ = input_error(pointer_to(key), std::move(found), std::move(expected), std::move(hint));
}

const Json* JsonReader::find(std::string_view key, const char* expected, bool required) {
  known_.emplace_back(key);
  asked_.emplace_back(key);
  if (!object_.is_object()) return nullptr;
  const auto at = object_.find(std::string(key));
  if (at != object_.end() && (required || !at->is_null())) return &*at;
  if (required && !error_) {
    fail(key, "the key '" + std::string(key) + "' is missing", expected);
    missing_ = std::string(key);
  }
  return nullptr;
}

std::int64_t JsonReader::integer(std::string_view key, std::int64_t min, std::int64_t max) {
  const std::string expected = fmt::format("a whole number between {} and {}", min, max);
  const Json* value = find(key, expected.c_str(), true);
  if (value == nullptr) return min;
  const std::optional<std::int64_t> number = whole_number(*value);
  if (number && *number >= min && *number <= max) return *number;
  fail(key, described(*value), expected);
  return min;
}

std::int64_t JsonReader::integer_or(std::string_view key, std::int64_t min, std::int64_t max,
                                    std::int64_t fallback) {
  return find(key, "", false) != nullptr ? integer(key, min, max) : fallback;
}

double JsonReader::number(std::string_view key, double min, double max) {
  const std::string expected = fmt::format("a number between {} and {}", min, max);
  const Json* value = find(key, expected.c_str(), true);
  if (value == nullptr) return min;
  if (value->is_number()) {
    const auto number = value->get<double>();
    if (number >= min && number <= max) return number;
  }
  fail(key, described(*value), expected);
  return min;
}

double JsonReader::number_or(std::string_view key, double min, double max, double fallback) {
  return find(key, "", false) != nullptr ? number(key, min, max) : fallback;
}

double JsonReader::any_number(std::string_view key) {
  constexpr const char* kExpected = "a number, \"inf\", \"-inf\" or \"nan\"";
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  const Json* value = find(key, kExpected, true);
  if (value == nullptr) return 0;
  if (value->is_number()) return value->get<double>();
  if (*value == "inf") return kInfinite;
  if (*value == "-inf") return -kInfinite;
  if (*value == "nan") return std::numeric_limits<double>::quiet_NaN();
  fail(key, described(*value), kExpected);
  return 0;
}

bool JsonReader::boolean(std::string_view key) {
  const Json* value = find(key, "true or false", true);
  if (value == nullptr) return false;
  if (value->is_boolean()) return value->get<bool>();
  fail(key, described(*value), "true or false");
  return false;
}

bool JsonReader::boolean_or(std::string_view key, bool fallback) {
  return find(key, "", false) != nullptr ? boolean(key) : fallback;
}

std::string JsonReader::string(std::string_view key) {
  const Json* value = find(key, "a string in quotes", true);
  if (value == nullptr) return {};
  if (value->is_string()) return value->get<std::string>();
  fail(key, described(*value), "a string in quotes");
  return {};
}

std::string JsonReader::string_or(std::string_view key, std::string fallback) {
  return find(key, "", false) != nullptr ? string(key) : fallback;
}

std::string JsonReader::choice(std::string_view key,
                               std::initializer_list<std::string_view> allowed) {
  EXPECTS(allowed.size() > 0, "a choice without options");
  const std::string fallback(*allowed.begin());
  std::string list = "one of ";
  std::vector<std::string> names;
  for (const std::string_view name : allowed) {
    list += (names.empty() ? "" : ", ") + std::string(name);
    names.emplace_back(name);
  }
  const Json* value = find(key, list.c_str(), true);
  if (value == nullptr) return fallback;
  if (!value->is_string()) {
    fail(key, described(*value), list);
    return fallback;
  }
  const auto& word = value->get_ref<const std::string&>();
  if (std::find(names.begin(), names.end(), word) != names.end()) return word;
  fail(key, described(*value), list, did_you_mean(word, names));
  return fallback;
}

bool JsonReader::has(std::string_view key) const {
  if (!object_.is_object()) return false;
  const auto at = object_.find(std::string(key));
  return at != object_.end() && !at->is_null();
}

const Json* JsonReader::member(std::string_view key) {
  known_.emplace_back(key);
  asked_.emplace_back(key);
  if (!object_.is_object()) return nullptr;
  const auto at = object_.find(std::string(key));
  return at == object_.end() ? nullptr : &*at;
}

void JsonReader::ignore(std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) known_.emplace_back(key);
}

void JsonReader::ignore_rest() { rest_ignored_ = true; }

bool JsonReader::lacks(std::string_view key) const {
  return std::find(asked_.begin(), asked_.end(), key) != asked_.end() && !has(key);
}

std::vector<std::string> JsonReader::unread() const {
  std::vector<std::string> keys;
  if (!object_.is_object()) return keys;
  for (const auto& [key, value] : object_.items()) {
    const bool unused = value.is_null() || value == Json(false) || value == Json("") ||
                        ((value.is_array() || value.is_object()) && value.empty());
    const bool known = std::find(known_.begin(), known_.end(), key) != known_.end();
    if (!unused && !known) keys.push_back(printable(key));
  }
  return keys;
}

Status JsonReader::finish() {
  std::string unread;
  if (object_.is_object() && !rest_ignored_) {
    for (const auto& [key, value] : object_.items()) {
      if (std::find(known_.begin(), known_.end(), key) != known_.end()) continue;
      if (missing_.empty()) {
        std::vector<std::string> absent;  // a key that is there was not misspelt
        std::ranges::copy_if(known_, std::back_inserter(absent),
                             [&](const std::string& each) { return !object_.contains(each); });
        fail(key, "unknown key " + in_quotes(key), "", did_you_mean(key, absent));
        break;
      }
      // The missing key may be present under a misspelt name.
      if (nearest_name(key, known_) == missing_) {
        error_->hint = "there is " + in_quotes(key) + "; did you mean '" + missing_ + "'?";
      }
    }
  }
  if (error_) return *error_;
  return Done{};
}

}  // namespace echelon
