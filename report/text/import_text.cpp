#include <fmt/format.h>

#include <string>

#include "report/format.hpp"
#include "report/imports.hpp"
#include "report/text/table.hpp"

namespace echelon {

namespace {

void add_facts(const LogImport& import, FactOrigin origin, const char* title,
               const TextStyle& style, std::string& out) {
  Table table(
      {{"", Table::Align::left, 0}, {"", Table::Align::left, 0}, {"", Table::Align::left, 0}});
  for (const RunFact& fact : import.log.facts.all()) {
    if (fact.origin == origin) table.add({fact.column, fact.value, fact.from});
  }
  if (!table.empty()) out += heading(title, style) + table.text(style);
}

std::string measured_line(const ImportedLog& log) {
  const StepJudgement& steps = log.steps;
  std::string line = fmt::format("step {}: median of {} of {} windows, lines {} to {}, spread {}",
                                 duration(*steps.step), steps.windows, steps.printed,
                                 steps.first_line, steps.last_line, percent(steps.spread));
  if (steps.wall) line += fmt::format("; time stamps give {}", duration(*steps.wall));
  if (log.peak_memory_bytes) {
    line += fmt::format("; peak memory {} {}", with_gib(Bytes{*log.peak_memory_bytes}),
                        log.memory_kind);
  }
  return line + ".";
}

}  // namespace

std::string log_import_text(const LogImport& import, const TextStyle& style) {
  const ImportedLog& log = import.log;
  std::string out = painted(log.path, Paint::bold, style) + ": a log of " +
                    std::string(log.format->title) +
                    (log.version.empty() ? "" : ", " + log.version) + "\n";
  if (!log.refused.empty()) {
    out += folded("Refused: " + log.refused + ".", "", style);
  } else if (log.steps.step) {
    out += folded(measured_line(log), "", style);
  } else {
    std::string columns;
    for (const std::string& column : log.steps.needs) {
      columns += (columns.empty() ? "" : ", ") + column;
    }
    out += folded("The log prints rates; a step time follows from them with: " + columns + ".", "",
                  style);
  }
  std::string dropped;
  for (const std::string& reason : log.steps.dropped) {
    dropped += (dropped.empty() ? "Dropped windows: " : "; ") + reason;
  }
  if (!dropped.empty()) out += folded(dropped + ".", "", style);
  add_facts(import, FactOrigin::given, "Given", style, out);
  add_facts(import, FactOrigin::found, "Found", style, out);
  add_facts(import, FactOrigin::derived, "Derived", style, out);
  if (!log.remarks.empty()) {
    out += heading("Checked", style);
    for (const std::string& remark : log.remarks) out += folded(remark, "  ", style);
  }
  if (import.run && !import.run->inferred.empty()) {
    out += heading("Assumed", style);
    for (const std::string& inferred : import.run->inferred) out += folded(inferred, "  ", style);
  }
  if (!import.not_priced.empty()) {
    out += heading("Not priced", style) + folded(import.not_priced, "  ", style);
  }
  if (import.run) {
    out += heading("Plan", style) + folded(described(import.run->plan, style), "  ", style);
  }
  if (!log.ask.empty()) {
    Table table({{"", Table::Align::left, 0}, {"", Table::Align::left, 0}});
    std::string columns;
    for (std::size_t i = 0; i < log.ask.size(); ++i) {
      columns += (columns.empty() ? "" : ", ") + log.ask[i].column;
      if (i + 1 < log.ask.size() && log.ask[i + 1].flag == log.ask[i].flag) continue;
      table.add({log.ask[i].flag, columns});
      columns.clear();
    }
    out += heading("The log does not say", style) + table.text(style);
  }
  return out;
}

}  // namespace echelon
