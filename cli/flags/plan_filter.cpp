#include "cli/flags/plan_filter.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "cli/flags/values.hpp"
#include "core/base/did_you_mean.hpp"
#include "core/base/parse_quantity.hpp"
#include "core/base/text.hpp"
#include "report/format.hpp"
#include "report/metrics.hpp"

namespace echelon::cli {
namespace {

constexpr std::array<std::string_view, 3> kHolds = {"fits", "front", "tied"};

std::vector<std::string> filter_names() {
  std::vector<std::string> names;
  for (const Degree& degree : degrees()) names.emplace_back(degree.name);
  for (const MetricInfo& figure : metrics()) names.emplace_back(figure.key);
  names.insert(names.end(), {"sp", "recompute", "schedule"});
  return names;
}

}  // namespace

Result<PlanFilter> PlanFilter::parse(std::string_view text, std::string_view where) {
  const Result<std::vector<FilterTerm>> terms = parse_filter_terms(text, where);
  if (!terms) return terms.error();
  PlanFilter filter;
  for (const FilterTerm& term : *terms) {
    Result<Condition> condition = condition_of(term, where);
    if (!condition) return condition.error();
    filter.conditions_.push_back(*std::move(condition));
  }
  return filter;
}

Result<PlanFilter::Condition> PlanFilter::condition_of(const FilterTerm& term,
                                                       std::string_view where) {
  Condition condition;
  if (term.is_word()) {
    condition.text = lower_case(term.value);
    const auto* const known = std::ranges::find(kHolds, condition.text);
    if (known != kHolds.end()) condition.kind = Kind::holds;
    return condition;
  }
  if (term.value.empty()) return not_a_condition(term.written, where);
  condition.comparison = term.comparison;
  const std::string name = lower_case(term.name);
  const auto degree = std::ranges::find(degrees(), name, &Degree::name);
  const auto figure = std::ranges::find(metrics(), name, &MetricInfo::key);
  if (degree == degrees().end() && figure == metrics().end()) {
    const Status read = read_choice(term, where, condition);
    return read ? Result(condition) : read.error();
  }
  const bool is_degree = degree != degrees().end();
  condition.kind = is_degree ? Kind::degree : Kind::figure;
  condition.index =
      static_cast<std::size_t>(is_degree ? degree - degrees().begin() : figure - metrics().begin());
  const Result<double> number = parse_number(condition, term.value, where);
  if (!number) return number.error();
  condition.number = *number;
  return condition;
}

Status PlanFilter::read_choice(const FilterTerm& term, std::string_view where,
                               Condition& condition) {
  const std::string name = lower_case(term.name);
  if (name != "sp" && name != "recompute" && name != "schedule") {
    const std::vector<std::string> names = filter_names();
    return input_error(std::string(where), fmt::format("unknown name {}", in_quotes(name)),
                       fmt::format("one of {}", fmt::join(names, ", ")), did_you_mean(name, names));
  }
  if (needs_order(term.comparison)) {
    return input_error(std::string(where), in_quotes(term.written) + " orders words",
                       fmt::format("{}= or {}!=", name, name));
  }
  condition.text = lower_case(term.value);
  condition.kind = name == "recompute" ? Kind::recompute : Kind::schedule;
  if (name == "sp") {
    const Result<bool> yes = parse_switch({term.value, std::string(where)});
    if (!yes) return yes.error();
    condition.kind = Kind::sequence_parallel;
    condition.number = *yes ? 1 : 0;
  } else if (name == "recompute") {
    if (const auto known = parse_recompute(condition.text, where); !known) return known.error();
  } else if (const auto known = parse_schedule(condition.text, where); !known) {
    return known.error();
  }
  return Done{};
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
    case Metric::mfu:
    case Metric::fits: {
      const bool in_percent = text.ends_with('%');
      if (in_percent) text.remove_suffix(1);
      const Result<double> share = parse_ratio(text, where, 0, in_percent ? 100 : 1);
      if (!share) return share.error();
      return in_percent ? *share / 100 : *share;
    }
    case Metric::usd_per_step:
    case Metric::usd_per_million_tokens:
    case Metric::gpu_hours_per_step:
    case Metric::kwh_per_step: break;
  }
  return parse_ratio(text, where, 0, kLargest);
}

bool PlanFilter::meets(const Condition& condition, const RankedPlan& plan,
                       const PlanRequest& request, const Economics& money) {
  const Candidate& candidate = *plan.candidate;
  const bool wanted = condition.comparison == FilterComparison::equal;
  double value = 0;
  switch (condition.kind) {
    case Kind::words:
      return lower_case(described(candidate.plan, {})).find(condition.text) != std::string::npos;
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
  return echelon::holds(value, condition.comparison, condition.number);
}

bool PlanFilter::keeps(const RankedPlan& plan, const PlanRequest& request,
                       const Economics& money) const {
  return std::ranges::all_of(
      conditions_, [&](const Condition& each) { return meets(each, plan, request, money); });
}

}  // namespace echelon::cli
