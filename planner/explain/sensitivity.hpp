// The effect on the winner of one change to the model, the batch or the machine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "planner/search/search.hpp"

namespace echelon {

/// One change to a request.
enum class Change {
  less_memory,   ///< 5 % less usable GPU memory
  more_memory,   ///< 25 % more
  less_network,  ///< 20 % less network bandwidth per node
  double_network,
  double_hbm,     ///< twice the GPU's memory bandwidth
  more_compute,   ///< 20 % higher dense peaks
  one_more_node,  ///< the next larger legal size that divides the work
  double_gpus,
  fewer_gpus,     ///< the largest smaller size whose nodes divide the batch, where these do not
  rounded_batch,  ///< the multiple of the GPUs that is nearest to such a batch
  double_batch,
  half_batch,
  half_sequence,  ///< the same tokens per step in twice as many samples
  fp8,            ///< GEMMs in fp8, where the GPU has it
  grouped_query,  ///< 8 key/value heads where the model has more
};
[[nodiscard]] std::string_view name_of(Change change);  ///< "less-memory", ...

/// What kind of thing changes.
enum class ChangedThing { machine, batch, model };  // model: and its number formats
[[nodiscard]] ChangedThing thing_of(Change change);

struct Sensitivity {
  Change change{};
  int gpus = 0;                     ///< under the change
  std::int64_t global_batch = 0;    ///< under the change, in sequences
  std::optional<Candidate> winner;  ///< nothing where nothing fits
  std::optional<Candidate> kept;    ///< the old winner's plan under the change, where it is legal
  bool other_plan = false;          ///< another plan wins
  /// Wall time for the same useful tokens, relative to before (critical batch counted): 0.8 is
  /// 20 % less. Meaningful with a winner.
  double time = 1;
  double gpu_time = 1;  ///< … times the number of GPUs
};

/// Each change that applies to the request, searched again. A change is left out where it changes
/// nothing (no network, no fp8 units) or leaves no legal plan. Empty for memory-headroom: its
/// winner was not chosen for its time, so times would be meaningless. Stopped by `progress`: those
/// that were searched by then.
[[nodiscard]] std::vector<Sensitivity> sensitivities(const PlanRequest& request,
                                                     const Candidate& winner,
                                                     const Progress& progress = {});

/// Whether the nodes of the cluster (its GPUs, if these are a part of a node) do not divide the
/// batch: then dp cannot be all that the GPUs would allow.
[[nodiscard]] bool batch_is_uneven(const PlanRequest& request);
/// Of an uneven batch: fewer GPUs and another batch, where these cost at least 1 % less GPU time
/// per token; none of an even batch, or where several numbers of GPUs are searched anyway.
[[nodiscard]] std::vector<Sensitivity> even_batches(const PlanRequest& request,
                                                    const Candidate& winner);

/// The change after which a token costs least GPU time, among those that make it cheaper by at
/// least 1 %; null where none does. A GPU bought is not a GPU saved: hence not the wall time.
[[nodiscard]] const Sensitivity* most_valuable(const std::vector<Sensitivity>& all);
/// The same among the changes of one kind.
[[nodiscard]] const Sensitivity* most_valuable(const std::vector<Sensitivity>& all,
                                               ChangedThing thing);

}  // namespace echelon
