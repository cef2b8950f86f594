// Parts of measure_machine() and similar functions.
#pragma once

#include <algorithm>
#include <vector>

#include "core/run/measurements.hpp"
#include "runtime/comm/communicator.hpp"
#include "runtime/model/chunk.hpp"

namespace echelon {

/// The lowest decile: the time of an undisturbed operation.
[[nodiscard]] inline Seconds undisturbed(std::vector<Seconds> times) {
  std::sort(times.begin(), times.end());
  return times.at(times.size() / 10);
}

/// The median: the time of an operation under sustained load. Of an even number of times the mean
/// of the two in the middle.
[[nodiscard]] inline Seconds median(std::vector<Seconds> times) {
  std::sort(times.begin(), times.end());
  return 0.5 * (times.at((times.size() - 1) / 2) + times.at(times.size() / 2));
}

/// Layers in the middle of a model like GPT-2, whose MLPs are four times as wide as it is.
[[nodiscard]] inline ChunkSpec measured_layers(int layers, int hidden, int head_dim, int sequence,
                                               int samples) {
  ChunkSpec spec;
  ModelSpec& m = spec.model;
  m.name = "measured";
  m.constants.emplace();
  m.layers = layers + 2;
  m.hidden = hidden;
  m.heads = m.kv_heads = hidden / head_dim;
  m.head_dim = head_dim;
  m.ffn_hidden = 4 * hidden;
  m.vocab = 256;
  m.max_positions = sequence;
  m.normalization = Normalization::layer_norm;
  m.activation = Activation::gelu;
  m.position = PositionEmbedding::learned;
  m.gated_mlp = false;
  m.qkv_bias = m.attention_output_bias = m.mlp_bias = true;
  spec.first_layer = 1;
  spec.layers = layers;
  spec.microbatch = samples;
  spec.sequence = sequence;
  spec.recompute.assign(static_cast<std::size_t>(layers), Recompute::none);
  spec.padded_vocab = m.vocab;
  return spec;
}

/// "empty step" (core/run/measurements.hpp): the executor with a device that does nothing.
[[nodiscard]] std::vector<Measurement> measure_host(int ranks, int cores);

/// All collectives and sizes among the members of a group of `ranks`, each of which calls this at
/// the same time; the times are the caller's.
[[nodiscard]] std::vector<Measurement> time_collectives(Communicator& end, int ranks, int cores);

/// time_collectives between threads, as seen by rank 0.
[[nodiscard]] std::vector<Measurement> measure_collectives_of_threads(int ranks, int cores);

}  // namespace echelon
