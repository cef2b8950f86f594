#include "cli/plan_filter.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "cli/operations.hpp"
#include "cli/request.hpp"
#include "core/base/did_you_mean.hpp"
#include "core/base/parse_quantity.hpp"
#include "report/format.hpp"
#include "report/metrics.hpp"

namespace echelon::cli {
namespace {

constexpr std::array<std::string_view, 3> kHolds = {"fits", "front", "tied"};

std::string in_small_letters(std::string_view text) {
  std::string small(text);
  for (char& c : small) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return small;
}

std::vector<std::string> filter_names() {
  std::vector<std::string> names;
  for (const Degree& degree : degrees()) names.emplace_back(degree.name);
  for (const MetricInfo& figure : metrics()) names.emplace_back(figure.key);
  names.insert(names.end(), {"sp", "recompute", "schedule"});
  return names;
}

}  // namespace

Result<PlanFilter> PlanFilter::parse(std::string_view text, std::string_view where) {
  constexpr std::string_view kBlanks = " \t,";
  PlanFilter filter;
  for (std::size_t at = text.find_first_not_of(kBlanks); at != std::string_view::npos;) {
    const std::size_t end = std::min(text.find_first_of(kBlanks, at), text.size());
    Result<Condition> condition = parse_condition(text.substr(at, end - at), where);
    if (!condition) return condition.error();
    filter.conditions_.push_back(*std::move(condition));
    at = text.find_first_not_of(kBlanks, end);
  }
  return filter;
}

Result<PlanFilter::Condition> PlanFilter::parse_condition(std::string_view word,
                                                          std::string_view where) {
  Condition condition;
  const std::size_t at = word.find_first_of("=!<>");
  if (at == std::string_view::npos) {
    condition.text = in_small_letters(word);
    const auto* const known = std::ranges::find(kHolds, condition.text);
    if (known != kHolds.end()) condition.kind = Kind::holds;
    return condition;
  }
  static constexpr std::array<std::pair<std::string_view, Comparison>, 6> kOperators = {
      {{"!=", Comparison::not_equal},
       {"<=", Comparison::at_most},
       {">=", Comparison::at_least},
       {"=", Comparison::equal},
       {"<", Comparison::less},
       {">", Comparison::more}}};
  const std::string_view rest = word.substr(at);
  const auto* const op = std::ranges::find_if(
      kOperators, [&](const auto& known) { return rest.starts_with(known.first); });
  const std::string shown(word.substr(0, 60));
  if (op == kOperators.end() || at == 0 || rest.size() == op->first.size()) {
    return input_error(
        std::string(where), fmt::format("'{}' is not a condition", shown),
        "NAME=VALUE without blanks, or with !=, <, <=, >, >=", "for example: tp=8 step<2s fits");
  }
  condition.comparison = op->second;
  const std::string name = in_small_letters(word.substr(0, at));
  const std::string_view value = rest.substr(op->first.size());
  const auto degree = std::ranges::find(degrees(), name, &Degree::name);
  const auto figure = std::ranges::find(metrics(), name, &MetricInfo::key);
  if (degree != degrees().end() || figure != metrics().end()) {
    const bool is_degree = degree != degrees().end();
    condition.kind = is_degree ? Kind::degree : Kind::figure;
    condition.index = static_cast<std::size_t>(is_degree ? degree - degrees().begin()
                                                         : figure - metrics().begin());
    const Result<double> number = parse_number(condition, value, where);
    if (!number) return number.error();
    condition.number = *number;
    return condition;
  }
  if (name != "sp" && name != "recompute" && name != "schedule") {
    const std::vector<std::string> names = filter_names();
    return input_error(std::string(where), fmt::format("unknown name '{}'", name.substr(0, 40)),
                       fmt::format("one of {}", fmt::join(names, ", ")), did_you_mean(name, names));
  }
  if (condition.comparison != Comparison::equal && condition.comparison != Comparison::not_equal) {
    return input_error(std::string(where), fmt::format("'{}' orders words", shown),
                       fmt::format("{}= or {}!=", name, name));
  }
  condition.text = in_small_letters(value);
  condition.kind = name == "recompute" ? Kind::recompute : Kind::schedule;
  if (name == "sp") {
    const Result<bool> yes = parse_switch({std::string(value), std::string(where)});
    if (!yes) return yes.error();
    condition.kind = Kind::sequence_parallel;
    condition.number = *yes ? 1 : 0;
  } else if (name == "recompute") {
    if (const auto known = parse_recompute(condition.text, where); !known) return known.error();
  } else if (const auto known = parse_schedule(condition.text, where); !known) {
    return known.error();
  }
  return condition;
}

Result<double> PlanFilter::parse_number(const Condition& condition, std::string_view text,
                                        std::string_view where) {
  constexpr double kLargest = 1e18;
  if (condition.kind == Kind::degree) {
    const Result<std::int64_t> whole = parse_count(text, where, 0);
    if (!whole) return whole.error();
    return static_cast<double>(*whole);
  }
  switch (metrics()[condition.index].figure) {
    case Metric::step: {
      const Result<Seconds> time = parse_duration({std::string(text), std::string(where)});
      if (!time) return time.error();
      return time->in(kSecond);
    }
    case Metric::memory:
    case Metric::headroom: {
      const Result<Bytes> bytes = parse_bytes(text, where);
      if (!bytes) return bytes.error();
      return bytes->in(kByte);
    }
    case Metric::tokens_per_second:
    case Metric::gpus: {
      const Result<std::int64_t> whole = parse_count(text, where, 0);
      if (!whole) return whole.error();
      return static_cast<double>(*whole);
    }
    case Metric::mfu: {
      const bool in_percent = text.ends_with('%');
      if (in_percent) text.remove_suffix(1);
      const Result<double> share = parse_ratio(text, where, 0, in_percent ? 100 : 1);
      if (!share) return share.error();
      return in_percent ? *share / 100 : *share;
    }
    case Metric::usd_per_step:
    case Metric::usd_per_million_tokens:
    case Metric::gpu_hours_per_step: break;
  }
  return parse_ratio(text, where, 0, kLargest);
}

bool PlanFilter::meets(const Condition& condition, const RankedPlan& plan,
                       const PlanRequest& request, const Economics& money) {
  const Candidate& candidate = *plan.candidate;
  const bool wanted = condition.comparison == Comparison::equal;
  double value = 0;
  switch (condition.kind) {
    case Kind::words:
      return in_small_letters(described(candidate.plan, {})).find(condition.text) !=
             std::string::npos;
    case Kind::holds:
      if (condition.text == "fits") return candidate.fits;
      return condition.text == "front" ? plan.on_front : plan.tied;
    case Kind::recompute: return (name_of(candidate.plan.recompute) == condition.text) == wanted;
    case Kind::schedule: return (name_of(candidate.plan.schedule) == condition.text) == wanted;
    case Kind::sequence_parallel: value = candidate.plan.sequence_parallel ? 1 : 0; break;
    case Kind::degree: value = candidate.plan.*degrees()[condition.index].field; break;
    case Kind::figure: {
      const auto known = value_of(metrics()[condition.index].figure, request, candidate, money);
      if (!known) return false;
      value = *known;
    }
  }
  switch (condition.comparison) {
    case Comparison::equal: return value == condition.number;
    case Comparison::not_equal: return value != condition.number;
    case Comparison::less: return value < condition.number;
    case Comparison::at_most: return value <= condition.number;
    case Comparison::more: return value > condition.number;
    case Comparison::at_least: return value >= condition.number;
  }
  return false;
}

bool PlanFilter::keeps(const RankedPlan& plan, const PlanRequest& request,
                       const Economics& money) const {
  return std::ranges::all_of(
      conditions_, [&](const Condition& each) { return meets(each, plan, request, money); });
}

}  // namespace echelon::cli
