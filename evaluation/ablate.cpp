#include "evaluation/ablate.hpp"

#include <cmath>
#include <utility>

#include "core/base/expects.hpp"
#include "costmodel/calibration/calibration_fields.hpp"

namespace echelon {

namespace {

constexpr double kMatters = 0.01;  ///< of the predicted step
constexpr double kFree = 1e6;      ///< an efficiency that makes work free

/// The sets of a fit with a term removed from every calibration, without refitting.
FoldedFit stripped(FoldedFit fit, const AblationTerm& term) {
  fit.ablated = term.ablated;
  for (auto& set : fit.sets) {
    for (Calibration& calibration : set) {
      for (const PinnedRate& rate : term.pinned) {
        set_rate(calibration, calibration_field(rate.key), rate.value);
      }
    }
  }
  return fit;
}

}  // namespace

const std::vector<AblationTerm>& ablation_terms() {
  static const std::vector<AblationTerm> kTerms = {
      {"host floor",
       "the host cannot launch a layer faster than it can",
       {{"host_layer_forward", 0},
        {"host_layer_backward", 0},
        {"host_experts", 0},
        {"host_latency_factor", 0}}},
      {"element-wise kernels",
       "norms, activations, residuals, casts",
       {{"memory_efficiency", kFree}}},
      {"kernel latency", "device time of an empty kernel", {{"kernel_fixed", 0}}},
      {"GEMM depth", "short products fill the tensor cores less", {{"gemm_ramp", 0}}},
      {"attention length", "short sequences fill attention kernels less", {{"attention_ramp", 0}}},
      {"copies around attention",
       "rotation in 32 bits and copies beside attention's kernels",
       {{"attention_overhead", 0}}},
      {"optimizer passes", "the update streams the states", {{"optimizer_efficiency", kFree}}},
      {"fixed per step", "data, logging, synchronisation", {{"step_fixed", 0}}},
      {"stragglers", "the slowest of many nodes", {{"straggler_per_doubling", 0}}},
      {"in-domain bandwidth", "NVLink or PCIe bytes", {{"link_efficiency", kFree}}},
      {"network bandwidth", "bytes between nodes", {{"nic_efficiency", kFree}}},
      {"collective latency",
       "base and ring steps",
       {{"collective_base", 0},
        {"intra_hop", 0},
        {"inter_hop", 0},
        {"ring_latency_factor", 0},
        {"layer_latency_factor", 0},
        {"bulk_latency_factor", 0}}},
      {"overlap of data-parallel traffic",
       "gradients and parameters move during compute",
       {{"dp_overlap", 0}}},
      {"overlap of tensor-parallel traffic",
       "collectives overlap their GEMMs",
       {{"tp_overlap", 0}}},
      {"cost of overlap", "overlapped compute is slower", {{"overlap_slowdown", 0}}},
      {"pace of experts",
       "layers of experts run slower than their products say",
       {{"moe_speed_factor", 1}}},
      {"fp8 efficiency", "fp8 GEMMs reach another share of their peak", {{"fp8_efficiency", 1}}},
      {"sharing of NICs",
       "else every group has all NICs of its nodes",
       {},
       AblatedFeature::unshared_nics},
      {"several NICs of a node",
       "else a group has those of one GPU",
       {},
       AblatedFeature::single_nics},
      {"pipeline bubble", "stages wait for the first and the last", {}, AblatedFeature::no_bubble},
  };
  return kTerms;
}

std::vector<AblatedTerm> ablate(const std::vector<MeasuredRun>& rows, const FoldedFit& whole,
                                const FitProgress& progress) {
  const int parts = static_cast<int>(whole.sets.size());
  const Result<ValidationReport> with = validate_folds(rows, whole);
  EXPECTS(with.ok(), "no filter, no error");
  std::vector<AblatedTerm> out;
  const auto& terms = ablation_terms();
  for (std::size_t t = 0; t < terms.size(); ++t) {
    const AblationTerm& term = terms[t];
    const auto bare = validate_folds(rows, stripped(whole, term));
    // The term is also removed from calibrations that were not fitted.
    const FoldedFit again = fit_folds(rows, parts, {term.pinned, term.ablated});
    const auto without = validate_folds(rows, stripped(again, term));
    AblatedTerm row{term.name, term.what, 0, 0, 0};
    for (std::size_t i = 0; i < with->rows.size(); ++i) {
      const ValidatedRow& judged = with->rows[i];
      if (!judged.time_error || judged.flagged_for_time()) continue;
      const double moved = *bare->rows[i].predicted_step / *judged.predicted_step - 1;
      if (std::abs(moved) < kMatters) continue;
      ++row.rows;
      row.with_term += std::abs(*judged.time_error);
      row.without_term += std::abs(*without->rows[i].time_error);
    }
    if (row.rows > 0) {
      row.with_term /= row.rows;
      row.without_term /= row.rows;
    }
    out.push_back(row);
    if (progress) progress((static_cast<double>(t) + 1) / static_cast<double>(terms.size()));
  }
  return out;
}

}  // namespace echelon
