#include "core/framework/stage_layers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "core/base/expects.hpp"
#include "core/base/text.hpp"

namespace echelon {

namespace {

/// As equally as can be, a remainder on the first stages. Source: DeepSpeed edaa7221,
/// deepspeed/runtime/utils.py, partition_balanced over layers of equal weight.
std::vector<int> remainder_first(int items, int pp) {
  std::vector<int> stages(static_cast<std::size_t>(pp), items / pp);
  for (int stage = 0; stage < items % pp; ++stage) ++stages[static_cast<std::size_t>(stage)];
  return stages;
}

/// "t*4", "t", "".
std::string layers_text(int layers) {
  return layers > 1 ? fmt::format("t*{}", layers) : layers == 1 ? "t" : "";
}

constexpr std::size_t kLongestLayout = 100'000;

/// Layouts with folded groups written out: "(t|)*2" is "t|t|".
class LayoutReader {
 public:
  LayoutReader(std::string_view text, std::string_view where) : text_(text), where_(where) {}

  Result<std::string> run() {
    std::string out = sequence(0);
    if (!error_ && at_ < text_.size()) fail("a closing parenthesis without an opening one");
    if (error_) return *error_;
    return out;
  }

 private:
  void fail(const std::string& what) {
    if (error_) return;
    error_ = input_error(std::string(where_), what + " in the layout " + in_quotes(text_),
                         "E (embedding), t (layer), m (MTP), L (loss), | between stages, "
                         "(…)*N",
                         "for example Et*3|(tt|)*29t|L");
  }

  std::string sequence(int depth) {
    std::string out;
    while (!error_ && at_ < text_.size() && text_[at_] != ')') {
      const char c = text_[at_++];
      std::string item;
      if (c == ',' || c == ' ' || c == '"') continue;
      if (c == '(' && depth < 8) {
        item = sequence(depth + 1);
        if (at_ >= text_.size()) fail("a group that is not closed");
        ++at_;
      } else if (std::string_view("EtmL|").find(c) != std::string_view::npos) {
        item = std::string(1, c);
      } else {
        fail(fmt::format("{}", in_quotes(std::string(1, c))));
      }
      const int times = repetition();
      if (item.size() * static_cast<std::size_t>(times) + out.size() > kLongestLayout) {
        fail("more than 100,000 symbols");
        break;
      }
      for (int i = 0; i < times; ++i) out += item;
    }
    return out;
  }

  int repetition() {
    if (at_ >= text_.size() || text_[at_] != '*') return 1;
    ++at_;
    int times = 0;
    const std::size_t begin = at_;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9' && times < 1'000'000) {
      times = 10 * times + (text_[at_++] - '0');
    }
    if (at_ == begin) fail("a repetition without its number");
    return times;
  }

  std::string_view text_;
  std::string_view where_;
  std::size_t at_ = 0;
  std::optional<Error> error_;
};

}  // namespace

std::optional<std::vector<int>> dealt_layers(const Framework& framework, const ModelSpec& model,
                                             int pp) {
  EXPECTS(pp >= 1, "a pipeline has a stage");
  EXPECTS(framework.stage_layers != StageLayers::chosen, "a framework that deals the layers");
  if (framework.stage_layers == StageLayers::by_cost) return layers_by_cost(model, pp, true);
  const bool equal = framework.stage_layers == StageLayers::equal;
  if (equal && model.layers % pp != 0) return std::nullopt;
  return remainder_first(model.layers, pp);
}

std::vector<int> layers_by_cost(const ModelSpec& model, int pp, bool tie_stays) {
  const double hidden = model.hidden;
  const double layer = 4 * hidden * hidden + 3 * hidden * model.ffn_hidden;
  const double total = model.layers * layer + hidden * model.vocab;
  std::vector<int> stages(static_cast<std::size_t>(pp), 0);
  std::size_t stage = 0;
  for (int i = 1; i <= model.layers; ++i) {
    ++stages[stage];
    const double threshold = total * (static_cast<double>(stage + 1) / pp);
    const double placed = i * layer;
    const bool full = tie_stays ? placed > threshold : placed >= threshold;
    if (full && stage + 1 < stages.size()) ++stage;
  }
  return stages;
}

std::vector<int> layers_of_chunks(const ParallelPlan& plan) {
  std::vector<int> chunks;
  for (int chunk = 0; chunk < plan.vpp; ++chunk) {
    for (int rank = 0; rank < plan.pp; ++rank) {
      chunks.push_back(layers_in_chunk(plan, rank, chunk));
    }
  }
  return chunks;
}

std::string_view module_pattern(bool experts) { return experts ? "*E" : "*-"; }

std::string megatron_pattern(const ModelSpec& model, const ParallelPlan& plan) {
  EXPECTS(!model.layer_pattern.empty(), "a model whose layers are known one by one");
  const std::string_view letters = model.layer_pattern;
  std::string out;
  std::size_t at = 0;
  for (const int layers : layers_of_chunks(plan)) {
    const auto count = static_cast<std::size_t>(layers);
    out += letters.substr(std::min(at, letters.size()), count);
    out += '|';
    at += count;
  }
  out.pop_back();
  for (int i = 0; i < model.prediction_modules; ++i) {
    out += '/';
    out += module_pattern(model.moe.experts > 0);
  }
  return out;
}

std::string megatron_layout(const ParallelPlan& plan) {
  std::vector<std::string> chunks;
  for (const int layers : layers_of_chunks(plan)) chunks.push_back(layers_text(layers));
  chunks.front() = "E" + chunks.front();
  chunks.back() += "L";
  std::string out;
  for (std::size_t first = 0; first < chunks.size();) {
    std::size_t last = first;
    while (last + 1 < chunks.size() && chunks[last + 1] == chunks[first]) ++last;
    // The bar behind the last chunk would begin another one.
    const std::size_t folded = last - first + (last + 1 < chunks.size() ? 1 : 0);
    if (folded > 1) {
      out += fmt::format("({}|)*{}", chunks[first], folded);
      first += folded;
      continue;
    }
    out += chunks[first++];
    if (first < chunks.size()) out += "|";
  }
  return out;
}

Result<std::vector<int>> parse_megatron_layout(std::string_view layout, std::string_view where) {
  const Result<std::string> symbols = LayoutReader(layout, where).run();
  if (!symbols) return symbols.error();
  std::vector<int> chunks = {0};
  for (const char c : *symbols) {
    if (c == '|') chunks.push_back(0);
    if (c == 't') ++chunks.back();
  }
  return chunks;
}

}  // namespace echelon
