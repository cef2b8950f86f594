// Arguments and configuration values that training programs print before their steps.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "interop/logs/formats.hpp"

namespace echelon {

// Keys of each format and the columns they mean. Source: the argument parsers of the releases that
// formats.cpp names.
[[nodiscard]] std::span<const ArgumentRule> megatron_arguments();
[[nodiscard]] std::span<const ArgumentRule> nanotron_arguments();
[[nodiscard]] std::span<const ArgumentRule> torchtitan_arguments();
[[nodiscard]] std::span<const ArgumentRule> foundry_arguments();
[[nodiscard]] std::span<const ArgumentRule> deepspeed_arguments();
[[nodiscard]] std::span<const ArgumentRule> trainer_arguments();
[[nodiscard]] std::span<const ArgumentRule> llmc_arguments();

/// Takes a column (or extra value), its value and the key as printed.
using ArgumentSink =
    std::function<void(std::string_view name, std::string_view value, std::string_view key)>;

/// Finds the arguments of one line in any of the format's dumps.
void find_arguments(const LogFormat& format, std::string_view line, const ArgumentSink& sink);

}  // namespace echelon
