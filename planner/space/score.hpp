// The score that a search minimizes: the step, raised by the risk that the plan does not fit and by
// what its unusual features cost those who run it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "planner/space/request.hpp"

namespace echelon {

/// The memory band of the request's framework and calibration.
[[nodiscard]] const MemoryBand& memory_band_of(const PlanRequest& request);

/// Below it a plan is refused, unless nothing else fits.
inline constexpr double kLeastProbability = 0.5;
/// … then below this one.
inline constexpr double kLastResort = 0.05;
/// A plan at least as likely to fit, without offload, limits how slow the winner may be; its step
/// counts with the prices of its unusual features.
inline constexpr double kSafeProbability = 0.9;
/// The winner is at most so much slower than the fastest of those, relative.
inline constexpr double kMostGivenUp = 0.03;

/// Probability that a plan fits whose fullest GPU is predicted to reserve `reserved`, by the memory
/// band (costmodel/calibration/memory_band.hpp), with the GPU's memory less what is kept free as
/// capacity. Nothing with --max-memory: the user has said what fits.
[[nodiscard]] std::optional<double> fit_probability(const PlanRequest& request, Bytes reserved);
/// The largest predicted reserved peak that fits with a probability of at least `probability`, in
/// (0, 1); --max-memory, where it is given.
[[nodiscard]] Bytes memory_limit(const PlanRequest& request, double probability);

/// What makes a plan harder to run than its step shows.
enum class UnusualFeature : std::uint8_t {
  unequal_chunks,         ///< chunks of one rank hold different numbers of layers
  own_layout,             ///< layers per stage that no plain flag describes
  many_chunks,            ///< vpp > 8
  shard_group,            ///< states sharded over a part of the data-parallel ranks
  offload,                ///< optimizer states in host memory
  crosses_domains,        ///< tp, or an all-to-all, between NVLink domains
  stages,                 ///< pp > 1
  fsdp,                   ///< FSDP, where it is another wrapper with checkpoints of its own
  sharded_with_tensor,    ///< FSDP together with tp
  pipeline_inside_data,   ///< rank order with pp inside dp
  partial_recomputation,  ///< some layers recomputed, others not
  overlapped_experts,     ///< dispatch and combine beside another microbatch
  graphs,                 ///< kernels replayed as CUDA graphs
};
inline constexpr std::size_t kUnusualFeatures = 13;

struct FeaturePrice {
  UnusualFeature feature{};
  std::string_view name;   ///< in files: "unequal-chunks"
  std::string_view label;  ///< in texts
  double price = 0;        ///< share of the step that not having it is worth
};
/// Prices: assumed, from what experienced users accept for a simpler plan; all are below the error
/// of the model (its ties are about 4 % wide).
inline constexpr std::array<FeaturePrice, kUnusualFeatures> kFeaturePrices = {{
    {UnusualFeature::unequal_chunks, "unequal-chunks", "chunks of unequal size", 0.005},
    {UnusualFeature::own_layout, "own-layout", "a pipeline layout of its own", 0.002},
    {UnusualFeature::many_chunks, "many-chunks", "more than 8 chunks per rank", 0.002},
    {UnusualFeature::shard_group, "zero-group", "several optimizer instances", 0.003},
    {UnusualFeature::offload, "offload", "optimizer states in host memory", 0.015},
    {UnusualFeature::crosses_domains, "crosses-domains",
     "tensor parallelism or all-to-all between NVLink domains", 0.01},
    {UnusualFeature::stages, "stages", "pipeline stages", 0.005},
    {UnusualFeature::fsdp, "fsdp", "Megatron-FSDP", 0.005},
    {UnusualFeature::sharded_with_tensor, "fsdp-with-tp", "FSDP with tensor parallelism", 0.005},
    {UnusualFeature::pipeline_inside_data, "pp-inside-dp", "pp inside dp", 0.005},
    {UnusualFeature::partial_recomputation, "partial-recomputation",
     "recomputation of some layers only", 0.001},
    {UnusualFeature::overlapped_experts, "overlap-ep", "overlap of expert communication", 0.002},
    {UnusualFeature::graphs, "cuda-graphs", "CUDA graphs", 0.002},
}};

/// The unusual features of a plan: a set.
class UnusualFeatures {
 public:
  void add(UnusualFeature feature) { bits_ |= bit(feature); }
  [[nodiscard]] bool has(UnusualFeature feature) const { return (bits_ & bit(feature)) != 0; }
  /// Sum of their prices, a share of the step.
  [[nodiscard]] double price() const {
    double sum = 0;
    for (const FeaturePrice& each : kFeaturePrices) sum += has(each.feature) ? each.price : 0;
    return sum;
  }
  bool operator==(const UnusualFeatures&) const = default;

 private:
  static constexpr std::uint16_t bit(UnusualFeature feature) {
    return static_cast<std::uint16_t>(1U << static_cast<unsigned>(feature));
  }
  std::uint16_t bits_ = 0;
};

/// Those that the degrees, the schedule, ZeRO and the rank order of a plan decide.
[[nodiscard]] UnusualFeatures features_of_degrees(const PlanRequest& request,
                                                  const ParallelPlan& plan);
/// All of them: with the layers of each stage and their recomputation.
[[nodiscard]] UnusualFeatures features_of(const PlanRequest& request, const ParallelPlan& plan);

/// What the states of a recipe cost against wider ones, a share of the step: gradients and moments
/// of 16 bits are a risk to convergence each, assumed like kFeaturePrices.
inline constexpr double kNarrowGradients = 0.005;
inline constexpr double kNarrowMoments = 0.005;
/// Nothing with Preference::fastest, as of features.
[[nodiscard]] double price_of_states(Preference preference, const PrecisionRecipe& recipe);

/// How a plan is weighed against others: `weight` times its step is what a search minimizes,
///   E = T · (1 + c·(1 − P)) · (1 + Σ price)
/// with c = 4, 2, 0 for robust, balanced, fastest, and no prices with fastest. E ≥ T, so that a
/// lower bound of T is one of E.
struct Score {
  std::optional<double> fits_probability{};
  UnusualFeatures unusual{};
  double weight = 1;
};
/// c of a preference.
[[nodiscard]] double risk_factor(Preference preference);
[[nodiscard]] Score score_of(const PlanRequest& request, const UnusualFeatures& unusual,
                             Bytes reserved);
/// The weight of a plan with such features that certainly fits.
[[nodiscard]] double least_weight(const PlanRequest& request, const UnusualFeatures& unusual);

}  // namespace echelon
