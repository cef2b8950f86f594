#include "evaluation/run_wording.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <numeric>
#include <span>

#include "core/base/text.hpp"
#include "core/framework/stage_layers.hpp"

namespace echelon {

namespace {

/// " moe a2a overlap ": the words of a clause between blanks.
using Clause = std::string;

bool holds(const Clause& clause, std::string_view phrase) {
  for (std::size_t at = clause.find(phrase); at != Clause::npos; at = clause.find(phrase, at + 1)) {
    if (clause[at - 1] == ' ' && clause[at + phrase.size()] == ' ') return true;
  }
  return false;
}

bool holds_any(const Clause& clause, std::span<const std::string_view> phrases) {
  return std::ranges::any_of(phrases, [&](auto phrase) { return holds(clause, phrase); });
}

constexpr std::array<std::string_view, 6> kDenials = {"no",  "not",   "without",
                                                      "off", "false", "disabled"};

Clause clause_of(std::string_view text) {
  return fmt::format(" {} ", fmt::join(words_of(text), " "));
}

std::vector<Clause> clauses_of(std::string_view text) {
  std::vector<Clause> clauses;
  for (std::size_t from = 0; from < text.size();) {
    const std::size_t end = std::min(text.find_first_of(";,+", from), text.size());
    clauses.push_back(clause_of(text.substr(from, end - from)));
    from = end + 1;
  }
  return clauses;
}

/// Whether a clause with one of the phrases is denied, or one is not.
bool mentions(std::string_view text, std::span<const std::string_view> phrases, bool denied) {
  return std::ranges::any_of(clauses_of(text), [&](const Clause& clause) {
    return holds_any(clause, phrases) && holds_any(clause, kDenials) == denied;
  });
}

std::optional<double> format_bytes(const std::string& word) {
  constexpr std::array<std::string_view, 4> kTwo = {"bf16", "bfloat16", "fp16", "float16"};
  if (std::ranges::find(kTwo, word) != kTwo.end()) return 2;
  if (word == "fp32" || word == "float32") return 4;
  return {};
}

/// The format nearest to a word for the reduction; of two as near the one before it.
std::optional<double> reduced_in(const Clause& clause) {
  constexpr std::ptrdiff_t kFarthest = 4;
  const std::vector<std::string> words = words_of(clause);
  const auto count = static_cast<std::ptrdiff_t>(words.size());
  const auto word = [&](std::ptrdiff_t i) { return words[static_cast<std::size_t>(i)]; };
  std::optional<double> bytes;
  std::ptrdiff_t nearest = kFarthest + 1;
  for (std::ptrdiff_t at = 0; at < count; ++at) {
    const bool reduction = word(at).starts_with("reduc") || word(at).starts_with("allreduc") ||
                           word(at) == "communication";
    const bool reduced_precision = at + 1 < count && word(at + 1) == "precision";
    if (!reduction || reduced_precision) continue;
    for (std::ptrdiff_t i = 0; i < count; ++i) {
      const auto format = format_bytes(word(i));
      if (!format || std::abs(i - at) >= nearest) continue;
      nearest = std::abs(i - at);
      bytes = format;
    }
  }
  return bytes;
}

}  // namespace

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words(1);
  for (const char c : text) {
    const char lower = lower_case(c);
    if ((lower >= 'a' && lower <= 'z') || (c >= '0' && c <= '9')) {
      words.back() += lower;
    } else if (!words.back().empty()) {
      words.emplace_back();
    }
  }
  if (words.back().empty()) words.pop_back();
  return words;
}

bool states(std::string_view text, std::initializer_list<std::string_view> phrases) {
  return mentions(text, phrases, false);
}

bool denies(std::string_view text, std::initializer_list<std::string_view> phrases) {
  return mentions(text, phrases, true);
}

std::optional<double> reduced_bytes(const MeasuredRun& row) {
  for (const std::string* detail :
       {&row.precision_detail, &row.overlap_detail, &row.framework_detail, &row.notes}) {
    for (const Clause& clause : clauses_of(*detail)) {
      const bool refused = holds(clause, "reduce in fp32 false") ||
                           holds(clause, "reduce in fp32 off") ||
                           holds(clause, "gradients in fp32 false");
      if (refused || holds(clause, "mixed precision pure")) return 2;
      if (const auto bytes = reduced_in(clause)) return bytes;
    }
  }
  return {};
}

