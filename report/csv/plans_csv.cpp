#include "report/csv/plans_csv.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "core/plan/plan_fields.hpp"
#include "report/metrics.hpp"

namespace echelon {
namespace {

/// As a CSV cell: quoted if necessary.
std::string quoted_cell(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

std::string csv_line(const std::vector<std::string>& cells) {
  std::string line;
  for (std::size_t i = 0; i < cells.size(); ++i)
    line += (i == 0 ? "" : ",") + quoted_cell(cells[i]);
  return line + "\r\n";
}

}  // namespace

std::string plans_csv(const PlanRequest& request, std::span<const RankedPlan> plans) {
  std::vector<std::string> header = {"rank"};
  for (const PlanField& field : plan_fields()) header.emplace_back(field.key);
  header.insert(header.end(),
                {"fits", "on_front", "fastest", "tied_with_best", "step_low_seconds",
                 "step_high_seconds", "closed_form_seconds", "simulated", "expected_seconds"});
  for (const MetricInfo& figure : metrics()) header.emplace_back(figure.column);
  std::string out = csv_line(header);
  const auto cell_of = [](const PlanField& field, const ParallelPlan& plan) {
    std::string text = value_text(field, plan);
    std::ranges::replace(text, ',', ' ');  // lists need no quotes then
    return text;
  };
  const auto flag = [](bool value) { return std::string(value ? "true" : "false"); };
  const auto seconds = [](Seconds time) { return fmt::format("{}", time.in(kSecond)); };
  for (const RankedPlan& each : plans) {
    const Candidate& candidate = *each.candidate;
    const ParallelPlan& plan = candidate.plan;
    const Economics money = economics_of(request, candidate.prediction.time);
    std::vector<std::string> row = {each.rank ? std::to_string(*each.rank) : ""};
    for (const PlanField& field : plan_fields()) row.push_back(cell_of(field, plan));
    const TimePrediction& time = candidate.prediction.time;
    row.insert(row.end(),
               {flag(candidate.fits), flag(each.on_front), flag(each.fastest), flag(each.tied),
                seconds(time.low), seconds(time.high), seconds(time.closed_form),
                flag(candidate.simulated), seconds(candidate.expected())});
    for (const MetricInfo& facts : metrics()) {
      const auto value = value_of(facts.figure, request, candidate, money);
      row.push_back(value ? fmt::format("{}", *value) : "");
    }
    out += csv_line(row);
  }
  return out;
}

}  // namespace echelon
