#include "core/base/parse_quantity.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>

#include "core/base/text.hpp"

namespace echelon {

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// What the user typed, short and printable.
std::string shown(std::string_view text) { return text.empty() ? "nothing" : in_quotes(text); }

/// A number split into its parts before any rounding: ±digits · 10^exponent, then its unit.
struct Decimal {
  bool negative = false;
  std::string digits;  ///< no leading zeros; "" is zero
  long exponent = 0;
  std::string_view written;  ///< the number without its unit, for the conversion to double
  std::string_view unit;
};

std::optional<Decimal> split_number(std::string_view text) {
  Decimal number;
  std::size_t at = 0;
  if (at < text.size() && text[at] == '-') {
    number.negative = true;
    ++at;
  }
  bool any = false;
  bool fraction = false;
  for (; at < text.size(); ++at) {
    if (text[at] == '.' && !fraction) {
      fraction = true;
    } else if (is_digit(text[at])) {
      any = true;
      if (!number.digits.empty() || text[at] != '0') number.digits += text[at];
      if (fraction) --number.exponent;
    } else {
      break;
    }
  }
  if (!any) return std::nullopt;
  // An exponent needs digits; without them the 'e' belongs to the unit, which rejects it.
  if (at < text.size() && lower_case(text[at]) == 'e') {
    std::size_t first = at + 1;
    const bool signed_exponent = first < text.size() && (text[first] == '+' || text[first] == '-');
    const std::size_t begin = signed_exponent ? first + 1 : first;
    if (begin < text.size() && is_digit(text[begin])) {
      long power = 0;
      std::size_t end = begin;
      for (; end < text.size() && is_digit(text[end]); ++end) {
        if (power < 100'000) power = power * 10 + (text[end] - '0');
      }
      number.exponent += signed_exponent && text[first] == '-' ? -power : power;
      at = end;
    }
  }
  number.written = text.substr(0, at);
  if (at + 1 < text.size() && text[at] == ' ') ++at;  // "80 GiB"
  number.unit = text.substr(at);
  while (!number.digits.empty() && number.digits.back() == '0') {
    number.digits.pop_back();
    ++number.exponent;
  }
  if (number.digits.empty()) number.exponent = 0;
  return number;
}

/// k, M, G (or b for billion), T, and Ki, Mi, Gi, Ti: 10^decimal · 2^binary.
struct Prefix {
  int decimal = 0;
  int binary = 0;
};

std::optional<Prefix> prefix_of(std::string_view letters) {
  if (letters.empty()) return Prefix{};
  static constexpr std::string_view kOrder = "kmgtp";
  const std::size_t step = kOrder.find(lower_case(letters[0]));
  if (step == std::string_view::npos) return std::nullopt;
  const int power = static_cast<int>(step) + 1;
  if (letters.size() == 1) return Prefix{3 * power, 0};
  if (letters.size() == 2 && lower_case(letters[1]) == 'i') return Prefix{0, 10 * power};
  return std::nullopt;
}

enum class Whole { yes, fraction, too_large };

/// digits · 10^exponent · 2^binary in integer arithmetic, so that no digit is lost.
Whole whole_value(const Decimal& number, Prefix prefix, std::uint64_t& value) {
  value = 0;
  if (number.digits.empty()) return Whole::yes;
  if (number.digits.size() > 19) return Whole::too_large;
  for (const char digit : number.digits) value = value * 10 + static_cast<unsigned>(digit - '0');
  long ten = number.exponent + prefix.decimal;
  int two = prefix.binary;
  if (ten > 19) return Whole::too_large;
  for (; ten < 0; ++ten) {  // divide by 10 = 2·5; the binary prefix may supply the 2
    if (value % 5 != 0) return Whole::fraction;
    value /= 5;
    if (two > 0) {
      --two;
    } else if (value % 2 == 0) {
      value /= 2;
    } else {
      return Whole::fraction;
    }
  }
  for (; ten > 0; --ten) {
    if (__builtin_mul_overflow(value, std::uint64_t{10}, &value)) return Whole::too_large;
  }
  for (; two > 0; --two) {
    if (__builtin_mul_overflow(value, std::uint64_t{2}, &value)) return Whole::too_large;
  }
  return Whole::yes;
}

std::optional<double> real_value(std::string_view written) {
  double value = 0;
  const auto [end, error] = std::from_chars(written.data(), written.data() + written.size(), value);
  if (error != std::errc() || end != written.data() + written.size() || !std::isfinite(value)) {
    return std::nullopt;
  }
  return value;
}

std::optional<double> scaled(const Decimal& number, Prefix prefix) {
  const std::optional<double> value = real_value(number.written);
  if (!value) return std::nullopt;
  const double result = *value * std::pow(10.0, prefix.decimal) * std::ldexp(1.0, prefix.binary);
  return std::isfinite(result) ? std::optional(result) : std::nullopt;
}

constexpr std::string_view kCountForm =
    "with an optional suffix: k, M, b or G, T (powers of 1000) or Ki, Mi, Gi, Ti (powers of 1024)";

Result<std::int64_t> count_between(std::string_view text, std::string_view where, std::int64_t min,
                                   std::int64_t max) {
  const std::string expected = fmt::format("a whole number of at least {}", min);
  const auto complain = [&](std::string_view why, std::string hint = {}) -> Error {
    return input_error(std::string(where), shown(text) + std::string(why), expected,
                       std::move(hint));
  };
  const std::optional<Decimal> number = split_number(text);
  if (!number) return complain(text.empty() ? "" : " is not a number");
  std::optional<Prefix> prefix = prefix_of(number->unit);
  if (number->unit.size() == 1 && lower_case(number->unit[0]) == 'b') prefix = Prefix{9, 0};
  if (!prefix) {
    return complain(" is not a number", fmt::format("write digits {}", kCountForm));
  }
  std::uint64_t value = 0;
  const Whole whole = whole_value(*number, *prefix, value);
  if (whole == Whole::fraction) return complain(" is not whole");
  if (number->negative && (whole == Whole::too_large || value > 0)) {
    const bool fits = whole == Whole::yes && value <= static_cast<std::uint64_t>(max);
    if (!fits || -static_cast<std::int64_t>(value) < min) {
      return complain(fmt::format(" is below {}", min));
    }
    return -static_cast<std::int64_t>(value);
  }
  if (whole == Whole::too_large || value > static_cast<std::uint64_t>(max)) {
    return complain(" is too large", fmt::format("the largest possible is {}", max));
  }
  if (static_cast<std::int64_t>(value) < min) return complain(fmt::format(" is below {}", min));
  return static_cast<std::int64_t>(value);
}

/// Splits "GiB", "GB", "gb", "Gi", "G", "B", "" into its prefix; "Gb" means bits and is rejected.
std::optional<Prefix> byte_prefix(std::string_view unit) {
  if (unit.empty()) return Prefix{};
  const char last = unit.back();
  if (lower_case(last) != 'b') return prefix_of(unit);
  const std::string_view letters = unit.substr(0, unit.size() - 1);
  const bool capital_prefix = !letters.empty() && letters[0] >= 'A' && letters[0] <= 'Z';
  if (last == 'b' && capital_prefix) return std::nullopt;
  return prefix_of(letters);
}

struct Rate {
  Prefix prefix;
  double bytes = 1;  ///< bytes in one unit: 1, or 1/8 for bits
};

std::optional<Rate> rate_unit(std::string_view unit) {
  const auto drop = [&unit](std::string_view ending) {
    if (!unit.ends_with(ending)) return false;
    unit.remove_suffix(ending.size());
    return true;
  };
  if (drop("bit/s")) {
    const auto prefix = prefix_of(unit);
    return prefix ? std::optional(Rate{*prefix, 1.0 / 8}) : std::nullopt;
  }
  if (!drop("ps") && !drop("/s")) return std::nullopt;
  if (unit.empty()) return std::nullopt;
  const char last = unit.back();
  if (lower_case(last) != 'b') return std::nullopt;
  const auto prefix = prefix_of(unit.substr(0, unit.size() - 1));
  if (!prefix) return std::nullopt;
  return Rate{*prefix, last == 'b' ? 1.0 / 8 : 1.0};
}

}  // namespace

Result<std::int64_t> parse_count(std::string_view text, std::string_view where, std::int64_t min) {
  return count_between(text, where, min, std::numeric_limits<std::int64_t>::max());
}

Result<int> parse_int(std::string_view text, std::string_view where, int min) {
  const Result<std::int64_t> value =
      count_between(text, where, min, std::numeric_limits<int>::max());
  if (!value) return value.error();
  return static_cast<int>(*value);
}

Result<Bytes> parse_bytes(std::string_view text, std::string_view where) {
  const auto complain = [&](std::string_view why, std::string hint = {}) -> Error {
    return input_error(std::string(where), shown(text) + std::string(why),
                       "a size such as 80GiB (2^30 bytes) or 80GB (10^9 bytes)", std::move(hint));
  };
  const std::optional<Decimal> number = split_number(text);
  if (!number) return complain(text.empty() ? "" : " is not a size");
  const std::optional<Prefix> prefix = byte_prefix(number->unit);
  if (!prefix) {
    const bool bits = number->unit.ends_with('b');
    return complain(" is not a size", bits ? "a small b means bits; write B for bytes" : "");
  }
  if (number->negative && !number->digits.empty()) return complain(" is negative");
  const std::optional<double> value = scaled(*number, *prefix);
  if (!value) return complain(" is too large");
  return Bytes{std::abs(*value)};
}

Result<BytesPerSecond> parse_bandwidth(std::string_view text, std::string_view where) {
  const auto complain = [&](std::string_view why, std::string hint = {}) -> Error {
    return input_error(std::string(where), shown(text) + std::string(why),
                       "a bandwidth such as 400Gbps (bits per second) or 50GB/s (bytes per second)",
                       std::move(hint));
  };
  const std::optional<Decimal> number = split_number(text);
  if (!number) return complain(text.empty() ? "" : " is not a bandwidth");
  const std::optional<Rate> rate = rate_unit(number->unit);
  if (!rate) {
    return complain(number->unit.empty() ? " has no unit" : " is not a bandwidth",
                    "a small b means bits, a capital B bytes");
  }
  if (number->negative || number->digits.empty()) return complain(" is not above zero");
  const std::optional<double> value = scaled(*number, rate->prefix);
  if (!value) return complain(" is too large");
  return BytesPerSecond{*value * rate->bytes};
}

Result<double> parse_ratio(std::string_view text, std::string_view where, double low, double high) {
  const auto complain = [&](std::string_view why) -> Error {
    return input_error(std::string(where), shown(text) + std::string(why),
                       fmt::format("a number between {} and {}", low, high));
  };
  const std::optional<Decimal> number = split_number(text);
  if (!number || !number->unit.empty()) return complain(text.empty() ? "" : " is not a number");
  const std::optional<double> value = real_value(number->written);
  if (!value) return complain(" is not a finite number");
  if (*value < low || *value > high) return complain(" is out of range");
  return *value;
}

std::string human_count(double value) {
  static constexpr std::array<const char*, 5> kSuffix = {"", " k", " M", " B", " T"};
  const double size = std::abs(value);
  if (!std::isfinite(value) || size >= 999.5e12) return fmt::format("{:.3g}", value);
  std::size_t step = 0;
  double scale = 1;
  while (step + 1 < kSuffix.size() && size / scale >= 999.5) {  // 999.5 would print as 1000
    scale *= 1000;
    ++step;
  }
  const double shown_value = value / scale;
  if (step == 0 && std::floor(value) == value) return fmt::format("{:.0f}", value);
  const double magnitude = std::abs(shown_value);
  const int decimals = magnitude < 9.995 ? 2 : magnitude < 99.95 ? 1 : 0;
  if (step == 0 && magnitude < 1) return fmt::format("{:.3g}", value);
  return fmt::format("{:.{}f}{}", shown_value, decimals, kSuffix[step]);
}

}  // namespace echelon
