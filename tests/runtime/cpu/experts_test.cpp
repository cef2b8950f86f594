#include <numeric>

#include "tests/runtime/cpu/kernel_numbers.hpp"

namespace echelon {
namespace {

/// Memory of a routing, and the routing.
template <class T>
struct RoutedRows {
  explicit RoutedRows(const Router& r)
      : experts(static_cast<std::size_t>(r.rows * r.choices), -1),
        slots(experts),
        rows(experts),
        counts(static_cast<std::size_t>(r.experts), -1),
        weights(experts.size()) {}
  std::vector<std::int32_t> experts, slots, rows, counts;
  std::vector<Wide<T>> weights;
  [[nodiscard]] Routing<T> routing() {
    return {experts.data(), slots.data(), rows.data(), counts.data(), weights.data()};
  }
};

template <class T>
RoutedRows<T> routed(const Router& r, const std::vector<T>& logits,
                     const std::vector<T>& bias = {}) {
  RoutedRows<T> out(r);
  cpu::route(r, logits.data(), bias.empty() ? nullptr : bias.data(), out.routing());
  return out;
}

/// Weights by choice.
template <class T>
std::vector<double> weights_of(const RoutedRows<T>& routed) {
  std::vector<double> out;
  for (const std::int32_t slot : routed.slots)
    out.push_back(static_cast<double>(routed.weights[static_cast<std::size_t>(slot)]));
  return out;
}

/// A second router, as transformers writes it: scores of all experts, groups by sorted scores,
/// those outside the best ones masked, the rest sorted.
struct Chosen {
  std::vector<std::int32_t> experts;
  std::vector<double> weights;
};
Chosen plain_choice(const Router& r, const double* logits, const std::vector<double>& bias = {}) {
  const bool by_sigmoid = r.score == RouterScore::sigmoid;
  double all = 0;
  for (int e = 0; e < r.experts; ++e) all += std::exp(logits[e]);
  std::vector<double> scores, decisive;
  for (int e = 0; e < r.experts; ++e) {
    scores.push_back(by_sigmoid ? 1 / (1 + std::exp(-logits[e])) : std::exp(logits[e]) / all);
    decisive.push_back(scores.back() + (bias.empty() ? 0 : bias[static_cast<std::size_t>(e)]));
  }
  const auto best_of = [](const std::vector<double>& values) {
    std::vector<std::int32_t> order(values.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) {
      return values[static_cast<std::size_t>(a)] > values[static_cast<std::size_t>(b)];
    });
    return order;
  };
  const int size = r.experts / r.groups;
  std::vector<double> groups;
  for (int g = 0; g < r.groups; ++g) {
    std::vector<double> own(decisive.begin() + g * size, decisive.begin() + (g + 1) * size);
    std::sort(own.rbegin(), own.rend());
    groups.push_back(own[0] + (r.group_best > 1 && size > 1 ? own[1] : 0));
  }
  const std::vector<std::int32_t> of_groups = best_of(groups);
  for (auto g = of_groups.begin() + r.group_choices; g != of_groups.end(); ++g)
    std::fill_n(decisive.begin() + *g * size, size, -kInf);
  Chosen out{best_of(decisive), {}};
  out.experts.resize(static_cast<std::size_t>(r.choices));
  double chosen = by_sigmoid ? 1e-20 : 0;
  for (const std::int32_t e : out.experts) chosen += scores[static_cast<std::size_t>(e)];
  for (const std::int32_t e : out.experts) {
    const double p = scores[static_cast<std::size_t>(e)];
    out.weights.push_back(r.scaling * (r.normalized ? p / chosen : p));
  }
  return out;
}

/// DeepSeek-V2's and V3's are among them, in proportion.
const std::vector<Router>& routers() {
  constexpr auto kSigmoid = RouterScore::sigmoid;
  constexpr auto kSoftmax = RouterScore::softmax;
  static const std::vector<Router> kAll = {{1, 1, 1, true, 1},
                                           {7, 4, 1, false, 1},
                                           {9, 8, 2, true, 1},
                                           {33, 17, 8, false, 2.5},
                                           {5, 1, 1, true, 1, kSigmoid},
                                           {11, 9, 3, false, 1.5, kSigmoid},
                                           {13, 12, 4, true, 2.5, kSigmoid},
                                           {30, 32, 4, true, 2.5, kSigmoid, 8, 4},
                                           {21, 12, 3, false, 16, kSoftmax, 4, 2, 1},
                                           {17, 6, 2, true, 1, kSigmoid, 6, 3},
                                           {300, 60, 6, true, 16}};
  return kAll;
}

/// A bias for routers with sigmoids; none for others.
template <class T>
std::vector<T> bias_for(const Router& r) {
  Numbers numbers(90);
  if (r.score == RouterScore::softmax) return {};
  return as<T>(operand<Bfloat16>(numbers, r.experts, -0.5, 0.5));
}

}  // namespace

