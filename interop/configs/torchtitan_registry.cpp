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
constexpr std::string_view kDispatcher = "moe_comm_backend";  ///< argument of model_registry
constexpr std::string_view kUnknownFunction = "unknown_function";

struct RegistryFunction {
  std::string_view name;
  std::string_view flavor;      ///< of model_registry
  std::string_view converters;  ///< of the same; "": none
  int local_batch = 0;          ///< sequences of a data-parallel rank; 0: there is no such function
  int sequence = 0;
  std::string_view recomputation = "";
  std::vector<ConfigSetting> others{};
  std::string_view written_into = "";  ///< the function whose model it replaces; "": its own
};

/// Settings that differ from the defaults of torchtitan and that rows read. Source: torchtitan
/// v0.3.0 and b5bcd76c, torchtitan/models/{llama3,gpt_oss,deepseek_v3,qwen3}/config_registry.py.
const std::vector<RegistryFunction>& registry_functions() {
  constexpr std::string_view kFull = "FullAC.Config()";
  constexpr std::string_view kSelective = "SelectiveAC.Config()";
  constexpr ConfigSetting kTp{"parallelism.tensor_parallel_degree", "8"};
  static const std::vector<RegistryFunction> kFunctions = {
      {"llama3_8b", "8B", "", 1, 8192, kSelective},
      {"llama3_70b", "70B", "", 8, 8192, kFull, {kTp}},
      // Its converter needs torchao, also where another model replaces its own.
      {"llama3_405b",
       "405B",
       "Float8LinearConverter",
       2,
       8192,
       kFull,
       {kTp, {"compile.enable", "true"}, {"compile.enable_async_tensor_parallel", "true"}},
       "llama3_70b"},
      {"gpt_oss_20b", "20b", "", 1, 8192, kFull},
      {"gpt_oss_120b", "120b", "", 1, 8192, kFull},
      {"deepseek_v3_671b",
       "671B",
       "",
       4,
       4096,
       kSelective,
       {{"training.disable_cuda_graphs", "true"},
        {"parallelism.pipeline_parallel_schedule", "Interleaved1F1B"},
        {"parallelism.expert_parallel_degree", "2"},
        {"compile.enable", "true"},
        {"compile.components", "loss"}}},
      {"qwen3_0_6b", "0.6B", "", 4, 4096, kSelective},
      {"qwen3_1_7b", "1.7B", "", 4, 4096, kSelective},
      {"qwen3_4b", "4B", "", 0, 0, "", {}, "qwen3_14b"},
      {"qwen3_8b", "8B", "", 0, 0, "", {}, "qwen3_14b"},
      {"qwen3_14b", "14B", "", 4, 4096, kFull},
      {"qwen3_30b_a3b", "30B-A3B", "", 2, 4096, kFull},
      {"qwen3_32b", "32B", "", 2, 4096, kFull},
      {"qwen3_235b_a22b", "235B-A22B", "", 0, 0, "", {}, "qwen3_30b_a3b"},
  };
  return kFunctions;
}

const RegistryFunction* function_named(std::string_view name) {
  const auto& known = registry_functions();
  const auto at = std::ranges::find(known, name, &RegistryFunction::name);
  return at == known.end() ? nullptr : &*at;
}

std::string_view name_in(std::string_view path) { return path.substr(path.rfind('.') + 1); }

/// "qwen3" of "torchtitan.models.qwen3.config_registry.qwen3_14b", with which the names of the
/// family's functions begin.
std::string_view family_in(std::string_view path) {
  const std::string_view package = path.substr(0, path.rfind(".config_registry"));
  return name_in(package);
}

/// The model of this family that model_registry gives without converters, whatever its attention's
/// kernels; null: another one.
const RegistryFunction* model_of(const ConfigEntry& entry, std::string_view path) {
  std::string text = entry.value.text;
  std::ranges::replace(text, '\'', '"');
  if (text.find("converters") != std::string::npos) return nullptr;
  for (const RegistryFunction& each : registry_functions()) {
    const bool flavored = text.starts_with(fmt::format("model_registry(\"{}\"", each.flavor));
    if (flavored && each.name.starts_with(family_in(path))) return &each;
  }
  return nullptr;
}

/// What the call of model_registry names as the dispatcher of experts; "": nothing.
std::string dispatcher_in(const ConfigEntry& model) {
  const std::string& text = model.value.text;
  const std::size_t at = text.find(kDispatcher);
  if (at == std::string::npos) return "";
  const std::size_t begin = text.find_first_of("'\"", at);
  if (begin == std::string::npos) return "";
  return text.substr(begin + 1, text.find(text[begin], begin + 1) - begin - 1);
}

