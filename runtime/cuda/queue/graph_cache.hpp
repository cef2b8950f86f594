// GraphCache: replays repeated instructions as CUDA graphs where that pays.
#pragma once

#include <cuda_runtime.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

#include "core/base/units.hpp"
#include "runtime/backend/kernels.hpp"
#include "runtime/cuda/device/resources.hpp"

namespace echelon::cuda {

/// After two steps with identical calls an instruction is captured as a CUDA graph in the third and
/// replayed from then on: one driver call instead of one per kernel. This pays where the host takes
/// more than half as long to enqueue the calls as the device to execute them, since then the host
/// may fall behind. Calls are compared by a hash, which is computed in every step. Graphs are
/// instantiated and uploaded between steps: both may wait for the device, on which kernels of NCCL
/// may wait for a rank whose host waits the same way.
class GraphCache {
 public:
  enum class Use : std::uint8_t { where_it_pays, always, never };

  /// Clears the cache and resizes it to `instructions`.
  void reset(std::size_t instructions, Use use);
  /// `repeatable`: the instruction may issue the same calls in every step.
  void begin(std::uint32_t id, bool repeatable);
  /// Launches the graph, if there is one. Throws RunFailure (defect) if the calls differ from the
  /// captured ones.
  void end(cudaStream_t stream);
  /// Sub-spans of the current instruction are measured by events, which a graph cannot contain.
  void disable_capture();
  /// The captured stream refused a call: the instruction goes on without a graph, now and later.
  void give_up_capture();
  /// The host waited so long for the device, which is not a time to enqueue.
  void leave_out(Seconds waited) { begun_ += waited; }
  /// Device time of the instruction in a measured step.
  void record_device_time(std::uint32_t id, Seconds device);
  /// Whether graphs are to be made.
  [[nodiscard]] bool has_captured() const { return !captured_.empty(); }
  /// Makes the graphs that the step captured, on an idle device. Returns the device memory they
  /// take.
  Bytes make_graphs(cudaStream_t stream);
  [[nodiscard]] std::size_t graphs() const { return graphs_; }
  [[nodiscard]] Bytes memory() const { return memory_; }  ///< of the device, taken by all graphs

  /// Whether calls are enqueued on the stream, and the stream that captures them as well (null:
  /// none).
  [[nodiscard]] bool enqueues() const { return mode_ != Mode::replay; }
  [[nodiscard]] cudaStream_t capture_stream() const {
    return mode_ == Mode::capture ? capture_stream_.get() : nullptr;
  }
  template <class... Values>
  void note(const Values&... values) {
    if (mode_ != Mode::outside) (add(values), ...);
  }

 private:
  enum class Mode : std::uint8_t { outside, direct, capture, replay };
  struct Destroy {
    void operator()(CUgraph_st* graph) const;
    void operator()(CUgraphExec_st* graph) const;
  };
  struct Entry {
    std::uint64_t hash = 0;
    int repeats = 0;  ///< steps in a row with that hash, less one
    bool capture_disabled = false;
    Seconds host;
    Seconds device;
    std::unique_ptr<CUgraph_st, Destroy> captured;  ///< until make_graphs()
    std::unique_ptr<CUgraphExec_st, Destroy> graph;
  };
  [[nodiscard]] bool pays(const Entry& entry) const;
  void finish_capture(Entry& entry);

  void add_bits(std::uint64_t bits) {
    hash_ = (hash_ ^ bits) * 0x9e3779b97f4a7c15ULL;
    hash_ ^= hash_ >> 29U;
  }
  template <class Value>
  void add(const Value& value) {
    if constexpr (std::is_pointer_v<Value>) {
      add_bits(reinterpret_cast<std::uintptr_t>(value));
    } else if constexpr (std::is_floating_point_v<Value>) {
      add_bits(std::bit_cast<std::uint64_t>(static_cast<double>(value)));
    } else {
      add_bits(static_cast<std::uint64_t>(value));
    }
  }
  template <class T>
  void add(const Rows<T>& r) {
    note(r.data, r.rows, r.width);
  }
  template <class T>
  void add(const NormOf<T>& n) {
    note(n.kind, n.x, n.weight, n.bias, n.mean, n.rstd, n.rows, n.width, n.eps);
  }
  template <class T>
  void add(const SumBefore<T>& s) {
    note(s.bias, s.residual, s.sum);
  }
  template <class T>
  void add(const Logits<T>& l) {
    note(l.data, l.targets, l.rows, l.columns, l.valid, l.first);
  }
  template <class T>
  void add(const HeadNorms<T>& n) {
    note(n.q_weight, n.k_weight, n.eps);
  }
  template <class T>
  void add(const LatentNorms<T>& n) {
    note(n.q_weight, n.kv_weight, n.eps);
  }
  void add(const LatentShape& s) {
    note(s.rows, s.samples, s.first_position, s.heads, s.nope, s.rope, s.value, s.q_rank,
         s.kv_rank);
  }
  void add(const HeadSplit& s) { note(s.rows, s.parts, s.query, s.key, s.value); }
  void add(const Pieces& p) { note(p.rows, p.width, p.from_stride, p.to_stride); }
  void add(const AttentionBlock& b) { note(b.first_query, b.keys, b.causal, b.begins); }
  void add(const Router& r) {
    note(r.rows, r.experts, r.choices, r.normalized, r.scaling, r.score, r.groups, r.group_choices,
         r.group_best);
  }
  template <class T>
  void add(const Routing<T>& r) {
    note(r.experts, r.slots, r.rows, r.counts, r.weights);
  }
  void add(const AttentionShape& s) {
    note(s.sequence, s.samples, s.heads, s.kv_heads, s.head_dim, s.qkv_stride, s.out_stride,
         s.value_dim(), s.score_factor);
  }

  OwnStream capture_stream_;  ///< only for capture
  Use use_ = Use::where_it_pays;
  std::vector<Entry> entries_;           ///< by id
  std::vector<std::uint32_t> captured_;  ///< ids
  std::size_t graphs_ = 0;
  Bytes memory_;
  Mode mode_ = Mode::outside;
  std::uint32_t id_ = 0;
  std::uint64_t hash_ = 0;
  Seconds begun_;
};

/// The value of ECHELON_CUDA_GRAPHS: "always", "never", or where it pays.
[[nodiscard]] GraphCache::Use chosen_graph_use();

}  // namespace echelon::cuda