TEST_CASE(
    "each row visits the experts of its largest scores, of the best groups, by their scores") {
  for (const Router& r : routers()) {
    CAPTURE(r.rows, r.experts, r.choices);
    Numbers numbers(91);
    auto logits = operand<double>(numbers, r.rows * r.experts, -3, 3);
    if (r.experts > 3) logits[2] = logits[0] = logits[3] = 4;  // equal ones
    for (const std::vector<double>& bias : {std::vector<double>{}, bias_for<double>(r)}) {
      const RoutedRows<double> out = routed(r, logits, bias);
      const std::vector<double> weights = weights_of(out);
      for (std::int64_t row = 0; row < r.rows; ++row) {
        const Chosen expected = plain_choice(r, logits.data() + row * r.experts, bias);
        for (int j = 0; j < r.choices; ++j) {
          const auto c = static_cast<std::size_t>(row * r.choices + j);
          CHECK(out.experts[c] == expected.experts[static_cast<std::size_t>(j)]);
          CHECK(weights[c] == Approx(expected.weights[static_cast<std::size_t>(j)]).epsilon(1e-13));
        }
      }
    }
  }
}

TEST_CASE("a bias decides which experts a row visits, and does not change their weights") {
  const Router r{1, 6, 2, false, 1, RouterScore::sigmoid, 3, 1};
  const std::vector<double> logits{2, -1, 1, 0.9, -3, -3};
  // Two of one group by their sum: 0.88 + 0.27 < 0.73 + 0.71.
  CHECK(routed(r, logits).experts == std::vector<std::int32_t>{2, 3});
  Router by_best = r;
  by_best.group_best = 1;
  CHECK(routed(by_best, logits).experts == std::vector<std::int32_t>{0, 1});
  const RoutedRows<double> out = routed(r, logits, {0, 0, 0, 0, 3, 4});
  CHECK(out.experts == std::vector<std::int32_t>{5, 4});
  for (const double weight : weights_of(out)) CHECK(weight == Approx(1 / (1 + std::exp(3.0))));
  // Equal ones: the lower numbers, of groups too.
  CHECK(routed(r, std::vector<double>(6, 1.0)).experts == std::vector<std::int32_t>{0, 1});
}

TEST_CASE("slots are the choices ordered by expert, those of one expert as they were") {
  for (const Router& r : routers()) {
    Numbers numbers(92);
    const auto logits = operand<float>(numbers, r.rows * r.experts);
    const RoutedRows<float> out = routed(r, logits, bias_for<float>(r));
    std::vector<std::size_t> order(out.experts.size());
    std::iota(order.begin(), order.end(), 0U);
    std::stable_sort(order.begin(), order.end(),
                     [&](auto a, auto b) { return out.experts[a] < out.experts[b]; });
    for (std::size_t slot = 0; slot < order.size(); ++slot) {
      CHECK(out.slots[order[slot]] == static_cast<std::int32_t>(slot));
      CHECK(out.rows[slot] == static_cast<std::int32_t>(order[slot]) / r.choices);
    }
    for (int e = 0; e < r.experts; ++e) {
      CHECK(out.counts[static_cast<std::size_t>(e)] ==
            std::count(out.experts.begin(), out.experts.end(), e));
    }
  }
}

TEST_CASE("the gradient of the router's logits agrees with finite differences") {
  for (const Router& r : routers()) {
    CAPTURE(r.rows, r.experts, r.choices);
    Numbers numbers(93);
    const auto logits = operand<double>(numbers, r.rows * r.experts, -3, 3);
    const auto bias = bias_for<double>(r);
    RoutedRows<double> out = routed(r, logits, bias);
    const auto by_choice = operand<double>(numbers, r.rows * r.choices);
    std::vector<double> by_slot(by_choice.size());
    for (std::size_t c = 0; c < by_choice.size(); ++c)
      by_slot[static_cast<std::size_t>(out.slots[c])] = by_choice[c];
    std::vector<double> gradient(logits.size(), kNaN);
    cpu::route_backward(r, logits.data(), out.routing(), by_slot.data(), gradient.data());
    if (r.rows > 100) continue;  // differences of so many take long
    const auto loss = [&](const auto& at) {
      return dot(weights_of(routed(r, at, bias)), by_choice);
    };
    const auto expected = slopes(logits, loss);
    const double all = std::sqrt(dot(expected, expected));
    for (std::size_t i = 0; i < expected.size(); ++i)
      CHECK(std::abs(gradient[i] - expected[i]) <= kFiniteDifference * std::max(1.0, all));
  }
}

