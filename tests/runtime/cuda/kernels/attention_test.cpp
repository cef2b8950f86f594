#include <algorithm>

#include "runtime/cuda/kernels/kernels.hpp"
#include "tests/runtime/cpu/kernel_numbers.hpp"
#include "tests/runtime/cuda/kernels/kernel_runs.hpp"
#include "tests/runtime/cuda/kernels/memory.hpp"

namespace echelon {
namespace {

using device::Memory;

struct AttentionNumbers {
  AttentionNumbers(const AttentionShape& s, std::uint64_t seed) {
    Numbers numbers(seed);
    qkv = operand<Bfloat16>(numbers, s.sequence * s.samples * s.qkv_stride, -2, 2);
    dout = operand<Bfloat16>(numbers, s.sequence * s.samples * s.out_stride);
  }
  std::vector<Bfloat16> qkv, dout;
};

template <class T>
struct AttentionResult {
  std::vector<T> out, dqkv;
  std::vector<Wide<T>> log_sum;
};

/// In double, from the same bf16 numbers; gaps stay zero.
AttentionResult<double> attention_on_cpu(const AttentionShape& s, const AttentionNumbers& in) {
  const auto qkv = as<double>(in.qkv);
  AttentionResult<double> result;
  result.out.resize(in.dout.size());
  result.dqkv.resize(in.qkv.size());
  result.log_sum.resize(static_cast<std::size_t>(s.sequence * s.samples * s.heads));
  cpu::attention_forward(s, qkv.data(), result.out.data(), result.log_sum.data());
  cpu::attention_backward(s, qkv.data(), result.out.data(), result.log_sum.data(),
                          as<double>(in.dout).data(), result.dqkv.data());
  return result;
}

AttentionResult<Bfloat16> attention_on_cuda(const AttentionShape& s, const AttentionNumbers& in,
                                            std::size_t shift = 0) {
  Memory<Bfloat16> qkv(in.qkv, shift), dout(in.dout, shift),
      out(std::vector<Bfloat16>(in.dout.size()), shift),
      dqkv(std::vector<Bfloat16>(in.qkv.size()), shift);
  Memory<float> log_sum(static_cast<std::size_t>(s.sequence * s.samples * s.heads)),
      workspace(static_cast<std::size_t>(cuda::attention_backward_workspace(s)));
  cuda::attention_forward(nullptr, s, qkv.data(), out.data(), log_sum.data());
  cuda::attention_backward(nullptr, s, qkv.data(), out.data(), log_sum.data(), dout.data(),
                           dqkv.data(), workspace.data());
  return {out.content(), dqkv.content(), log_sum.content()};
}

/// The part of a gradient that belongs to q, k or v, gaps left out.
template <class T>
std::vector<T> columns(const AttentionShape& s, const std::vector<T>& rows, std::int64_t begin,
                       std::int64_t end) {
  std::vector<T> some;
  for (std::int64_t r = 0; r < s.sequence * s.samples; ++r) {
    some.insert(some.end(), rows.begin() + r * s.qkv_stride + begin,
                rows.begin() + r * s.qkv_stride + end);
  }
  return some;
}

// Outputs, probabilities and the slopes of scores are each rounded to bf16, by half of 2⁻⁷ of
// themselves at most; the last two are summed up, where roundings cancel in part.
constexpr double kAttentionClose = 0x1p-7;

void check_attention(const AttentionShape& s, std::size_t shift = 0) {
  CAPTURE(s.sequence, s.samples, s.heads, s.kv_heads, s.head_dim, s.qkv_stride, shift);
  const AttentionNumbers in(s, 121);
  const auto expected = attention_on_cpu(s, in);
  const auto actual = attention_on_cuda(s, in, shift);
  CHECK(distance(actual.out, expected.out) < kAttentionClose);
  CHECK(distance(actual.log_sum, expected.log_sum) < kClose<float>);
  const std::int64_t d = s.head_dim;
  const std::int64_t keys = (s.heads + s.kv_heads) * d;
  const std::int64_t ends[] = {0, s.heads * d, keys, keys + s.kv_heads * s.value_dim()};
  for (int part = 0; part < 3; ++part) {  // q, k, v: each has its own scale
    CAPTURE(part);
    CHECK(distance(columns(s, actual.dqkv, ends[part], ends[part + 1]),
                   columns(s, expected.dqkv, ends[part], ends[part + 1])) < kAttentionClose);
  }
  // A gap of the input does not belong to attention.
  CHECK(same_bits(as<double>(columns(s, actual.dqkv, ends[3], s.qkv_stride)),
                  columns(s, expected.dqkv, ends[3], s.qkv_stride)));
}

TEST_CASE("CUDA attention agrees with the CPU's in double at sizes that no tile divides") {
  check_attention(attention_shape(1, 1, 1, 1, 64, 0));
  check_attention(attention_shape(63, 2, 1, 1, 64, 8));
  check_attention(attention_shape(64, 1, 2, 2, 64, 0));
  check_attention(attention_shape(65, 1, 2, 1, 64, 0));
  check_attention(attention_shape(200, 1, 1, 1, 64, 0));
  check_attention(attention_shape(130, 2, 4, 2, 64, 16));
  check_attention(attention_shape(97, 1, 3, 1, 128, 0));
}

TEST_CASE("CUDA attention agrees with the CPU's for unaligned rows") {
  check_attention(attention_shape(70, 2, 2, 1, 64, 3));
  check_attention(attention_shape(66, 1, 1, 1, 128, 0), 1);
}

TEST_CASE("CUDA attention with heads of latents agrees with the CPU's in double") {
  check_attention(latent_attention_shape(2, 1, 1, 192, 128));
  check_attention(latent_attention_shape(97, 2, 2, 192, 128, 8));
  check_attention(latent_attention_shape(66, 1, 1, 192, 128, 3));
}

struct BlockResult {
  std::vector<double> sums, log_sum, dqkv, dkeys;
};

/// Other keys for each block.
std::vector<Bfloat16> keys_of_block(const AttentionShape& s, std::size_t block) {
  Numbers numbers(131 + block);
  const std::int64_t width = std::int64_t{s.kv_heads} * (s.head_dim + s.value_dim());
  return operand<Bfloat16>(numbers, s.sequence * s.samples * width, -2, 2);
}

BlockResult blocks_on_cpu(const AttentionShape& s, const AttentionNumbers& in,
                          const std::vector<AttentionBlock>& blocks) {
  const auto qkv = as<double>(in.qkv);
  BlockResult r;
  r.sums.resize(in.dout.size());
  r.log_sum.resize(static_cast<std::size_t>(s.sequence * s.samples * s.heads));
  r.dqkv.resize(in.qkv.size());
  for (std::size_t i = 0; i < blocks.size(); ++i)
    cpu::attention_block_forward(s, blocks[i], qkv.data(), as<double>(keys_of_block(s, i)).data(),
                                 r.sums.data(), r.log_sum.data());
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const auto keys = as<double>(keys_of_block(s, i));
    std::vector<double> dkeys(keys.size());
    cpu::attention_block_backward(s, blocks[i], qkv.data(), keys.data(), r.sums.data(),
                                  r.log_sum.data(), as<double>(in.dout).data(), r.dqkv.data(),
                                  dkeys.data());
    r.dkeys.insert(r.dkeys.end(), dkeys.begin(), dkeys.end());
  }
  return r;
}

BlockResult blocks_on_cuda(const AttentionShape& s, const AttentionNumbers& in,
                           const std::vector<AttentionBlock>& blocks, std::size_t shift) {
  Memory<Bfloat16> qkv(in.qkv, shift), dout(in.dout, shift), out(in.dout.size()),
      dqkv(std::vector<Bfloat16>(in.qkv.size()), shift);
  Memory<float> sums(std::vector<float>(in.dout.size()), shift);
  Memory<float> log_sum(static_cast<std::size_t>(s.sequence * s.samples * s.heads)),
      workspace(static_cast<std::size_t>(cuda::attention_backward_workspace(s)));
  BlockResult r;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    Memory<Bfloat16> keys(keys_of_block(s, i), shift);
    cuda::attention_block_forward(nullptr, s, blocks[i], qkv.data(), keys.data(), sums.data(),
                                  log_sum.data());
  }
  r.sums = as<double>(sums.content());
  r.log_sum = as<double>(log_sum.content());
  cuda::cast(nullptr, static_cast<const float*>(sums.data()), out.data(),
             static_cast<std::int64_t>(in.dout.size()));
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    Memory<Bfloat16> keys(keys_of_block(s, i), shift), dkeys(keys_of_block(s, i), shift);
    cuda::attention_block_backward(nullptr, s, blocks[i], qkv.data(), keys.data(), out.data(),
                                   log_sum.data(), dout.data(), dqkv.data(), dkeys.data(),
                                   workspace.data());
    const auto made = as<double>(dkeys.content());
    r.dkeys.insert(r.dkeys.end(), made.begin(), made.end());
  }
  r.dqkv = as<double>(dqkv.content());
  return r;
}

