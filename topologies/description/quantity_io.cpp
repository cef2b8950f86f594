#include "topologies/description/quantity_io.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <system_error>
#include <utility>

#include "core/base/did_you_mean.hpp"
#include "core/base/text.hpp"

namespace echelon {

namespace {

struct UnitName {
  std::string_view name;
  Dimension dimension;
  double base;  ///< one unit in base units
};

/// Decimal and binary prefixes are different units; bits carry "bps", bytes "B/s".
constexpr std::array kUnits{
    UnitName{"B", Dimension::bytes, 1},
    UnitName{"kB", Dimension::bytes, 1e3},
    UnitName{"MB", Dimension::bytes, 1e6},
    UnitName{"GB", Dimension::bytes, 1e9},
    UnitName{"TB", Dimension::bytes, 1e12},
    UnitName{"KiB", Dimension::bytes, 0x1p10},
    UnitName{"MiB", Dimension::bytes, 0x1p20},
    UnitName{"GiB", Dimension::bytes, 0x1p30},
    UnitName{"TiB", Dimension::bytes, 0x1p40},
    UnitName{"MB/s", Dimension::bandwidth, 1e6},
    UnitName{"GB/s", Dimension::bandwidth, 1e9},
    UnitName{"TB/s", Dimension::bandwidth, 1e12},
    UnitName{"GiB/s", Dimension::bandwidth, 0x1p30},
    UnitName{"Mbps", Dimension::bandwidth, 1e6 / 8},
    UnitName{"Gbps", Dimension::bandwidth, 1e9 / 8},
    UnitName{"Tbps", Dimension::bandwidth, 1e12 / 8},
    UnitName{"GFLOP/s", Dimension::compute, 1e9},
    UnitName{"TFLOP/s", Dimension::compute, 1e12},
    UnitName{"PFLOP/s", Dimension::compute, 1e15},
    UnitName{"ns", Dimension::time, 1e-9},
    UnitName{"us", Dimension::time, 1e-6},
    UnitName{"ms", Dimension::time, 1e-3},
    UnitName{"s", Dimension::time, 1},
    UnitName{"h", Dimension::time, 3600},
    UnitName{"MHz", Dimension::frequency, 1},
    UnitName{"GHz", Dimension::frequency, 1e3},
    UnitName{"W", Dimension::power, 1},
    UnitName{"USD/h", Dimension::money_rate, 1},
    UnitName{"", Dimension::count, 1},
    UnitName{"", Dimension::ratio, 1},
};

std::string_view noun_for(Dimension dimension) {
  switch (dimension) {
    case Dimension::bytes: return "an amount of memory";
    case Dimension::bandwidth: return "a bandwidth";
    case Dimension::compute: return "a compute rate";
    case Dimension::time: return "a time";
    case Dimension::frequency: return "a frequency";
    case Dimension::power: return "a power";
    case Dimension::money_rate: return "a price";
    case Dimension::count: return "a count";
    case Dimension::ratio: return "a ratio";
  }
  return "a number";
}

std::vector<std::string> units_of(Dimension dimension) {
  std::vector<std::string> names;
  for (const UnitName& unit : kUnits) {
    if (unit.dimension == dimension && !unit.name.empty()) names.emplace_back(unit.name);
  }
  return names;
}

std::string expected_unit(Dimension dimension) {
  const std::vector<std::string> names = units_of(dimension);
  std::string text(noun_for(dimension));
  if (names.empty()) return text + " without a unit";
  text += " in ";
  for (std::size_t i = 0; i < names.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == names.size() ? " or " : ", ") + names[i];
  }
  return text;
}

const UnitName* find_unit(std::string_view name, Dimension dimension) {
  for (const UnitName& unit : kUnits) {
    if (unit.name == name && unit.dimension == dimension) return &unit;
  }
  return nullptr;
}

/// Other spellings of rates: the nearest name may be of bits where these are of bytes.
struct OtherRate {
  std::string_view spelling, unit;
};
constexpr std::array kOtherRates{
    OtherRate{"Mb/s", "Mbps"}, OtherRate{"Mbit/s", "Mbps"}, OtherRate{"Mbits/s", "Mbps"},
    OtherRate{"Gb/s", "Gbps"}, OtherRate{"Gbit/s", "Gbps"}, OtherRate{"Gbits/s", "Gbps"},
    OtherRate{"Gbit", "Gbps"}, OtherRate{"Gbits", "Gbps"},  OtherRate{"Gb", "Gbps"},
    OtherRate{"Tb/s", "Tbps"}, OtherRate{"Tbit/s", "Tbps"}, OtherRate{"Tbits/s", "Tbps"},
    OtherRate{"MBps", "MB/s"}, OtherRate{"GBps", "GB/s"},   OtherRate{"TBps", "TB/s"},
    OtherRate{"GBPS", "GB/s"}, OtherRate{"GBs", "GB/s"},    OtherRate{"GiBps", "GiB/s"},
};

std::string unit_hint(std::string_view name, Dimension dimension) {
  for (const UnitName& unit : kUnits) {
    if (!name.empty() && unit.name == name) {
      return fmt::format("'{}' is {}", name, noun_for(unit.dimension));
    }
  }
  for (const OtherRate& other : kOtherRates) {
    const bool meant = dimension == Dimension::bandwidth && other.spelling == name;
    if (meant) return fmt::format("did you mean '{}'?", other.unit);
  }
  return did_you_mean(name, units_of(dimension));
}

/// The shortest text with the same value: 3.35 as "3.35", 8 as "8".
std::string shortest(double value) { return fmt::format("{}", value); }

/// "/node/nics/rate" with prefix "gpu." -> "gpu.node.nics.rate".
std::string fact_name(const std::string& prefix, const std::string& pointer) {
  std::string name = prefix;
  for (std::size_t i = pointer.starts_with('/') ? 1 : 0; i < pointer.size(); ++i) {
    name += pointer[i] == '/' ? '.' : pointer[i];
  }
  return name;
}

}  // namespace

