// The order of flags changes no byte of an answer.
#include <string>
#include <utility>
#include <vector>

#include "cli/commands/parse_arguments.hpp"
#include "cli/flags/plan_settings.hpp"
#include "cli/flags/request.hpp"
#include "planner/search/optimize.hpp"
#include "report/json/json.hpp"
#include "tests/cli/program.hpp"
#include "tests/planner/random_jobs.hpp"

using namespace echelon;
using random_jobs::random_job;
using random_jobs::RandomJob;

namespace {

using Flags = std::vector<std::string>;  // each with its value: "--tp=4"

/// The flags that ask for the job.
Flags flags_of(const RandomJob& job, const test::Sandbox& sandbox) {
  const PlanRequest& r = job.request;
  sandbox.write("model.json", model_to_json(r.model));
  Flags flags = {"--model=" + sandbox.file("model.json"),
                 "--cluster=" + r.cluster.name(),
                 "--gpus=" + std::to_string(r.cluster.gpus()),
                 "--seq=" + std::to_string(r.job.sequence),
                 "--global-batch=" + std::to_string(r.job.global_batch),
                 "--framework=" + r.framework.name,
                 "--precision=" + r.job.precision.name,
                 "--json",
                 "--no-config"};
  if (!r.job.flash_attention) flags.emplace_back("--no-flash-attention");
  if (r.max_memory) {
    flags.push_back("--max-memory=" + std::to_string(r.max_memory->in(1_MiB)) + "MiB");
  }
  const cli::Settings pins = cli::settings_of(r.constraints);
  for (const auto& [flag, setting] : pins.all()) {
    flags.push_back("--" + flag + "=" + setting.value);
  }
  return flags;
}

/// What `plan` with these flags writes, but for its time; or the error.
std::string answer(const Flags& flags) {
  std::vector<const char*> words = {"plan"};
  for (const std::string& flag : flags) words.push_back(flag.c_str());
  const auto arguments = cli::parse_arguments(static_cast<int>(words.size()), words.data());
  if (!arguments) return arguments.error().message();
  const Result<cli::Settings> settings = cli::merged_settings(*arguments);
  if (!settings) return settings.error().message();
  const Result<cli::ResolvedRequest> resolved = cli::resolve(*settings);
  if (!resolved) return resolved.error().message();
  const Result<SearchResult> found = optimize(resolved->request);
  if (!found) return found.error().message();
  return search_json(*found, resolved->provenance, Timing{});
}

void shuffle(Flags& flags, Numbers& draw) {
  for (std::size_t left = flags.size(); left > 1; --left) {
    std::swap(flags[left - 1], flags[draw.below(left)]);
  }
}

}  // namespace

TEST_CASE("flags in any order give the same bytes of JSON") {
  const test::Sandbox sandbox;
  int winners = 0;
  for (int number = 1; number <= 150; ++number) {
    const RandomJob job = random_job(static_cast<std::uint64_t>(number));
    if (!job.in_catalog) continue;
    Flags flags = flags_of(job, sandbox);
    const std::string once = answer(flags);
    Numbers draw(static_cast<std::uint64_t>(number) + 2000);
    shuffle(flags, draw);
    INFO("job " << number << ": " << once.substr(0, 200));
    CHECK(answer(flags) == once);
    winners += once.find("\"winner\": {") != std::string::npos ? 1 : 0;
  }
  CHECK(winners >= 85);
}
