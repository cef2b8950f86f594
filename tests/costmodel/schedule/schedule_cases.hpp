// Shapes and costs for the tests of schedules.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "costmodel/schedule/build.hpp"
#include "costmodel/schedule/simulator.hpp"
#include "costmodel/time/pipeline.hpp"
#include "tests/support/numbers.hpp"

namespace echelon {

/// Every kind of schedule on 1 .. `ranks` ranks with 1 .. `chunks` chunks and some microbatches.
inline std::vector<PipelineShape> shapes(int ranks, int chunks, const std::vector<int>& batches) {
  using enum ScheduleKind;
  std::vector<PipelineShape> all;
  for (int p = 1; p <= ranks; ++p) {
    for (const int m : batches) {
      for (const ScheduleKind kind : {gpipe, one_f_one_b, zero_bubble_h1}) {
        all.push_back({.kind = kind, .ranks = p, .chunks = 1, .microbatches = m});
      }
      if (p > 1 && chunks > 1) {
        all.push_back({.kind = dualpipe_v, .ranks = p, .chunks = 2, .microbatches = 2 * p - 1 + m});
      }
      for (int v = 1; p > 1 && v <= chunks; ++v) {
        all.push_back({.kind = interleaved, .ranks = p, .chunks = v, .microbatches = m * p});
      }
    }
  }
  return all;
}

inline std::string name_of(const PipelineShape& s) {
  return std::string(name_of(s.kind)) + " p " + std::to_string(s.ranks) + " v " +
         std::to_string(s.chunks) + " m " + std::to_string(s.microbatches);
}

/// Chunks that take one second per microbatch and pass: forward, input and weight gradient.
inline ScheduleCosts one_second_each(const PipelineShape& s, Seconds hop = {}) {
  return ScheduleCosts::uniform(
      s.ranks, s.chunks,
      {.forward = 1_s, .backward_input = 1_s, .backward_weight = 1_s, .recompute = {}}, hop);
}

/// What is known of these costs before their layers are divided.
inline PipelineOutline outline_of(const PipelineShape& s, const ScheduleCosts& costs) {
  PipelineOutline o{.schedule = s.kind,
                    .pp = s.ranks,
                    .vpp = s.chunks,
                    .microbatches = s.microbatches,
                    .sum = {},
                    .slowest = {},
                    .hop = *std::min_element(costs.hops.begin(), costs.hops.end()),
                    .least_chunk = costs.stages[0].total()};
  for (int rank = 0; rank < s.ranks; ++rank) {
    Seconds all;
    for (int chunk = 0; chunk < s.chunks; ++chunk) {
      const Seconds each = costs.stages[static_cast<std::size_t>(s.stage(rank, chunk))].total();
      all += each;
      o.least_chunk = std::min(o.least_chunk, each);
    }
    o.sum += all;
    o.slowest = std::max(o.slowest, all);
  }
  return o;
}

/// Any costs; some hops and some parts of the backward are free.
inline ScheduleCosts random_costs(const PipelineShape& s, Numbers& draw) {
  ScheduleCosts costs = one_second_each(s);
  const auto time = [&](double most) {
    return Seconds{draw.upto(5) == 0 ? 0.0 : draw.between(0, most)};
  };
  for (ChunkTimes& t : costs.stages) {
    t = {.forward = Seconds{draw.between(0.1, 2)},
         .backward_input = Seconds{draw.between(0.1, 2)},
         .backward_weight = time(2),
         .recompute = time(1)};
  }
  for (Seconds& hop : costs.hops) hop = time(0.5);
  costs.ranks.resize(static_cast<std::size_t>(s.ranks));
  for (RankTimes& t : costs.ranks) {
    t = {.load_batch = time(0.1),
         .gather_unit = time(0.5),
         .reduce_bucket = time(0.5),
         .reduce_tied = time(0.1),
         .norm_reduce = time(0.1),
         .clip = time(0.1),
         .optimizer = time(1),
         .gather_updated = time(0.5),
         .zero_gradients = time(0.1)};
  }
  return costs;
}

/// A step with a random selection of everything other than forwards and backwards.
inline ScheduleSpec random_spec(const PipelineShape& s, Numbers& draw) {
  ScheduleSpec spec;
  spec.shape = s;
  spec.units = 1 + draw.upto(3);
  spec.reduce_gradients = draw.upto(2) > 0;
  spec.reduce_every_microbatch = draw.upto(3) == 0;
  spec.gather_slots = draw.upto(1) * (1 + draw.upto(3));
  spec.gather_updated = draw.upto(1) > 0;
  spec.tied_embedding = draw.upto(1) > 0;
  spec.clip = draw.upto(1) > 0;
  spec.batch_bytes = draw.upto(1000);
  spec.tied_bytes = draw.upto(1000);
  for (int stage = 0; stage < s.stages(); ++stage) {
    spec.stages.push_back({.boundary = draw.upto(1000),
                           .saved = draw.upto(10000),
                           .weight_inputs = draw.upto(1000),
                           .parameters = draw.upto(1000),
                           .gradients = draw.upto(1000)});
  }
  return spec;
}

}  // namespace echelon
