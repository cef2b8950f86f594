#include "interop/logs/printed_flops.hpp"

#include <array>
#include <cmath>

namespace echelon {

namespace {

double gate(const PrintedShapes& s) { return s.gated ? 1.5 : 1; }
double query_share(const PrintedShapes& s) { return s.heads * s.head_dim / s.hidden; }

double megatron(const PrintedShapes& s, double sequence, double attended) {
  const double q = query_share(s);
  const double sum = (1 + s.kv_heads / s.heads + attended / s.hidden) * q +
                     gate(s) * s.ffn / s.hidden + s.vocab / (2 * s.layers * s.hidden);
  return 12 * s.layers * sequence * s.hidden * s.hidden * sum;
}
double megatron_whole(const PrintedShapes& s, double sequence) {
  return megatron(s, sequence, sequence);
}
double megatron_causal(const PrintedShapes& s, double sequence) {
  return megatron(s, sequence, sequence / 2);
}

double deepspeed(const PrintedShapes& s, double sequence, double passes) {
  return 24 * passes * s.layers * sequence * s.hidden * s.hidden *
         (1 + sequence / (6 * s.hidden) + s.vocab / (16 * s.layers * s.hidden));
}
double deepspeed_kept(const PrintedShapes& s, double sequence) { return deepspeed(s, sequence, 3); }
double deepspeed_recomputed(const PrintedShapes& s, double sequence) {
  return deepspeed(s, sequence, 4);
}

double products(const PrintedShapes& s, double sequence) {
  const double attention = 2 * s.hidden * s.head_dim * (s.heads + s.kv_heads);
  const double mlp = (s.gated ? 3 : 2) * s.hidden * s.ffn;
  const double parameters = s.layers * (attention + mlp) + s.hidden * s.vocab;
  return sequence * (6 * parameters + 12 * s.layers * s.heads * s.head_dim * sequence);
}

constexpr std::array kMegatronFormulas = {
    FlopsFormula{"the whole attention matrix, as core 0.5 to 0.11 count", "", 5, 11,
                 megatron_whole},
    FlopsFormula{"half the attention matrix, as from core 0.12 on", "", 12, 0, megatron_causal},
};
constexpr std::array kDeepSpeedFormulas = {
    FlopsFormula{"three forward passes: no recomputation", "none", 0, 0, deepspeed_kept},
    FlopsFormula{"four forward passes: full recomputation", "full", 0, 0, deepspeed_recomputed},
};
constexpr std::array kProductFormulas = {
    FlopsFormula{"matrix products and the whole attention matrix", "", 0, 0, products},
};

std::span<const FlopsFormula> all_formulas(std::string_view format) {
  if (format == "megatron-lm" || format == "megatron-bridge") return kMegatronFormulas;
  if (format == "megatron-deepspeed") return kDeepSpeedFormulas;
  if (format == "torchtitan" || format == "nanotron") return kProductFormulas;
  return {};
}

}  // namespace

std::vector<FlopsFormula> flops_formulas(const LogFormat& format, int version_from,
                                         int version_until) {
  std::vector<FlopsFormula> fitting;
  for (const FlopsFormula& formula : all_formulas(format.name)) {
    const bool older = formula.until > 0 && version_from > formula.until;
    const bool newer = formula.from > 0 && version_until > 0 && version_until < formula.from;
    if (!older && !newer) fitting.push_back(formula);
  }
  return fitting;
}

double shard_parameters(const PrintedShapes& s, double tp, double pp, bool tied) {
  const double layers = 2 * s.layers * s.hidden * s.hidden *
                        ((1 + s.kv_heads / s.heads) * query_share(s) + gate(s) * s.ffn / s.hidden +
                         2 / s.hidden + 1 / (s.layers * s.hidden));
  const double embedding = s.hidden * s.vocab;
  return (layers / pp + embedding + (!tied && pp == 1 ? embedding : 0)) / tp;
}

std::optional<double> vocabulary_of(double printed_billions, PrintedShapes shapes, double tp,
                                    double pp, bool tied) {
  constexpr double kRounding = 0.5e-4;
  constexpr double kPadding = 128;  // --make-vocab-size-divisible-by
  shapes.vocab = 0;
  const double others = shard_parameters(shapes, tp, pp, tied);
  const double tables = !tied && pp == 1 ? 2 : 1;
  const auto at = [&](double billions) {
    return (billions * 1e9 - others) * tp / (shapes.hidden * tables);
  };
  const double step = kPadding * tp;
  const double first = std::ceil(at(printed_billions - kRounding) / step) * step;
  const double last = std::floor(at(printed_billions + kRounding) / step) * step;
  if (first != last || first <= 0) return {};
  return first;
}

}  // namespace echelon
