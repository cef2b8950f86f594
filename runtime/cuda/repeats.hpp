// Repeats: what instructions put on their stream in every step alike, as graphs where that pays.
#pragma once

#include <cuda_runtime.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

#include "core/base/units.hpp"
#include "runtime/cuda/resources.hpp"
#include "runtime/kernels.hpp"

namespace echelon::cuda {

/// An instruction that put the same calls with the same operands on its stream in two steps is
/// recorded in the next as a CUDA graph, beside being put there, and afterwards only launched: one
/// call of the driver's instead of one per kernel. It pays where the host takes more than half as
/// long to put the calls there as the device to carry them out: then it may fall behind. Calls are
/// compared by a hash, which is formed in every step.
class Repeats {
 public:
  enum class Use : std::uint8_t { where_it_pays, always, never };

  /// So many instructions, none of which was seen.
  void forget(std::size_t instructions, Use use);
  /// `alike`: the instruction may be one that is put there alike.
  void begin(std::uint32_t id, bool alike);
  /// Launches the graph, if there is one. Throws RunFailure (defect) where calls differ from those
  /// it was made of.
  void end(cudaStream_t stream);
  /// Parts of the running instruction are told apart by events, which a graph has not.
  void keep_out();
  /// How long the device took, in a measured step.
  void learn(std::uint32_t id, Seconds device);
  [[nodiscard]] std::size_t graphs() const { return graphs_; }

  /// Whether calls are put on the stream, and where else they are recorded (null: nowhere).
  [[nodiscard]] bool puts() const { return mode_ != Mode::replay; }
  [[nodiscard]] cudaStream_t records() const {
    return mode_ == Mode::record ? capture_.get() : nullptr;
  }
  template <class... Values>
  void note(const Values&... values) {
    if (mode_ != Mode::outside) (add(values), ...);
  }

 private:
  enum class Mode : std::uint8_t { outside, direct, record, replay };
  struct Destroy {
    void operator()(CUgraphExec_st* graph) const;
  };
  struct Of {
    std::uint64_t hash = 0;
    int alike = 0;  ///< steps in a row with that hash, less one
    bool kept_out = false;
    Seconds host;
    Seconds device;
    std::unique_ptr<CUgraphExec_st, Destroy> graph;
  };
  [[nodiscard]] bool pays(const Of& of) const;
  void finish_recording(Of& of);

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
  void add(const AttentionShape& s) {
    note(s.sequence, s.samples, s.heads, s.kv_heads, s.head_dim, s.qkv_stride, s.out_stride);
  }

  OwnStream capture_;  ///< nothing runs on it
  Use use_ = Use::where_it_pays;
  std::vector<Of> of_;  ///< by id
  std::size_t graphs_ = 0;
  Mode mode_ = Mode::outside;
  std::uint32_t id_ = 0;
  std::uint64_t hash_ = 0;
  Seconds begun_;
};

/// As ECHELON_CUDA_GRAPHS says: "always", "never", or where it pays.
[[nodiscard]] Repeats::Use use_of_graphs();

}  // namespace echelon::cuda
