// Why a configuration that somebody asked about is not the best plan.
#include <fmt/format.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/parse_quantity.hpp"
#include "report/explain.hpp"
#include "report/format.hpp"
#include "report/text/table.hpp"
#include "report/text/text.hpp"
#include "report/trade_offs.hpp"

namespace echelon {

namespace {

/// The parts of two steps side by side, largest difference first.
std::string parts_text(const Candidate& winner, const Candidate& asked, const TextStyle& style) {
  Table table({{"", Table::Align::left, 0}, {"best"}, {"asked"}, {"difference"}});
  const std::vector<TimePart> a = parts_of(winner.prediction.time.parts);
  const std::vector<TimePart> b = parts_of(asked.prediction.time.parts);
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].time == Seconds{} && b[i].time == Seconds{}) continue;
    const Seconds more = b[i].time - a[i].time;
    table.add({std::string(a[i].name), duration(a[i].time), duration(b[i].time),
               Cell(signed_duration(more), more > Seconds{}   ? Paint::bad
                                           : more < Seconds{} ? Paint::good
                                                              : Paint::plain)});
  }
  const Seconds best = winner.prediction.time.step;
  const Seconds other = asked.prediction.time.step;
  table.add(
      {Cell("step", Paint::bold), duration(best), duration(other), signed_duration(other - best)});
  table.add({"memory", with_gib(winner.prediction.memory.peak_reserved),
             with_gib(asked.prediction.memory.peak_reserved), ""});
  if (winner.score.fits_probability && asked.score.fits_probability) {
    table.add({"likely to fit", probability(*winner.score.fits_probability),
               probability(*asked.score.fits_probability), ""});
  }
  return table.text(style);
}

/// "slower", or what makes a faster plan worse; "better" for one that beats the winner.
std::string_view verdict_title(const Candidate& winner, const Candidate& asked, bool better) {
  if (better) return "better";
  if (asked.prediction.time.step >= winner.prediction.time.step) return "slower";
  const std::optional<double> its = asked.score.fits_probability;
  const std::optional<double> best = winner.score.fits_probability;
  return its && best && *its < *best ? "faster but riskier" : "faster but unusual";
}

/// "+5.1 % a step, mostly 2.95 s more tp communication".
std::string difference_text(const Candidate& winner, const Candidate& asked, bool better) {
  const double slower = asked.prediction.time.step / winner.prediction.time.step - 1;
  std::string out = signed_percent(slower) + " a step";
  if (better) return out + ": better than the best that the request's own flags allow";
  if (slower < 0) return out + ", but it " + drawbacks(asked, winner);
  const std::optional<PartIncrease> part =
      largest_increase(winner.prediction.time.parts, asked.prediction.time.parts);
  if (part) out += fmt::format(", mostly {} more {}", duration(part->more()), part->name);
  const std::vector<std::string> unusual = more_unusual(asked, winner);
  return unusual.empty() ? out : out + "; it has " + enumerated(unusual);
}

std::string neighbor_text(const PlanRequest& request, const WhyNot& answer,
                          const TextStyle& style) {
  if (!answer.neighbor) {
    return folded(answer.whole ? "No plan near it fits either." : "No plan near it was found yet.",
                  "  ", style);
  }
  const Candidate& near = *answer.neighbor;
  return folded(
      fmt::format("{}, {} away: {} a step, {} to spare{}", described(near.plan, style),
                  counted(answer.changes, "changed value"), duration(near.prediction.time.step),
                  with_gib(request.capacity() - near.prediction.memory.peak_reserved),
                  chance_of(near)),
      "nearest that fits  ", style);
}

std::string verdict_text(const PlanRequest& request, const Candidate* winner, const WhyNot& answer,
                         const TextStyle& style) {
  const auto best_with_it = [&] {
    return folded(painted(described(answer.asked->plan, style), Paint::accent, style),
                  "best with it       ", style);
  };
  switch (answer.verdict) {
    case WhyNot::Verdict::illegal:
      return folded(fmt::format("{} ({}).", answer.rule->detail, name_of(answer.rule->reason)),
                    "not legal          ", style) +
             neighbor_text(request, answer, style);
    case WhyNot::Verdict::too_large:
      return folded(painted(fmt::format("stage {} is short of {}{}: it needs {}; {}", answer.stage,
                                        with_gib(answer.missing), without_savings(request),
                                        with_gib(answer.asked->prediction.memory.peak_reserved),
                                        limit_text(request)),
                            Paint::bad, style),
                    "does not fit       ", style) +
             folded(painted(described(answer.asked->plan, style), Paint::accent, style),
                    "smallest with it   ", style) +
             neighbor_text(request, answer, style);
    case WhyNot::Verdict::winner: return folded("It is the best plan.", "", style);
    case WhyNot::Verdict::unknown:
      return folded("Stopped before a plan with it was found that fits.", "", style);
    case WhyNot::Verdict::slower:
    case WhyNot::Verdict::better: break;
  }
  if (winner == nullptr) {
    return best_with_it() + folded("It fits; what the request pins does not.", "", style);
  }
  const bool better = answer.verdict == WhyNot::Verdict::better;
  std::string difference = difference_text(*winner, *answer.asked, better);
  const bool faster = answer.asked->prediction.time.step < winner->prediction.time.step;
  if (answer.tied && (better || !faster)) difference += "; too close to call, measure both";
  return best_with_it() +
         folded(difference, fmt::format("{:<19}", verdict_title(*winner, *answer.asked, better)),
                style) +
         "\n" + parts_text(*winner, *answer.asked, style);
}

}  // namespace

std::string verdict_text(const Explanation& explanation, const WhyNotAnswer& asked,
                         const TextStyle& style) {
  const SearchOutcome& report = explanation.choice.report;
  std::string out = heading("Why not " + asked.asked, style) +
                    verdict_text(explanation.choice.request, report.winner(), asked.answer, style);
  if (asked.answer.verdict == WhyNot::Verdict::winner && !report.best_as_assumed()) {
    out += folded("Not proved: " + open_splits_of(report), "", style);
  }
  if (!asked.answer.whole) out += unfinished_text({"the plans with these values"}, style);
  return out;
}

}  // namespace echelon
