#include "core/run/fault.hpp"

#include <algorithm>

#include "core/base/did_you_mean.hpp"
#include "core/base/parse_quantity.hpp"
#include "core/base/text.hpp"

namespace echelon {
namespace {

constexpr const char* kForm = "FAULT@RANK:STEP, such as stop@2:5";

Result<InjectedFault> parse_fault(std::string_view text, const std::string& where) {
  const std::size_t at = text.find('@');
  const std::size_t colon = text.find(':', at == std::string_view::npos ? 0 : at);
  if (at == std::string_view::npos || colon == std::string_view::npos) {
    return input_error(where, in_quotes(text), kForm);
  }
  const std::string_view name = text.substr(0, at);
  const auto found = std::find(kFaultNames.begin(), kFaultNames.end(), name);
  if (found == kFaultNames.end()) {
    const std::vector<std::string> known(kFaultNames.begin(), kFaultNames.end());
    std::string all;
    for (const std::string& each : known) all += (all.empty() ? "" : ", ") + each;
    return input_error(where, in_quotes(name), "one of " + all, did_you_mean(name, known));
  }
  const Result<int> rank = parse_int(text.substr(at + 1, colon - at - 1), where, 0);
  if (!rank) return rank.error();
  const Result<std::int64_t> step = parse_count(text.substr(colon + 1), where, 0);
  if (!step) return step.error();
  return InjectedFault{static_cast<FaultKind>(found - kFaultNames.begin()), *rank, *step};
}

}  // namespace

std::string to_text(const std::vector<InjectedFault>& faults) {
  std::string text;
  for (const InjectedFault& each : faults) {
    text += (text.empty() ? "" : ",") + std::string(name_of(each.kind)) + "@" +
            std::to_string(each.rank) + ":" + std::to_string(each.step);
  }
  return text;
}

Result<std::vector<InjectedFault>> parse_faults(std::string_view text, const std::string& where) {
  std::vector<InjectedFault> faults;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    const Result<InjectedFault> fault = parse_fault(text.substr(0, comma), where);
    if (!fault) return fault.error();
    faults.push_back(*fault);
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return faults;
}

}  // namespace echelon