bool keeps_bf16_alone(const MeasuredRun& row) {
  return states(row.precision_detail, {"pure bf16"}) || states(row.notes, {"pure bf16"});
}

LayerCode layer_code_of(const MeasuredRun& row) {
  const bool theirs = states(row.framework_detail, {"transformers", "hf trainer", "peft"});
  if (!theirs || row.torch_compile.value_or(false)) return LayerCode::fused;
  const bool liger = states(row.notes, {"liger", "liger kernel", "liger kernels"});
  return liger ? LayerCode::liger : LayerCode::transformers;
}

bool overlaps_experts(const MeasuredRun& row) {
  return std::ranges::any_of(std::array{&row.overlap_detail, &row.framework_detail, &row.notes},
                             [](const auto* text) {
                               return states(*text, {"a2a overlap",
                                                     "overlap a2a",
                                                     "overlapped a2a",
                                                     "all to all overlap",
                                                     "overlap all to all",
                                                     "overlapped all to all",
                                                     "alltoall overlap",
                                                     "ep overlap",
                                                     "overlap ep",
                                                     "ep comm overlap",
                                                     "ep communication overlap",
                                                     "moe comm overlap",
                                                     "moe communication overlap",
                                                     "expert parallel overlap",
                                                     "expert communication overlap",
                                                     "overlap expert communication",
                                                     "overlapped expert communication",
                                                     "overlap moe expert parallel comm",
                                                     "combined 1f1b",
                                                     "1f1b overlap",
                                                     "1f1b a2a",
                                                     "dualpipe",
                                                     "dualpipev",
                                                     "delay wgrad"});
                             });
}

Dispatcher dispatcher_of(const MeasuredRun& row) {
  const auto named = [&](std::initializer_list<std::string_view> phrases) {
    return std::ranges::any_of(std::array{&row.overlap_detail, &row.framework_detail, &row.notes},
                               [&](const auto* text) { return states(*text, phrases); });
  };
  if (named({"hybridep", "hybrid ep"})) return Dispatcher::hybridep;
  if (named({"deepep", "deep ep", "dispatcher flex", "flex dispatcher"})) return Dispatcher::deepep;
  if (named({"dispatcher allgather", "allgather dispatcher"})) return Dispatcher::allgather;
  return Dispatcher::alltoall;
}

std::optional<AttentionKernels> attention_kernels_of(const MeasuredRun& row) {
  if (states(row.notes, {"flash attention 1"})) return AttentionKernels::flash_1;
  if (states(row.notes, {"flash attention 3", "flash attention 4"}))
    return AttentionKernels::newest;
  if (states(row.notes, {"flash attention 2", "flash attn 2", "flash attn fa2"})) {
    return AttentionKernels::flash_2;
  }
  return std::nullopt;
}

std::optional<int> loss_rows_of(const MeasuredRun& row) {
  constexpr std::string_view kWords = "output head in chunks of ";
  const std::size_t at = row.notes.find(kWords);
  if (at == std::string::npos) return std::nullopt;
  const char* const begin = row.notes.data() + at + kWords.size();
  int tokens = 0;
  const auto [end, error] = std::from_chars(begin, row.notes.data() + row.notes.size(), tokens);
  return error == std::errc{} && tokens > 0 ? std::optional(tokens) : std::nullopt;
}

