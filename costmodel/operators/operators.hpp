// A transformer layer as a list of operators with shapes: the one source of FLOPs, traffic,
// saved activations and collectives. Time and memory are both sums over this list.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

#include "core/framework/framework.hpp"
#include "core/model/model.hpp"
#include "core/plan/job.hpp"
#include "core/plan/parallel_plan.hpp"
#include "core/plan/process_grid.hpp"
#include "costmodel/collectives/collectives.hpp"

namespace echelon {

enum class OperatorKind { gemm, attention, elementwise, collective };

/// One operator of one layer on one tensor-parallel rank, for one microbatch.
/// Shapes: T = microbatch·sequence/cp tokens, h hidden, a heads, k kv heads, d head_dim, f ffn.
struct Operator {
  std::string_view name;
  OperatorKind kind = OperatorKind::elementwise;
  // gemm: (m × k)·(k × n) forward; backward is two products of the same size.
  double m = 0, n = 0, k = 0;
  double groups = 1;  ///< grouped GEMM: that many products of m × k by k × n at once
  Flops forward;      ///< attention: causal FLOPs when flash, full when materialised
  Flops backward;
  Bytes forward_traffic;  ///< HBM bytes
  Bytes backward_traffic;
  bool moves_as_stated = false;  ///< the traffic, whatever Framework::pointwise_passes says
  int forward_kernels = 0;
  int backward_kernels = 0;
  Bytes saved;                  ///< kept for the backward pass
  double span = 0;              ///< attention: keys one kernel sees
  bool wide = false;            ///< a GEMM that stays in 16 bits in fp8 jobs (router, head)
  bool has_weight = true;       ///< a GEMM whose factor is a parameter (scores have none)
  bool weight_gradient = true;  ///< … whose backward makes a gradient of it (frozen ones: none)
  bool input_gradient = true;   ///< … whose backward makes a gradient of its input, too
  bool attention_core = false;  ///< scores to context
  bool routed = false;          ///< a kernel of the routed experts: works on tokens by expert
  bool once = false;          ///< not in the forward that recomputation repeats, but in the repeat
  Bytes kept;                 ///< … of `saved` under the framework's selective recomputation
  double repeated = 0;        ///< share of the forward that recomputation then repeats
  RecomputeModules freed_by;  ///< recomputed modules of which any drops `saved` …
  RecomputeModules repeated_by;                 ///< … and repeats the forward
  std::optional<OffloadModule> offloaded_by{};  ///< the module whose offload moves `saved`
  Bytes transient;                              ///< gradients alive while its backward runs
  Axis axis = Axis::tp;  ///< over whose group a collective runs: tp, cp, ep or etp
  CollectiveKind forward_collective = CollectiveKind::none;
  CollectiveKind backward_collective = CollectiveKind::none;
  Bytes payload;                  ///< full tensor of the collective
  bool forward_overlaps = false;  ///< forward collective overlaps with the next operator
  bool backward_overlaps =
      false;          ///< backward collective overlaps with the next operator's backward
  double passes = 1;  ///< a GEMM computes its rows in so many slices, one after the other
  Bytes unpacking;    ///< HBM bytes that make its weight in 16 bits, before either product
  int unpacking_kernels = 0;
};

/// Fixed-capacity list: the search builds one per (tp, microbatch, sequence parallel).
class OperatorList {
 public:
  static constexpr std::size_t kCapacity = 72;
  void push(const Operator& op);
  [[nodiscard]] std::span<const Operator> view() const { return {ops_.data(), count_}; }
  [[nodiscard]] std::span<Operator> edit() { return {ops_.data(), count_}; }
  [[nodiscard]] Bytes saved(Recompute recompute) const;  ///< none or selective
  [[nodiscard]] Bytes transient() const;                 ///< largest over the list

 private:
  std::array<Operator, kCapacity> ops_{};
  std::size_t count_ = 0;
};

[[nodiscard]] OperatorList layer_operators(const ModelSpec& model, const TrainingJob& job,
                                           const Framework& framework, LayerSharding sharding,
                                           LayerKind kind = LayerKind::dense,
                                           TokenMixer mixer = TokenMixer::attention);
/// Word (and position) embedding on the first stage.
[[nodiscard]] OperatorList embedding_operators(const ModelSpec& model, const TrainingJob& job,
                                               const Framework& framework, LayerSharding sharding);
/// Final norm, output head, loss on the last stage.
[[nodiscard]] OperatorList head_operators(const ModelSpec& model, const TrainingJob& job,
                                          const Framework& framework, LayerSharding sharding);

/// Entry of a prediction module: norms of the last layer's output and of the next token's
/// embedding, and the projection of both to one vector. Source: DeepSeek-V3 (arXiv 2412.19437),
/// equation 21; Megatron-LM d98e8a64, core/transformer/multi_token_prediction.py.
[[nodiscard]] OperatorList prediction_operators(const ModelSpec& model, const TrainingJob& job,
                                                const Framework& framework, LayerSharding sharding);

/// Parameters of a layer's adapters on one tensor-parallel rank; none: it has no adapters.
[[nodiscard]] double adapter_parameters_per_rank(const OperatorList& layer);
/// … and those of its matrices that are kept in 4 bits (QuantizedWeights).
[[nodiscard]] double quantized_parameters_per_rank(const OperatorList& layer);

/// Vocabulary after padding to a multiple of framework.vocab_padding · tp.
[[nodiscard]] double padded_vocab(const ModelSpec& model, const Framework& framework, int tp);

/// Parameters of one layer on one tensor-parallel rank without its routed experts; if there are
/// fewer kv heads than tp, they are replicated.
[[nodiscard]] double layer_parameters_per_rank(const ModelSpec& model, int tp,
                                               LayerKind kind = LayerKind::dense,
                                               TokenMixer mixer = TokenMixer::attention);
/// Routed experts of one layer on one rank of the expert grid.
[[nodiscard]] double expert_parameters_per_rank(const ModelSpec& model,
                                                const LayerSharding& sharding);
[[nodiscard]] double embedding_parameters_per_rank(const ModelSpec& model,
                                                   const Framework& framework, int tp);
[[nodiscard]] double head_parameters_per_rank(const ModelSpec& model, const Framework& framework,
                                              int tp, bool holds_tied_copy);

}  // namespace echelon
