#include "runtime/cuda/kernels/kernels.hpp"
#include "tests/runtime/cpu/kernel_numbers.hpp"
#include "tests/runtime/cuda/kernels/kernel_runs.hpp"
#include "tests/runtime/cuda/kernels/memory.hpp"

namespace echelon {
namespace {

using device::Memory;

/// A routing in the memory of a device.
struct DeviceRouting {
  explicit DeviceRouting(const Router& r)
      : experts(choices_of(r)),
        slots(choices_of(r)),
        rows(choices_of(r)),
        counts(static_cast<std::size_t>(r.experts)),
        weights(choices_of(r)) {}
  static std::size_t choices_of(const Router& r) {
    return static_cast<std::size_t>(r.rows * r.choices);
  }
  template <class T>
  [[nodiscard]] Routing<T> routing() {
    return {experts.data(), slots.data(), rows.data(), counts.data(), weights.data()};
  }
  Memory<std::int32_t> experts, slots, rows, counts;
  Memory<float> weights;
};

/// The same on the host.
struct HostRouting {
  explicit HostRouting(const Router& r)
      : experts(DeviceRouting::choices_of(r)),
        slots(experts),
        rows(experts),
        counts(static_cast<std::size_t>(r.experts)),
        weights(experts.size()) {}
  template <class T>
  [[nodiscard]] Routing<T> routing() {
    return {experts.data(), slots.data(), rows.data(), counts.data(), weights.data()};
  }
  std::vector<std::int32_t> experts, slots, rows, counts;
  std::vector<float> weights;
};

template <class T>
std::vector<T> some(std::int64_t count, std::uint64_t seed) {
  Numbers numbers(seed);
  return operand<T>(numbers, count, -3, 3);
}

template <class T>
void check_router(const Router& r) {
  CAPTURE(r.rows, r.experts, r.choices, r.normalized, r.groups, sizeof(T));
  auto logits = some<T>(r.rows * r.experts, 121);
  if (r.experts > 3) logits[1] = logits[3];  // equal ones
  if (r.rows > 2) logits[static_cast<std::size_t>(2 * r.experts)] = T(static_cast<float>(kNaN));
  HostRouting expected(r);
  const bool biased = r.score == RouterScore::sigmoid && r.choices > 1;
  const auto bias = some<T>(r.experts, 130);
  cpu::route(r, logits.data(), biased ? bias.data() : nullptr, expected.routing<T>());
  DeviceRouting found(r);
  Memory<T> z(logits);
  Memory<T> more(bias);
  cuda::route<T>(nullptr, r, z.data(), biased ? more.data() : nullptr, found.routing<T>());
  CHECK(found.experts.content() == expected.experts);
  CHECK(found.slots.content() == expected.slots);
  CHECK(found.rows.content() == expected.rows);
  CHECK(found.counts.content() == expected.counts);
  const auto weights = found.weights.content();
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const bool nan = std::isnan(expected.weights[i]);
    CHECK(nan == std::isnan(weights[i]));
    if (!nan) CHECK(weights[i] == Approx(expected.weights[i]).epsilon(1e-6));
  }

  const auto dweights = some<float>(r.rows * r.choices, 122);
  std::vector<T> gradient(logits.size());
  cpu::route_backward(r, logits.data(), expected.routing<T>(), dweights.data(), gradient.data());
  Memory<float> slopes(dweights);
  Memory<T> back(std::vector<T>(logits.size(), T(9.0F)));
  cuda::route_backward<T>(nullptr, r, z.data(), found.routing<T>(), slopes.data(), back.data());
  const auto actual = as<double>(back.content());
  const auto wanted = as<double>(gradient);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    CHECK(std::isnan(actual[i]) == std::isnan(wanted[i]));
    if (!std::isnan(wanted[i]))
      CHECK(std::abs(actual[i] - wanted[i]) <= kBothRounded * std::abs(wanted[i]) + 4e-6);
  }
}

TEST_CASE("CUDA routers agree with the CPU's, for ties and NaN too") {
  for (const Router& r :
       {Router{1, 1, 1, true, 1}, Router{5, 4, 1, false, 1}, Router{33, 8, 2, true, 1},
        Router{300, 17, 5, false, 2.5}, Router{5, 4, 1, false, 2, RouterScore::sigmoid},
        Router{300, 12, 4, true, 2.5, RouterScore::sigmoid},
        Router{40, 32, 4, true, 2.5, RouterScore::sigmoid, 8, 4}, Router{9, 70, 40, false, 1},
        Router{9, 128, 3, true, 1, RouterScore::sigmoid, 64, 5},
        Router{40, 12, 3, false, 16, RouterScore::softmax, 4, 2, 1}}) {
    check_router<float>(r);
    check_router<Bfloat16>(r);
  }
}

