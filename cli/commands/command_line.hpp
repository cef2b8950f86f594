// Settings as a command to copy.
#pragma once

#include <string>
#include <string_view>

#include "cli/flags/settings.hpp"

namespace echelon::cli {

/// The command line that sets these: "plan predict --model 7b --gpus 64". Settings that `command`
/// does not take, and those of output, are left out.
[[nodiscard]] std::string command_of(std::string_view command, const Settings& settings);

}  // namespace echelon::cli
