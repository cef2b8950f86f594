// The way into the window: arguments, display, what is shown first.
#pragma once

namespace echelon::gui {

/// The whole program; returns its exit code: 2 wrong input, 3 no display or no fonts.
[[nodiscard]] int run(int argc, char** argv);

}  // namespace echelon::gui
