// Norms and heads of latent attention on CUDA, against the CPU's.
#include "runtime/cuda/kernels/kernels.hpp"
#include "runtime/model/rotary.hpp"
#include "tests/runtime/cpu/kernel_numbers.hpp"
#include "tests/runtime/cuda/kernels/kernel_runs.hpp"
#include "tests/runtime/cuda/kernels/memory.hpp"

namespace echelon {
namespace {

using device::Memory;
constexpr double kLatentEps = 1e-6;

// Two roundings to bf16, of numbers that differ in their last bits before them; of gradients, which
// are differences, somewhat more.
template <class T>
inline constexpr double kLatentClose = sizeof(T) == 2 ? 0x1p-7 : 8e-6;
template <class T>
inline constexpr double kLatentBackClose = sizeof(T) == 2 ? 1.5 * 0x1p-7 : 8e-6;

template <class T>
std::vector<T> latent_operand(std::uint64_t seed, std::int64_t count, double low = -2) {
  Numbers numbers(seed);
  return operand<T>(numbers, count, low, 2);
}

template <class T>
struct LatentNumbers {
  explicit LatentNumbers(const LatentShape& s)
      : latents(latent_operand<T>(131, s.rows * s.latents())),
        q_weight(latent_operand<T>(132, s.q_rank, 0.5)),
        kv_weight(latent_operand<T>(133, s.kv_rank, 0.5)),
        dq(latent_operand<T>(134, s.rows * s.q_rank)),
        dkv(latent_operand<T>(135, s.rows * s.kv_rank)),
        q(latent_operand<T>(136, s.rows * s.query())),
        kv(latent_operand<T>(137, s.rows * s.key_value())),
        dqkv(latent_operand<T>(138, s.rows * s.qkv())) {}
  std::vector<T> latents, q_weight, kv_weight, dq, dkv, q, kv, dqkv;
};

template <class T>
struct LatentResult {
  std::vector<T> q, kv, dlatents, qkv, dq, dkv;
  std::vector<float> dq_weight, dkv_weight;
};

template <class T>
LatentResult<T> empty_result(const LatentShape& s) {
  const auto of = [](std::int64_t count) {
    return std::vector<T>(static_cast<std::size_t>(count), T(1.0F));
  };
  return {of(s.rows * s.q_rank),
          of(s.rows * s.kv_rank),
          of(s.rows * s.latents()),
          of(s.rows * s.qkv()),
          of(s.rows * s.query()),
          of(s.rows * s.key_value()),
          std::vector<float>(static_cast<std::size_t>(s.q_rank), 2),
          std::vector<float>(static_cast<std::size_t>(s.kv_rank), 3)};
}

RotaryFrequencies latent_frequencies(const LatentShape& s) {
  RotaryFrequencies frequencies = rotary_frequencies({.theta = 500'000}, s.rope);
  frequencies.scale = 1.25;
  return frequencies;
}

template <class T>
LatentResult<T> latents_on_cpu(const LatentShape& s) {
  const LatentNumbers<T> in(s);
  LatentResult<T> out = empty_result<T>(s);
  const LatentNorms<T> norms{in.q_weight.data(), in.kv_weight.data(), kLatentEps};
  cpu::normalize_latents(s, norms, in.latents.data(), out.q.data(), out.kv.data());
  cpu::normalize_latents_backward(s, norms, in.latents.data(), in.dq.data(), in.dkv.data(),
                                  out.dlatents.data(), out.dq_weight.data(), out.dkv_weight.data());
  cpu::join_latent_heads(s, latent_frequencies(s), in.q.data(), in.kv.data(), in.latents.data(),
                         out.qkv.data());
  cpu::split_latent_heads(s, latent_frequencies(s), in.dqkv.data(), out.dq.data(), out.dkv.data(),
                          out.dlatents.data());
  return out;
}

template <class T>
LatentResult<T> latents_on_cuda(const LatentShape& s, std::size_t shift) {
  const LatentNumbers<T> in(s);
  const LatentResult<T> empty = empty_result<T>(s);
  Memory<T> latents(in.latents, shift), q_weight(in.q_weight, shift),
      kv_weight(in.kv_weight, shift), dq_normed(in.dq, shift), dkv_normed(in.dkv, shift),
      q_up(in.q, shift), kv_up(in.kv, shift), dqkv(in.dqkv, shift);
  Memory<T> q(empty.q, shift), kv(empty.kv, shift), dlatents(empty.dlatents, shift),
      qkv(empty.qkv, shift), dq(empty.dq, shift), dkv(empty.dkv, shift);
  Memory<float> dq_weight(empty.dq_weight), dkv_weight(empty.dkv_weight),
      workspace(static_cast<std::size_t>(cuda::latent_norms_workspace(s)));
  const std::int64_t positions = s.first_position + (s.rows + s.samples - 1) / s.samples;
  Memory<float> table(static_cast<std::size_t>(positions * s.rope));
  cuda::rotation_table(nullptr, table.data(), positions, 0, latent_frequencies(s));
  const LatentNorms<T> norms{q_weight.data(), kv_weight.data(), kLatentEps};
  cuda::normalize_latents<T>(nullptr, s, norms, latents.data(), q.data(), kv.data());
  cuda::normalize_latents_backward<T>(nullptr, s, norms, latents.data(), dq_normed.data(),
                                      dkv_normed.data(), dlatents.data(), dq_weight.data(),
                                      dkv_weight.data(), workspace.data());
  cuda::join_latent_heads<T>(nullptr, s, table.data(), q_up.data(), kv_up.data(), latents.data(),
                             qkv.data());
  cuda::split_latent_heads<T>(nullptr, s, table.data(), dqkv.data(), dq.data(), dkv.data(),
                              dlatents.data());
  return {q.content(),  kv.content(),  dlatents.content(),  qkv.content(),
          dq.content(), dkv.content(), dq_weight.content(), dkv_weight.content()};
}

template <class T>
void check_latents(const LatentShape& s, std::size_t shift = 0) {
  CAPTURE(s.rows, s.samples, s.heads, s.nope, s.rope, s.value, s.q_rank, s.kv_rank, shift,
          sizeof(T));
  const LatentResult<T> expected = latents_on_cpu<T>(s);
  const LatentResult<T> actual = latents_on_cuda<T>(s, shift);
  if (s.q_rank > 0) {
    CHECK(distance(actual.q, as<double>(expected.q)) <= kLatentClose<T>);
    CHECK(distance(actual.dq_weight, as<double>(expected.dq_weight)) < kClose<float>);
  }
  CHECK(distance(actual.kv, as<double>(expected.kv)) <= kLatentClose<T>);
  CHECK(distance(actual.dkv_weight, as<double>(expected.dkv_weight)) < kClose<float>);
  CHECK(distance(actual.dlatents, as<double>(expected.dlatents)) <= kLatentBackClose<T>);
  CHECK(distance(actual.qkv, as<double>(expected.qkv)) <= kLatentClose<T>);
  CHECK(distance(actual.dq, as<double>(expected.dq)) <= kLatentClose<T>);
  CHECK(same_bits(actual.dkv, expected.dkv));
}

template <class T>
void check_latents() {
  check_latents<T>({10, 2, 4000, 3, 128, 64, 128, 1536, 512});  // DeepSeek-V3's widths
  check_latents<T>({5, 1, 0, 2, 16, 8, 24, 0, 40});             // queries without a latent
  check_latents<T>({7, 3, 3, 5, 5, 6, 3, 11, 9});               // no whole packs
  check_latents<T>({4, 2, 0, 1, 16, 8, 16, 8, 16}, 1);
  check_latents<T>({1, 1, 0, 40, 1, 2, 1, 0, 1});
}

TEST_CASE("CUDA norms and heads of latents agree with the CPU's at awkward sizes") {
  check_latents<float>();
  check_latents<Bfloat16>();
  check_latents<Bfloat16>({1100, 4, 0, 1, 8, 8, 8, 8, 8});  // more rows than parts of the sums
}

}  // namespace

std::vector<KernelRun> runs_of_latents() {
  return {{"norms and heads of latents", [] {
             const auto out = latents_on_cuda<Bfloat16>({300, 2, 0, 2, 16, 8, 24, 48, 40}, 0);
             return bits_of(out.q, out.kv, out.dlatents, out.qkv, out.dq, out.dkv, out.dq_weight,
                            out.dkv_weight);
           }}};
}

}  // namespace echelon