HostShares host_shares(const MeasuredRun& row) {
  if (row.cuda_graph.empty() &&
      !states(row.notes, {"cuda graphs", "cuda graph", "cudagraphs", "cudagraph"})) {
    return {};
  }
  const Clause graph = clause_of(row.cuda_graph);
  for (const std::string_view none : {" none ", " no ", " off ", " false ", " 0 "}) {
    if (graph.starts_with(none)) return {};
  }
  if (holds(graph, "full iteration") || holds(graph, "whole iteration")) return {0, 0, 0};
  const bool attention = holds(graph, "attn");
  const bool mlp = holds(graph, "mlp");
  const bool routing = holds(graph, "moe router") || holds(graph, "moe preprocess");
  const bool scoped = attention || mlp || routing || holds(graph, "mamba");
  constexpr double kOneOf20 = 0.05;  // one launch for the 20 to 30 kernels of a layer
  if (!scoped) {
    // With a fixed capacity experts have static shapes, and are part of the layer's graph.
    const bool fixed = states(row.notes, {"token drop", "tokendrop", "token drop moe"});
    return fixed ? HostShares{kOneOf20, kOneOf20, kOneOf20} : HostShares{.layer = kOneOf20};
  }
  constexpr double kHalf = 0.5;
  return {.layer = 1 - (attention ? kHalf : 0) - (mlp ? kHalf : 0), .experts = routing ? kHalf : 1};
}

namespace {

bool says_of_format(const MeasuredRun& row, std::initializer_list<std::string_view> phrases) {
  return states(row.precision + ";" + row.precision_detail, phrases);
}

}  // namespace

Fp8Scaling scaling_of(const MeasuredRun& row) {
  if (row.precision == "nvfp4") return Fp8Scaling::nvfp4;
  if (says_of_format(row, {"mxfp8"})) return Fp8Scaling::mxfp8;
  if (says_of_format(row, {"blockwise", "block wise", "subchannel", "sub channel"})) {
    return Fp8Scaling::blockwise;
  }
  const bool tensorwise = says_of_format(
      row, {"current", "current scaling", "dynamic", "dynamic scaling", "tensorwise"});
  return tensorwise ? Fp8Scaling::tensorwise : Fp8Scaling::delayed;
}

void set_quantisation(const MeasuredRun& row, PrecisionRecipe& recipe) {
  constexpr double kRowwise = 0.8;
  recipe.fp8_rate = says_of_format(row, {"rowwise", "row wise"}) ? kRowwise : 1;
  const Fp8Scaling scaling = scaling_of(row);
  if (recipe.compute == Dtype::fp8) recipe.scaling = scaling;
  switch (scaling) {
    case Fp8Scaling::nvfp4:
      recipe.fp8_rate = kNvfp4Rate;
      recipe.cast = kNvfp4Cast;
      break;
    case Fp8Scaling::mxfp8:
      recipe.fp8_rate = kMxfp8Rate;
      recipe.cast = kMxfp8Cast;
      break;
    case Fp8Scaling::blockwise: recipe.cast = kBlockwiseCast; break;
    case Fp8Scaling::tensorwise: recipe.cast = kCurrentCast; break;
    case Fp8Scaling::delayed:
    case Fp8Scaling::none: break;
  }
}

std::optional<RecomputeModules> recomputed_modules(const MeasuredRun& row) {
  constexpr std::string_view kModules = "modules=";
  std::string detail = row.recompute_detail;
  const std::size_t at = detail.find(kModules);
  if (at == std::string::npos) return {};
  detail = detail.substr(at + kModules.size());
  detail = detail.substr(0, detail.find_first_of(" ("));
  std::ranges::replace(detail, '+', ',');
  const Result<RecomputeModules> parsed = parse_recompute_modules(detail, "recompute_detail");
  return parsed ? std::optional(*parsed) : std::nullopt;
}

std::optional<std::vector<int>> layers_per_stage(const MeasuredRun& row, int layers, int pp) {
  constexpr std::string_view kLayout = "pp_layout=";
  const std::size_t at = row.overlap_detail.find(kLayout);
  if (at == std::string::npos) return {};
  const std::string_view rest = std::string_view(row.overlap_detail).substr(at + kLayout.size());
  const auto chunks = parse_megatron_layout(rest.substr(0, rest.find(';')), "overlap_detail");
  const auto ranks = static_cast<std::size_t>(pp);
  if (!chunks || chunks->size() % ranks != 0) return {};
  std::vector<int> stages(ranks, 0);
  for (std::size_t i = 0; i < chunks->size(); ++i) stages[i % ranks] += (*chunks)[i];
  if (std::accumulate(stages.begin(), stages.end(), 0) != layers) return {};
  return stages;
}

}  // namespace echelon
