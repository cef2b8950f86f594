#include "report/doctor.hpp"

#include <algorithm>

#include "report/text/table.hpp"

namespace echelon {

namespace {

std::string sentence(const Finding& finding) {
  std::string text = finding.detail;
  if (finding.state == Finding::State::missing) {
    if (!finding.remedy.empty()) text += "; to add it: " + finding.remedy;
    if (!finding.needed) text += " (not needed by this version)";
  }
  return text;
}

Cell mark_of(const Finding& finding, const TextStyle& style) {
  switch (finding.state) {
    case Finding::State::fine: return {std::string(glyph("✓", "ok", style)), Paint::good};
    case Finding::State::note: return {std::string(glyph("·", "-", style)), Paint::dim};
    case Finding::State::missing: break;
  }
  if (finding.needed) return {std::string(glyph("✗", "!!", style)), Paint::bad};
  return {std::string(glyph("–", "no", style)), Paint::dim};
}

}  // namespace

bool all_needed_found(const std::vector<Finding>& findings) {
  return std::none_of(findings.begin(), findings.end(), [](const Finding& finding) {
    return finding.needed && finding.state == Finding::State::missing;
  });
}

std::string doctor_text(const std::vector<Finding>& findings, const TextStyle& style) {
  // One width for all sections, so that the columns line up.
  std::size_t widest = 0;
  for (const Finding& finding : findings) widest = std::max(widest, columns_of(finding.name));
  std::string out;
  for (std::size_t i = 0; i < findings.size();) {
    const std::string& topic = findings[i].topic;
    Table table(
        {{"", Table::Align::left, 0}, {"", Table::Align::left, 0}, {"", Table::Align::left, 0}});
    for (; i < findings.size() && findings[i].topic == topic; ++i) {
      std::string name = findings[i].name;
      name.append(widest - columns_of(name), ' ');
      table.add({mark_of(findings[i], style), std::move(name), sentence(findings[i])});
    }
    out += heading(topic, style) + table.text(style);
  }
  out.erase(0, 1);
  return out + "\n" +
         (all_needed_found(findings)
              ? painted("Everything this version needs is here.", Paint::good, style)
              : painted("Something this version needs is missing.", Paint::bad, style)) +
         "\n";
}

}  // namespace echelon
