// What a run says of its start and of its failure.
#pragma once

#include <string>

#include "core/plan/plan_file.hpp"
#include "core/run/run_report.hpp"
#include "runtime/threads/failure.hpp"

namespace echelon {

/// "gpt2-tiny on 2 ranks, 1 threads each"
[[nodiscard]] std::string started_text(const RunReport& report);
/// Sets `end`, `reason` and the failure's kind; of exhausted memory also what was predicted.
void report_failure(const RunFailure& failure, const PlanFile& plan, RunReport& report);

/// RunStart::end of a run with this report; `orphaned`: because `plan` was killed.
[[nodiscard]] std::string how_ended(const RunReport& report, bool orphaned);

}  // namespace echelon
