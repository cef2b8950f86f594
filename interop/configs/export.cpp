#include "interop/configs/export.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/framework/framework.hpp"

namespace echelon {

namespace {

/// Of cases with the field's value the first is written.
void write_choice(const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
  const std::string value = text_of(row.field, config);
  const auto at = std::ranges::find(row.cases, value, &ConfigCase::value);
  if (at == row.cases.end()) return;  // the comparison finds it
  for (const ConfigSetting& setting : at->settings) {
    const std::string text(setting.value == "*" ? "hybrid" : setting.value);
    out.set(setting.key, setting.quoted ? quoted(text) : scalar(text));
  }
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

/// What was written, as the target reads it.
std::vector<Inexpressible> losses(const ConfigFormat& format, const RunConfig& config,
                                  const ConfigDocument& document) {
  GivenRun given;
  given.gpus = config.gpus;
  const bool states_model = row_of(format, &ModelSpec::layers) != nullptr;
  if (!states_model) given.model = config.model;
  const auto stated = [&](const ConfigField& field) {
    const ConfigRow* row = row_of(format, field);
    return row != nullptr && row->elsewhere.empty();
  };
  if (!stated(&RunConfig::sequence)) given.sequence = config.sequence;
  if (!stated(&RunConfig::global_batch)) given.global_batch = config.global_batch;
  ConfigReading reading{format, document};
  Result<ConfigReading> read = read_rows(format, document, given);
  std::vector<Inexpressible> lost;
  if (!read) return {{plan_part<&ParallelPlan::layers_per_stage>, "", read.error().message()}};
  for (const ConfigRow& row : format.rows) {
    if (!row.elsewhere.empty() || row.field == ConfigField{&RunConfig::model_name} ||
        row.field == ConfigField{&ModelSpec::max_positions} ||
        row.field == ConfigField{&RunConfig::framework}) {
      continue;
    }
    if (!has_effect(row.field, config) || same_value(row.field, config, read->config)) continue;
    lost.push_back({row.field, text_of(row.field, config),
                    read->knows(row.field) ? text_of(row.field, read->config) : "nothing"});
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
                                format.title, config.model.name));
  }
}

/// What the framework asks for besides settings of the plan, which are written.
void add_remarks(const RunConfig& config, ExportedConfig& out) {
  const Result<Framework> framework = find_framework(config.framework);
  if (!framework) return;
  for (const FrameworkRemark& remark : remarks(*framework, config.model, config.plan)) {
    const std::string line(remark.environment);
    if (!line.empty() && out.environment.find(line) == std::string::npos) {
      out.environment += line + "\n";
    }
    const bool setting = remark.text.starts_with("--") || remark.text.starts_with("parallelism.");
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
  return text + fmt::format("{} \\\n", format.program) + exported.arguments;
}

}  // namespace

bool has_effect(const ConfigField& field, const RunConfig& config) {
  return field != plan_part<&ParallelPlan::cp_comm> || config.plan.cp > 1;
}

ExportedConfig export_config(const ConfigFormat& format, const RunConfig& config) {
  ConfigDocument document{std::string(format.title), {}};
  ExportedConfig out;
  for (const ConfigRow& row : format.rows) {
    write_row(row, config, document);
    mark_unnamed_model(row, config, format, document, out.notes);
    if (!row.elsewhere.empty()) {
      out.notes.push_back(fmt::format("{} = {}: {}", label_of(row.field),
                                      text_of(row.field, config), row.elsewhere));
    }
  }
  out.lost = losses(format, config, document);
  add_remarks(config, out);
  for (const FillIn& fill : format.fill_in) {
    const bool bare =
        format.syntax == ConfigSyntax::arguments || format.syntax == ConfigSyntax::python;
    document.set(fill.key, bare ? scalar(kFillIn) : quoted(kFillIn));
    out.notes.push_back(fmt::format("fill in {}: {}", fill.key, fill.what));
  }
  std::vector<std::string> comments = {
      fmt::format("{} {}: {}", format.title, format.version, format.usage),
      fmt::format("{} on {} GPUs, {} on a node", config.model.name, config.gpus,
                  std::min(config.gpus, config.gpus_per_node))};
  comments.insert(comments.end(), out.notes.begin(), out.notes.end());
  if (format.syntax == ConfigSyntax::arguments) {
    out.arguments = write_arguments(document);
    out.text = script_of(format, config, comments, out);
  } else {
    out.text = write_config(format.syntax, document, comments);
  }
  return out;
}

}  // namespace echelon
