// Plans for tests of views: asked in flags, priced.
#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <utility>

#include "cli/request.hpp"
#include "gui/shown.hpp"
#include "planner/search.hpp"

namespace echelon {

/// {{"model", "gpt2"}, {"gpus", "16"}, ...}: flags without their dashes.
inline gui::PlanShown plan_shown(std::initializer_list<std::pair<const char*, const char*>> flags) {
  cli::Settings settings;
  for (const auto& [flag, value] : flags) {
    settings.set(flag, {value, std::string("--") + flag});
  }
  cli::Asked asked = cli::understand(settings).value();
  Candidate candidate = predict(asked.request).value();
  return std::make_shared<const gui::ShownPlan>(
      gui::ShownPlan{std::move(asked), std::move(candidate)});
}

/// Four stages, tensor and data parallel.
inline gui::PlanShown small_plan() {
  return plan_shown({{"model", "llama2-7b"},
                     {"gpus", "32"},
                     {"global-batch", "32"},
                     {"tp", "2"},
                     {"pp", "4"},
                     {"zero", "1"}});
}

}  // namespace echelon
