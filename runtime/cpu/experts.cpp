#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "runtime/cpu/kernels.hpp"
#include "runtime/cpu/simd_rows.hpp"

namespace echelon::cpu {
namespace {

/// σ(z) = 1/(1 + e^(−z)); the exponential overflows to a weight of 0.
template <class W>
W sigmoid(W z) {
  return 1 / (1 + std::exp(-z));
}

/// What a row chooses by; logits order experts as a softmax of them does. NaN is the largest, so
/// that it is chosen and seen in the loss.
template <class T>
void scores_of(const Router& r, const T* logits, const T* bias, Wide<T>* scores) {
  for (int e = 0; e < r.experts; ++e) {
    const Wide<T> z(logits[e]);
    const Wide<T> score = (r.score == RouterScore::sigmoid ? sigmoid(z) : z) +
                          (bias != nullptr ? Wide<T>(bias[e]) : 0);
    scores[e] = std::isnan(score) ? std::numeric_limits<Wide<T>>::infinity() : score;
  }
}

/// What a group is compared by.
template <class W>
W score_of_group(const Router& r, const W* scores) {
  const int size = r.experts / r.groups;
  W first = -std::numeric_limits<W>::infinity();
  W second = first;
  for (int e = 0; e < size; ++e) {
    if (scores[e] > first) {
      second = first;
      first = scores[e];
    } else if (scores[e] > second) {
      second = scores[e];
    }
  }
  return r.group_best > 1 && size > 1 ? first + second : first;
}

/// A bit for each group: those that a row chooses from.
template <class W>
std::uint64_t choose_groups(const Router& r, const W* scores) {
  const int size = r.experts / r.groups;
  std::uint64_t chosen = 0;
  for (int j = 0; j < r.group_choices; ++j) {
    int best = -1;
    W largest = 0;
    for (int g = 0; g < r.groups; ++g) {
      if ((chosen >> g & 1) != 0) continue;
      const W score = score_of_group(r, scores + g * size);
      if (best >= 0 && !(score > largest)) continue;
      best = g;
      largest = score;
    }
    chosen |= std::uint64_t{1} << best;
  }
  return chosen;
}

/// The largest scores of a row, in falling order.
template <class W>
void choose(const Router& r, const W* scores, std::int32_t* chosen) {
  const int size = r.experts / r.groups;
  const std::uint64_t groups = r.groups > 1 ? choose_groups(r, scores) : 1;
  for (int j = 0; j < r.choices; ++j) {
    std::int32_t best = -1;
    for (std::int32_t e = 0; e < r.experts; ++e) {
      if ((groups >> (e / size) & 1) == 0) continue;
      if (std::find(chosen, chosen + j, e) != chosen + j) continue;
      if (best < 0 || scores[e] > scores[best]) best = e;
    }
    chosen[j] = best;
  }
}

/// What the weight of an expert is proportional to: e^(z − max), max that of the first choice, or
/// its sigmoid.
template <class W>
W mass(const Router& r, W z, W max) {
  return r.score == RouterScore::sigmoid ? sigmoid(z) : std::exp(z - max);
}

/// What those are divided by: their sum over the experts that the weights are parts of, or 1.
template <class T>
Wide<T> divisor(const Router& r, const T* logits, const std::int32_t* chosen) {
  const Wide<T> max(logits[chosen[0]]);
  const bool by_sigmoid = r.score == RouterScore::sigmoid;
  if (by_sigmoid && !r.normalized) return 1;
  Wide<T> sum = by_sigmoid ? static_cast<Wide<T>>(kLeastSum) : 0;
  if (r.normalized) {
    for (int j = 0; j < r.choices; ++j) sum += mass(r, Wide<T>(logits[chosen[j]]), max);
  } else {
    for (int e = 0; e < r.experts; ++e) sum += mass(r, Wide<T>(logits[e]), max);
  }
  return sum;
}

template <class T>
ECHELON_CLONES void weight_row(T* x, Wide<T> by, std::int64_t width) {
  for (std::int64_t i = 0; i < width; i += kLanes<Wide<T>>) {
    const std::int64_t left = width - i;
    store(x + i, by * load(x + i, left), left);
  }
}

template <class T>
ECHELON_CLONES Wide<T> dot_row(const T* x, const T* y, std::int64_t width) {
  using W = Wide<T>;
  Lanes<W> sums{};
  for (std::int64_t i = 0; i < width; i += kLanes<W>) {
    const std::int64_t left = width - i;
    sums += load(x + i, left) * load(y + i, left);
  }
  W sum = 0;
  for (std::int64_t lane = 0; lane < kLanes<W>; ++lane) sum += sums[lane];
  return sum;
}

/// The sum of a row's choices, rounded once.
template <class T>
ECHELON_CLONES void combine_row(const T* x, const std::int32_t* slots, int choices,
                                std::int64_t width, const T* addend, T* y) {
  using W = Wide<T>;
  for (std::int64_t i = 0; i < width; i += kLanes<W>) {
    const std::int64_t left = width - i;
    Lanes<W> sum = addend != nullptr ? load(addend + i, left) : Lanes<W>{};
    for (int j = 0; j < choices; ++j) sum += load(x + slots[j] * width + i, left);
    store(y + i, sum, left);
  }
}

}  // namespace

template <class T>
void route(const Router& r, const T* logits, const T* bias, const Routing<T>& routing) {
  in_parts(r.rows, grain_of_rows(std::int64_t{r.experts} * r.choices),
           [&](std::int64_t begin, std::int64_t end) {
             std::vector<Wide<T>> scores(static_cast<std::size_t>(r.experts));
             for (std::int64_t row = begin; row < end; ++row) {
               scores_of(r, logits + row * r.experts, bias, scores.data());
               choose(r, scores.data(), routing.experts + row * r.choices);
             }
           });
  const std::int64_t choices = r.rows * r.choices;
  std::fill_n(routing.counts, r.experts, 0);
  for (std::int64_t c = 0; c < choices; ++c) ++routing.counts[routing.experts[c]];
  std::vector<std::int32_t> next(static_cast<std::size_t>(r.experts), 0);
  for (std::size_t e = 1; e < next.size(); ++e) next[e] = next[e - 1] + routing.counts[e - 1];
  for (std::int64_t c = 0; c < choices; ++c) {
    routing.slots[c] = next[static_cast<std::size_t>(routing.experts[c])]++;
    routing.rows[routing.slots[c]] = static_cast<std::int32_t>(c / r.choices);
  }
  for (std::int64_t row = 0; row < r.rows; ++row) {
    const T* const z = logits + row * r.experts;
    const std::int32_t* const chosen = routing.experts + row * r.choices;
    const Wide<T> max(z[chosen[0]]);
    const Wide<T> unit = static_cast<Wide<T>>(r.scaling) / divisor(r, z, chosen);
    for (int j = 0; j < r.choices; ++j) {
      routing.weights[routing.slots[row * r.choices + j]] =
          mass(r, Wide<T>(z[chosen[j]]), max) * unit;
    }
  }
}

/// Of a softmax p over some experts, scaled by s: dlogit = s·p·(d − Σ p·d), d = 0 where an expert
/// was not chosen. Of sigmoids σ, parts p of their sum: s·p·(d − Σ p·d)·(1 − σ) where it was
/// chosen, else 0; of sigmoids that are not divided s·σ·d·(1 − σ).
template <class T>
void route_backward(const Router& r, const T* logits, const Routing<T>& routing,
                    const Wide<T>* dweights, T* dlogits) {
  using W = Wide<T>;
  in_parts(r.rows, grain_of_rows(r.experts), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const T* const z = logits + row * r.experts;
      T* const dz = dlogits + row * r.experts;
      const std::int32_t* const chosen = routing.experts + row * r.choices;
      const std::int32_t* const slots = routing.slots + row * r.choices;
      const bool by_sigmoid = r.score == RouterScore::sigmoid;
      W mean = 0;  // s·Σ p·d: the weights are s·p
      for (int j = 0; j < r.choices && (!by_sigmoid || r.normalized); ++j)
        mean += routing.weights[slots[j]] * dweights[slots[j]];
      const W scaling = static_cast<W>(r.scaling);
      const W max(z[chosen[0]]);
      const W unit = 1 / divisor(r, z, chosen);
      const bool others = !r.normalized && !by_sigmoid;
      for (int e = 0; e < r.experts; ++e)
        dz[e] = others ? T(-mass(r, W(z[e]), max) * unit * mean) : T(W(0));
      for (int j = 0; j < r.choices; ++j) {
        const W of_score = mass(r, W(z[chosen[j]]), max);
        const W slope = (scaling * dweights[slots[j]] - mean) * (by_sigmoid ? 1 - of_score : 1);
        dz[chosen[j]] = T(of_score * unit * slope);
      }
    }
  });
}

