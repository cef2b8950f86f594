// What the scripts of a framework's own program cannot say of a model that the framework can train.
#pragma once

#include <string>

#include "core/framework/framework.hpp"
#include "core/model/model.hpp"

namespace echelon::cli {

/// "Megatron-LM's options cannot express …", with the parts of the model that `plan export` would
/// refuse whatever the plan is; "" where it has options for all of them, and for a framework whose
/// models are the user's own code.
[[nodiscard]] std::string script_note(const Framework& framework, const ModelSpec& model);

}  // namespace echelon::cli
