#include "tests/runtime/cpu/kernel_numbers.hpp"

namespace echelon {
namespace {

AttentionShape attention_shape(std::int64_t sequence, int samples, int heads, int kv_heads,
                               int head_dim) {
  // Rows are wider than attention needs, as when a rank keeps other numbers next to them.
  return {sequence,
          samples,
          heads,
          kv_heads,
          head_dim,
          std::int64_t{heads + 2 * kv_heads} * head_dim + 3,
          std::int64_t{heads} * head_dim + 1};
}

template <class T>
struct Attended {
  std::vector<T> out, dqkv;
  std::vector<Wide<T>> log_sum;
};

template <class T>
Attended<T> attention(const AttentionShape& s, const std::vector<T>& qkv,
                      const std::vector<T>& dout) {
  Attended<T> result;
  result.out.resize(dout.size());
  result.dqkv.resize(qkv.size());
  result.log_sum.resize(static_cast<std::size_t>(s.sequence * s.samples * s.heads));
  cpu::attention_forward(s, qkv.data(), result.out.data(), result.log_sum.data());
  cpu::attention_backward(s, qkv.data(), result.out.data(), result.log_sum.data(), dout.data(),
                          result.dqkv.data());
  return result;
}

/// Only the forward, on one thread: finite differences call it often.
double attention_loss(const AttentionShape& s, const std::vector<double>& qkv,
                      const std::vector<double>& dout) {
  return with_threads(1, [&] {
    std::vector<double> out(dout.size());
    std::vector<double> log_sum(static_cast<std::size_t>(s.sequence * s.samples * s.heads));
    cpu::attention_forward(s, qkv.data(), out.data(), log_sum.data());
    return dot(out, dout);
  });
}

template <class T>
std::vector<T> attention_input(const AttentionShape& s, std::uint64_t seed, double range = 2) {
  Numbers numbers(seed);
  return operand<T>(numbers, s.sequence * s.samples * s.qkv_stride, -range, range);
}

/// Gradients for the columns attention writes; zero in the gap of each row.
template <class T>
std::vector<T> attention_gradient(const AttentionShape& s, std::uint64_t seed) {
  Numbers numbers(seed);
  auto dout = operand<T>(numbers, s.sequence * s.samples * s.out_stride);
  for (std::int64_t r = 0; r < s.sequence * s.samples; ++r) {
    std::fill_n(dout.begin() + r * s.out_stride + s.heads * s.value_dim(),
                s.out_stride - s.heads * s.value_dim(), T());
  }
  return dout;
}

/// The whole matrix of scores, row by row. Also log_sum.
Attended<double> plain_attention(const AttentionShape& s, const std::vector<double>& qkv) {
  Attended<double> result;
  result.out.resize(static_cast<std::size_t>(s.sequence * s.samples * s.out_stride));
  result.log_sum.resize(static_cast<std::size_t>(s.sequence * s.samples * s.heads));
  for (int b = 0; b < s.samples; ++b) {
    for (int h = 0; h < s.heads; ++h) {
      const int kv = h * s.kv_heads / s.heads;
      const auto at = [&](std::int64_t position, int part) {
        return qkv.data() + (position * s.samples + b) * s.qkv_stride + part * s.head_dim;
      };
      const int dv = s.value_dim();
      const auto value = [&](std::int64_t position) {
        return at(position, s.heads + s.kv_heads) + kv * dv;
      };
      for (std::int64_t i = 0; i < s.sequence; ++i) {
        double sum = 0;
        std::vector<double> out(static_cast<std::size_t>(dv));
        for (std::int64_t j = 0; j <= i; ++j) {
          double score = 0;
          for (int c = 0; c < s.head_dim; ++c) score += at(i, h)[c] * at(j, s.heads + kv)[c];
          const double e = std::exp(s.score_factor * score / std::sqrt(s.head_dim));
          sum += e;
          for (int c = 0; c < dv; ++c) out[static_cast<std::size_t>(c)] += e * value(j)[c];
        }
        result.log_sum[static_cast<std::size_t>((b * s.heads + h) * s.sequence + i)] =
            std::log(sum);
        for (int c = 0; c < dv; ++c) {
          result.out[static_cast<std::size_t>((i * s.samples + b) * s.out_stride + h * dv + c)] =
              out[static_cast<std::size_t>(c)] / sum;
        }
      }
    }
  }
  return result;
}

TEST_CASE("attention agrees with the whole matrix of scores, at sizes that no tile divides") {
  for (const auto& s :
       {attention_shape(1, 1, 1, 1, 1), attention_shape(3, 2, 2, 1, 5),
        attention_shape(65, 1, 4, 2, 16), attention_shape(130, 2, 3, 3, 7),
        attention_shape(577, 1, 2, 1, 17), attention_shape(1100, 1, 1, 1, 4),
        latent_attention_shape(3, 2, 2, 5, 7, 3), latent_attention_shape(577, 1, 2, 17, 6)}) {
    CAPTURE(s.sequence, s.samples, s.heads, s.kv_heads, s.head_dim);
    const auto qkv = attention_input<double>(s, 41);
    const auto expected = plain_attention(s, qkv);
    const auto actual = attention(s, qkv, attention_gradient<double>(s, 42));
    CHECK(distance(actual.out, expected.out) < kClose<double>);
    CHECK(distance(actual.log_sum, expected.log_sum) < kClose<double>);
  }
}

TEST_CASE("the gradient of attention agrees with finite differences, heads sharing keys or not") {
  for (const auto& s : {attention_shape(1, 1, 1, 1, 3), attention_shape(9, 2, 4, 2, 3),
                        attention_shape(67, 1, 2, 2, 2), latent_attention_shape(9, 2, 2, 5, 3, 1),
                        latent_attention_shape(67, 1, 2, 2, 4)}) {
    CAPTURE(s.sequence, s.samples, s.heads, s.kv_heads, s.head_dim);
    const auto qkv = attention_input<double>(s, 43);
    const auto dout = attention_gradient<double>(s, 44);
    const auto loss = [&](const auto& at) { return attention_loss(s, at, dout); };
    CHECK(distance(attention(s, qkv, dout).dqkv, slopes(qkv, loss)) < kFiniteDifference);
  }
}

/// Rows [first, first + count) of `stride` numbers each.
std::vector<double> rows_of(const std::vector<double>& x, std::int64_t stride, std::int64_t first,
                            std::int64_t count) {
  return {x.begin() + first * stride, x.begin() + (first + count) * stride};
}

/// The k and v heads of rows.
std::vector<double> keys_of(const AttentionShape& s, const std::vector<double>& qkv) {
  const std::int64_t width = std::int64_t{s.kv_heads} * (s.head_dim + s.value_dim());
  std::vector<double> keys;
  for (std::int64_t row = 0; row < s.sequence * s.samples; ++row) {
    const auto first = qkv.begin() + row * s.qkv_stride + std::int64_t{s.heads} * s.head_dim;
    keys.insert(keys.end(), first, first + width);
  }
  return keys;
}

/// Attention of two halves of a sequence, each of which has the other's keys in turn, is attention
/// of the whole: the second half sees all keys of the first, the first none of the second. Half of
/// the keys, and half of the queries, as a ring of balanced ranks sees them.
TEST_CASE("attention taken in block by block is that of all keys, forward and backward") {
  for (auto s : {attention_shape(6, 2, 2, 1, 5), attention_shape(130, 1, 4, 2, 7),
                 attention_shape(1300, 1, 2, 1, 3), latent_attention_shape(10, 2, 2, 5, 3)}) {
    CAPTURE(s.sequence, s.samples, s.heads, s.kv_heads, s.head_dim);
    const auto qkv = attention_input<double>(s, 48);
    const auto dout = attention_gradient<double>(s, 49);
    const auto whole = attention(s, qkv, dout);
    const std::int64_t half = s.sequence / 2;
    const std::int64_t rows = half * s.samples;
    AttentionShape part = s;
    part.sequence = half;
    const auto early = rows_of(qkv, s.qkv_stride, 0, rows);
    const auto late = rows_of(qkv, s.qkv_stride, rows, rows);
    const auto late_dout = rows_of(dout, s.out_stride, rows, rows);
    const AttentionBlock own{.keys = half, .causal = true, .begins = true};
    const AttentionBlock some{.keys = half / 3};  // of the keys before, then the rest to some
    std::vector<double> out(late_dout.size());
    std::vector<double> log_sum(static_cast<std::size_t>(rows * s.heads));
    const std::int64_t width = std::int64_t{s.kv_heads} * (s.head_dim + s.value_dim());
    const auto keys = keys_of(part, early);
    std::vector<double> rest(keys.begin() + half / 3 * s.samples * width, keys.end());
    rest.resize(keys.size(), 1e9);  // never seen
    const AttentionBlock others{.keys = half - half / 3};
    cpu::attention_block_forward(part, own, late.data(), keys_of(part, late).data(), out.data(),
                                 log_sum.data());
    cpu::attention_block_forward(part, some, late.data(), keys.data(), out.data(), log_sum.data());
    cpu::attention_block_forward(part, others, late.data(), rest.data(), out.data(),
                                 log_sum.data());
    CHECK(distance(out, rows_of(whole.out, s.out_stride, rows, rows)) < kClose<double>);
    std::vector<double> dqkv(late.size(), 0.0);
    std::vector<double> own_keys(keys.size(), 7.0);
    std::vector<double> dkeys(keys.size(), 7.0);
    cpu::attention_block_backward(part, {.keys = half}, late.data(), keys.data(), out.data(),
                                  log_sum.data(), late_dout.data(), dqkv.data(), dkeys.data());
    cpu::attention_block_backward(part, own, late.data(), keys_of(part, late).data(), out.data(),
                                  log_sum.data(), late_dout.data(), dqkv.data(), own_keys.data());
    const auto late_gradient = rows_of(whole.dqkv, s.qkv_stride, rows, rows);
    CHECK(distance(own_keys, keys_of(part, late_gradient)) < kClose<double>);
    // Of the keys before: what the queries among them add.
    const auto early_only = attention(part, early, rows_of(dout, s.out_stride, 0, rows));
    auto sum = keys_of(part, early_only.dqkv);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += dkeys[i];
    CHECK(distance(sum, keys_of(part, rows_of(whole.dqkv, s.qkv_stride, 0, rows))) <
          kClose<double>);
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t i = 0; i < std::int64_t{s.heads} * s.head_dim; ++i) {
        const auto at = static_cast<std::size_t>(row * s.qkv_stride + i);
        CHECK(std::abs(dqkv[at] - late_gradient[at]) < 1e-11);
      }
    }
    // Queries from the second half on leave the others, keys beyond the block have no gradient.
    auto again = out;
    auto sums = log_sum;
    const AttentionBlock few{.first_query = half / 2, .keys = half / 3};
    cpu::attention_block_forward(part, few, late.data(), keys.data(), again.data(), sums.data());
    const auto untouched = half / 2 * s.samples * s.out_stride;
    CHECK(std::equal(again.begin(), again.begin() + untouched, out.begin()));
    CHECK(again != out);
    auto partly = dqkv;
    cpu::attention_block_backward(part, few, late.data(), keys.data(), again.data(), sums.data(),
                                  late_dout.data(), partly.data(), dkeys.data());
    CHECK(std::equal(partly.begin(), partly.begin() + half / 2 * s.samples * s.qkv_stride,
                     dqkv.begin()));
    CHECK(std::all_of(dkeys.begin() + half / 3 * s.samples * width, dkeys.end(),
                      [](double x) { return x == 0; }));
  }
}

