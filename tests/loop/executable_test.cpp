// Planning notes exactly the models whose plans the runtime refuses.
#include <algorithm>
#include <string>
#include <vector>

#include "cli/flags/request.hpp"
#include "core/model/model_io.hpp"
#include "core/plan/plan_file.hpp"
#include "runtime/training/run.hpp"
#include "tests/support/catch.hpp"

namespace echelon {
namespace {

PlanRequest asked(const std::string& model,
                  const std::vector<std::pair<std::string, std::string>>& flags) {
  cli::Settings settings;
  settings.set("model", {model, "--model"});
  for (const auto& [flag, value] : flags) settings.set(flag, {value, "--" + flag});
  const auto understood = cli::resolve(settings);
  INFO(model << ": " << (understood ? "" : understood.error().message()));
  REQUIRE(understood.ok());
  return understood->request;
}

/// The answer's sentence about the refusal by plan run; "" if there is none.
std::string note_of(const PlanRequest& request) {
  const auto& all = request.assumptions;
  const auto at = std::find_if(all.begin(), all.end(), [](const std::string& sentence) {
    return sentence.starts_with("plan run refuses");
  });
  return at == all.end() ? std::string() : *at;
}

/// The error of plan run for a plan of one rank for this request; "" if it accepts the plan.
std::string refusal_of(const PlanRequest& request) {
  PlanFile file;
  file.model = request.model;
  file.job = request.job;
  const Status executable = check_executable(file, "cpu");
  return executable ? std::string() : executable.error().message();
}

TEST_CASE("planning notes exactly the models that plan run refuses, with the same message") {
  int refused = 0;
  int executed = 0;
  for (const CatalogModel& entry : model_catalog()) {
    for (const char* cluster : {"this-machine", "dgx-h100"}) {
      const PlanRequest request =
          asked(entry.name, {{"cluster", cluster}, {"gpus", "1"}, {"framework", "echelon"}});
      const std::string note = note_of(request);
      const std::string refusal = refusal_of(request);
      INFO(entry.name << " on " << cluster << "\nnote: " << note << "\nrun: " << refusal);
      CHECK(note.empty() == refusal.empty());
      if (refusal.empty()) {
        ++executed;
        continue;
      }
      ++refused;
      const std::string why = refusal.substr(refusal.find(": ") + 2, 20);
      CHECK(note.find(why) != std::string::npos);
    }
  }
  CHECK(refused >= 2 * 30);
  CHECK(executed >= 2 * 40);
}

TEST_CASE("a sequence beyond the learned positions is noted as well") {
  const PlanRequest request =
      asked("gpt2-tiny", {{"cluster", "this-machine"}, {"gpus", "1"}, {"seq", "512"}});
  CHECK(note_of(request).find("at most 256, the learned positions") != std::string::npos);
  CHECK_FALSE(refusal_of(request).empty());
}

TEST_CASE("plans for other software do not mention plan run, those for this machine do") {
  const auto on = [](const char* cluster, const char* framework) {
    return note_of(
        asked("gemma2-2b", {{"cluster", cluster}, {"gpus", "1"}, {"framework", framework}}));
  };
  CHECK(on("dgx-h100", "megatron-core").empty());
  CHECK_FALSE(on("dgx-h100", "echelon").empty());
  CHECK_FALSE(on("this-machine", "megatron-core").empty());
}

}  // namespace
}  // namespace echelon
