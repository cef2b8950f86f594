// Pictures of the window and of every view, without a display.
#pragma once

#include <string>

#include "gui/window.hpp"

namespace echelon::gui {

/// PNG files in `folder`, which is made where it is missing: window-1280x800-light.png, the same
/// dark and at 2560x1440, and a picture of every view with a plan in it. Waits for the search and
/// for the explanation. Environment error: the folder cannot be made or written.
[[nodiscard]] Status take_pictures(Window& window, const std::string& folder);

}  // namespace echelon::gui
