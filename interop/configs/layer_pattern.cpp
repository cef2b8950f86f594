// Megatron-LM's patterns of layers: "([1]*3+[0]*1)*8" has an entry for each layer. Source:
// megatron/training/arguments.py, moe_freq_type and _eval_pattern.
#include <fmt/format.h>

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
  // Quotes remain of an option in a variable, for a command that eval starts.
  std::erase_if(compact, [](char c) { return c == ' ' || c == '\'' || c == '"'; });
  Pattern pattern{compact};
  std::vector<bool> layers = pattern.sum();
  if (pattern.good && pattern.at == compact.size()) return layers;
  return input_error(std::string(where), in_quotes(text),
                     "a list of layers such as ([1]*3+[0]*1)*8");
}

void write_moe_layers(const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
  const MixtureOfExperts& moe = config.model.moe;
  if (moe.experts == 0 || (moe.first_dense_layers == 0 && moe.every == 1)) return;
  if (moe.first_dense_layers == 0) {
    out.set(row.keys[0], quoted(std::to_string(moe.every)));
    return;
  }
  const int rest = config.model.layers - moe.first_dense_layers;
  std::string text = fmt::format("([0]*{}", moe.first_dense_layers);
  if (moe.every == 1) {
    text += fmt::format("+[1]*{}", rest);
  } else {
    const std::string group = fmt::format("[1]+[0]*{}", moe.every - 1);
    if (rest >= moe.every) text += fmt::format("+({})*{}", group, rest / moe.every);
    const int left = rest % moe.every;
    if (left > 0) text += "+[1]";
    if (left > 1) text += fmt::format("+[0]*{}", left - 1);
  }
  out.set(row.keys[0], quoted(text + ")"));
}

namespace {

/// The first layer with experts, and the distance to the next one.
struct MoeLayers {
  int first = 0;
  int every = 1;
};
Result<MoeLayers> moe_layers_at(const ConfigReading& reading, const ConfigEntry& entry) {
  const std::string text = layer_pattern_text(entry);
  if (text.find('[') == std::string::npos) {
    const Result<int> every = number_of(reading, entry);
    if (!every) return every.error();
    return MoeLayers{0, std::max(1, *every)};
  }
  const Result<std::vector<bool>> pattern = parse_layer_pattern(text, reading.place(entry));
  if (!pattern) return pattern.error();
  const int layers = reading.config.model.layers;
  if (layers > 0 && pattern->size() != static_cast<std::size_t>(layers)) {
    return input_error(reading.place(entry), fmt::format("{} layers", pattern->size()),
                       fmt::format("the model's {}", layers));
  }
  const auto first = std::find(pattern->begin(), pattern->end(), true);
  if (first == pattern->end()) return MoeLayers{};
  const auto second = std::find(first + 1, pattern->end(), true);
  MoeLayers found{static_cast<int>(first - pattern->begin()), static_cast<int>(second - first)};
  // A single one has no next.
  if (second == pattern->end()) found.every = static_cast<int>(pattern->size());
  for (std::size_t layer = 0; layer < pattern->size(); ++layer) {
    const int behind = static_cast<int>(layer) - found.first;
    if ((*pattern)[layer] == (behind >= 0 && behind % found.every == 0)) continue;
    return input_error(reading.place(entry), text, "layers with experts at a constant interval");
  }
  return found;
}

/// The letters of a hybrid model's layers take the place of --moe-layer-freq.
ReadValue of_pattern(std::string value) {
  return derived(std::move(value), "the pattern of layers");
}

}  // namespace

MaybeValue read_first_dense(const ConfigRow& row, const ConfigReading& reading) {
  const ConfigEntry* entry = reading.find(row.keys);
  if (!reading.config.model.layer_pattern.empty()) return std::optional(of_pattern("0"));
  if (entry == nullptr) return std::optional(assumed("0"));
  const Result<MoeLayers> layers = moe_layers_at(reading, *entry);
  if (!layers) return layers.error();
  return std::optional(
      ReadValue{std::to_string(layers->first), Origin::found, reading.place(*entry)});
}

MaybeValue read_every(const ConfigRow& row, const ConfigReading& reading) {
  const ConfigEntry* entry = reading.find(row.keys);
  if (reading.config.model.moe.experts == 0) return std::optional<ReadValue>{};
  if (!reading.config.model.layer_pattern.empty()) return std::optional(of_pattern("1"));
  if (entry == nullptr) return std::optional(assumed("1"));
  const Result<MoeLayers> layers = moe_layers_at(reading, *entry);
  if (!layers) return layers.error();
  return std::optional(
      ReadValue{std::to_string(layers->every), Origin::found, reading.place(*entry)});
}

}  // namespace echelon