/// Against finite differences of single numbers, where there are too many for all.
TEST_CASE("the gradient is right across tiles of keys") {
  const auto s = attention_shape(1030, 1, 2, 1, 3);
  auto qkv = attention_input<double>(s, 45);
  const auto dout = attention_gradient<double>(s, 46);
  const auto gradient = attention(s, qkv, dout).dqkv;
  Numbers numbers(47);
  for (int i = 0; i < 12; ++i) {
    const auto row = numbers.below(1030) * static_cast<std::size_t>(s.qkv_stride);
    const auto place = row + numbers.below(12);
    const auto slope = slopes({qkv[place]}, [&](const std::vector<double>& value) {
      auto changed = qkv;
      changed[place] = value.front();
      return attention_loss(s, changed, dout);
    });
    CHECK(std::abs(gradient[place] - slope.front()) < 1e-7);
  }
}

template <class T>
void check_attention_precision(const AttentionShape& s, double range, double bound) {
  CAPTURE(s.sequence, s.heads, s.kv_heads, range);
  const auto qkv = attention_input<T>(s, 48, range);
  const auto dout = attention_gradient<T>(s, 49);
  const auto exact = attention(s, as<double>(qkv), as<double>(dout));
  const auto actual = attention(s, qkv, dout);
  CHECK(distance(actual.out, exact.out) < bound);
  CHECK(distance(actual.log_sum, exact.log_sum) < kClose<float>);
  CHECK(distance(actual.dqkv, exact.dqkv) < bound);
}

