// Results for tests of views.
#pragma once

#include <QColor>
#include <QImage>
#include <QWidget>
#include <cstdlib>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>

#include "cli/flags/request.hpp"
#include "gui/session/results.hpp"
#include "planner/search/search_outcome.hpp"
#include "tests/support/catch.hpp"

namespace echelon {

using Flags = std::initializer_list<std::pair<const char*, const char*>>;

inline cli::ResolvedRequest asked_with(Flags flags) {
  cli::Settings settings;
  for (const auto& [flag, value] : flags) settings.set(flag, {value, "--" + std::string(flag)});
  const Result<cli::ResolvedRequest> resolved = cli::resolve(settings);
  REQUIRE(resolved.ok());
  return *resolved;
}

inline gui::SpaceResultPtr search_result(Flags flags) {
  gui::SpaceResult space{asked_with(flags), {}};
  const Result<SearchOutcome> report = search(space.resolved.request);
  REQUIRE(report.ok());
  space.report = *report;
  return std::make_shared<const gui::SpaceResult>(std::move(space));
}

/// The best plans of 40 families and the whole front.
inline const gui::SpaceResultPtr& some_space() {
  static const gui::SpaceResultPtr space = search_result(
      {{"model", "7b"}, {"cluster", "dgx-h100"}, {"gpus", "16"}, {"top", "40"}, {"front", "true"}});
  return space;
}

/// Nothing fits: only rejections and the nearest infeasible plans.
inline const gui::SpaceResultPtr& hopeless_space() {
  static const gui::SpaceResultPtr space =
      search_result({{"model", "70b"}, {"cluster", "dgx-h100"}, {"gpus", "4"}});
  return space;
}

/// The plan of these flags, priced.
inline gui::PlanResultPtr priced(Flags flags) {
  gui::PlanResult plan{asked_with(flags), {}};
  const Result<Candidate> candidate = predict(plan.resolved.request);
  REQUIRE(candidate.ok());
  plan.candidate = *candidate;
  return std::make_shared<const gui::PlanResult>(std::move(plan));
}

/// Number of pixels of this colour, within `off` per channel.
inline int pixels_of(QWidget& widget, const QColor& colour, int off = 12) {
  const QImage image = widget.grab().toImage();
  int count = 0;
  for (int y = 0; y < image.height(); ++y) {
    for (int x = 0; x < image.width(); ++x) {
      const QColor seen = image.pixelColor(x, y);
      count += std::abs(seen.red() - colour.red()) <= off &&
               std::abs(seen.green() - colour.green()) <= off &&
               std::abs(seen.blue() - colour.blue()) <= off;
    }
  }
  return count;
}

}  // namespace echelon
