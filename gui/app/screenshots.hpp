// Screenshots of the window and of every view, without a display.
#pragma once

#include <string>

#include "gui/app/window.hpp"

namespace echelon::gui {

/// Writes PNG files to `folder`, which is created if missing: window-1280x800-light.png, the same
/// dark and at 2560x1440, and every view with a plan. Waits for the search, the explanation and the
/// sensitivity analysis. Environment error: the folder cannot be created or written.
[[nodiscard]] Status save_screenshots(Window& window, const std::string& folder);

}  // namespace echelon::gui