Document::Document(std::string where, std::string fact_prefix)
    : where_(std::move(where)), prefix_(std::move(fact_prefix)) {}

void Document::keep(const Status& status) {
  if (!status.ok() && !error_) error_ = status.error();
}

void Document::fail(const std::string& pointer, std::string found, std::string expected,
                    std::string hint) {
  if (error_) return;
  error_ = input_error(where_ + " at " + pointer, std::move(found), std::move(expected),
                       std::move(hint));
}

void Document::read_sources(Section& root) {
  const Json* table = root.reader.member("sources");
  if (table == nullptr) return;
  JsonReader reader(*table, where_, "/sources");
  if (table->is_object()) {
    for (const auto& [key, text] : table->items()) sources_.emplace_back(key, reader.string(key));
  }
  keep(reader.finish());
}

/// The number at `at`, before its unit is checked: {"value", "unit", "source"}, "400 Gbps", or 8.
std::optional<Document::Written> Document::written(const Json& value, const std::string& at) {
  Written result;
  if (value.is_number()) {
    result.value = value.get<double>();
    result.text = shortest(result.value);
    return result;
  }
  if (value.is_string()) {
    const std::string text = value.get<std::string>();
    const char* end = text.data() + text.size();
    const auto [rest, status] = std::from_chars(text.data(), end, result.value);
    if (status != std::errc{}) {
      fail(at, "the string \"" + printable(text) + "\"", "a number and its unit, such as 400 Gbps");
      return std::nullopt;
    }
    result.text = shortest(result.value);
    result.unit.assign(rest + (rest != end && *rest == ' ' ? 1 : 0), end);
    return result;
  }
  if (!value.is_object()) {
    fail(at, value.is_array() ? "a list" : in_quotes(value.dump()),
         R"(an object such as {"value": 3.35, "unit": "TB/s", "source": "data sheet"})");
    return std::nullopt;
  }
  JsonReader reader(value, where_, at);
  result.value = reader.number("value", -kLargestNumber);
  result.text = shortest(result.value);
  result.unit = reader.string_or("unit", "");
  result.source = reader.string_or("source", "");
  for (const auto& [key, text] : sources_) {
    if (key == result.source) {
      result.source = text;
      break;
    }
  }
  const Status status = reader.finish();
  keep(status);
  return status.ok() ? std::optional(result) : std::nullopt;
}

