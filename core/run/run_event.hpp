// RunEvent: one line a run says while it runs (`--events`).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/run/run_report.hpp"

namespace echelon {

/// One JSON object per line: {"event": "step", "step": 3, "loss": 4.1, ...}.
struct RunEvent {
  enum class Kind {
    started,     ///< `text`: what runs
    step,        ///< `step`; `of`: the step the run ends before
    checkpoint,  ///< `text`: its folder
    note,        ///< `text`
    ended        ///< `text`: "completed", "interrupted", "failed"
  };
  Kind kind = Kind::note;
  RunStep step;
  std::int64_t of = 0;
  std::string text;
  bool operator==(const RunEvent&) const = default;
};

/// Ends with a line break.
[[nodiscard]] std::string to_line(const RunEvent& event);
[[nodiscard]] Result<RunEvent> parse_run_event(std::string_view line, std::string_view where);

}  // namespace echelon
