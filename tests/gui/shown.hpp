// What views are shown in tests.
#pragma once

#include <QColor>
#include <QImage>
#include <QWidget>
#include <cstdlib>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>

#include "cli/request.hpp"
#include "gui/shown.hpp"
#include "planner/search.hpp"
#include "tests/support/catch.hpp"

namespace echelon {

using Flags = std::initializer_list<std::pair<const char*, const char*>>;

inline cli::Asked asked_with(Flags flags) {
  cli::Settings settings;
  for (const auto& [flag, value] : flags) settings.set(flag, {value, "--" + std::string(flag)});
  const Result<cli::Asked> asked = cli::understand(settings);
  REQUIRE(asked.ok());
  return *asked;
}

inline gui::SpaceShown searched(Flags flags) {
  gui::ShownSpace space{asked_with(flags), {}};
  const Result<SearchOutcome> report = search(space.asked.request);
  REQUIRE(report.ok());
  space.report = *report;
  return std::make_shared<const gui::ShownSpace>(std::move(space));
}

/// 40 plans and a front, searched once.
inline const gui::SpaceShown& some_space() {
  static const gui::SpaceShown space =
      searched({{"model", "7b"}, {"cluster", "dgx-h100"}, {"gpus", "16"}, {"top", "40"}});
  return space;
}

/// Nothing fits: near misses and reasons alone.
inline const gui::SpaceShown& hopeless_space() {
  static const gui::SpaceShown space =
      searched({{"model", "70b"}, {"cluster", "dgx-h100"}, {"gpus", "4"}});
  return space;
}

/// The plan of these flags, priced.
inline gui::PlanShown priced(Flags flags) {
  gui::ShownPlan plan{asked_with(flags), {}};
  const Result<Candidate> candidate = predict(plan.asked.request);
  REQUIRE(candidate.ok());
  plan.candidate = *candidate;
  return std::make_shared<const gui::ShownPlan>(std::move(plan));
}

/// Pixels of this colour (within `off` of each part) in what the widget draws.
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
