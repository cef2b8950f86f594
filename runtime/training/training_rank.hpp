// The state of one rank in a TrainingDevice. Only for its own sources.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/training/training_device.hpp"

namespace echelon {

[[nodiscard]] inline std::size_t at_index(std::int64_t i) { return static_cast<std::size_t>(i); }

/// The whole state of one rank. Queues of a rank use different parts at a time, as ordered by the
/// list.
template <class T>
struct TrainingDevice<T>::RankState {
  /// Gradients of one unit of one microbatch, on their way to the reduction (ZeRO-2 and 3).
  struct GradientBuffer {
    struct Owner {
      int chunk = 0;
      int unit = 0;
      std::optional<std::int32_t> microbatch;
      bool operator==(const Owner&) const = default;
    };
    Wide<T>* block = nullptr;
    std::optional<Owner> owner;               ///< none: free
    const Instruction* emptied_by = nullptr;  ///< in this step
  };
  struct OfChunk {
    std::unique_ptr<Chunk<T>> chunk;
    std::unique_ptr<OptimizerState<T>> states;
    std::vector<int> backwards;  ///< per unit: microbatches of this step whose gradients are in
    std::vector<int> reductions;
    std::vector<bool> updates_awaited;  ///< per unit, and of the tied embedding, in this step
  };
  using Places = std::array<std::optional<std::int32_t>, kBufferKinds>;

  RankState(RunThreads& run_threads, int global, Processor<T>& own)
      : processor(own),
        memory("rank " + std::to_string(global), own),
        gradient_buffers_monitor(run_threads),
        rank(global) {}

  Processor<T>& processor;
  Memory memory;
  std::vector<OfChunk> chunks;
  std::vector<std::byte*> buffers;  ///< by number of the program's buffers
  std::vector<Places> places;       ///< per chunk · microbatches + microbatch: buffers by kind
  std::byte* workspace = nullptr;
  std::vector<bool> loss_in_backward;  ///< by instruction id: ChunkArguments::loss_in_backward
  T* upstream_gradient = nullptr;      ///< gradient between units of one backward
  Monitor gradient_buffers_monitor;
  std::vector<GradientBuffer> gradient_buffers;  ///< guarded by gradient_buffers_monitor

  int rank = 0;
  Coordinates at;
  std::unique_ptr<TimedCommunicator> tp;
  std::unique_ptr<TimedCommunicator> kv;
  std::unique_ptr<TimedCommunicator> cp;
  std::unique_ptr<TimedCommunicator> ep;  ///< null where ep is 1
  Communicator* forward = nullptr;
  Communicator* backward = nullptr;
  Communicator* tied = nullptr;
  Communicator* all = nullptr;
  std::vector<std::int32_t> sample;  ///< one, while it is read
  std::vector<std::int32_t> batch;   ///< of one microbatch: tokens, then targets

  /// On the processor; sums of a step, then over all ranks.
  struct StepSums {
    double squares = 0;        ///< of the gradients, each parameter once
    double loss = 0;           ///< Σ cross entropy
    double small_squares = 0;  ///< of single microbatches
    double large_squares = 0;  ///< of the same parameters' gradients
    Wide<T> scale{};           ///< of the gradients: clipping. Not a sum
  };
  static constexpr std::int64_t kSums = offsetof(StepSums, scale) / sizeof(double);
  StepSums* sums = nullptr;

  std::int64_t step = 0;
  bool estimates_noise = false;
  StepResult result;

  /// What is trained of a unit, but for its experts where these are apart.
  [[nodiscard]] FlatState<T>& flat(int chunk, int unit) {
    return chunks[at_index(chunk)].states->flat_states()[at_index(unit)];
  }
  /// `gathered`: the unit's weights at ZeRO-3, then those that go with them; null: all are here.
  void set_weights(int chunk, int unit, const T* gathered, ChunkArguments<T>& args) {
    const FlatState<T>& own = flat(chunk, unit);
    OptimizerState<T>& states = *chunks[at_index(chunk)].states;
    const T* const first = gathered != nullptr ? gathered : own.weights;
    const auto other = [&](const FlatState<T>& flat) {
      return flat.weights != nullptr ? flat.weights : first + own.layout->padded;
    };
    args.weights = first;
    if (const FlatState<T>* const experts = states.experts_of(unit)) args.experts = other(*experts);
    if (const FlatState<T>* const frozen = states.frozen_of(unit)) {
      args.adapters = first;
      args.weights = other(*frozen);
    }
  }
  /// Stream::set_mark of the gathered weights of a unit; of one past the last: of the tied
  /// embedding.
  [[nodiscard]] std::size_t mark_of(int chunk, std::size_t unit) const {
    return at_index(chunk) * (chunks.front().backwards.size() + 1) + unit;
  }
  [[nodiscard]] FlatState<T>* tied_flat(int chunk) {
    auto& flat_states = chunks[at_index(chunk)].states->flat_states();
    return flat_states.back().tied ? &flat_states.back() : nullptr;
  }
  /// The same; null where it is frozen.
  [[nodiscard]] FlatState<T>* trained_tied_flat(int chunk) {
    FlatState<T>* const tied = tied_flat(chunk);
    return tied != nullptr && !tied->layout->frozen ? tied : nullptr;
  }
};

}  // namespace echelon
