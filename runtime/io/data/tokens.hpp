// Sources of training tokens: files of several formats, or a synthetic pattern.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/base/result.hpp"

namespace echelon {

/// A long sequence of tokens, read in parts; thread-safe.
class TokenSource {
 public:
  virtual ~TokenSource() = default;
  [[nodiscard]] virtual std::int64_t count() const = 0;
  /// Tokens [begin, end) of the source. An id outside the vocabulary is an input error that names
  /// the file and the position.
  [[nodiscard]] virtual Status read(std::int64_t begin, std::int64_t end,
                                    std::int32_t* out) const = 0;
};

/// `name` is one of
/// - "synthetic" or "synthetic:COUNT": synthetic_tokens below;
/// - a file of llm.c, recognized by its first number: GPT-2's 16-bit or Llama 3's 32-bit tokens;
/// - Megatron's NAME.bin with NAME.idx next to it, as NAME or as either file;
/// - any other file not called .bin: text, one token per byte. JSON, JSON lines and the usual
/// binary
///   formats of data sets (Parquet, Arrow, archives) are refused by name.
/// No file is loaded as a whole. `vocabulary`: ids are below it. Errors: unreadable files, headers
/// that contradict the length, text for a vocabulary below 256.
[[nodiscard]] Result<std::unique_ptr<TokenSource>> open_tokens(const std::string& name,
                                                               std::int64_t vocabulary);

/// A pattern that a model learns quickly: phrases of 16 tokens that begin anywhere and in which
/// each token follows from the one before it, out of 256 (or all) ids. The best possible loss is
/// about ln(256)/16 = 0.35, with a context of one token.
[[nodiscard]] std::unique_ptr<TokenSource> synthetic_tokens(std::int64_t count,
                                                            std::int64_t vocabulary);

}  // namespace echelon
