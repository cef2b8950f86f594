#include "runtime/io/data/samples.hpp"

#include <algorithm>
#include <bit>

#include <fmt/format.h>

#include "runtime/io/data/scrambled.hpp"

namespace echelon {

Permutation::Permutation(std::int64_t count, std::uint64_t key)
    : count_(static_cast<std::uint64_t>(count)) {
  EXPECTS(count >= 1, "a permutation of something");
  half_ = std::max(1, (static_cast<int>(std::bit_width(count_ - 1)) + 1) / 2);
  for (std::uint64_t& round : keys_) round = key = scrambled(key);
}

std::int64_t Permutation::operator()(std::int64_t i) const {
  auto at = static_cast<std::uint64_t>(i);
  EXPECTS(i >= 0 && at < count_, "one of the permuted");
  const std::uint64_t mask = (std::uint64_t{1} << half_) - 1;
  do {
    std::uint64_t left = at >> half_;
    std::uint64_t right = at & mask;
    for (const std::uint64_t key : keys_) {
      left ^= (scrambled(right ^ key) >> 32) & mask;
      std::swap(left, right);
    }
    at = left << half_ | right;
  } while (at >= count_);
  return static_cast<std::int64_t>(at);
}

Result<Samples> Samples::make(std::unique_ptr<TokenSource> source, int sequence, std::uint64_t seed,
                              const std::string& where) {
  EXPECTS(sequence >= 1, "a sample has tokens");
  const std::int64_t windows = (source->count() - 1) / sequence;
  if (windows < 1) {
    return input_error(where, fmt::format("{} tokens", source->count()),
                       fmt::format("at least {}: one sample of {} and its last target",
                                   std::int64_t{sequence} + 1, sequence),
                       "use more data or a shorter sequence");
  }
  return Samples(std::move(source), sequence, seed, windows);
}

std::int64_t Samples::window_of(std::int64_t sample) const {
  EXPECTS(sample >= 0, "samples count from 0");
  const auto epoch = static_cast<std::uint64_t>(sample / windows_);
  return Permutation(windows_, scrambled(seed_) + epoch)(sample % windows_);
}

Status Samples::read(std::int64_t sample, std::int32_t* out) const {
  const std::int64_t begin = window_of(sample) * sequence_;
  return source_->read(begin, begin + sequence_ + 1, out);
}

}  // namespace echelon