double Document::checked(const Written& number, const std::string& at, NumberRule rule) {
  const UnitName* unit = find_unit(number.unit, rule.dimension);
  if (unit == nullptr) {
    fail(at,
         number.unit.empty() ? number.text + " without a unit"
                             : "the unit " + in_quotes(number.unit),
         expected_unit(rule.dimension), unit_hint(number.unit, rule.dimension));
    return rule.min;
  }
  const double value = number.value * unit->base;
  const bool whole = rule.dimension != Dimension::count || std::floor(value) == value;
  if (std::isfinite(value) && whole && value >= rule.min && value <= rule.max) return value;
  const auto shown = [&](double base) {
    return shortest(base / unit->base) + (number.unit.empty() ? "" : " " + number.unit);
  };
  fail(at, number.text + (number.unit.empty() ? "" : " " + number.unit),
       fmt::format("{}{} between {} and {}", noun_for(rule.dimension),
                   rule.dimension == Dimension::count ? " (a whole number)" : "", shown(rule.min),
                   shown(rule.max)));
  return rule.min;
}

void Document::record(const std::string& at, const Written& number, bool assumed) {
  const bool source_assumed = number.source.find("assumed") != std::string::npos;
  facts_.push_back(Fact{.name = fact_name(prefix_, at),
                        .value = number.text,
                        .unit = number.unit,
                        .source = number.source,
                        .assumed = assumed || source_assumed});
}

std::optional<double> Document::optional_number(Section& in, std::string_view key,
                                                NumberRule rule) {
  const Json* value = in.reader.member(key);
  if (value == nullptr || value->is_null()) return std::nullopt;
  const std::string at = in.at(key);
  const std::optional<Written> number = written(*value, at);
  if (!number) return rule.min;
  const double base = checked(*number, at, rule);
  record(at, *number, false);
  return base;
}

double Document::number(Section& in, std::string_view key, NumberRule rule) {
  if (const std::optional<double> value = optional_number(in, key, rule)) return *value;
  std::vector<std::string> keys;
  if (in.json.is_object()) {
    for (const auto& item : in.json.items()) keys.push_back(item.key());
  }
  const std::string nearest = nearest_name(key, keys);
  fail(in.at(key), fmt::format("the key '{}' is missing", key), expected_unit(rule.dimension),
       nearest.empty() ? "" : fmt::format("there is '{}'; did you mean '{}'?", nearest, key));
  return rule.min;
}

double Document::number_or(Section& in, std::string_view key, NumberRule rule, Assumed fallback) {
  if (const std::optional<double> value = optional_number(in, key, rule)) return *value;
  const std::string at = in.at(key);
  const Written number{.value = fallback.value,
                       .text = shortest(fallback.value),
                       .unit = std::string(fallback.unit),
                       .source = "assumed: " + std::string(fallback.why)};
  record(at, number, true);
  return checked(number, at, rule);
}

int Document::count(Section& in, std::string_view key, int min, int max) {
  const NumberRule rule{Dimension::count, static_cast<double>(min), static_cast<double>(max)};
  return static_cast<int>(number(in, key, rule));
}

int Document::count_or(Section& in, std::string_view key, int min, int max, Assumed fallback) {
  const NumberRule rule{Dimension::count, static_cast<double>(min), static_cast<double>(max)};
  return static_cast<int>(number_or(in, key, rule, fallback));
}

void check_schema(Section& root, Document& document) {
  const std::int64_t schema = root.reader.integer("schema", 0, 1'000'000);
  if (root.reader.failed() || schema == 1) return;
  document.fail("/schema", fmt::format("version {}", schema), "version 1",
                schema > 1 ? "the file was written for a newer program" : "");
}

}  // namespace echelon
