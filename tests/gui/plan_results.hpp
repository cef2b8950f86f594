// Priced plans for tests of views.
#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <utility>

#include "cli/flags/request.hpp"
#include "gui/session/results.hpp"
#include "planner/search/search_outcome.hpp"

namespace echelon {

/// {{"model", "gpt2"}, {"gpus", "16"}, ...}: flags without their dashes.
inline gui::PlanResultPtr plan_result(
    std::initializer_list<std::pair<const char*, const char*>> flags) {
  cli::Settings settings;
  for (const auto& [flag, value] : flags) {
    settings.set(flag, {value, std::string("--") + flag});
  }
  cli::ResolvedRequest resolved = cli::resolve(settings).value();
  Candidate candidate = predict(resolved.request).value();
  return std::make_shared<const gui::PlanResult>(
      gui::PlanResult{std::move(resolved), std::move(candidate)});
}

/// Four stages, tensor and data parallel.
inline gui::PlanResultPtr small_plan() {
  return plan_result({{"model", "llama2-7b"},
                      {"gpus", "32"},
                      {"global-batch", "32"},
                      {"tp", "2"},
                      {"pp", "4"},
                      {"zero", "1"}});
}

}  // namespace echelon
