// Which models `plan run` executes. The runtime rejects the others; planning adds a note to its
// answer.
#pragma once

#include <optional>
#include <string>

#include "core/model/model.hpp"

namespace echelon {

/// The first feature of this model that the runtime does not execute, as text; empty if it executes
/// the model. Not executed: biases of experts, biases of routers with softmax scores, experts on a
/// latent, latent attention with biases or layer norms, sinks, windows, ALiBi, dropout, parallel
/// blocks, post-norms, QK-norm over all heads or by layer norms, a norm of the embedding, dynamic
/// and longrope scaling, operations that no field of ModelSpec describes, and models without
/// constants. Executed: latent attention (DeepSeek-V2, -V3), Qwen 3's QK-norm; Llama 3's, linear
/// and YaRN scaling; a rotary embedding of an even part of each head. Checked by:
/// tests/core/plan/executable_test.cpp.
[[nodiscard]] std::string not_executed(const ModelSpec& model);

/// Why a model is not executed with a sequence length: the two parts of an error message. Windows
/// of attention that no sequence exceeds change nothing.
struct NotExecuted {
  std::string found;
  std::string expected;
};
[[nodiscard]] std::optional<NotExecuted> not_executed(const ModelSpec& model, int sequence);

}  // namespace echelon
