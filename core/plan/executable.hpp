// What of a model `plan run` executes: asked by the runtime, which refuses the rest, and by
// planning, which says so beside its answer.
#pragma once

#include <optional>
#include <string>

#include "core/model/model.hpp"

namespace echelon {

/// What of this model the runtime does not execute, in words; empty where it executes all. Experts,
/// latent attention, sinks, windows, ALiBi, dropout, parallel blocks, post-norms, norms of q and k
/// and of the embedding are not executed, nor is rotation of a part of the heads, dynamic and
/// longrope scaling, arithmetic that no field of ModelSpec describes, and a model of which nobody
/// said the constants. Llama 3's, linear and YaRN scaling are executed.
/// Checked by: tests/core/plan/executable_test.cpp.
[[nodiscard]] std::string not_executed(const ModelSpec& model);

/// Why a model is not executed on sequences of a length: both halves of an error message.
struct NotExecuted {
  std::string found;
  std::string expected;
};
[[nodiscard]] std::optional<NotExecuted> not_executed(const ModelSpec& model, int sequence);

}  // namespace echelon
