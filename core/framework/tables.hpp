// The tables of all frameworks, one file each. A new framework is a file and a line here and in
// framework.cpp.
#pragma once

#include "core/framework/framework.hpp"

namespace echelon {

[[nodiscard]] Framework megatron_core();
[[nodiscard]] Framework megatron_2021();
[[nodiscard]] Framework megatron_deepspeed();
[[nodiscard]] Framework nanotron();
[[nodiscard]] Framework torchtitan();
[[nodiscard]] Framework llm_foundry();
[[nodiscard]] Framework deepspeed();
[[nodiscard]] Framework hai_llm();
[[nodiscard]] Framework own_runtime();

}  // namespace echelon
