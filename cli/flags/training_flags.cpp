// Over 400 lines because each setting of a step stands with its default and its errors.
#include "cli/flags/training_flags.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "cli/flags/values.hpp"
#include "core/base/files.hpp"
#include "core/base/parse_quantity.hpp"
#include "core/base/text.hpp"
#include "planner/space/legality.hpp"
#include "report/format.hpp"

namespace echelon::cli {

namespace {

constexpr double kDefaultBatchTokens = 4.0 * (1 << 20);
constexpr double kDefaultBatchTokensOnCores = 8.0 * (1 << 10);  // seconds, not hours, a step

using Assumptions = std::vector<std::string>;

Result<int> sequence_of(const Settings& settings, const ModelSpec& model, Assumptions& assumed) {
  if (const Setting* setting = settings.find("seq")) {
    const Result<int> given = parse_sequence(*setting);
    if (given && model.max_positions > 0 && *given > model.max_positions) {
      assumed.push_back(
          fmt::format("sequence of {} tokens, beyond the model's context of {}{} (--seq)",
                      grouped(*given), grouped(model.max_positions),
                      model.position == PositionEmbedding::learned
                          ? ", whose table of learned positions has to grow"
                          : ""));
    }
    return given;
  }
  const int sequence = default_sequence(model);
  assumed.push_back(
      sequence == model.max_positions
          ? fmt::format("sequence of {} tokens, the model's context (--seq)", grouped(sequence))
          : fmt::format("sequence of 8,192 tokens; the model's context is {} (--seq)",
                        model.max_positions > 0 ? grouped(model.max_positions) : "not stated"));
  return sequence;
}

/// About `tokens` in a number of samples that the GPUs can share: the nearest multiple of the
/// GPU count, of its half, its quarter ... as soon as the rounding stays within an eighth.
std::int64_t default_batch(double tokens, int sequence, std::int64_t gpus) {
  const double wanted = tokens / sequence;
  const auto nearest = [&](std::int64_t unit) {
    const double multiples = std::max(1.0, std::round(wanted / static_cast<double>(unit)));
    return static_cast<std::int64_t>(multiples) * unit;
  };
  std::int64_t unit = gpus;
  while (unit % 2 == 0 && std::abs(static_cast<double>(nearest(unit)) - wanted) > wanted / 8) {
    unit /= 2;
  }
  return nearest(unit);
}

Result<std::int64_t> batch_of(const Settings& settings, int sequence,
                              const ClusterTopology& cluster, Assumptions& assumed) {
  const Setting* samples = settings.find("global-batch");
  const Setting* tokens = settings.find("global-batch-tokens");
  if (samples != nullptr && tokens != nullptr) {
    return input_error(samples->where, "given together with " + tokens->where, "one of the two");
  }
  if (samples != nullptr) return parse_count(samples->value, samples->where);
  if (tokens != nullptr) {
    const Result<std::int64_t> count = parse_count(tokens->value, tokens->where);
    if (!count || *count % sequence == 0) return count ? Result(*count / sequence) : count;
    const std::int64_t below = *count / sequence * sequence;
    return input_error(tokens->where, fmt::format("{} tokens", grouped(*count)),
                       fmt::format("a multiple of the sequence length, {}", grouped(sequence)),
                       below > 0 ? fmt::format("nearest: {} or {}", below, below + sequence)
                                 : fmt::format("nearest: {}", sequence));
  }
  const double wanted = cluster.node().cores > 0 ? kDefaultBatchTokensOnCores : kDefaultBatchTokens;
  const std::int64_t batch = default_batch(wanted, sequence, cluster.gpus());
  const std::int64_t total = batch * sequence;
  assumed.push_back(fmt::format(
      "global batch of {} sequences = {} tokens{} (--global-batch)", grouped(batch), grouped(total),
      static_cast<double>(total) == wanted
          ? ""
          : fmt::format(", near {} and divisible", grouped(static_cast<std::int64_t>(wanted)))));
  return batch;
}

constexpr std::string_view kUsualPrecision = "bf16:adam-fp32-master";

/// The framework's default, or fp16 if the GPU has no units for it (V100 and bf16).
Result<PrecisionRecipe> default_precision(const Framework& framework,
                                          const ClusterTopology& cluster, Assumptions& assumed) {
  const GpuSpec& gpu = cluster.gpu();
  if (cluster.node().cores > 0) {
    assumed.emplace_back("precision fp32, the format of processor cores (--precision)");
    return find_precision("fp32");
  }
  Result<PrecisionRecipe> recipe = find_precision(framework.default_precision);
  if (!recipe) return recipe;
  if (gpu.peak(recipe->compute) > FlopsPerSecond{} || gpu.fp16 == FlopsPerSecond{}) {
    const bool usual = recipe->name == kUsualPrecision;
    assumed.push_back(fmt::format("precision {}{} (--precision)", recipe->name,
                                  usual ? ": bf16 with fp32 master weights and fp32 main gradients"
                                        : ", the framework's default"));
    return recipe;
  }
  const std::string_view wanted = name_of(recipe->compute);
  recipe = find_precision("fp16");
  if (recipe) {
    assumed.push_back(fmt::format("precision {}, because {} has no {} units (--precision)",
                                  recipe->name, gpu.name, wanted));
  }
  return recipe;
}

/// Of a framework whose own recipe keeps its states otherwise than Megatron-Core does, recipes with
/// master weights apart are those of others.
void add_other_states(const PrecisionRecipe& recipe, const Framework& framework,
                      Assumptions& assumed) {
  const bool any = framework.default_precision == kUsualPrecision;
  const bool own = recipe.name == framework.default_precision;
  if (any || own || recipe.master <= 0) return;
  assumed.push_back(fmt::format("states of {}, which are not those of {}'s own {} (--precision)",
                                recipe.name, framework.name, framework.default_precision));
}

/// The framework's recipes of a format that the GPU runs.
Result<std::vector<PrecisionRecipe>> recipes_of(std::string_view format, const Framework& framework,
                                                const GpuSpec& gpu) {
  std::vector<PrecisionRecipe> out;
  for (const std::string_view name : framework.state_recipes) {
    if (name.substr(0, name.find(':')) != format) continue;
    const Result<PrecisionRecipe> recipe = find_precision(name);
    if (!recipe) return recipe.error();
    if (recipe->runs_on(gpu.compute_capability)) out.push_back(*recipe);
  }
  return out;
}

/// What the name of a format stands for where the framework has several recipes of it.
void add_scaling(const Setting& setting, const PrecisionRecipe& recipe, const Framework& framework,
                 const GpuSpec& gpu, Assumptions& assumed) {
  if (recipe.scaling == Fp8Scaling::none) return;
  const Result<std::vector<PrecisionRecipe>> all = recipes_of(setting.value, framework, gpu);
  if (!all || all->size() < 2) return;
  assumed.push_back(
      fmt::format("{} is {}, {} scaling; --precision {}:any tries other states and "
                  "scalings of it, too (--precision)",
                  setting.value, recipe.name, name_of(recipe.scaling), setting.value));
}

/// The error for a format whose products the GPU has no kernels for.
Error no_kernels(const Setting* setting, const PrecisionRecipe& recipe, const GpuSpec& gpu) {
  std::string capability = fmt::format("{:.1f} or later", recipe.least_capability);
  if (recipe.below_capability) {
    capability =
        fmt::format("{:.1f} and below {:.1f}", recipe.least_capability, *recipe.below_capability);
  }
  const std::string own = gpu.compute_capability > 0
                              ? fmt::format(" (compute capability {:.1f})", gpu.compute_capability)
                              : " (no CUDA)";
  const bool fp8 = gpu.peak(Dtype::fp8) > FlopsPerSecond{};
  return input_error(setting != nullptr ? setting->where : "--precision",
                     fmt::format("{} on {}{}", recipe.name, gpu.name, own),
                     "GPUs of compute capability " + capability +
                         ", for which TransformerEngine has kernels of its blocks",
                     fp8 ? "nearest valid: fp8" : "nearest valid: bf16");
}

/// The error for fp16 in a framework that does not train in it.
Error no_fp16(const Setting* setting, const Framework& framework, const GpuSpec& gpu) {
  const std::string framework_choice = "--framework " + frameworks_with(&Framework::trains_fp16);
  if (setting != nullptr) {
    return input_error(setting->where,
                       "fp16 with " + framework.name + ", which does not scale the loss",
                       "bf16 or fp32, or " + framework_choice);
  }
  return input_error("--framework",
                     fmt::format("{} on {}, which has no bf16 units, and {} does not train in fp16",
                                 framework.name, gpu.name, framework.name),
                     framework_choice + ", or --precision fp32");
}

Result<PrecisionRecipe> precision_of(const Settings& settings, const Framework& framework,
                                     const ClusterTopology& cluster, Assumptions& assumed) {
  const GpuSpec& gpu = cluster.gpu();
  const Setting* setting = settings.find("precision");
  if (const std::optional<std::string> format = format_of_any(settings)) {
    return input_error(setting->where, in_quotes(setting->value),
                       "one recipe: only plan search chooses among those of a format",
                       "nearest valid: " + *format);
  }
  Result<PrecisionRecipe> recipe = setting != nullptr
                                       ? find_precision(setting->value)
                                       : default_precision(framework, cluster, assumed);
  if (!recipe) return setting != nullptr ? at(*setting, recipe.error()) : recipe.error();
  if (setting != nullptr) {
    add_other_states(*recipe, framework, assumed);
    add_scaling(*setting, *recipe, framework, gpu, assumed);
  }
  if (recipe->compute == Dtype::fp16 && !framework.trains_fp16) {
    return no_fp16(setting, framework, gpu);
  }
  if (!recipe->runs_on(gpu.compute_capability)) return no_kernels(setting, *recipe, gpu);
  if (gpu.peak(recipe->compute) > FlopsPerSecond{}) return recipe;
  if (recipe->compute == Dtype::fp64) {
    return input_error(setting != nullptr ? setting->where : "--precision",
                       fmt::format("fp64 on {}, whose description has no fp64 rate", gpu.name),
                       "fp64 on processor cores: --cluster this-machine",
                       "or \"fp64\" in the GPU's description");
  }
  std::vector<std::string> formats;
  for (const Dtype dtype : {Dtype::bf16, Dtype::fp16, Dtype::fp8, Dtype::fp32}) {
    if (gpu.peak(dtype) > FlopsPerSecond{}) formats.emplace_back(name_of(dtype));
  }
  return input_error(setting != nullptr ? setting->where : "--precision",
                     fmt::format("{} has no units for {}", gpu.name, name_of(recipe->compute)),
                     fmt::format("one of {}", fmt::join(formats, ", ")));
}

/// The error for --no-flash-attention where the framework always runs flash attention.
Error no_scores(const Setting& flash, const Framework& framework) {
  const bool typed = flash.where.starts_with("--");
  return input_error(
      flash.where,
      fmt::format(
          "no flash attention with {}, whose attention stores no sequence x sequence matrix",
          framework.name),
      "flash attention",
      typed ? "drop the flag, or plan for a framework that has both: --framework megatron-core"
            : "plan predict FILE --flash-attention -o NEW");
}

/// The error for flash attention where the framework lacks it for this job. `others` have it.
Error no_flash(const Setting& flash, const Framework& framework, const std::string& lack,
               const std::string& others) {
  const bool typed = flash.where.starts_with("--");
  std::string expected = "a job that its kernels take";
  if (framework.materialised_attention) {
    expected = typed ? "--no-flash-attention" : "--no-flash-attention, and -o NEW for a plan file";
  }
  return input_error(flash.where,
                     fmt::format("flash attention with {}, which has {}", framework.name, lack),
                     expected, others.empty() ? "" : "or --framework " + others);
}

/// The error for a framework that has flash attention alone, and not for this job.
Error no_attention(const Framework& framework, const GpuSpec& gpu, const std::string& lack,
                   const std::string& others) {
  return input_error("--framework",
                     fmt::format("{} on {}, where it has no attention: of flash attention, its "
                                 "only one, it has {}",
                                 framework.name, gpu.name, lack),
                     "a job that its kernels take, or a framework with another attention: "
                     "--framework megatron-core",
                     others.empty() ? "" : "flash attention for this job: --framework " + others);
}

/// Whether attention stores no matrix of scores: as asked, else where the framework can.
Result<bool> flash_of(const Settings& settings, const ModelSpec& model, const Framework& framework,
                      const GpuSpec& gpu, Dtype compute, Assumptions& assumed) {
  const auto lack_of = [&](const Framework& each) {
    return why_no_flash(each, gpu.compute_capability, compute, model);
  };
  const std::string lack = lack_of(framework);
  const auto others = [&] {
    return frameworks_with([&](const Framework& other) { return lack_of(other).empty(); });
  };
  if (const Setting* flash = settings.find("flash-attention")) {
    const Result<bool> on = parse_switch(*flash);
    if (!on) return on;
    if (*on && !lack.empty()) return no_flash(*flash, framework, lack, others());
    if (!*on && !framework.materialised_attention) {
      return lack.empty() ? no_scores(*flash, framework)
                          : no_attention(framework, gpu, lack, others());
    }
    return on;
  }
  if (lack.empty()) {
    assumed.emplace_back("flash attention (--no-flash-attention)");
    return true;
  }
  if (!framework.materialised_attention) return no_attention(framework, gpu, lack, others());
  assumed.push_back(fmt::format("no flash attention, because {} has {} (--no-flash-attention)",
                                framework.name, lack));
  return false;
}

/// A file's code gives way to another framework's own layers; one that is asked for does not.
Result<LayerCode> layer_code_of(const Settings& settings, const Framework& framework,
                                Assumptions& assumed) {
  const Setting* setting = settings.find("layer-code");
  if (setting == nullptr) {
    if (framework.wraps_transformers) {
      assumed.emplace_back(
          "layers of fused kernels, as torch.compile makes them (--layer-code transformers)");
    }
    return LayerCode::fused;
  }
  const Result<LayerCode> code = parse_layer_code(setting->value, setting->where);
  if (!code || *code == LayerCode::fused || framework.wraps_transformers) return code;
  if (!setting->where.starts_with("--")) {
    assumed.push_back(fmt::format("layers of {}, in place of those of transformers ({})",
                                  framework.name, setting->where));
    return LayerCode::fused;
  }
  return input_error(setting->where,
                     fmt::format("{} with {}, whose layers are its own", in_quotes(setting->value),
                                 framework.name),
                     "--framework " + frameworks_with(&Framework::wraps_transformers));
}

/// At most all rows on one rank: the number of experts.
Result<double> imbalance_of(const Setting& setting, const ModelSpec& model) {
  if (model.moe.experts == 0) {
    return input_error(setting.where, "an imbalance of experts for " + model.name + ", without any",
                       "a model with experts");
  }
  return parse_ratio(setting.value, setting.where, 1, model.moe.experts);
}

/// Text of the flag, or the file that it names.
Result<DocumentLengths> documents_of(const Setting& setting, const TrainingJob& job,
                                     const Framework& framework) {
  if (!framework.packed_documents) {
    return input_error(
        setting.where,
        "documents with " + framework.name + ", whose attention runs over whole sequences",
        fmt::format("one of {}, whose kernels take documents",
                    frameworks_with(&Framework::packed_documents)));
  }
  if (!job.flash_attention) {
    return input_error(setting.where, "documents without flash attention",
                       "flash attention: a matrix of scores holds the pairs between documents too");
  }
  if (names_document_lengths(setting.value)) {
    return parse_document_lengths(setting.value, setting.where);
  }
  if (const Status found = check_exists(setting.value, setting.where,
                                        "a length, lognormal:MEAN:SIGMA, a list "
                                        "LENGTHxDOCUMENTS,... or a file of lengths");
      !found) {
    return found.error();
  }
  constexpr std::int64_t kLargest = std::int64_t{1} << 30;
  const Result<std::string> table = read_file(setting.value, kLargest);
  return table ? read_document_table(*table, setting.value) : table.error();
}

/// Low-rank adapters, which the framework and the model have to take.
Result<Adapters> adapters_of(const Setting& setting, const ModelSpec& model,
                             const Framework& framework) {
  Result<Adapters> adapters = parse_adapters(setting.value, setting.where, usual_targets(model));
  if (!adapters) return adapters;
  if (const auto refused = check_adapters(model, *adapters, framework)) {
    const std::string others = frameworks_with(
        [&](const Framework& other) { return !check_adapters(model, *adapters, other); });
    const bool other = framework.trains_adapters.empty() || framework.adapts_dense_alone;
    return input_error(setting.where, refused->detail,
                       other && !others.empty() ? "--framework " + others
                                                : "targets " + text_of(usual_targets(model)) +
                                                      " of layers with ordinary attention");
  }
  return adapters;
}

/// Frozen weights in 4 bits, which the framework has to keep, under adapters.
Result<QuantizedWeights> quantized_of(const Setting& setting, const ModelSpec& model,
                                      TrainingJob job, const Framework& framework) {
  Result<QuantizedWeights> quantized = parse_quantized_weights(setting.value, setting.where);
  if (!quantized) return quantized;
  job.quantized_weights = *quantized;
  const auto refused = check_quantized_weights(model, job, framework);
  if (!refused) return quantized;
  const auto keeps = [](const Framework& other) { return !other.quantizes_weights.empty(); };
  std::string expected = "a dense model, products in bf16 or fp16";
  if (framework.quantizes_weights.empty()) {
    expected = "--framework " + frameworks_with(keeps);
  } else if (!job.adapters) {
    expected = "--lora RANK with it, for example --lora 16";
  } else if (job.quantized_weights->fp32_states() && framework.casts_parameters) {
    job.quantized_weights->fp32_norms = job.quantized_weights->fp32_rest = false;
    expected = job.quantized_weights->text();
  }
  return input_error(setting.where, refused->detail, expected);
}

}  // namespace

int default_sequence(const ModelSpec& model) {
  constexpr int kLongest = 8192;
  return model.max_positions > 0 ? std::min(model.max_positions, kLongest) : kLongest;
}

Result<TrainingJob> job_of(const Settings& settings, const ModelSpec& model,
                           const Framework& framework, const ClusterTopology& cluster,
                           Assumptions& assumed) {
  TrainingJob job;
  const Result<int> sequence = sequence_of(settings, model, assumed);
  if (!sequence) return sequence.error();
  job.sequence = *sequence;
  const Result<std::int64_t> batch = batch_of(settings, *sequence, cluster, assumed);
  if (!batch) return batch.error();
  job.global_batch = *batch;
  constexpr double kMostTokens = 1e15;
  if (job.tokens_per_step() > kMostTokens) {
    const Setting* given = settings.find("global-batch");
    return input_error(given != nullptr ? given->where : "--global-batch-tokens",
                       fmt::format("{:.3g} tokens in one step", job.tokens_per_step()),
                       "at most 1e15");
  }
  const Result<PrecisionRecipe> precision = precision_of(settings, framework, cluster, assumed);
  if (!precision) return precision.error();
  job.precision = *precision;
  const Result<bool> flash =
      flash_of(settings, model, framework, cluster.gpu(), precision->compute, assumed);
  if (!flash) return flash.error();
  job.flash_attention = *flash;
  const Result<LayerCode> code = layer_code_of(settings, framework, assumed);
  if (!code) return code.error();
  job.layer_code = *code;
  if (const Setting* imbalance = settings.find("expert-imbalance")) {
    const Result<double> factor = imbalance_of(*imbalance, model);
    if (!factor) return factor.error();
    job.expert_imbalance = *factor;
  } else if (model.moe.experts > 0) {
    assumed.emplace_back("experts with equal loads (--expert-imbalance)");
  }
  if (const Setting* lengths = settings.find("document-lengths")) {
    const Result<DocumentLengths> documents = documents_of(*lengths, job, framework);
    if (!documents) return documents.error();
    job.documents = *documents;
    assumed.emplace_back(
        "documents packed whole, without padding, equally for all ranks and microbatches "
        "(--document-lengths)");
  }
  if (const Setting* lora = settings.find("lora")) {
    const Result<Adapters> adapters = adapters_of(*lora, model, framework);
    if (!adapters) return adapters.error();
    job.adapters = *adapters;
    assumed.push_back(fmt::format(
        "adapters by {}, without dropout{} (--lora)", framework.trains_adapters,
        job.transposes_weights() ? "; frozen fp8 weights in one layout, transposed in the backward "
                                   "(disable_parameter_transpose_cache)"
                                 : ""));
  }
  if (const Setting* setting = settings.find("quantized-weights")) {
    const Result<QuantizedWeights> quantized = quantized_of(*setting, model, job, framework);
    if (!quantized) return quantized.error();
    job.quantized_weights = *quantized;
    assumed.push_back(fmt::format(
        "frozen weights by {}, in storage that FSDP and ZeRO-3 shard (bnb_4bit_quant_storage {}); "
        "their blocks' constants on every GPU (--quantized-weights)",
        framework.quantizes_weights, name_of(job.precision.compute)));
  }
  if (const Setting* tokens = settings.find("train-tokens")) {
    const Result<std::int64_t> count = parse_count(tokens->value, tokens->where);
    if (!count) return count.error();
    job.token_budget = static_cast<double>(*count);
  }
  return job;
}

Result<int> parse_sequence(const Setting& setting) {
  const std::string& text = setting.value;
  const std::size_t end = std::min(text.find_first_not_of("0123456789"), text.size());
  const std::string unit = lower_case(text.substr(end));
  const bool kibi = unit == "k" || unit == "ki";
  const bool known = unit.empty() || kibi || unit == "m" || unit == "mi";
  const Result<int> units = parse_int(known ? text.substr(0, end) : "", setting.where);
  const std::int64_t unit_tokens = unit.empty() ? 1 : kibi ? 1 << 10 : 1 << 20;
  if (!units || *units > std::numeric_limits<int>::max() / unit_tokens) {
    return input_error(setting.where, in_quotes(text),
                       "a whole number of at least 1 and at most 2147483647 tokens, such as 8192, "
                       "8k or 8Ki (8,192), 1M or 1Mi (1,048,576)");
  }
  return static_cast<int>(*units * unit_tokens);
}

std::optional<std::string> format_of_any(const Settings& settings) {
  constexpr std::string_view kAny = ":any";
  const Setting* setting = settings.find("precision");
  if (setting == nullptr || !setting->value.ends_with(kAny)) return std::nullopt;
  return setting->value.substr(0, setting->value.size() - kAny.size());
}

Result<std::vector<PrecisionRecipe>> state_recipes_of(const Setting& asked,
                                                      const std::string& format,
                                                      const Framework& framework,
                                                      const GpuSpec& gpu) {
  Result<std::vector<PrecisionRecipe>> out = recipes_of(format, framework, gpu);
  if (!out || out->size() > 1) return out;
  return input_error(
      asked.where, in_quotes(asked.value),
      fmt::format("a format of which {} has several recipes of states", framework.name),
      "nearest valid: --precision " + format);
}

}  // namespace echelon::cli
