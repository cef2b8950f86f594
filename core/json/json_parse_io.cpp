// parse_json: builds the document from parser events, so that every bound is checked before memory
// or framework is spent beyond it.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>
#include <limits>
#include <map>
#include <unordered_set>
#include <utility>

#include "core/base/text.hpp"
#include "core/json/json_io.hpp"
#include "core/json/python_json_io.hpp"

namespace echelon {

namespace {

constexpr std::int64_t kLongest = std::int64_t{64} << 20;  // bytes
constexpr std::size_t kDeepest = 64;

/// Input iterator that publishes its position, so that an event can name its line.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, const char** reached) : at_(at), reached_(reached) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    *reached_ = ++at_;
    return *this;
  }
  bool operator==(const CountingIterator& other) const { return at_ == other.at_; }

 private:
  const char* at_;
  const char** reached_;
};

std::string line_and_column(std::string_view text, std::size_t offset) {
  const std::string_view before = text.substr(0, offset);
  std::size_t line = 1;
  for (const char c : before) line += c == '\n';
  const std::size_t start = before.rfind('\n');
  const std::size_t column = start == std::string_view::npos ? offset : offset - start - 1;
  return fmt::format("line {}, column {}", line, column + 1);
}

/// Offset of the first byte that is not part of well-formed UTF-8 (or is NUL), or npos.
/// Source: Unicode 15, table 3-7 (well-formed UTF-8 byte sequences).
std::size_t first_bad_byte(std::string_view text) {
  const auto at = [&](std::size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
  };
  const auto continues = [&](std::size_t i) { return (at(i) & 0xC0u) == 0x80u; };
  std::size_t i = 0;
  while (i < text.size()) {
    const unsigned lead = at(i);
    if (lead == 0) return i;
    if (lead < 0x80) {
      ++i;
    } else if (lead >= 0xC2 && lead <= 0xDF && continues(i + 1)) {
      i += 2;
    } else if ((lead & 0xF0u) == 0xE0u && continues(i + 1) && continues(i + 2) &&
               !(lead == 0xE0 && at(i + 1) < 0xA0) && !(lead == 0xED && at(i + 1) > 0x9F)) {
      i += 3;
    } else if (lead >= 0xF0 && lead <= 0xF4 && continues(i + 1) && continues(i + 2) &&
               continues(i + 3) && !(lead == 0xF0 && at(i + 1) < 0x90) &&
               !(lead == 0xF4 && at(i + 1) > 0x8F)) {
      i += 4;
    } else {
      return i;
    }
  }
  return std::string_view::npos;
}

/// A number that is not finite, as Python writes it, and a JSON number of the same length that
/// takes its place before the parser, so that every position remains what it was.
struct SpecialNumber {
  std::string_view word;
  std::string_view placeholder;
  double value;
};
constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr std::array kSpecialNumbers = {
    SpecialNumber{"-Infinity", "0e0000000", -kInfinite},
    SpecialNumber{"Infinity", "0e000000", kInfinite},
    SpecialNumber{"NaN", "0e0", std::numeric_limits<double>::quiet_NaN()}};

/// Of the document without them: their offsets.
using SpecialNumbers = std::map<std::size_t, const SpecialNumber*>;

bool within_word(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         c == '.' || c == '+' || c == '-';
}

/// Puts the placeholders into `text`.
SpecialNumbers replace_special_numbers(std::string& text) {
  SpecialNumbers found;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      in_string = c != '"';
      continue;
    }
    in_string = c == '"';
    if ((c != '-' && c != 'I' && c != 'N') || (i > 0 && within_word(text[i - 1]))) continue;
    for (const SpecialNumber& each : kSpecialNumbers) {
      const std::size_t end = i + each.word.size();
      if (text.compare(i, each.word.size(), each.word) != 0) continue;
      if (end < text.size() && within_word(text[end])) continue;
      text.replace(i, each.word.size(), each.placeholder);
      found.emplace(i, &each);
      break;
    }
  }
  return found;
}

/// An error names the words of the file.
std::string with_special_words(std::string text) {
  for (const SpecialNumber& each : kSpecialNumbers) {
    for (std::size_t at = 0; (at = text.find(each.placeholder, at)) != std::string::npos;) {
      text.replace(at, each.placeholder.size(), each.word);
    }
  }
  return text;
}

/// Receives parser events and assembles the document; the first error stops the parser.
class Builder {
 public:
  /// `special`: null for a document of JSON as its standard has it.
  Builder(std::string_view text, std::string_view where, const char* const* reached,
          const SpecialNumbers* special)
      : text_(text), where_(where), reached_(reached), special_(special) {}

  bool null() { return add_value(nullptr); }
  bool boolean(bool value) { return add_value(value); }
  bool number_integer(std::int64_t value) { return add_value(value); }
  bool number_unsigned(std::uint64_t value) { return add_value(value); }
  bool number_float(double value, const std::string& digits) {
    if (special_ != nullptr) {
      // The parser has read one character behind the number, unless the document ends there.
      const auto end = static_cast<std::size_t>(*reached_ - text_.data());
      for (const std::size_t behind : {std::size_t{1}, std::size_t{0}}) {
        if (end < digits.size() + behind) continue;
        const auto at = special_->find(end - digits.size() - behind);
        if (at != special_->end()) return add_value(at->second->value);
      }
    }
    return add_value(value);
  }
  bool string(std::string& value) { return add_value(std::move(value)); }
  bool binary(Json::binary_t&) { return false; }  // JSON text has no binary values
  bool start_object(std::size_t) { return open(Json::object()); }
  bool end_object() { return close(); }
  bool start_array(std::size_t) { return open(Json::array()); }
  bool end_array() { return close(); }

