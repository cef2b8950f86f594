#include "runtime/io/data/tokens.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include "core/base/text.hpp"
#include "runtime/io/data/foreign_formats_io.hpp"
#include "runtime/io/data/integer_file.hpp"
#include "runtime/io/data/scrambled.hpp"

namespace echelon {
namespace {

/// Header of llm.c's token files: 256 little-endian int32, of which the first three count.
/// Source: llm.c, llmc/dataloader.h (prepare_intra_shard_indices_, dataloader_load_shard_) and
/// dev/data/data_common.py (write_datafile).
constexpr std::int64_t kLlmcHeader = 1024;  // bytes
struct LlmcFormat {
  std::int32_t magic;
  std::int32_t version;
  IntegerType type;
};
constexpr LlmcFormat kLlmcFormats[] = {{20240520, 1, IntegerType::u16},   // GPT-2
                                       {20240801, 7, IntegerType::u32}};  // Llama 3

struct LlmcTokens {
  IntegerType type;
  std::int64_t count;
};

/// Nothing if the file does not begin like a token file of llm.c.
Result<std::optional<LlmcTokens>> read_llmc_header(const InputFile& file) {
  std::int32_t head[3] = {};
  if (file.size() < static_cast<std::int64_t>(sizeof(head))) return {std::nullopt};
  const Status read = file.read(0, sizeof(head), head);
  if (!read) return read.error();
  for (const LlmcFormat& format : kLlmcFormats) {
    if (head[0] != format.magic) continue;
    if (head[1] != format.version) {
      return input_error(file.path(), fmt::format("version {} of llm.c's token file", head[1]),
                         fmt::format("version {}", format.version));
    }
    const std::int64_t count = head[2];
    const std::int64_t expected = kLlmcHeader + count * bytes_of(format.type);
    if (count < 0 || file.size() != expected) {
      return input_error(file.path(), fmt::format("{} bytes", file.size()),
                         fmt::format("{} bytes for the {} tokens of its header", expected, count),
                         "the file is cut off or damaged");
    }
    return std::optional(LlmcTokens{format.type, count});
  }
  return {std::nullopt};
}

Result<std::unique_ptr<TokenSource>> open_text(InputFile file, std::int64_t vocabulary) {
  constexpr std::int64_t kBytes = 256;
  if (vocabulary < kBytes) {
    return input_error(file.path(), fmt::format("text for a vocabulary of {}", vocabulary),
                       "a model with at least 256 tokens, one per byte");
  }
  const std::int64_t count = file.size();
  std::string beginning(static_cast<std::size_t>(std::min(count, kBeginning)), '\0');
  const auto bytes = static_cast<std::int64_t>(beginning.size());
  if (const Status read = file.read(0, bytes, beginning.data()); !read) return read.error();
  if (const Status text = check_is_text(file.path(), beginning); !text) return text.error();
  return integer_tokens(std::move(file), 0, IntegerType::u8, count, vocabulary);
}

Result<std::unique_ptr<TokenSource>> open_synthetic(std::string_view name,
                                                    std::int64_t vocabulary) {
  constexpr std::int64_t kUnlessTold = std::int64_t{1} << 32;
  const std::size_t colon = name.find(':');
  if (colon == std::string_view::npos) return synthetic_tokens(kUnlessTold, vocabulary);
  const std::string_view digits = name.substr(colon + 1);
  std::int64_t count = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), count);
  if (error != std::errc() || end != digits.data() + digits.size() || count < 1) {
    return input_error(std::string(name), in_quotes(digits) + " tokens",
                       "synthetic:COUNT with a positive whole number");
  }
  return synthetic_tokens(count, vocabulary);
}

class SyntheticTokens : public TokenSource {
 public:
  SyntheticTokens(std::int64_t count, std::int64_t vocabulary)
      : count_(count), ids_(static_cast<std::uint64_t>(std::min<std::int64_t>(vocabulary, 256))) {}

  [[nodiscard]] std::int64_t count() const override { return count_; }
  [[nodiscard]] Status read(std::int64_t begin, std::int64_t end,
                            std::int32_t* out) const override {
    constexpr std::int64_t kPhrase = 16;
    EXPECTS(0 <= begin && begin <= end && end <= count_, "tokens within the source");
    for (std::int64_t at = begin - begin % kPhrase; at < end; at += kPhrase) {
      std::uint64_t id = scrambled(static_cast<std::uint64_t>(at)) % ids_;
      for (std::int64_t i = at; i < std::min(at + kPhrase, end); ++i) {
        if (i >= begin) out[i - begin] = static_cast<std::int32_t>(id);
        id = (5 * id + 3) % ids_;
      }
    }
    return Done{};
  }

 private:
  std::int64_t count_;
  std::uint64_t ids_;
};

}  // namespace

std::unique_ptr<TokenSource> synthetic_tokens(std::int64_t count, std::int64_t vocabulary) {
  return std::make_unique<SyntheticTokens>(count, vocabulary);
}

Result<std::unique_ptr<TokenSource>> open_tokens(const std::string& name, std::int64_t vocabulary) {
  namespace fs = std::filesystem;
  EXPECTS(vocabulary > 0 && vocabulary <= INT32_MAX, "ids are int32");
  if (name == "synthetic" || name.starts_with("synthetic:")) {
    return open_synthetic(name, vocabulary);
  }
  const fs::path path(name);
  std::error_code ignored;
  const bool ending = path.extension() == ".bin" || path.extension() == ".idx";
  const std::string stem = (ending ? path.parent_path() / path.stem() : path).string();
  if (fs::exists(stem + ".idx", ignored) && (ending || !fs::exists(path, ignored))) {
    return open_megatron(stem, vocabulary);
  }
  Result<InputFile> file = InputFile::open(name);
  if (!file) return file.error();
  if (file->size() == 0) return input_error(name, "the file is empty", "tokens or text");
  const Result<std::optional<LlmcTokens>> llmc = read_llmc_header(*file);
  if (!llmc) return llmc.error();
  if (*llmc) {
    return integer_tokens(std::move(*file), kLlmcHeader, (*llmc)->type, (*llmc)->count, vocabulary);
  }
  if (ending) {
    return input_error(name, "not a token file that is known",
                       "llm.c's header (20240520 or 20240801), or Megatron's index next to it",
                       "text files have another ending, for instance .txt");
  }
  return open_text(std::move(*file), vocabulary);
}

}  // namespace echelon
