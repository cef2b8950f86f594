// What the functions of torchtitan's registries set themselves, on which a recipe stands.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "interop/configs/rows.hpp"

namespace echelon {

namespace {

constexpr std::string_view kImportedFunction = "import";
constexpr std::string_view kModelSpec = "model_spec";
constexpr std::string_view kFlavor = "model_flavor";
constexpr std::string_view kConverters = "model_converters";
constexpr std::string_view kUnknownFunction = "unknown_function";

struct RegistryFunction {
  std::string_view name;
  std::string_view flavor;      ///< of model_registry
  std::string_view converters;  ///< of the same; "": none
  std::vector<ConfigSetting> settings;
};

std::vector<ConfigSetting> function_settings(std::string_view tokens, std::string_view context,
                                             std::string_view recomputation,
                                             std::vector<ConfigSetting> others = {}) {
  std::vector<ConfigSetting> settings = {{"training.num_tokens_per_microbatch_per_dp_rank", tokens},
                                         {"training.max_context_length", context},
                                         {"activation_checkpoint", recomputation}};
  settings.insert(settings.end(), others.begin(), others.end());
  return settings;
}

/// Settings that differ from the defaults of torchtitan and that rows read. Source: torchtitan
/// b5bcd76c, torchtitan/models/{llama3,gpt_oss,deepseek_v3,qwen3}/config_registry.py.
const std::vector<RegistryFunction>& registry_functions() {
  constexpr std::string_view kFull = "FullAC.Config()";
  constexpr std::string_view kSelective = "SelectiveAC.Config()";
  constexpr ConfigSetting kTp{"parallelism.tensor_parallel_degree", "8"};
  static const std::vector<RegistryFunction> kFunctions = {
      {"llama3_8b", "8B", "", function_settings("8192", "8192", kSelective)},
      {"llama3_70b", "70B", "", function_settings("65536", "8192", kFull, {kTp})},
      {"llama3_405b", "405B", "Float8LinearConverter",
       function_settings(
           "16384", "8192", kFull,
           {kTp, {"compile.enable", "true"}, {"compile.enable_async_tensor_parallel", "true"}})},
      {"gpt_oss_20b", "20b", "", function_settings("8192", "8192", kFull)},
      {"gpt_oss_120b", "120b", "", function_settings("8192", "8192", kFull)},
      {"deepseek_v3_671b", "671B", "",
       function_settings("16384", "4096", kSelective,
                         {{"training.disable_cuda_graphs", "true"},
                          {"parallelism.pipeline_parallel_schedule", "Interleaved1F1B"},
                          {"parallelism.expert_parallel_degree", "2"},
                          {"compile.enable", "true"},
                          {"compile.components", "loss"}})},
      {"qwen3_0_6b", "0.6B", "", function_settings("16384", "4096", kSelective)},
      {"qwen3_1_7b", "1.7B", "", function_settings("16384", "4096", kSelective)},
      {"qwen3_14b", "14B", "", function_settings("16384", "4096", kFull)},
      {"qwen3_30b_a3b", "30B-A3B", "", function_settings("8192", "4096", kFull)},
      {"qwen3_32b", "32B", "", function_settings("8192", "4096", kFull)},
  };
  return kFunctions;
}

/// The function's own model without converters, whatever its attention's kernels.
bool is_own_model(const ConfigEntry& entry, const RegistryFunction& function) {
  std::string text = entry.value.text;
  std::ranges::replace(text, '\'', '"');
  return text.starts_with(fmt::format("model_registry(\"{}\"", function.flavor)) &&
         text.find("converters") == std::string::npos;
}

}  // namespace

void add_registry_settings(ConfigDocument& document) {
  const ConfigEntry* import = document.find(kImportedFunction);
  if (import == nullptr) return;
  const std::string path = import->value.text;
  const std::string name = path.substr(path.rfind('.') + 1);
  const auto& known = registry_functions();
  const auto function = std::ranges::find(known, name, &RegistryFunction::name);
  std::vector<ConfigEntry> added;
  const auto add = [&](std::string_view key, std::string text, std::string_view spelled = "") {
    if (document.find(key) != nullptr) return;
    added.push_back({std::string(key), scalar(std::move(text)), 0, path, std::string(spelled)});
  };
  if (function == known.end()) {
    if (name == kFillIn) return;
    if (document.find(kUnknownFunction) != nullptr) return;
    added.push_back({std::string(kUnknownFunction),
                     scalar(name + ", whose own settings are not known: torchtitan's defaults"),
                     import->line, import->file, std::string(kImportedFunction)});
  } else {
    for (ConfigEntry& entry : document.entries) {
      if (entry.key == kModelSpec && is_own_model(entry, *function)) entry.key = kFlavor;
    }
    for (const ConfigSetting& each : function->settings) add(each.key, std::string(each.value));
    const bool replaced = document.find(kModelSpec) != nullptr || document.find(kFlavor) != nullptr;
    if (!function->converters.empty() && !replaced) {
      add(kConverters, std::string(function->converters), kModelSpec);
    }
  }
  document.entries.insert(document.entries.begin(), added.begin(), added.end());
}

}  // namespace echelon
