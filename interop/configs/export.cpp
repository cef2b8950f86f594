#include "interop/configs/export.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "core/base/text.hpp"
#include "core/framework/framework.hpp"
#include "core/model/model_io.hpp"
#include "interop/configs/precisions.hpp"
#include "interop/configs/rows.hpp"

namespace echelon {

namespace {

/// The case that is written, if the framework runs it otherwise than it is priced.
const ConfigCase* differing_case(const ConfigRow& row, const RunConfig& config) {
  if (row.cases.empty() || row.write != nullptr) return nullptr;
  const ConfigCase* written = written_case(row, config);
  const bool differs = written != nullptr && !written->differs.empty() &&
                       written->value == text_of(row.field, config);
  return differs ? written : nullptr;
}

void add_differences(const ConfigRow& row, const RunConfig& config, ExportedConfig& out) {
  const ConfigCase* written = differing_case(row, config);
  if (written == nullptr) return;
  const ConfigSetting& setting = written->settings.front();
  out.notes.push_back(fmt::format("{}={} {}; as priced {}", setting.key, setting.value,
                                  written->differs, written->remedy));
}

void write_row(const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
  if (row.write != nullptr) {
    row.write(row, config, out);
  } else if (!row.cases.empty()) {
    write_choice(row, config, out);
  } else if (row.read == nullptr && row.elsewhere.empty() && !row.keys.empty()) {
    const std::string text = text_of(row.field, config);
    const bool said = text != row.absent || std::holds_alternative<const PlanField*>(row.field);
    if (said) out.set(row.keys.front(), scalar(text));
  }
}

bool among(const std::vector<NamedConfigField>& fields, const ConfigField& field) {
  return std::ranges::find(fields, field, &NamedConfigField::field) != fields.end();
}

/// The model that the target has under the name that the file states; nothing if it states none.
std::optional<ModelSpec> named_model(const ConfigFormat& format, const RunConfig& config) {
  const ConfigRow* name = row_of(format, &RunConfig::model_name);
  if (name == nullptr ||
      std::ranges::find(name->cases, config.model_name, &ConfigCase::value) == name->cases.end()) {
    return std::nullopt;
  }
  Result<ModelSpec> model = load_model(config.model_name);
  return model ? std::optional(*std::move(model)) : std::nullopt;
}

/// Fields that are compared: those with a row, and all of a model that the file states. A field of
/// the model without a row is read as its default.
std::vector<ConfigField> compared_fields(const ConfigFormat& format, const RunConfig& config) {
  std::vector<ConfigField> fields;
  for (const ConfigRow& row : format.rows) {
    const bool name = row.field == ConfigField{&RunConfig::model_name} ||
                      row.field == ConfigField{&RunConfig::framework};
    if (row.elsewhere.empty() && !name && !is_of_model(row.field)) fields.push_back(row.field);
  }
  if (!states_shapes(format) && !named_model(format, config)) return fields;
  for (const auto* all : {&model_fields(), &arithmetic_fields()}) {
    for (const NamedConfigField& each : *all) fields.push_back(each.field);
  }
  return fields;
}

/// What the nearest precision has instead of one that the format has no settings for.
std::string of_nearest(const ConfigFormat& format, const ConfigField& field,
                       const RunConfig& config, const RunConfig& written) {
  const ConfigRow* row = row_of(format, field);
  if (field != ConfigField{&RunConfig::precision} || row == nullptr) return {};
  const auto at = std::ranges::find(row->cases, config.precision, &ConfigCase::value);
  const Result<PrecisionRecipe> wanted = find_precision(config.precision);
  const Result<PrecisionRecipe> run = find_precision(written.precision);
  if (row->cases.empty() || at != row->cases.end() || !wanted || !run) return {};
  return precision_difference(*run, *wanted);
}

/// A framework that has no flash attention for the run takes attention with scores by itself.
bool scores_by_itself(const ConfigField& field, const RunConfig& config) {
  const Result<Framework> framework = find_framework(config.framework);
  const Result<PrecisionRecipe> precision = find_precision(config.precision);
  return field == ConfigField{&RunConfig::flash_attention} && !config.flash_attention &&
         framework && precision &&
         !why_no_flash(*framework, config.compute_capability, precision->compute, config.model)
              .empty();
}

/// What was written, as the target reads it.
std::vector<Inexpressible> losses(const ConfigFormat& format, const RunConfig& config,
                                  const ConfigDocument& document, ExportedConfig& out) {
  GivenRun given;
  given.gpus = config.gpus;
  given.own_code = &config;
  if (!states_shapes(format)) given.model = named_model(format, config).value_or(config.model);
  const auto stated = [&](const ConfigField& field) {
    const ConfigRow* row = row_of(format, field);
    return row != nullptr && row->elsewhere.empty();
  };
  if (!stated(&RunConfig::sequence)) given.sequence = config.sequence;
  if (!stated(&RunConfig::global_batch)) given.global_batch = config.global_batch;
  ConfigDocument again = document;
  if (format.unspell != nullptr) format.unspell(again);
  Result<ConfigReading> read = read_rows(format, again, given);
  std::vector<Inexpressible> lost;
  if (!read) return {{plan_part<&ParallelPlan::layers_per_stage>, "", read.error().message()}};
  out.as_read = read->config.plan;
  const bool masks = read->config.packed_documents && !config.packed_documents;
  if (masks) {
    out.notes.push_back(fmt::format(
        "attention stays within the documents of a sequence, always in {}; priced are whole "
        "sequences",
        format.title));
  }
  for (const ConfigField& field : compared_fields(format, config)) {
    if (!has_effect(field, config) || same_value(field, config, read->config)) continue;
    if (masks && field == ConfigField{&RunConfig::packed_documents}) continue;
    if (scores_by_itself(field, config)) continue;
    const ConfigRow* row = row_of(format, field);
    if (row != nullptr && differing_case(*row, config) != nullptr) continue;
    const bool known = is_of_model(field) || read->knows(field);
    lost.push_back({field, text_of(field, config), known ? text_of(field, read->config) : "nothing",
                    of_nearest(format, field, config, read->config),
                    format.why_lost != nullptr ? format.why_lost(field, config) : ""});
  }
  return lost;
}

/// A model that the format has no name for is named by the user.
void mark_unnamed_model(const ConfigRow& row, const RunConfig& config, const ConfigFormat& format,
                        ConfigDocument& document, std::vector<std::string>& notes) {
  if (row.field != ConfigField{&RunConfig::model_name} || row.cases.empty()) return;
  const auto known = std::ranges::find(row.cases, config.model_name, &ConfigCase::value);
  if (known != row.cases.end()) return;
  for (const ConfigSetting& setting : row.cases.front().settings) {
    document.set(setting.key, setting.quoted ? quoted(kFillIn) : scalar(kFillIn));
    notes.push_back(fmt::format("fill in {}: {} has no name for {} that is known here", setting.key,
                                format.title, printable(config.model.name)));
  }
}

/// What the framework asks for besides settings of the plan, which are written.
void add_remarks(const ConfigFormat& format, const RunConfig& config, ExportedConfig& out) {
  const Result<Framework> framework = find_framework(config.framework);
  const Result<PrecisionRecipe> precision = find_precision(config.precision);
  if (!framework || !precision) return;
  for (const FrameworkRemark& remark : remarks(*framework, config.model, config.plan, *precision,
                                               config.flash_attention, config.compute_capability)) {
    const std::string line(remark.environment);
    if (!line.empty() && out.environment.find(line) == std::string::npos) {
      out.environment += line + "\n";
    }
    const bool useless =
        !format.useless_remarks.empty() && remark.text.starts_with(format.useless_remarks);
    const bool setting =
        useless || remark.text.starts_with("--") || remark.text.starts_with("parallelism.");
    if (!setting) out.notes.push_back(fmt::format("{} {}", name_of(remark.kind), remark.text));
  }
}

/// The script that starts the program on every node.
std::string script_of(const ConfigFormat& format, const RunConfig& config,
                      const std::vector<std::string>& comments, const ExportedConfig& exported) {
  const int per_node = std::max(1, std::min(config.gpus, config.gpus_per_node));
  std::string text = "#!/bin/bash\n";
  for (const std::string& comment : comments) text += "# " + comment + "\n";
  text += exported.environment;
  if (!format.starts_ranks) {
    text += fmt::format("torchrun --nproc_per_node {} --nnodes {} \\\n", per_node,
                        std::max(1, config.gpus / per_node));
    if (config.gpus > per_node) {
      text +=
          "  --node_rank \"$NODE_RANK\" --master_addr \"$MASTER_ADDR\" --master_port "
          "\"$MASTER_PORT\" \\\n";
    }
    text += "  ";
  }
  return text + fmt::format("{} \\\n", format.program_of(config.model)) + exported.arguments;
}

}  // namespace

bool is_of_model(const ConfigField& field) {
  return among(model_fields(), field) || among(arithmetic_fields(), field);
}

bool has_effect(const ConfigField& field, const RunConfig& config) {
  const ModelSpec& model = config.model;
  if (field == plan_part<&ParallelPlan::cp_comm>) return config.plan.cp > 1;
  if (field == plan_part<&ParallelPlan::overlap_tp>) return config.plan.tp > 1;
  if (field == ConfigField{&RunConfig::adapters}) return config.adapters != "none";
  if (field == ConfigField{&RunConfig::layer_code}) return config.layer_code != "fused";
  if (field == ConfigField{&RunConfig::quantized}) return config.quantized != "none";
  if (field == ConfigField{&ModelSpec::max_positions}) {
    return model.position == PositionEmbedding::learned;
  }
  if (field == ConfigField{&MixtureOfExperts::every}) return model.moe_layers() > 1;
  if (std::holds_alternative<double ModelConstants::*>(field) ||
      std::holds_alternative<std::vector<std::string> ModelConstants::*>(field)) {
    return model.constants.has_value();
  }
  const bool rotary = std::holds_alternative<double RotaryEmbedding::*>(field) ||
                      std::holds_alternative<int RotaryEmbedding::*>(field) ||
                      std::holds_alternative<bool RotaryEmbedding::*>(field) ||
                      std::holds_alternative<RopeScaling RotaryEmbedding::*>(field);
  return !rotary || (model.constants && model.position == PositionEmbedding::rope);
}

ExportedConfig export_config(const ConfigFormat& format, const RunConfig& config) {
  ConfigDocument document{std::string(format.title), {}};
  ExportedConfig out;
  for (const ConfigRow& row : format.rows) {
    write_row(row, config, document);
    add_differences(row, config, out);
    mark_unnamed_model(row, config, format, document, out.notes);
    const bool usual = !row.absent.empty() && text_of(row.field, config) == row.absent;
    if (!row.elsewhere.empty() && !usual && has_effect(row.field, config)) {
      out.notes.push_back(fmt::format("{} = {}: {}", label_of(row.field),
                                      text_of(row.field, config), row.elsewhere));
    }
  }
  for (const Reset& each : format.resets) {
    if (document.find(each.key) == nullptr) document.set(each.key, scalar(std::string(each.value)));
  }
  if (format.spell != nullptr) format.spell(config, document);
  out.lost = losses(format, config, document, out);
  for (const KeyNote& each : format.key_notes) {
    if (document.find(each.key) != nullptr) out.notes.emplace_back(each.note);
  }
  for (const ModelNote& each : format.model_notes) {
    if (each.architecture == config.model.architecture) out.notes.emplace_back(each.note);
  }
  add_remarks(format, config, out);
  for (const FillIn& fill : format.fill_in) {
    const bool bare =
        format.syntax == ConfigSyntax::arguments || format.syntax == ConfigSyntax::python;
    document.set(fill.key, bare ? scalar(kFillIn) : quoted(kFillIn));
    out.notes.push_back(fmt::format("fill in {}: {}", fill.key, fill.what));
  }
  std::vector<std::string> comments = {
      fmt::format("{} {}: {}", format.title, format.version, format.usage),
      fmt::format("{} on {} GPUs, {} on a node", printable(config.model.name), config.gpus,
                  std::min(config.gpus, config.gpus_per_node))};
  comments.insert(comments.end(), out.notes.begin(), out.notes.end());
  for (const Inexpressible& lost : out.lost) {
    if (lost.wanted.empty()) continue;
    if (!lost.why.empty()) {
      const std::string comment = "not expressed: " + lost.why;
      if (std::ranges::find(comments, comment) == comments.end()) comments.push_back(comment);
      continue;
    }
    comments.push_back(fmt::format("not expressed: {} {}, but {}", label_of(lost.field),
                                   lost.wanted, lost.instead.empty() ? "none" : lost.instead));
  }
  out.comments = comments;
  if (format.syntax == ConfigSyntax::arguments) {
    out.arguments = write_arguments(document);
    out.text = script_of(format, config, comments, out);
  } else {
    out.text = write_config(format.syntax, document, comments);
  }
  return out;
}

}  // namespace echelon
