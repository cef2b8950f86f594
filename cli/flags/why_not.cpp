#include "cli/flags/why_not.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "cli/flags/constraints.hpp"
#include "core/base/did_you_mean.hpp"
#include "core/base/text.hpp"
#include "core/plan/plan_fields.hpp"

namespace echelon::cli {

namespace {

constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kShort = {
    {{"sp", "sequence-parallel"}, {"mb", "microbatch"}, {"micro-batch", "microbatch"}}};

std::string place(const Setting& setting, std::size_t position) {
  return fmt::format("{} at character {}", setting.where, position + 1);
}

/// All flags of a plan.
std::vector<std::string> all_keys() {
  std::vector<std::string> keys;
  for (const PlanField* field : kPlanFieldsInHelp) {
    if (field == plan_field_of(field->flag)) keys.emplace_back(field->flag);
  }
  return keys;
}

/// Whether its values contain commas: "8,8", "dp,tp".
bool holds_a_list(std::string_view key) {
  const PlanField* field = plan_field_of(key);
  return field != nullptr &&
         (field->kind == PlanFieldKind::per_stage || field->kind == PlanFieldKind::listed ||
          field->kind == PlanFieldKind::modules || field->is(&ParallelPlan::recompute));
}

/// The flag a key stands for.
Result<std::string> key_of(std::string_view written, const std::string& where) {
  std::string key(written);
  std::replace(key.begin(), key.end(), '_', '-');
  for (const auto& [brief, full] : kShort) {
    if (key == brief) return std::string(full);
  }
  if (const Flag* flag = find_spelling(key)) key = flag->name;
  if (plan_field_of(key) != nullptr) return key;
  const std::vector<std::string> keys = all_keys();
  std::vector<std::string> known = keys;
  for (const auto& [brief, full] : kShort) known.emplace_back(brief);
  return input_error(where, "unknown key " + in_quotes(written),
                     fmt::format("one of {}", fmt::join(keys, ", ")), did_you_mean(key, known));
}

}  // namespace

Result<PlanConstraints> parse_why_not(const Setting& setting) {
  const std::string& text = setting.value;
  const std::string pattern = "key=value pairs such as tp=4,pp=2";
  Settings pairs;
  std::string last;  // key, whose list the next words may continue
  std::size_t at = 0;
  constexpr std::string_view kSeparators = ", ";
  while ((at = text.find_first_not_of(kSeparators, at)) != std::string::npos) {
    const std::size_t end = std::min(text.find_first_of(kSeparators, at), text.size());
    const std::string_view pair = std::string_view(text).substr(at, end - at);
    const std::size_t equals = pair.find('=');
    const std::string where = place(setting, at);
    if (equals == std::string_view::npos && holds_a_list(last)) {
      const Setting before = *pairs.find(last);
      pairs.set(last, {before.value + "," + std::string(pair), before.where});
      at = end;
      continue;
    }
    if (equals == std::string_view::npos || equals == 0) {
      return input_error(where, in_quotes(pair), pattern);
    }
    const Result<std::string> key = key_of(pair.substr(0, equals), where);
    if (!key) return key.error();
    if (equals + 1 == pair.size()) {
      return input_error(place(setting, at + equals + 1), "no value after " + in_quotes(pair),
                         pattern);
    }
    if (pairs.has(*key)) return input_error(where, *key + " given twice", "each key once");
    pairs.set(*key, {std::string(pair.substr(equals + 1)), place(setting, at + equals + 1)});
    last = *key;
    at = end;
  }
  if (pairs.all().empty()) return input_error(setting.where, "nothing", pattern);
  return constraints_of(pairs);
}

}  // namespace echelon::cli
