#include "cli/flags/values.hpp"

#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "core/base/parse_quantity.hpp"
#include "core/base/text.hpp"

namespace echelon::cli {

Error at(const Setting& setting, Error error) {
  // An error inside a file names the file, which is more specific than the flag that named it.
  if (error.where.empty() || error.where.starts_with("--")) {
    error.where = setting.where;
  } else if (error.where != setting.where) {
    error.where = setting.where + ": " + error.where;
  }
  return error;
}

Status check_exists(const std::string& path, std::string_view where, std::string_view what) {
  std::error_code error;
  if (std::filesystem::exists(path, error) || error) return Done{};
  return input_error(std::string(where), fmt::format("no file {}", in_quotes(path, 200)),
                     std::string(what));
}

Result<std::vector<int>> parse_list(const Setting& setting, int least) {
  constexpr std::size_t kMostEntries = 4096;
  std::vector<int> values;
  std::string_view rest = setting.value;
  while (true) {
    const std::string_view item = rest.substr(0, rest.find(','));
    const Result<int> value = parse_int(item, setting.where, least);
    if (!value) return value.error();
    values.push_back(*value);
    if (item.size() == rest.size()) return values;
    if (values.size() == kMostEntries) {
      return input_error(setting.where, "a very long list", "at most 4096 numbers");
    }
    rest.remove_prefix(item.size() + 1);
  }
}

Result<bool> parse_switch(const Setting& setting) {
  for (const char* word : {"true", "yes", "1"}) {
    if (setting.value == word) return true;
  }
  for (const char* word : {"false", "no", "0"}) {
    if (setting.value == word) return false;
  }
  return input_error(setting.where, in_quotes(setting.value), "true or false");
}

Result<Seconds> parse_duration(const Setting& setting) {
  struct Unit {
    std::string_view name;
    double seconds;
  };
  static constexpr std::array<Unit, 5> kUnits = {
      {{"min", 60}, {"ms", 1e-3}, {"s", 1}, {"h", 3600}, {"d", 86400}}};
  const std::string expected = "a time such as 90s, 10min, 6338h or 264d";
  const std::string& text = setting.value;
  for (const Unit& unit : kUnits) {
    if (!text.ends_with(unit.name)) continue;
    constexpr double kLongest = 1e12;
    const Result<double> number =
        parse_ratio(std::string_view(text).substr(0, text.size() - unit.name.size()), setting.where,
                    0, kLongest);
    if (!number || *number <= 0) break;
    return Seconds{*number * unit.seconds};
  }
  return input_error(setting.where, in_quotes(text), expected);
}

}  // namespace echelon::cli
