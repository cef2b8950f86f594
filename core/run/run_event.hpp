// RunEvent: one line of progress that a run writes (`--events`).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/run/run_report.hpp"

namespace echelon {

/// One JSON object per line: {"event": "step", "step": 3, "loss": 4.1, ...}.
struct RunEvent {
  enum class Kind {
    started,     ///< `text`: description of the run
    step,        ///< `step`; `of`: one past the last step
    checkpoint,  ///< `text`: the checkpoint's folder
    note,        ///< `text`
    ended        ///< `text`: "completed", "interrupted", "failed"
  };
  Kind kind = Kind::note;
  RunStep step;
  std::int64_t of = 0;
  std::string text;
  bool operator==(const RunEvent&) const = default;
};

/// The JSON line of an event, with its line break.
[[nodiscard]] std::string to_line(const RunEvent& event);
[[nodiscard]] Result<RunEvent> parse_run_event(std::string_view line, std::string_view where);

}  // namespace echelon
