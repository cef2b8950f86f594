// The tokens of a sample that a context-parallel rank holds.
#pragma once

#include <cstdint>
#include <vector>

#include "core/plan/parallel_plan.hpp"

namespace echelon {

/// Tokens that follow one another.
struct TokenRun {
  std::int64_t at = 0;        ///< of the first, among the rank's tokens
  std::int64_t position = 0;  ///< of the first, in the sample
  std::int64_t count = 0;
};

/// All-to-all: part `rank` of cp equal ones. Ring: of 2·cp equal parts `rank` and 2·cp − 1 − rank,
/// which under a causal mask gives all ranks as many pairs of queries and keys. Source:
/// TransformerEngine v2.8, pytorch/attention/dot_product_attention/context_parallel.py, and
/// Megatron-LM core_v0.16.1, get_batch_on_this_cp_rank.
[[nodiscard]] std::vector<TokenRun> context_tokens(std::int64_t sequence, int cp, CpComm comm,
                                                   int rank);
/// Of these tokens `count` from number `first` on.
[[nodiscard]] std::vector<TokenRun> part_of(const std::vector<TokenRun>& runs, std::int64_t first,
                                            std::int64_t count);

}  // namespace echelon