TEST_CASE("rows of NaN are routed to experts that exist, each once, with weights of NaN") {
  for (const RouterScore score : {RouterScore::softmax, RouterScore::sigmoid}) {
    const Router r{2, 5, 3, true, 1, score};
    std::vector<float> logits(10, static_cast<float>(kNaN));
    logits[7] = 1;
    const RoutedRows<float> out = routed(r, logits);
    CHECK(out.experts == std::vector<std::int32_t>{0, 1, 2, 0, 1, 3});
    for (const double weight : weights_of(out)) CHECK(std::isnan(weight));
    const Router grouped{1, 6, 2, true, 1, score, 3, 2};
    const RoutedRows<float> first = routed(grouped, std::vector<float>(6, logits.front()));
    CHECK(first.experts == std::vector<std::int32_t>{0, 1});
  }
}

TEST_CASE("an expert whose score is NaN is chosen, so that the NaN reaches the loss") {
  const auto nan = static_cast<float>(kNaN);
  const RoutedRows<float> alone = routed<float>(Router{1, 5, 2, true, 1}, {1, 5, 2, nan, 4});
  CHECK(alone.experts == std::vector<std::int32_t>{3, 1});
  const Router grouped{1, 6, 2, true, 1, RouterScore::sigmoid, 3, 1};
  CHECK(routed<float>(grouped, {9, 9, 1, 2, nan, 1}).experts == std::vector<std::int32_t>{4, 5});
}

namespace {

/// Rows gathered, weighted and combined, and the loss dot(result, d).
struct RowCase {
  Router router{11, 6, 3, false, 1};
  std::int64_t width;
  RoutedRows<double> routed;

  explicit RowCase(std::int64_t of) : width(of), routed(router) {
    Numbers numbers(94);
    const auto logits = operand<double>(numbers, router.rows * router.experts);
    cpu::route<double>(router, logits.data(), nullptr, routed.routing());
  }
  [[nodiscard]] std::vector<double> run(const std::vector<double>& x,
                                        const std::vector<double>& weights) const {
    const std::int64_t count = router.rows * router.choices;
    std::vector<double> slots(static_cast<std::size_t>(count * width));
    cpu::gather_rows(x.data(), routed.rows.data(), count, width, slots.data());
    cpu::weight_rows(slots.data(), weights.data(), count, width);
    std::vector<double> y(x.size());
    cpu::combine_rows<double>(slots.data(), routed.slots.data(), router.rows, router.choices, width,
                              nullptr, y.data());
    return y;
  }
};

}  // namespace

TEST_CASE("rows are gathered, weighted and combined, and their gradients agree with differences") {
  for (const std::int64_t width : {1, 5, 19}) {
    const RowCase c(width);
    Numbers numbers(95);
    const auto x = operand<double>(numbers, c.router.rows * width);
    const auto d = operand<double>(numbers, c.router.rows * width);
    const auto addend = operand<double>(numbers, c.router.rows * width);
    const std::vector<double>& weights = c.routed.weights;
    std::vector<double> expected(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      const auto row = static_cast<std::int64_t>(i) / width;
      for (int j = 0; j < c.router.choices; ++j) {
        const auto slot = c.routed.slots[static_cast<std::size_t>(row * c.router.choices + j)];
        expected[i] += x[i] * weights[static_cast<std::size_t>(slot)];
      }
    }
    CHECK(distance(c.run(x, weights), expected) < kClose<double>);

    const std::int64_t count = c.router.rows * c.router.choices;
    std::vector<double> slots(static_cast<std::size_t>(count * width));
    std::vector<double> gradient(slots.size());
    std::vector<double> dweights(weights.size(), kNaN);
    cpu::gather_rows(x.data(), c.routed.rows.data(), count, width, slots.data());
    cpu::gather_rows(d.data(), c.routed.rows.data(), count, width, gradient.data());
    std::vector<double> weighted = slots;
    cpu::weight_rows(weighted.data(), weights.data(), count, width);
    cpu::weight_rows_backward(slots.data(), gradient.data(), weights.data(), dweights.data(), count,
                              width);
    CHECK(slots == weighted);
    std::vector<double> dx = addend;
    cpu::combine_rows(gradient.data(), c.routed.slots.data(), c.router.rows, c.router.choices,
                      width, dx.data(), dx.data());
    for (std::size_t i = 0; i < dx.size(); ++i) dx[i] -= addend[i];
    CHECK(distance(dx, slopes(x, [&](const auto& at) { return dot(c.run(at, weights), d); })) <
          kFiniteDifference);
    CHECK(distance(dweights, slopes(weights, [&](const auto& at) {
                     return dot(c.run(x, at), d);
                   })) < kFiniteDifference);
  }
}