/// Keys of the local batch, in sequences or in tokens, and of the sequence.
struct BatchKeys {
  std::string_view batch;
  std::string_view sequence;
  bool tokens = false;
};

void add_registry_settings(ConfigDocument& document, const BatchKeys& keys) {
  const auto import = std::ranges::find(document.entries, kImportedFunction, &ConfigEntry::key);
  if (import == document.entries.end()) return;
  const std::string path = import->value.text;
  const RegistryFunction* function = function_named(name_in(path));
  std::vector<ConfigEntry> added;
  for (const ConfigEntry& entry : document.entries) {
    if (entry.key != kModelSpec) continue;
    if (const std::string dispatcher = dispatcher_in(entry); !dispatcher.empty()) {
      added.push_back({std::string(kDispatcher), scalar(dispatcher), entry.line, entry.file});
    }
  }
  const auto add = [&](std::string_view key, std::string text, std::string_view spelled = "") {
    if (document.find(key) != nullptr) return;
    added.push_back({std::string(key), scalar(std::move(text)), 0, path, std::string(spelled)});
  };
  if (path == kFillIn) {
    // Its settings are those of a function that is not known yet.
  } else if (function == nullptr || function->local_batch == 0) {
    if (document.find(kUnknownFunction) != nullptr) return;
    added.push_back({std::string(kUnknownFunction),
                     scalar(std::string(name_in(path)) +
                            ", whose own settings are not known: torchtitan's defaults"),
                     import->line, import->file, std::string(kImportedFunction)});
  } else {
    for (ConfigEntry& entry : document.entries) {
      if (entry.key != kModelSpec) continue;
      const RegistryFunction* model = model_of(entry, path);
      if (model == nullptr) continue;
      entry.key = kFlavor;
      import->value.text = path.substr(0, path.rfind('.') + 1) + std::string(model->name);
    }
    const int unit = keys.tokens ? function->sequence : 1;
    add(keys.batch, std::to_string(function->local_batch * unit));
    add(keys.sequence, std::to_string(function->sequence));
    add("activation_checkpoint", std::string(function->recomputation));
    for (const ConfigSetting& each : function->others) add(each.key, std::string(each.value));
    const bool replaced = document.find(kModelSpec) != nullptr || document.find(kFlavor) != nullptr;
    if (!function->converters.empty() && !replaced) {
      add(kConverters, std::string(function->converters), kModelSpec);
    }
  }
  document.entries.insert(document.entries.begin(), added.begin(), added.end());
}

}  // namespace

void write_registry_model(const RunConfig& config, ConfigDocument& document) {
  std::string arguments;
  if (const ConfigEntry* dispatcher = document.find(kDispatcher)) {
    arguments = fmt::format(", {}=\"{}\"", kDispatcher, dispatcher->value.text);
    std::erase_if(document.entries,
                  [](const ConfigEntry& each) { return each.key == kDispatcher; });
  }
  const ConfigEntry* import = document.find(kImportedFunction);
  if (import == nullptr) return;
  const std::string path = import->value.text;
  const RegistryFunction* model = function_named(name_in(path));
  if (model == nullptr) {
    if (arguments.empty()) return;
    document.set(kModelSpec, scalar(fmt::format("model_registry(\"{}\"{})", kFillIn, arguments)));
    return;
  }
  // GPT-OSS runs varlen attention, which is refused with context parallelism, and whose lists of
  // documents change their shapes, which CUDA graphs refuse. Source: torchtitan v0.3.0,
  // torchtitan/models/gpt_oss/__init__.py:73, torchtitan/distributed/context_parallel/api.py:107
  // and torchtitan/distributed/cudagraph.py, _validate_inputs; b5bcd76c,
  // models/common/decoder.py:176.
  const bool masked = config.plan.cp > 1 || config.plan.cuda_graphs != CudaGraphs::none;
  if (masked && model->name.starts_with("gpt_oss")) {
    arguments += ", attn_backend=\"flex\"";
  }
  if (arguments.empty() && model->written_into.empty()) return;
  document.set(kModelSpec,
               scalar(fmt::format("model_registry(\"{}\"{})", model->flavor, arguments)));
  if (model->written_into.empty()) return;
  document.set(kImportedFunction,
               scalar(path.substr(0, path.rfind('.') + 1) + std::string(model->written_into)));
}

void add_release_settings(ConfigDocument& document) {
  add_registry_settings(document, {"training.local_batch_size", "training.seq_len"});
}

void add_main_settings(ConfigDocument& document) {
  add_registry_settings(document, {"training.num_tokens_per_microbatch_per_dp_rank",
                                   "training.max_context_length", true});
}

}  // namespace echelon
