#include <fmt/format.h>

#include <algorithm>

#include "core/base/text.hpp"
#include "report/format.hpp"
#include "report/interop.hpp"
#include "report/text/text.hpp"
#include "report/trade_offs.hpp"

namespace echelon {

namespace {

void list_findings(const ImportedConfig& imported, Origin origin, std::string& out) {
  std::string lines;
  for (const ConfigFinding& finding : imported.findings) {
    // Parts that the model does not have are no news.
    const bool absent = origin == Origin::assumed && flag_of(finding.field) == "model" &&
                        (finding.value == "0" || finding.value == "false");
    if (finding.origin != origin || absent) continue;
    lines += fmt::format("  {:<30} {:<22} {}\n", label_of(finding.field),
                         printable(finding.value, 40), finding.from);
  }
  if (lines.empty()) return;
  std::string title(name_of(origin));
  title[0] = static_cast<char>(title[0] - 'a' + 'A');
  out += "\n" + title + "\n" + lines;
}

std::string gain(const Candidate& better, const Candidate& own) {
  return percent(1 - better.prediction.time.step / own.prediction.time.step);
}

/// "microbatch 1 -> 2": the fields that the change chose.
std::string difference(const ParallelPlan& from, const ParallelPlan& to) {
  std::string out;
  for (const PlanField* field : chosen_differences(from, to)) {
    const auto shown = [&](const ParallelPlan& plan) {
      const std::string text = value_text(*field, plan);
      return text.empty() ? std::string("none") : printable(text, 30);
    };
    out +=
        fmt::format("{}{} {} -> {}", out.empty() ? "" : ", ", field->label, shown(from), shown(to));
  }
  return out;
}

}  // namespace

std::string import_text(const ImportedConfig& imported, const TextStyle&) {
  std::string out = fmt::format("{} ({}); {} of {} settings read\n", imported.format->title,
                                imported.format->version, imported.read, imported.settings);
  for (const Origin origin : {Origin::found, Origin::derived, Origin::assumed}) {
    list_findings(imported, origin, out);
  }
  if (!imported.unpriced.empty()) {
    out += "\nNot priced\n";
    for (const std::string& each : imported.unpriced) out += "  " + each + "\n";
  }
  constexpr std::size_t kMost = 20;
  if (!imported.unread.empty()) out += "\nNot read: no field of a run depends on it\n";
  for (std::size_t i = 0; i < std::min(imported.unread.size(), kMost); ++i) {
    out += "  " + imported.unread[i] + "\n";
  }
  if (imported.unread.size() > kMost) {
    out += fmt::format("  and {} more (--json lists all)\n", imported.unread.size() - kMost);
  }
  if (!imported.asks.empty()) {
    out += "\nMust be given\n";
    for (const std::string& each : imported.asks) out += "  " + each + "\n";
  }
  return out;
}

std::string reason_of(const Inexpressible& lost, const ConfigFormat& format) {
  if (lost.wanted.empty()) return lost.instead;
  if (!lost.why.empty()) return lost.why;
  if (!lost.nearest.empty()) {
    return fmt::format("{} {}: {} has no settings for it. The nearest that it has is {}: {}",
                       label_of(lost.field), printable(lost.wanted), format.title,
                       printable(lost.instead), lost.nearest);
  }
  return fmt::format("{} {}: {} would run {}", label_of(lost.field), printable(lost.wanted),
                     format.title, lost.instead.empty() ? "without" : printable(lost.instead));
}

std::string inexpressible_text(const ConfigFormat& format,
                               const std::vector<std::string>& reasons) {
  std::string out = fmt::format("{} {} cannot express this plan:\n", format.title, format.version);
  for (const std::string& reason : reasons) out += "  " + reason + "\n";
  return out + "--downgrade exports the nearest plan that it can express.\n";
}

std::string advice_text(const PlanRequest& request, const Candidate& own,
                        const std::vector<OneChange>& changes, const Candidate* best) {
  std::string out =
      fmt::format("Your configuration: {} per step{}.\n", duration(own.prediction.time.step),
                  own.fits ? "" : "; it is not likely to fit" + without_savings(request));
  if (!changes.empty()) {
    const OneChange& first = changes.front();
    const double saved = 1 - first.plan.prediction.time.step / own.prediction.time.step;
    const std::string effect = saved > 0
                                   ? "saves " + percent(saved) + " of the step"
                                   : "makes it fit and costs " + percent(-saved) + " of the step";
    out += fmt::format("One change, {}, {}: {}.\n", first.what, effect,
                       difference(own.plan, first.plan.plan));
  } else {
    out += "No single change makes it faster.\n";
  }
  if (best != nullptr && best->prediction.time.step < own.prediction.time.step) {
    out += fmt::format("The recommended plan saves {}: {} per step, {}.\n", gain(*best, own),
                       duration(best->prediction.time.step), difference(own.plan, best->plan));
  }
  return out + "\n";
}

}  // namespace echelon
