// Buffers that DeepEP and HybridEP keep for the exchange of experts' tokens.
#pragma once

#include <cstdint>

#include "core/base/units.hpp"
#include "core/plan/parallel_plan.hpp"

namespace echelon {

/// What one rank gives into an exchange at most, and among whom.
struct ExchangeCapacity {
  std::int64_t tokens = 0;  ///< N, of one rank
  int hidden = 0;           ///< h, in 16 bits
  int experts = 0;          ///< E, of all ranks
  int per_token = 0;        ///< k experts that a token visits
  int ranks = 1;            ///< R of the group, in D NVLink domains of U ranks each
  int domains = 1;
};

/// Bytes on every rank:
///
///   deepep    D = 1:  N · max(R·t, min(R, k)·c)
///             D > 1:  max((R·N + N + D·N')·t, (D·min(U, k)·N + min(D, k)·N + D·N')·c)
///             t = 2h + 12k + 4 and c = 2h + 8k, both parts in units of 32 bytes; N' = N + 1,280;
///             in units of 2 MiB
///   hybridep  R·N·(w + s), and with D > 1 also N·(2h + 4E + s) + (D − 1)·N·(3w + s)
///             w = 2h + 4U·E/R, s = h/32; N at least 512, in units of 64
///
/// and nothing of other dispatchers. A receiver has room for all tokens of all ranks.
/// Source: DeepEP dd758ca, csrc/elastic/buffer.hpp, get_dispatch_buffer_size,
/// get_combine_buffer_size, calculate_buffer_size, and layout.cuh, TokenLayout (without fp8, with
/// multiple reduction and hybrid mode, its defaults); HybridEP 94a9f8f, csrc/hybrid_ep/buffer/
/// intranode.cu and internode_doca.cu, allocate_dispatch_buffers and allocate_combine_buffers (with
/// use_shared_buffer), config.cuh, Configurer. Assumes full domains. Flags, a few MB, are left out.
/// Checked by: tests/costmodel/memory/exchange_memory_test.cpp.
[[nodiscard]] Bytes exchange_buffers(Dispatcher dispatcher, const ExchangeCapacity& capacity);

}  // namespace echelon