template <class T>
void check_rows(std::int64_t width, std::size_t shift) {
  CAPTURE(width, shift, sizeof(T));
  const Router r{13, 6, 3, true, 1};
  const std::int64_t count = r.rows * r.choices;
  HostRouting on_host(r);
  cpu::route<T>(r, some<T>(r.rows * r.experts, 123).data(), nullptr, on_host.routing<T>());
  Memory<std::int32_t> rows(on_host.rows), slots(on_host.slots);
  Memory<float> weights(on_host.weights);

  const auto x = some<T>(r.rows * width, 124);
  std::vector<T> taken(static_cast<std::size_t>(count * width));
  cpu::gather_rows(x.data(), on_host.rows.data(), count, width, taken.data());
  Memory<T> from(x, shift), routed(taken.size());
  cuda::gather_rows<T>(nullptr, from.data(), rows.data(), count, width, routed.data());
  CHECK(same_bits(routed.content(), taken));

  auto weighted = taken;
  cpu::weight_rows(weighted.data(), on_host.weights.data(), count, width);
  Memory<T> by_weight(taken, shift);
  cuda::weight_rows<T>(nullptr, by_weight.data(), weights.data(), count, width);
  CHECK(same_bits(by_weight.content(), weighted));

  const auto dy = some<T>(count * width, 125);
  auto back = taken;
  auto slope = dy;
  std::vector<float> dweights(static_cast<std::size_t>(count));
  cpu::weight_rows_backward(back.data(), slope.data(), on_host.weights.data(), dweights.data(),
                            count, width);
  Memory<T> values(taken, shift), slopes(dy, shift);
  Memory<float> of_weights(dweights.size());
  cuda::weight_rows_backward<T>(nullptr, values.data(), slopes.data(), weights.data(),
                                of_weights.data(), count, width);
  CHECK(same_bits(values.content(), back));
  CHECK(same_bits(slopes.content(), slope));
  CHECK(distance(of_weights.content(), as<double>(dweights)) < kClose<float>);

  for (const bool added : {false, true}) {
    const auto addend = some<T>(r.rows * width, 126);
    std::vector<T> sum(x.size());
    cpu::combine_rows(dy.data(), on_host.slots.data(), r.rows, r.choices, width,
                      added ? addend.data() : nullptr, sum.data());
    Memory<T> parts(dy, shift), total(addend, shift);
    cuda::combine_rows<T>(nullptr, parts.data(), slots.data(), r.rows, r.choices, width,
                          added ? total.data() : nullptr, total.data());
    CHECK(same_bits(total.content(), sum));
  }
}

TEST_CASE("CUDA kernels that gather, weight and combine rows agree with the CPU's") {
  for (const std::int64_t width : {1, 13, 64, 2056}) {
    check_rows<float>(width, 0);
    check_rows<Bfloat16>(width, 0);
  }
  check_rows<Bfloat16>(64, 1);
}

template <class T>
void check_gates(std::int64_t count) {
  CAPTURE(count, sizeof(T));
  auto logits = some<T>(count, 131);
  logits.front() = T(-100.0F);
  std::vector<float> expected(logits.size());
  cpu::gate_forward(logits.data(), expected.data(), count);
  Memory<T> z(logits);
  Memory<float> weights(logits.size());
  cuda::gate_forward<T>(nullptr, z.data(), weights.data(), count);
  CHECK(distance(weights.content(), as<double>(expected)) < kClose<float>);
  const auto dweights = some<float>(count, 132);
  std::vector<T> gradient(logits.size());
  cpu::gate_backward(expected.data(), dweights.data(), gradient.data(), count);
  Memory<float> slopes(dweights);
  Memory<float> of(expected);
  Memory<T> back(std::vector<T>(logits.size(), T(9.0F)));
  cuda::gate_backward<T>(nullptr, of.data(), slopes.data(), back.data(), count);
  CHECK(same_bits(back.content(), gradient));
}

TEST_CASE("CUDA gates of shared experts agree with the CPU's") {
  for (const std::int64_t count : {1, 300}) {
    check_gates<float>(count);
    check_gates<Bfloat16>(count);
  }
}

template <class T>
std::string expert_bits() {
  const Router r{40, 6, 2, true, 1, RouterScore::sigmoid, 3, 2};
  const std::int64_t width = 72;
  const std::int64_t count = r.rows * r.choices;
  Memory<T> logits(some<T>(r.rows * r.experts, 127)), x(some<T>(r.rows * width, 128)),
      dlogits(static_cast<std::size_t>(r.rows * r.experts)), bias(some<T>(r.experts, 133)),
      routed(static_cast<std::size_t>(count * width)), dy(some<T>(count * width, 129));
  Memory<float> dweights(static_cast<std::size_t>(count));
  DeviceRouting routing(r);
  const Routing<T> to = routing.routing<T>();
  cuda::route<T>(nullptr, r, logits.data(), bias.data(), to);
  cuda::gather_rows<T>(nullptr, x.data(), to.rows, count, width, routed.data());
  cuda::weight_rows<T>(nullptr, routed.data(), to.weights, count, width);
  cuda::combine_rows<T>(nullptr, routed.data(), to.slots, r.rows, r.choices, width, x.data(),
                        x.data());
  cuda::weight_rows_backward<T>(nullptr, routed.data(), dy.data(), to.weights, dweights.data(),
                                count, width);
  cuda::route_backward<T>(nullptr, r, logits.data(), to, dweights.data(), dlogits.data());
  return bits_of(routing.slots.content(), routing.counts.content(), x.content(), dy.content(),
                 dweights.content(), dlogits.content());
}

}  // namespace

std::vector<KernelRun> runs_of_experts() {
  return {{"experts in fp32", expert_bits<float>}, {"experts in bf16", expert_bits<Bfloat16>}};
}

}  // namespace echelon