void check_blocks(const AttentionShape& s, std::size_t shift = 0) {
  CAPTURE(s.sequence, s.samples, s.heads, s.kv_heads, s.head_dim, s.qkv_stride, shift);
  const AttentionNumbers in(s, 123);
  const std::int64_t half = s.sequence / 2;
  // Own keys, half of another's for all queries, all of another's for half of the queries.
  const std::vector<AttentionBlock> blocks = {{.keys = s.sequence, .causal = true, .begins = true},
                                              {.keys = half},
                                              {.first_query = half, .keys = s.sequence}};
  const BlockResult expected = blocks_on_cpu(s, in, blocks);
  const BlockResult actual = blocks_on_cuda(s, in, blocks, shift);
  CHECK(distance(actual.sums, expected.sums) < kAttentionClose);
  CHECK(distance(actual.log_sum, expected.log_sum) < kClose<float>);
  CHECK(distance(actual.dqkv, expected.dqkv) < kAttentionClose);
  CHECK(distance(actual.dkeys, expected.dkeys) < kAttentionClose);
  const std::size_t count = actual.dkeys.size() / blocks.size();
  const std::int64_t width = std::int64_t{s.kv_heads} * (s.head_dim + s.value_dim());
  const auto second = actual.dkeys.begin() + static_cast<std::ptrdiff_t>(count);
  CHECK(std::all_of(second + half * s.samples * width, second + static_cast<std::ptrdiff_t>(count),
                    [](double x) { return x == 0; }));
}

