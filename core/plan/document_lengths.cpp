#include "core/plan/document_lengths.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

#include "core/base/parse_quantity.hpp"
#include "core/base/text.hpp"

namespace echelon {

namespace {

constexpr std::string_view kLognormal = "lognormal";
constexpr const char* kSpellings =
    "a length, lognormal:MEAN:SIGMA, a list LENGTHxDOCUMENTS,..., or a file of lengths";
constexpr double kLongestDocument = 1e9;

/// Share of a normal distribution below `x`.
double below(double x) { return std::erfc(-x / std::sqrt(2.0)) / 2; }

/// A lognormal distribution as bins of equal width in ln x, each with its exact share of documents
/// and of tokens: with μ = ln(mean) − σ²/2 the documents lie around μ, their tokens around μ + σ²
/// and the squares of their lengths around μ + 2σ², all with deviation σ.
std::vector<DocumentLengths::Bin> lognormal_bins(double mean, double sigma) {
  if (sigma <= 0) return {{mean, 1}};
  constexpr int kBins = 512;
  constexpr double kDeviations = 6;
  const double center = std::log(mean) - sigma * sigma / 2;
  const double low = center - kDeviations * sigma;
  const double width = (2 * kDeviations * sigma + 2 * sigma * sigma) / kBins;
  std::vector<DocumentLengths::Bin> bins;
  for (int i = 0; i < kBins; ++i) {
    const double from = (low + i * width - center) / sigma;
    const double to = from + width / sigma;
    const double documents = below(to) - below(from);
    const double tokens = mean * (below(to - sigma) - below(from - sigma));
    if (documents > 0 && tokens > 0) bins.push_back({tokens / documents, documents});
  }
  return bins;
}

Error not_lengths(std::string_view text, std::string_view where) {
  return input_error(std::string(where), in_quotes(text) + " names no lengths of documents",
                     kSpellings);
}

Result<double> length_of(std::string_view text, std::string_view where) {
  const Result<std::int64_t> tokens = parse_count(text, where);
  if (!tokens) return tokens.error();
  if (static_cast<double>(*tokens) > kLongestDocument) {
    return input_error(std::string(where), fmt::format("a document of {} tokens", *tokens),
                       "at most 1e9");
  }
  return static_cast<double>(*tokens);
}

Result<DocumentLengths> parse_lognormal(std::string_view text, std::string_view where) {
  const std::size_t first = text.find(':');
  const std::size_t second = first == std::string_view::npos ? first : text.find(':', first + 1);
  if (text.substr(0, first) != kLognormal || second == std::string_view::npos) {
    return not_lengths(text, where);
  }
  const Result<double> mean = length_of(text.substr(first + 1, second - first - 1), where);
  if (!mean) return mean.error();
  const Result<double> sigma = parse_ratio(text.substr(second + 1), where, 0, 4);
  if (!sigma) return sigma.error();
  return DocumentLengths{.text = fmt::format("{}:{:.0f}:{}", kLognormal, *mean, *sigma),
                         .bins = lognormal_bins(*mean, *sigma)};
}

/// The histogram's text: "2048" for one length, else "512x10,4096x1".
DocumentLengths of_bins(std::vector<DocumentLengths::Bin> bins) {
  std::string text;
  for (const auto& [tokens, documents] : bins) {
    text += fmt::format("{}{:.0f}x{:.0f}", text.empty() ? "" : ",", tokens, documents);
  }
  if (bins.size() == 1) text = fmt::format("{:.0f}", bins.front().tokens);
  return {.text = std::move(text), .bins = std::move(bins)};
}

/// Documents by length, in tokens.
using Counted = std::map<double, double>;

Status add(std::string_view length, std::string_view documents, std::string_view where,
           Counted& counted) {
  const Result<double> tokens = length_of(length, where);
  if (!tokens) return tokens.error();
  const Result<std::int64_t> count =
      documents.empty() ? Result(std::int64_t{1}) : parse_count(documents, where);
  if (!count) return count.error();
  counted[*tokens] += static_cast<double>(*count);
  return Done{};
}

/// One bin per length; of many lengths one per 1/16 octave, with their mean length.
DocumentLengths of_counted(const Counted& counted) {
  constexpr std::size_t kMostLengths = 512;
  constexpr double kPerOctave = 16;
  std::vector<DocumentLengths::Bin> bins;
  double octave = -1;
  for (const auto& [tokens, documents] : counted) {
    const double own = std::floor(kPerOctave * std::log2(tokens));
    if (counted.size() <= kMostLengths || own != octave || bins.empty()) {
      bins.push_back({0, 0});
    }
    octave = own;
    auto& [sum, all] = bins.back();
    sum += tokens * documents;
    all += documents;
  }
  for (auto& [tokens, documents] : bins) tokens = std::round(tokens / documents);
  return of_bins(std::move(bins));
}

/// Sums `of(x)` over the pieces of x tokens that documents are cut into, per token.
template <class OfPiece>
double per_token(const DocumentLengths& documents, double sequence, OfPiece of) {
  double sum = 0;
  double tokens = 0;
  for (const DocumentLengths::Bin& bin : documents.bins) {
    const double whole = std::floor(bin.tokens / sequence);
    const double rest = bin.tokens - whole * sequence;
    sum += bin.documents * (whole * of(sequence) + of(rest));
    tokens += bin.documents * bin.tokens;
  }
  return sum / tokens;
}

}  // namespace

bool names_document_lengths(std::string_view text) {
  return text.starts_with(kLognormal) ||
         (!text.empty() &&
          text.find_first_not_of("0123456789xkKmMi,.-+") == std::string_view::npos);
}

Result<DocumentLengths> parse_document_lengths(std::string_view text, std::string_view where) {
  if (!names_document_lengths(text)) return not_lengths(text, where);
  if (text.starts_with(kLognormal)) return parse_lognormal(text, where);
  Counted counted;
  while (true) {
    const std::string_view item = text.substr(0, text.find(','));
    const std::size_t cross = item.find('x');
    const bool counts = cross != std::string_view::npos;
    if (counts && cross + 1 == item.size()) return not_lengths(item, where);
    const Status added =
        add(item.substr(0, cross), counts ? item.substr(cross + 1) : "", where, counted);
    if (!added) return added.error();
    if (item.size() == text.size()) return of_counted(counted);
    text.remove_prefix(item.size() + 1);
  }
}

Result<DocumentLengths> read_document_table(std::string_view table, std::string_view where) {
  constexpr std::string_view kBetween = " \t,\r";
  Counted counted;
  int number = 0;
  while (!table.empty()) {
    std::string_view line = table.substr(0, table.find('\n'));
    table.remove_prefix(std::min(table.size(), line.size() + 1));
    ++number;
    line.remove_prefix(std::min(line.size(), line.find_first_not_of(kBetween)));
    if (line.empty() || line.front() == '#') continue;
    line = line.substr(0, line.find_last_not_of(kBetween) + 1);
    const std::size_t split = line.find_first_of(kBetween);
    const std::size_t second =
        split == std::string_view::npos ? split : line.find_first_not_of(kBetween, split);
    const std::string_view documents =
        second == std::string_view::npos ? std::string_view() : line.substr(second);
    const std::string place = fmt::format("{} line {}", where, number);
    if (const Status added = add(line.substr(0, split), documents, place, counted); !added) {
      return added.error();
    }
  }
  if (counted.empty()) {
    return input_error(std::string(where), "no lengths of documents",
                       "lines LENGTH or LENGTH DOCUMENTS");
  }
  return of_counted(counted);
}

double keys_in_document(const DocumentLengths& documents, double sequence, double window) {
  const double w = std::min(window, sequence);
  return per_token(documents, sequence,
                   [&](double x) { return x <= w ? x * x / 2 : w * x - w * w / 2; });
}

double span_of_document(const DocumentLengths& documents, double sequence) {
  return per_token(documents, sequence, [](double x) { return x * x; });
}

}  // namespace echelon