template <class T>
void gather_rows(const T* x, const std::int32_t* rows, std::int64_t count, std::int64_t width,
                 T* y) {
  in_parts(count, grain_of_rows(width), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      std::copy_n(x + rows[i] * width, width, y + i * width);
  });
}

template <class T>
void combine_rows(const T* x, const std::int32_t* slots, std::int64_t rows, int choices,
                  std::int64_t width, const T* addend, T* y) {
  in_parts(rows, grain_of_rows(width * choices), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      combine_row(x, slots + row * choices, choices, width,
                  addend != nullptr ? addend + row * width : nullptr, y + row * width);
    }
  });
}

template <class T>
void weight_rows(T* x, const Wide<T>* weights, std::int64_t rows, std::int64_t width) {
  in_parts(rows, grain_of_rows(width), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row)
      weight_row(x + row * width, weights[row], width);
  });
}

template <class T>
void weight_rows_backward(T* x, T* dy, const Wide<T>* weights, Wide<T>* dweights, std::int64_t rows,
                          std::int64_t width) {
  in_parts(rows, grain_of_rows(width), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      dweights[row] = dot_row(x + row * width, dy + row * width, width);
      weight_row(x + row * width, weights[row], width);
      weight_row(dy + row * width, weights[row], width);
    }
  });
}

