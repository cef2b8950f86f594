// The failure of a run, in its report.
#pragma once

#include "core/plan/plan_file.hpp"
#include "core/run/run_report.hpp"
#include "runtime/threads/failure.hpp"

namespace echelon {

/// Sets `end`, `reason` and the failure's kind; of exhausted memory also what was predicted.
void report_failure(const RunFailure& failure, const PlanFile& plan, RunReport& report);

}  // namespace echelon