TEST_CASE("attention in fp32 and bf16 stays near fp64, with scores of ±50 as well") {
  const auto s = attention_shape(600, 2, 4, 2, 32);
  check_attention_precision<float>(s, 1, 4e-6);
  check_attention_precision<float>(s, 5, 4e-5);  // an error of a score is one of its exponential
  // dqkv uses the output rounded to bf16.
  check_attention_precision<Bfloat16>(s, 1, 0x1p-7);
  check_attention_precision<Bfloat16>(s, 5, 0x1p-6);
}

TEST_CASE("attention gives the same bits for any number of threads") {
  const auto s = attention_shape(200, 2, 4, 2, 16);
  const auto qkv = attention_input<float>(s, 50);
  const auto dout = attention_gradient<float>(s, 51);
  const auto one = with_threads(1, [&] { return attention(s, qkv, dout); });
  for (const int threads : {2, 3}) {
    const auto some = with_threads(threads, [&] { return attention(s, qkv, dout); });
    CHECK(same_bits(one.out, some.out));
    CHECK(same_bits(one.log_sum, some.log_sum));
    CHECK(same_bits(one.dqkv, some.dqkv));
  }
}

TEST_CASE("a token does not see later ones") {
  const auto s = attention_shape(70, 1, 1, 1, 8);
  auto qkv = attention_input<float>(s, 52);
  const auto dout = attention_gradient<float>(s, 53);
  const auto before = attention(s, qkv, dout).out;
  for (std::int64_t i = 40 * s.qkv_stride; i < 70 * s.qkv_stride; ++i) {
    qkv[static_cast<std::size_t>(i)] += 1;
  }
  const auto after = attention(s, qkv, dout).out;
  const auto seen = static_cast<std::size_t>(40 * s.out_stride);
  CHECK(
      std::equal(before.begin(), before.begin() + static_cast<std::int64_t>(seen), after.begin()));
  CHECK(before[seen] != after[seen]);
}

TEST_CASE("NaN in a query, key or value reaches the tokens that use it") {
  const auto s = attention_shape(70, 1, 1, 1, 8);
  for (const std::int64_t part : {0, 8, 16}) {
    auto qkv = attention_input<float>(s, 54);
    qkv[static_cast<std::size_t>(65 * s.qkv_stride + part)] = static_cast<float>(kNaN);
    const auto result = attention(s, qkv, attention_gradient<float>(s, 55));
    CHECK(std::isnan(result.out[static_cast<std::size_t>(65 * s.out_stride)]));
    CHECK(std::isfinite(result.out[static_cast<std::size_t>(63 * s.out_stride)]));
    CHECK(std::isnan(result.dqkv[static_cast<std::size_t>(65 * s.qkv_stride)]));
  }
}

}  // namespace
}  // namespace echelon