template <class T>
void gate_forward(const T* logits, Wide<T>* weights, std::int64_t count) {
  in_parts(count, kGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) weights[i] = sigmoid(Wide<T>(logits[i]));
  });
}

template <class T>
void gate_backward(const Wide<T>* weights, const Wide<T>* dweights, T* dlogits,
                   std::int64_t count) {
  in_parts(count, kGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      dlogits[i] = T(dweights[i] * weights[i] * (1 - weights[i]));
  });
}

#define ECHELON_EXPERTS(T)                                                                         \
  template void route<T>(const Router&, const T*, const T*, const Routing<T>&);                    \
  template void route_backward<T>(const Router&, const T*, const Routing<T>&, const Wide<T>*, T*); \
  template void gather_rows<T>(const T*, const std::int32_t*, std::int64_t, std::int64_t, T*);     \
  template void combine_rows<T>(const T*, const std::int32_t*, std::int64_t, int, std::int64_t,    \
                                const T*, T*);                                                     \
  template void weight_rows<T>(T*, const Wide<T>*, std::int64_t, std::int64_t);                    \
  template void weight_rows_backward<T>(T*, T*, const Wide<T>*, Wide<T>*, std::int64_t,            \
                                        std::int64_t);                                             \
  template void gate_forward<T>(const T*, Wide<T>*, std::int64_t);                                 \
  template void gate_backward<T>(const Wide<T>*, const Wide<T>*, T*, std::int64_t);
ECHELON_EXPERTS(double)
ECHELON_EXPERTS(float)
ECHELON_EXPERTS(Bfloat16)
#undef ECHELON_EXPERTS

}  // namespace echelon::cpu
