#include "interop/configs/hybrid_pattern.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/text.hpp"
#include "core/framework/stage_layers.hpp"

namespace echelon {

namespace {

constexpr const char* kLetters =
    "M (Mamba-2), * (attention), - (MLP) or E (experts) for each layer, | between chunks, / before "
    "prediction modules";
constexpr const char* kGiveModel = "give a model with a price by --model";

Error unknown_letter(char letter, std::string_view where) {
  constexpr std::pair<char, std::string_view> kUnpriced[] = {
      {'G', "gated delta nets (G)"},
      {'D', "sparse attention (D)"},
      {'+', "latent attention in a layer of its own (+)"}};
  for (const auto& [known, name] : kUnpriced) {
    if (known != letter) continue;
    return input_error(std::string(where), "layers with " + std::string(name),
                       "layers M, *, - or E: others have no price in such a pattern", kGiveModel);
  }
  return input_error(std::string(where), "the letter " + in_quotes(std::string(1, letter)),
                     kLetters);
}

bool is_letter(char c) { return std::string_view("M*-E").find(c) != std::string_view::npos; }

Status check_modules(const HybridPattern& pattern, std::string_view module,
                     std::string_view where) {
  const std::string_view priced = module_pattern(pattern.letters.find('E') != std::string::npos);
  if (module == priced) return Done{};
  return input_error(
      std::string(where), "prediction modules of the layers " + in_quotes(module),
      fmt::format("modules of the layers {}: others have no price", in_quotes(priced)), kGiveModel);
}

}  // namespace

Result<HybridPattern> parse_hybrid_pattern(std::string_view text, std::string_view where) {
  if (text.size() > kMostPatternLayers) {
    return input_error(std::string(where), fmt::format("a pattern of {} letters", text.size()),
                       fmt::format("at most {}", kMostPatternLayers));
  }
  HybridPattern pattern;
  const std::size_t end = std::min(text.find('/'), text.size());
  for (const char c : text.substr(0, end)) {
    if (c == '|') continue;
    if (!is_letter(c)) return unknown_letter(c, where);
    pattern.letters += c;
  }
  if (pattern.letters.empty()) {
    return input_error(std::string(where), "a pattern without layers", kLetters);
  }
  const std::string_view modules = text.substr(end);
  if (modules.find_first_not_of('/') == std::string_view::npos) return pattern;
  for (std::size_t at = 0; at < modules.size(); ++pattern.modules) {
    const std::size_t next = std::min(modules.find('/', at + 1), modules.size());
    const Status priced = check_modules(pattern, modules.substr(at + 1, next - at - 1), where);
    if (!priced) return priced.error();
    at = next;
  }
  return pattern;
}

Status check_priced_letters(std::string_view letters, std::string_view where) {
  const auto has = [&](char letter) { return letters.find(letter) != std::string_view::npos; };
  const auto refused = [&](const char* found, const char* expected) -> Status {
    return input_error(std::string(where), found, expected, kGiveModel);
  };
  if (has('-') && has('E')) {
    return refused("layers with one MLP (-) and layers with experts (E)",
                   "MLPs of one kind: a mixture of both has no price");
  }
  if (!has('-') && !has('E')) {
    return refused("no layer with an MLP (-) or experts (E)",
                   "at least one: layers of token mixers alone have no price");
  }
  if (!has('*')) {
    return refused("no layer with attention (*)",
                   "at least one: models without attention have no price");
  }
  return Done{};
}

std::string pattern_of_ratios(int layers, double attention, double mlp) {
  std::string letters(static_cast<std::size_t>(layers), 'M');
  // Python's round() and the default rounding of C++ are the same: halves to even numbers.
  const auto share = [&](double ratio) { return std::nearbyint(layers * ratio); };
  double mamba = layers - share(attention);
  const double section = mamba / (share(attention) + 1);
  double left = section;
  for (char& letter : letters) {
    if (left < 0.5) letter = '*';
    left += letter == '*' ? section : -1;
  }
  const double mlps = share(mlp);
  if (mlps <= 0) return letters;
  mamba -= mlps;
  const double before = mamba / mlps;
  left = before;
  for (char& letter : letters) {
    if (letter != 'M') continue;
    if (left < 0.5) letter = '-';
    left += letter == '-' ? before : -1;
  }
  return letters;
}

}  // namespace echelon