  bool key(std::string& name) {
    Level& level = levels_.back();
    if (!level.keys.insert(name).second) {
      return refuse("the key " + in_quotes(name) + " appears twice in one object",
                    "every key once");
    }
    level.key = std::move(name);
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& why) {
    // "[json.exception...] parse error at line 1, column 5: syntax error while ... - REASON"
    std::string_view reason = why.what();
    for (const std::string_view lead : {std::string_view("] "), std::string_view("column ")}) {
      if (const auto at = reason.find(lead); at != std::string_view::npos) {
        reason = reason.substr(at + lead.size());
      }
    }
    if (const auto at = reason.find(": "); why.id != 406 && at != std::string_view::npos) {
      reason = reason.substr(at + 2);
    }
    const std::size_t offset = position > 0 ? std::min(position - 1, text_.size()) : 0;
    if (reason.find("unexpected end of input") != std::string_view::npos) {
      return refuse_at(offset, "the document ends too early", "a complete JSON document");
    }
    constexpr std::size_t kLongestReason = 160;
    std::string shown(reason.substr(0, kLongestReason));
    if (special_ != nullptr && !special_->empty()) shown = with_special_words(std::move(shown));
    return refuse_at(offset, "not valid JSON: " + std::move(shown), "");
  }

  [[nodiscard]] const std::optional<Error>& error() const { return error_; }
  [[nodiscard]] Json release() { return std::move(root_); }

 private:
  struct Level {
    Json* container;
    std::string key;
    std::unordered_set<std::string> keys;
  };

  /// Adds a value to the open container. Members are appended without a lookup, which would be
  /// linear; the set of keys detects duplicates.
  Json* append(Json value) {
    if (levels_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Level& level = levels_.back();
    if (level.container->is_array()) {
      auto& array = level.container->get_ref<Json::array_t&>();
      array.push_back(std::move(value));
      return &array.back();
    }
    Json::object_t::Container& members = level.container->get_ref<Json::object_t&>();
    members.emplace_back(std::move(level.key), std::move(value));
    return &members.back().second;
  }

  bool add_value(Json value) {
    append(std::move(value));
    return true;
  }
  bool open(Json container) {
    if (levels_.size() == kDeepest) {
      return refuse(fmt::format("nested deeper than {} levels", kDeepest),
                    fmt::format("at most {} levels of objects and arrays", kDeepest));
    }
    levels_.push_back({append(std::move(container)), {}, {}});
    return true;
  }
  bool close() {
    if (special_ != nullptr) untag(*levels_.back().container);
    levels_.pop_back();
    return true;
  }
  /// {"__float__": "Infinity"} becomes the number.
  static void untag(Json& value) {
    if (!value.is_object() || value.size() != 1 || !value.contains("__float__")) return;
    const Json& tag = value["__float__"];
    for (const SpecialNumber& each : kSpecialNumbers) {
      if (tag.is_string() && tag.get_ref<const std::string&>() == each.word) {
        value = each.value;
        return;
      }
    }
  }

  bool refuse(std::string found, std::string expected) {
    const auto offset = static_cast<std::size_t>(*reached_ - text_.data());
    return refuse_at(offset > 0 ? offset - 1 : 0, std::move(found), std::move(expected));
  }
  bool refuse_at(std::size_t offset, std::string found, std::string expected) {
    error_ = input_error(fmt::format("{}, {}", where_, line_and_column(text_, offset)),
                         std::move(found), std::move(expected));
    return false;
  }

  std::string_view text_;
  std::string where_;
  const char* const* reached_;
  const SpecialNumbers* special_;
  Json root_;
  std::vector<Level> levels_;
  std::optional<Error> error_;
};

enum class Dialect { standard, python };

Result<Json> parse(std::string_view text, std::string_view where, Dialect dialect) {
  if (text.size() > static_cast<std::size_t>(kLongest)) {
    return input_error(std::string(where),
                       fmt::format("the document is too long: {} bytes", text.size()),
                       fmt::format("at most {} bytes", kLongest));
  }
  if (const std::size_t bad = first_bad_byte(text); bad != std::string_view::npos) {
    return input_error(
        fmt::format("{}, {}", where, line_and_column(text, bad)),
        fmt::format("the byte 0x{:02x} is not UTF-8 text", static_cast<unsigned char>(text[bad])),
        "a JSON document in UTF-8");
  }
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);  // byte order mark
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) {
    return input_error(std::string(where), "the document is empty", "a JSON document");
  }
  std::string finite;
  SpecialNumbers special;
  if (dialect == Dialect::python) {
    finite = text;
    special = replace_special_numbers(finite);
    text = finite;
  }
  const char* reached = text.data();
  Builder builder(text, where, &reached, dialect == Dialect::python ? &special : nullptr);
  const CountingIterator begin(text.data(), &reached);
  const CountingIterator end(text.data() + text.size(), &reached);
  const bool whole = Json::sax_parse(begin, end, &builder);
  if (builder.error()) return *builder.error();
  EXPECTS(whole, "the parser stopped without an error");
  return builder.release();
}

}  // namespace

Result<Json> parse_json(std::string_view text, std::string_view where) {
  return parse(text, where, Dialect::standard);
}

Result<Json> parse_python_json(std::string_view text, std::string_view where) {
  return parse(text, where, Dialect::python);
}

Result<Json> read_json(const std::string& path) {
  const Result<std::string> text = read_file(path, kLongest);
  if (!text) return text.error();
  return parse_json(*text, path);
}

Result<Json> read_python_json(const std::string& path) {
  const Result<std::string> text = read_file(path, kLongest);
  if (!text) return text.error();
  return parse_python_json(*text, path);
}

}  // namespace echelon