TEST_CASE("a gate's weights are sigmoids of its logits, and its gradient agrees with differences") {
  Numbers numbers(99);
  auto logits = operand<double>(numbers, 21, -6, 6);
  const auto d = operand<double>(numbers, 21);
  const auto weights_at = [](const std::vector<double>& z) {
    std::vector<double> weights(z.size(), kNaN);
    cpu::gate_forward(z.data(), weights.data(), static_cast<std::int64_t>(z.size()));
    return weights;
  };
  const std::vector<double> weights = weights_at(logits);
  for (std::size_t i = 0; i < logits.size(); ++i)
    CHECK(weights[i] == Approx(0.5 * (1 + std::tanh(logits[i] / 2))).epsilon(1e-13));
  std::vector<double> gradient(logits.size(), kNaN);
  cpu::gate_backward(weights.data(), d.data(), gradient.data(), 21);
  CHECK(distance(gradient, slopes(logits, [&](const auto& at) { return dot(weights_at(at), d); })) <
        kFiniteDifference);
  CHECK(weights_at({-1000, 1000}) == std::vector<double>{0, 1});
}

namespace {

/// All results of a router and of rows of this type, from operands that the type holds exactly.
template <class T>
struct ExpertResults {
  std::vector<double> weights, gradient;
  std::vector<T> combined, weighted;
};
template <class T, class From>
ExpertResults<T> results_from(const Router& r, const std::vector<From>& logits_from) {
  const auto logits = as<T>(logits_from);
  Numbers numbers(96);
  const std::int64_t width = 37;
  const auto rows = as<T>(operand<Bfloat16>(numbers, r.rows * r.choices * width));
  const auto addend = as<T>(operand<Bfloat16>(numbers, r.rows * width));
  std::vector<Wide<T>> dweights;
  for (std::int64_t i = 0; i < r.rows * r.choices; ++i)
    dweights.push_back(static_cast<Wide<T>>(static_cast<float>(numbers.between(-1, 1))));
  ExpertResults<T> out;
  RoutedRows<T> routing = routed(r, logits, bias_for<T>(r));
  out.weights = weights_of(routing);
  std::vector<T> gradient(logits.size());
  cpu::route_backward(r, logits.data(), routing.routing(), dweights.data(), gradient.data());
  out.gradient = as<double>(gradient);
  out.combined.resize(addend.size());
  cpu::combine_rows(rows.data(), routing.slots.data(), r.rows, r.choices, width, addend.data(),
                    out.combined.data());
  out.weighted = rows;
  cpu::weight_rows(out.weighted.data(), dweights.data(), r.rows * r.choices, width);
  return out;
}

template <class T>
void check_expert_precision() {
  for (const Router& r : routers()) {
    Numbers numbers(97);
    const auto logits = operand<Bfloat16>(numbers, r.rows * r.experts, -3, 3);
    const auto exact = results_from<double>(r, logits);
    const auto found = results_from<T>(r, logits);
    CHECK(distance(found.weights, exact.weights) < kClose<float>);
    if (r.experts > r.choices || r.choices > 1)
      CHECK(distance(as<T>(found.gradient), exact.gradient) < kClose<T> + kClose<float>);
    CHECK(distance(found.combined, exact.combined) < kClose<T>);
    CHECK(distance(found.weighted, exact.weighted) < kClose<T>);
  }
}

}  // namespace

TEST_CASE("routers and rows in fp32 and bf16 round the fp64 result once") {
  check_expert_precision<float>();
  check_expert_precision<Bfloat16>();
}

TEST_CASE("experts' kernels give the same bits with any number of threads") {
  const Router r = routers().back();
  Numbers numbers(98);
  const auto logits = operand<float>(numbers, r.rows * r.experts, -3, 3);
  const auto run = [&] { return results_from<float>(r, logits); };
  const auto one = with_threads(1, run);
  const auto three = with_threads(3, run);
  CHECK(same_bits(one.combined, three.combined));
  CHECK(same_bits(one.weights, three.weights));
  CHECK(same_bits(one.gradient, three.gradient));
  CHECK(same_bits(one.weighted, three.weighted));
}

}  // namespace echelon
