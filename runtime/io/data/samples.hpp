// The tokens of each sample of a run: the same for every plan.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "runtime/io/data/tokens.hpp"

namespace echelon {

/// A shuffled order of 0 .. count − 1 that is computed, not stored: a Feistel network over the next
/// power of four, walked until it lands inside (at most 4 rounds on average).
/// Source: Black and Rogaway, "Ciphers with arbitrary finite domains" (CT-RSA 2002), section 3.
/// Checked by: tests/runtime/io/data/samples_test.cpp.
class Permutation {
 public:
  Permutation(std::int64_t count, std::uint64_t key);
  [[nodiscard]] std::int64_t operator()(std::int64_t i) const;

 private:
  static constexpr int kRounds = 8;
  std::array<std::uint64_t, kRounds> keys_{};
  std::uint64_t count_;
  int half_ = 1;  ///< bits
};

/// The samples of a run, counted from its first step: sample j of step k is number k·(global batch)
/// + j, independent of ranks and microbatches. Sample n of epoch e is window
/// permutation(seed, e)(n) of `sequence` + 1 tokens; windows overlap by the one token that is the
/// last target of one and the first input of the next.
class Samples {
 public:
  /// Error: the source is shorter than one window.
  [[nodiscard]] static Result<Samples> make(std::unique_ptr<TokenSource> source, int sequence,
                                            std::uint64_t seed, const std::string& where);

  /// Windows of the source = samples of an epoch. The remainder at its end is never read.
  [[nodiscard]] std::int64_t windows() const { return windows_; }
  [[nodiscard]] std::int64_t window_of(std::int64_t sample) const;
  /// `out`: sequence + 1 tokens; input i is out[i], its target out[i + 1]. Thread-safe.
  [[nodiscard]] Status read(std::int64_t sample, std::int32_t* out) const;

 private:
  Samples(std::unique_ptr<TokenSource> source, int sequence, std::uint64_t seed,
          std::int64_t windows)
      : source_(std::move(source)), sequence_(sequence), seed_(seed), windows_(windows) {}
  std::unique_ptr<TokenSource> source_;
  int sequence_;
  std::uint64_t seed_;
  std::int64_t windows_;
};

}  // namespace echelon
