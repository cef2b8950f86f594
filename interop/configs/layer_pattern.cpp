// Megatron-LM's patterns of layers: "([1]*3+[0]*1)*8" has an entry for each layer. Source:
// megatron/training/arguments.py, moe_freq_type and _eval_pattern.
#include <algorithm>
#include <utility>

#include "core/base/text.hpp"
#include "interop/configs/rows.hpp"

namespace echelon {

namespace {

constexpr std::size_t kMostLayers = 100'000;
constexpr int kDeepest = 32;

struct Pattern {
  std::string_view text;
  std::size_t at = 0;
  int depth = 0;
  bool good = true;

  bool next(char c) {
    if (at >= text.size() || text[at] != c) return false;
    ++at;
    return true;
  }

  std::size_t number() {
    std::size_t value = 0;
    const std::size_t begin = at;
    while (at < text.size() && text[at] >= '0' && text[at] <= '9') {
      value = std::min(10 * value + static_cast<std::size_t>(text[at++] - '0'), kMostLayers);
    }
    good = good && at > begin;
    return value;
  }

  void listed(std::vector<bool>& layers) {
    good = good && next('[');
    do layers.push_back(number() > 0);
    while (good && next(','));
    good = good && next(']');
  }

  /// "[1,0]" or "(…)", repeated by the number behind '*'.
  std::vector<bool> factor() {
    std::vector<bool> layers;
    if (depth < kDeepest && next('(')) {
      ++depth;
      layers = sum();
      --depth;
      good = good && next(')');
    } else {
      listed(layers);
    }
    while (good && next('*')) {
      const std::size_t times = number();
      const std::vector<bool> once = layers;
      good = good && once.size() * times <= kMostLayers;
      layers.clear();
      for (std::size_t i = 0; good && i < times; ++i) {
        layers.insert(layers.end(), once.begin(), once.end());
      }
    }
    return layers;
  }

  std::vector<bool> sum() {
    std::vector<bool> layers = factor();
    while (good && next('+')) {
      const std::vector<bool> more = factor();
      good = good && layers.size() + more.size() <= kMostLayers;
      if (good) layers.insert(layers.end(), more.begin(), more.end());
    }
    return layers;
  }
};

}  // namespace

std::string layer_pattern_text(const ConfigEntry& entry) {
  return entry.value.is_list ? "[" + entry.value.joined() + "]" : entry.value.text;
}

Result<std::vector<bool>> parse_layer_pattern(std::string_view text, std::string_view where) {
  std::string compact(text);
  std::erase(compact, ' ');
  Pattern pattern{compact};
  std::vector<bool> layers = pattern.sum();
  if (pattern.good && pattern.at == compact.size()) return layers;
  return input_error(std::string(where), in_quotes(text),
                     "a list of layers such as ([1]*3+[0]*1)*8");
}

}  // namespace echelon
