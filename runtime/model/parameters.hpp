// Which parameters a rank holds, their place in the whole model and in flat memory.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/model/model.hpp"
#include "core/plan/adapters.hpp"
#include "core/plan/parallel_plan.hpp"

namespace echelon {

/// A matrix [rows, columns] (a vector: columns = 1) of the whole model, and the block of it that a
/// tensor-parallel rank holds, row-major.
struct Parameter {
  std::string name;  ///< of the whole model, the same for every plan: "layers.3.attention.q.weight"
  std::int64_t rows = 0;  ///< of the whole tensor, without vocabulary padding
  std::int64_t columns = 1;
  std::int64_t first_row = 0;  ///< of the block; padding rows of the vocabulary lie past `rows`
  std::int64_t first_column = 0;
  std::int64_t local_rows = 0;
  std::int64_t local_columns = 1;
  std::int64_t offset = 0;  ///< elements, in its flat parameters

  enum class Fill { normal, ones, zeros };
  Fill fill = Fill::normal;
  double deviation = 0.02;  ///< of `normal`
  bool decayed = true;      ///< weight decay: matrices; not norms and biases
  bool counted = true;      ///< this rank counts it in the norm and writes it to files: of replicas
                            ///< over tp the first, of the tied embedding the first stage's
  bool summed_over_tp = false;  ///< each tp rank has part of its gradient (sequence parallel; norms
                                ///< of heads; routers; what makes latents; adapters' A of
                                ///< column-parallel and B of row-parallel matrices)
  bool summed_over_kv = false;  ///< each replica of a kv head has part of its gradient

  [[nodiscard]] std::int64_t count() const { return local_rows * local_columns; }
};

/// Parameters that are gathered, reduced and sharded as one flat buffer: a unit of a chunk, or the
/// tied word embedding. They are contiguous; `padded` is a multiple of 8 times `shards`, if there
/// are several shards. `experts`: of a unit's experts alone, reduced over the ranks with the same
/// ones. `frozen`: they have no gradients and no optimizer states.
struct FlatParameters {
  std::vector<Parameter> parameters;
  std::int64_t count = 0;
  std::int64_t padded = 0;
  bool experts = false;
  bool frozen = false;
};

/// One chunk of layers on one rank of a tensor-parallel and a context-parallel group. The
/// parameters of context-parallel ranks are the same.
struct ChunkSpec {
  ModelSpec model;         ///< with its constants
  int first_layer = 0;     ///< of the model
  int layers = 0;          ///< of this chunk; may be 0 at the ends
  bool embedding = false;  ///< holds the word (and position) embedding
  bool loss = false;       ///< holds final norm, head and loss
  int units = 1;  ///< unit u holds layers ⌊u·layers/units⌋ to ⌊(u+1)·layers/units⌋ − 1
  int tp = 1;
  int tp_rank = 0;
  int cp = 1;                           ///< by all-to-all: divides heads / tp and kv_heads / tp
  CpComm cp_comm = CpComm::all_to_all;  ///< or ring
  int cp_rank = 0;                      ///< which tokens it holds: context_tokens.hpp
  bool sequence_parallel = false;
  int ep = 1;  ///< ranks that share the experts, of which each has its part, in order
  int ep_rank = 0;
  int microbatch = 1;                ///< samples
  int sequence = 0;                  ///< tokens of a sample, on all context-parallel ranks
  std::vector<Recompute> recompute;  ///< per layer of this chunk: none, selective or full
  int shards = 1;                    ///< flat parameters are padded to parts of 8 elements for each
  int expert_shards = 1;             ///< the same of the experts', where ep > 1
  std::int64_t padded_vocab = 0;     ///< a multiple of tp
  std::optional<Adapters> adapters = {};  ///< the only parameters that are trained; none: all
  double adapter_scale = 1;               ///< α/r

  [[nodiscard]] int first_layer_of(int unit) const { return unit * layers / units; }
  /// How attention sees the tokens of all context-parallel ranks.
  [[nodiscard]] bool splits_heads() const { return cp > 1 && cp_comm == CpComm::all_to_all; }
  [[nodiscard]] bool passes_keys() const { return cp > 1 && cp_comm == CpComm::ring; }
};

/// Flat parameters of a chunk: one set per unit (the embedding belongs to the first, final norm and
/// head to the last), where ep > 1 as many with the units' experts, which may have none, then, with
/// tied embeddings on a chunk that has embedding or loss, one more
/// that holds the word embedding alone. With adapters the units' sets hold these, and as many
/// follow with all other parameters, which are frozen, as is the tied embedding. q, k, v are
/// contiguous, as are gate and up, and their biases, and the down projections to latents; of
/// experts these pairs of one layer follow each other, and so do the down projections. Within a
/// unit, parameters with summed_over_tp come first.
struct ChunkParameters {
  std::vector<FlatParameters> flat_params;
  bool tied = false;  ///< the last one is the tied word embedding
  /// Of a unit, the number of those with its experts; none: they are among its own.
  [[nodiscard]] std::optional<std::size_t> experts_of(int unit) const {
    const std::size_t first = flat_params.size() - (tied ? 1 : 0);
    if (first == 0 || !flat_params[first - 1].experts) return std::nullopt;
    return first / 2 + static_cast<std::size_t>(unit);
  }
  /// Of a unit, the number of those that are frozen; none: all are trained.
  [[nodiscard]] std::optional<std::size_t> frozen_of(int unit) const {
    const std::size_t first = flat_params.size() - (tied ? 1 : 0);
    if (first == 0 || !flat_params[first - 1].frozen) return std::nullopt;
    return first / 2 + static_cast<std::size_t>(unit);
  }
};
[[nodiscard]] ChunkParameters parameters_of(const ChunkSpec& spec);

/// Calls visit(global element, local element, count) for every run of `parameter`'s elements
/// [begin, end) of the local block that lies in one piece in the whole row-major tensor. Padding
/// rows are left out.
void for_each_piece(const Parameter& parameter, std::int64_t begin, std::int64_t end,
                    const std::function<void(std::int64_t, std::int64_t, std::int64_t)>& visit);

}  // namespace echelon
