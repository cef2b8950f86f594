// How Megatron-Bridge's command line spells what the rows of its format write.
#pragma once

#include <string_view>

#include "interop/configs/document.hpp"
#include "interop/configs/run_config.hpp"

namespace echelon {

/// ModelSpec::architecture whose recipes hold the transformer as a field of the model.
inline constexpr std::string_view kNestedArchitecture = "llama";

/// Renames sections, writes some of them as a whole, and adds the quotes that Hydra reads.
void spell_for_bridge(const RunConfig& config, ConfigDocument& document);
/// The keys of the rows from any of these spellings.
void unspell_bridge(ConfigDocument& document);

}  // namespace echelon
