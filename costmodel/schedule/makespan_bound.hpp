// A lower bound on how long a pipeline takes, for a search that simulates only what could still
// win.
#pragma once

#include "costmodel/schedule/compute_order.hpp"
#include "costmodel/schedule/costs.hpp"

namespace echelon {

/// A lower bound on simulate_makespan of the same shape and costs. DualPipeV, DualPipe: its time
/// with messages that pass one another, linear in the passes. The others in O(stages): the largest
/// of the following over all ranks r (of p, from 0). Each is the length of a chain of passes and
/// messages that wait for one another, so that no order of messages can be faster.
///
///   f, b       forward and backward of a rank's passes; N passes of each (microbatches · chunks)
///   w          forwards of rank r before its first backward: min(N, ahead + 1), compute_order.hpp
///   F(k), B(k) the first k forwards, backwards of rank r together
///   H          first microbatch's forwards and messages through the first chunk of ranks < r
///   E          last microbatch's backwards and messages through the first chunk of ranks < r
///   A          first microbatch from its start to its last backward's start on rank r (last chunk)
///   Z          last microbatch from its last forward's end on rank r (last chunk) to its end there
///
///   w < N   max(H + F(w), A) + [F(N) − F(w) + B(N − w)] + max(B(N) − B(N − w), Z) + E
///           (rank r's first backward starts after its w forwards and not before its message; from
///           there to the end of its last forward it runs the passes in brackets; its last backward
///           ends after the backwards that are left, and not before its microbatch is back)
///   w = N   max(H + F(N) + B(N), A + B(N), H + F(N) + Z) + E
///   1 chunk H + (q + 1)·C + (N − 1 − q·w)·max(f, b) + E,  q = ⌊(N − 1)/w⌋: rank r has at most w
///           microbatches in flight and C is the round trip of one, from forward to end of backward
///   GPipe   Σf + (m − 1)·max f + Σb + (m − 1)·max b and the messages of one microbatch: exact for
///           messages that pass one another
///   ZB-H1   b is the input gradient; in brackets the weight gradients that run there as well; in
///           place of E the larger of rank r's weight gradients that are left, and E with rank 0's
///           last one. The first backward and all that is left of rank r is another chain
///
/// Every pass and message is in at most the chains that hold it once, hence for equal stages
/// without messages 1F1B, GPipe and interleaved are exact. Source: our derivation. Checked by:
/// tests/costmodel/schedule/makespan_bound_test.cpp.
[[nodiscard]] Seconds least_makespan(const PipelineShape& shape, const ScheduleCosts& costs);

}  // namespace echelon
