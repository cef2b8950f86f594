#include "interop/configs/adapter_targets.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "core/base/text.hpp"

namespace echelon {

namespace {

using Target = AdapterTarget;

/// Modules of transformers' models, by the last part of their names.
struct NamedModule {
  std::string_view name;
  AdapterTargets targets;
  bool part = false;  ///< one of several matrices of the target
};

const std::vector<NamedModule>& named_modules() {
  static const std::vector<NamedModule> kModules = {
      {"q_proj", {Target::linear_qkv}, true},
      {"k_proj", {Target::linear_qkv}, true},
      {"v_proj", {Target::linear_qkv}, true},
      {"qkv_proj", {Target::linear_qkv}},
      {"query_key_value", {Target::linear_qkv}},
      {"c_attn", {Target::linear_qkv}},
      {"wqkv", {Target::linear_qkv}},
      {"w_pack", {Target::linear_qkv}},
      {"o_proj", {Target::linear_proj}},
      {"out_proj", {Target::linear_proj}},
      {"dense", {Target::linear_proj}},
      {"c_proj", {Target::linear_proj, Target::linear_fc2}},  // GPT-2's attention and MLP
      {"gate_proj", {Target::linear_fc1}, true},
      {"up_proj", {Target::linear_fc1}, true},
      {"gate_up_proj", {Target::linear_fc1}},
      {"c_fc", {Target::linear_fc1}},
      {"fc1", {Target::linear_fc1}},
      {"dense_h_to_4h", {Target::linear_fc1}},
      {"down_proj", {Target::linear_fc2}},
      {"fc2", {Target::linear_fc2}},
      {"dense_4h_to_h", {Target::linear_fc2}},
  };
  return kModules;
}

/// The parts of a text between separators outside of its brackets.
std::vector<std::string> split_outside(std::string_view text, std::string_view separators) {
  std::vector<std::string> parts(1);
  int depth = 0;
  for (const char c : text) {
    depth += c == '(' ? 1 : c == ')' ? -1 : 0;
    const bool between = depth <= 0 && separators.find(c) != std::string_view::npos;
    if (between) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

/// "(a|b)c" as "ac" and "bc".
std::vector<std::string> alternatives(const std::string& text) {
  const std::size_t open = text.find('(');
  const std::size_t close = text.find(')', open);
  if (open == std::string::npos || close == std::string::npos) return {text};
  std::vector<std::string> out;
  for (const std::string& each : split_outside(text.substr(open + 1, close - open - 1), "|")) {
    out.push_back(text.substr(0, open) + each + text.substr(close + 1));
  }
  return out;
}

/// A part of a name before its last one that leaves no module out.
bool takes_all(const std::string& part, const ModelSpec& model) {
  constexpr std::array<std::string_view, 9> kAny = {
      "", "*", "model", "language_model", "text_model", "layers", "d+", "[d]+", "self_attn"};
  const auto is_any = [&](const std::string& word) {
    if (word == "mlp") return model.moe.experts == 0;
    return word == "cross_attn" || std::ranges::find(kAny, word) != kAny.end();
  };
  return std::ranges::all_of(alternatives(part), is_any);
}

void add_modules_of(const std::string& name, const ModelSpec& model,
                    std::vector<std::string>& out) {
  std::vector<std::string> parts = split_outside(name, ".");
  const std::string last = parts.back();
  parts.pop_back();
  const bool all =
      std::ranges::all_of(parts, [&](const std::string& part) { return takes_all(part, model); });
  const std::vector<std::string> modules = all ? alternatives(last) : std::vector{name};
  out.insert(out.end(), modules.begin(), modules.end());
}

std::string without(std::string text, std::string_view what) {
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what)) {
    text.erase(at, what.size());
  }
  return text;
}

}  // namespace

std::vector<std::string> adapted_modules(const ConfigEntry& entry, const ModelSpec& model) {
  const std::string text = lower_case(entry.value.joined());
  const bool pattern = !entry.value.is_list && text.find('(') != std::string::npos;
  std::vector<std::string> out;
  if (pattern) {
    // The wrapper of recomputed layers is one of all of them.
    const std::string plain = without(without(text, "\\"), "(_checkpoint_wrapped_module.)?");
    for (const std::string& name : split_outside(plain, "|")) add_modules_of(name, model, out);
    return out;
  }
  std::string word;
  for (const char c : text + " ") {
    const bool between = std::string_view(" ,|[]'\"").find(c) != std::string_view::npos;
    if (!between) word += c;
    if (between && !word.empty()) add_modules_of(std::exchange(word, {}), model, out);
  }
  return out;
}

std::optional<AdapterTargets> adapter_targets(const ConfigEntry& entry, const ModelSpec& model) {
  AdapterTargets out;
  for (const std::string& word : adapted_modules(entry, model)) {
    if (word == "all-linear" || word == "all") return kAllAdapterTargets;
    const auto module = std::ranges::find(named_modules(), word, &NamedModule::name);
    if (module == named_modules().end()) return std::nullopt;
    for (const Target target : kAdapterTargets) {
      if (module->targets.contains(target)) out.insert(target);
    }
  }
  return out.empty() ? std::nullopt : std::optional(out);
}

}  // namespace echelon
