// Recommended plans can be run: the format that jobs of their framework use expresses them, or the
// answer says what they need in its place.
#include <algorithm>
#include <map>
#include <string>

#include "cli/flags/exported.hpp"
#include "core/plan/plan_field_table.hpp"
#include "interop/configs/export.hpp"
#include "tests/planner/answers.hpp"
#include "tests/planner/random_jobs.hpp"
#include "tests/support/catch.hpp"

namespace echelon {
namespace {

/// What the answer's lines "requires" say.
std::string required_by(const PlanRequest& request, const ParallelPlan& plan) {
  std::string text;
  for (const FrameworkRemark& remark :
       remarks(request.framework, request.model, plan, request.job.precision,
               request.job.flash_attention, request.cluster.gpu().compute_capability)) {
    if (remark.kind == RemarkKind::needs) text += remark.text + "\n";
  }
  return text;
}

/// The parts of a plan that its export refuses without a line "requires" that gives the reason.
/// What is left out of a model, and a precision or attention that users ask for, is none of them.
std::string unexplained(const PlanRequest& request, const ParallelPlan& plan) {
  const ConfigFormat& format = *format_of(request.framework.name);
  const std::string known = required_by(request, plan);
  std::string out;
  for (const Inexpressible& lost : export_config(format, cli::run_of(request, plan)).lost) {
    const bool asked = lost.field == ConfigField{&RunConfig::precision} ||
                       lost.field == ConfigField{&RunConfig::flash_attention};
    const bool said = !lost.why.empty() && known.find(lost.why) != std::string::npos;
    if (asked || said || is_of_model(lost.field)) continue;
    out += std::string(label_of(lost.field)) + " " + lost.wanted + ", but " + lost.instead + "; ";
  }
  return out;
}

TEST_CASE("recommended plans are exported, or the answer says what they need besides") {
  constexpr int kJobs = 150;
  std::map<std::string, int> with_plan;
  for (const Framework& framework : frameworks()) {
    if (format_of(framework.name) == nullptr) continue;
    int& plans = with_plan[framework.name];
    for (std::uint64_t seed = 1; plans < kJobs && seed < 8 * kJobs; ++seed) {
      PlanRequest request = random_jobs::random_job(seed, framework.name).request;
      if (!framework.materialised_attention) request.job.flash_attention = true;  // as plan asks
      const std::optional<Candidate> winner = answers::winner_of(request);
      if (!winner) continue;
      ++plans;
      INFO(framework.name << ", seed " << seed << ", " << request.model.name);
      CHECK(unexplained(request, winner->plan) == "");
    }
    INFO(framework.name);
    CHECK(plans == kJobs);
  }
  CHECK(with_plan.size() >= 5);
}

// Source: DeepSpeed edaa7221, runtime/pipe/module.py: a PipelineModule is a list of layers.
TEST_CASE("a search under deepspeed has stages where they are pinned, and says so") {
  PlanRequest request = random_jobs::random_job(1, "deepspeed").request;
  request.model = load_model("llama3.2-1b").value();
  request.cluster = ClusterTopology::load("dgx-h100", 8).value();
  request.job.global_batch = 32;
  request.job.sequence = 1024;
  request.job.flash_attention = true;
  request.max_memory.reset();
  request.constraints = {};
  const Result<SearchOutcome> free = search(request);
  REQUIRE((free && free->winner() != nullptr));
  for (const Candidate& candidate : free->candidates) CHECK(candidate.plan.pp == 1);
  CHECK(std::ranges::any_of(free->rejected, [](const RejectionCount& each) {
    return each.nearest.find("--pp plans those") != std::string::npos;
  }));
  request.constraints.pin<&ParallelPlan::pp>(2);
  request.constraints.pin<&ParallelPlan::tp>(1);
  const std::optional<Candidate> staged = answers::winner_of(request);
  REQUIRE(staged);
  CHECK(staged->plan.pp == 2);
  const ExportedConfig exported =
      export_config(*format_of("deepspeed"), cli::run_of(request, staged->plan));
  CHECK(exported.lost.empty());
  CHECK(std::ranges::any_of(exported.notes, [](const std::string& note) {
    return note.find("pp = 2: num_stages of PipelineModule") != std::string::npos;
  }));
  request.constraints.pin<&ParallelPlan::tp>(2);
  const std::optional<Candidate> split = answers::winner_of(request);
  REQUIRE(split);
  CHECK_FALSE(
      export_config(*format_of("deepspeed"), cli::run_of(request, split->plan)).lost.empty());
  CHECK(unexplained(request, split->plan) == "");
}

}  // namespace
}  // namespace echelon