TEST_CASE("CUDA attention block by block agrees with the CPU's in double") {
  check_blocks(attention_shape(2, 1, 1, 1, 64, 0));
  check_blocks(attention_shape(64, 1, 2, 2, 64, 0));
  check_blocks(attention_shape(128, 1, 2, 1, 64, 8));
  check_blocks(attention_shape(150, 2, 4, 2, 64, 0));
  check_blocks(attention_shape(98, 1, 3, 1, 128, 0));
  check_blocks(latent_attention_shape(98, 1, 2, 192, 128));
  check_blocks(attention_shape(70, 2, 2, 1, 64, 3), 1);
}

TEST_CASE("NaN in a query, key or value reaches the tokens that use it on CUDA") {
  const auto s = attention_shape(70, 1, 1, 1, 64, 0);
  for (const std::int64_t part : {0, 64, 128}) {
    CAPTURE(part);
    AttentionNumbers in(s, 122);
    in.qkv[static_cast<std::size_t>(65 * s.qkv_stride + part)] = Bfloat16(static_cast<float>(kNaN));
    const auto result = attention_on_cuda(s, in);
    const auto number = [](const std::vector<Bfloat16>& some, std::int64_t i) {
      return static_cast<float>(some[static_cast<std::size_t>(i)]);
    };
    CHECK(std::isnan(number(result.out, 65 * s.out_stride)));
    CHECK(std::isfinite(number(result.out, 63 * s.out_stride)));
    CHECK(std::isnan(number(result.dqkv, 65 * s.qkv_stride)));
  }
}

TEST_CASE("scores far apart neither overflow nor lose the largest on CUDA") {
  const auto s = attention_shape(80, 1, 1, 1, 64, 0);
  AttentionNumbers in(s, 123);
  for (Bfloat16& value : in.qkv) value = Bfloat16(static_cast<float>(value) * 20);
  const auto expected = attention_on_cpu(s, in);
  const auto actual = attention_on_cuda(s, in);
  CHECK(distance(actual.out, expected.out) < kAttentionClose);
  CHECK(distance(actual.log_sum, expected.log_sum) < kClose<float>);
}

}  // namespace

std::vector<KernelRun> runs_of_attention() {
  const auto run = [](int head_dim, std::int64_t gap) {
    const auto s = attention_shape(130, 1, 2, 1, head_dim, gap);
    const auto out = attention_on_cuda(s, AttentionNumbers(s, 124));
    return bits_of(out.out, out.dqkv, out.log_sum);
  };
  return {{"attention", [=] { return run(64, 0); }},
          {"attention of rows that are not aligned", [=] { return run(64, 1); }},
          {"attention with heads of latents", [] {
             const auto s = latent_attention_shape(130, 1, 1, 192, 128);
             const auto out = attention_on_cuda(s, AttentionNumbers(s, 124));
             return bits_of(out.out, out.dqkv, out.log_sum);
           }}};
}

}  // namespace echelon
