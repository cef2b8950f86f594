// The plan file of a plan with DualPipe: its program, and what is read back.
#include "core/plan/plan_file.hpp"
#include "core/schedule/schedule_check.hpp"
#include "planner/search/predict.hpp"
#include "report/plan_files.hpp"
#include "tests/planner/requests.hpp"
#include "tests/support/catch.hpp"

namespace echelon {

TEST_CASE("a plan file with DualPipe is read as it was written, its program checked") {
  PlanRequest request = request_for("llama2-7b", "dgx-h100", 16, "hai-llm");
  request.job.global_batch = 64;
  request.constraints.pin<&ParallelPlan::pp>(4);
  request.constraints.pin<&ParallelPlan::microbatch>(1);
  request.constraints.pin<&ParallelPlan::schedule>(ScheduleKind::dualpipe);
  const Result<Candidate> priced = predict(request);
  REQUIRE(priced.ok());
  const Result<PlanFile> file = complete_plan_file(request, *priced, {});
  REQUIRE(file.ok());
  const Result<Schedule> program = parse_schedule_text(file->program, "program");
  REQUIRE(program.ok());
  CHECK(check_schedule(*program).empty());
  CHECK(program->kind == ScheduleKind::dualpipe);
  CHECK(program->microbatches == 8);  // 16 of dp 4, half in each direction
  const std::string text = plan_file_to_json(*file);
  const Result<PlanFile> back = parse_plan_file(text, "plan.json");
  REQUIRE(back.ok());
  CHECK(back->plan == file->plan);
  CHECK(back->program == file->program);
  CHECK(plan_file_to_json(*back) == text);
}

}  // namespace echelon
