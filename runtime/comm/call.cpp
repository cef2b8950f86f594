#include "runtime/comm/call.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "core/base/expects.hpp"

namespace echelon {
namespace {

std::string_view name_of(Operation operation) {
  switch (operation) {
    case Operation::all_reduce: return "all_reduce";
    case Operation::reduce_scatter: return "reduce_scatter";
    case Operation::all_gather: return "all_gather";
    case Operation::all_to_all: return "all_to_all";
    case Operation::broadcast: return "broadcast";
    case Operation::barrier: return "barrier";
    case Operation::send: return "send";
    case Operation::receive: return "receive";
  }
  return "?";
}

std::vector<std::int64_t> firsts(const ExchangeParts& parts, int members) {
  const std::size_t all = parts.counts.size();
  const auto n = static_cast<std::size_t>(members);
  std::vector<std::int64_t> first(all);
  std::int64_t next = 0;
  for (std::size_t i = 0; i < all; ++i) {
    const std::size_t at = parts.order == PartOrder::by_member ? i : i % n * (all / n) + i / n;
    first[at] = next;
    next += parts.counts[at];
  }
  return first;
}

bool is_for(const Call& call, int member) { return call.is_collective() || call.other == member; }

/// Both wait for each other.
bool calls_agree(const Call& one, const Call& two) {
  if (one.operation == Operation::all_to_all && two.operation == Operation::all_to_all) {
    return one.element == two.element && one.other == two.other;  // counts differ by member
  }
  if (one.is_collective() || two.is_collective()) return one == two;
  return one.operation != two.operation && one.count == two.count && one.element == two.element;
}

}  // namespace

PartCounts PartCounts::of(const ExchangeParts& to, const ExchangeParts& from, int members) {
  EXPECTS(!to.counts.empty() && to.counts.size() == from.counts.size() &&
              to.counts.size() % static_cast<std::size_t>(members) == 0,
          "every member has the same number of parts");
  return {to.counts, from.counts, firsts(to, members), firsts(from, members)};
}

bool PartCounts::empty() const {
  const auto none = [](std::int64_t count) { return count == 0; };
  return std::ranges::all_of(to, none) && std::ranges::all_of(from, none);
}

Call call_of(const PartCounts& parts, Element element, int members) {
  return {Operation::all_to_all, element, Reduction::sum,
          static_cast<int>(parts.to.size()) / members,
          std::accumulate(parts.to.begin(), parts.to.end(), std::int64_t{0})};
}

std::string describe(const Group& group) {
  return fmt::format("{} group of ranks {{{}}}", group.name, fmt::join(group.ranks, ","));
}

std::string describe(const Group& group, const Call& call) {
  std::string text(name_of(call.operation));
  if (call.operation == Operation::barrier) return text;
  if (call.operation == Operation::all_reduce && call.how == Reduction::max) text += " (max)";
  text += fmt::format(" of {} {}", call.count, name_of(call.element));
  if (call.operation == Operation::all_to_all && call.other > 1) {
    text += fmt::format(", {} parts a member", call.other);
  }
  if (call.operation == Operation::send)
    return text + fmt::format(" to rank {}", group.rank(call.other));
  if (call.operation == Operation::receive || call.operation == Operation::broadcast) {
    text += fmt::format(" from rank {}", group.rank(call.other));
  }
  return text;
}

std::string describe_wait(const Group& group, const Call& call, const std::vector<int>& missing) {
  std::string text = describe(group, call) + " in the " + describe(group) + " waits for rank";
  for (const int member : missing) text += " " + std::to_string(group.rank(member));
  return text;
}

std::optional<RunFailure> disagreement(const Group& group, int member, const Call& call, int other,
                                       const Call& others) {
  if (!is_for(call, other) || !is_for(others, member) || calls_agree(call, others)) return {};
  if (other < member) return disagreement(group, other, others, member, call);
  return RunFailure(
      RunFailure::Kind::defect,
      fmt::format("{}: rank {} calls {}, rank {} {}", describe(group), group.rank(member),
                  describe(group, call), group.rank(other), describe(group, others)));
}

std::optional<RunFailure> disagreement(const Group& group, Element element, int from,
                                       std::int64_t sent, int to, std::int64_t expected) {
  if (sent == expected) return {};
  return RunFailure(
      RunFailure::Kind::defect,
      fmt::format("{}: in an all_to_all of {} rank {} sends {} to rank {}, which expects {}",
                  describe(group), name_of(element), group.rank(from), sent, group.rank(to),
                  expected));
}

std::optional<RunFailure> disagreement(const Group& group, Element element, int member,
                                       const PartCounts& parts, int other,
                                       const PartCounts& others) {
  const std::size_t each = parts.to.size() / group.ranks.size();
  for (std::size_t part = 0; part < each; ++part) {
    const std::size_t of_other = static_cast<std::size_t>(other) * each + part;
    const std::size_t of_member = static_cast<std::size_t>(member) * each + part;
    if (auto wrong = disagreement(group, element, member, parts.to[of_other], other,
                                  others.from[of_member])) {
      return wrong;
    }
    if (auto wrong = disagreement(group, element, other, others.to[of_member], member,
                                  parts.from[of_other])) {
      return wrong;
    }
  }
  return {};
}

}  // namespace echelon
