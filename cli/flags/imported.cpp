#include "cli/flags/imported.hpp"

#include <filesystem>
#include <fstream>
#include <optional>
#include <utility>

#include "cli/flags/constraints.hpp"
#include "cli/flags/plan_settings.hpp"
#include "cli/flags/training_flags.hpp"
#include "core/base/files.hpp"
#include "core/base/parse_quantity.hpp"
#include "core/model/model_io.hpp"

namespace echelon::cli {

namespace {

using P = ParallelPlan;

Result<GivenRun> given_by(const Settings& flags) {
  GivenRun given;
  if (const Setting* model = flags.find("model")) {
    Result<ModelSpec> loaded = load_model(model->value);
    if (!loaded) return at(*model, loaded.error());
    given.model = *std::move(loaded);
  }
  if (const Setting* gpus = flags.find("gpus")) {
    const Result<int> count = parse_int(gpus->value, gpus->where);
    if (!count) return count.error();
    given.gpus = *count;
  }
  if (const Setting* sequence = flags.find("seq")) {
    const Result<int> tokens = parse_sequence(*sequence);
    if (!tokens) return tokens.error();
    given.sequence = *tokens;
  }
  if (const Setting* batch = flags.find("global-batch")) {
    const Result<std::int64_t> samples = parse_count(batch->value, batch->where);
    if (!samples) return samples.error();
    given.global_batch = *samples;
  }
  if (const Setting* microbatch = flags.find("microbatch")) {
    const Result<int> samples = parse_int(microbatch->value, microbatch->where);
    if (!samples) return samples.error();
    given.microbatch = *samples;
  }
  if (const Setting* zero = flags.find("zero")) {
    const Result<int> stage = parse_int(zero->value, zero->where, 0);
    if (!stage) return stage.error();
    given.zero = *stage;
  }
  return given;
}

/// The imported plan as constraints: what follows from the policy is left to follow.
PlanConstraints pinned_by(const ImportedConfig& imported) {
  PlanConstraints pinned;
  const P& plan = imported.config.plan;
  for (const ConfigFinding& finding : imported.findings) {
    const auto* field = std::get_if<const PlanField*>(&finding.field);
    if (field != nullptr) pinned.pin(**field, plan);
  }
  if (plan.recompute != Recompute::full) pinned.release<&P::recompute_layers>();
  pinned.release<&P::selective_layers>();
  return pinned;
}

Settings job_settings(const ImportedConfig& imported) {
  Settings out;
  for (const ConfigFinding& finding : imported.findings) {
    const std::string flag(flag_of(finding.field));
    const bool plan = std::holds_alternative<const PlanField*>(finding.field);
    if (plan || flag.empty() || flag == "model") continue;
    const bool unset = flag == "lora" || flag == "quantized-weights";
    if (unset && finding.value == "none") continue;
    // A framework takes flash attention by itself where it has it, and attention with scores else.
    const bool usual = finding.origin == Origin::assumed && finding.value == "true";
    if (flag == "flash-attention" && usual) continue;
    out.set(flag, {finding.value, finding.from});
  }
  return out;
}

/// What the user has given takes the place of what would be asked for.
void answer(ImportedConfig& imported, const Settings& flags) {
  std::erase_if(imported.asks, [&](const std::string& each) {
    return flags.has(each.substr(2, each.find(':') - 2));
  });
}

/// The file; of a log that is longer than any configuration its beginning, where the arguments are.
Result<std::string> read_config_file(const std::string& path) {
  Result<std::string> text = read_file(path, static_cast<std::int64_t>(kLongestConfig));
  if (text || text.error().kind != Error::Kind::input) return text;
  std::string head(kLongestConfig, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(head.data(), static_cast<std::streamsize>(head.size()));
  head.resize(static_cast<std::size_t>(file.gcount()));
  return has_argument_dump(head) ? Result<std::string>(std::move(head)) : text;
}

/// The other file that a configuration names: from here, as the training is started, else from the
/// file's folder or one above it. Nothing where there is none.
Result<std::optional<ConfigText>> named_by(const ConfigText& text) {
  namespace fs = std::filesystem;
  const std::optional<std::string> name = names_other_file(text);
  if (!name) return std::optional<ConfigText>{};
  std::error_code failed;
  std::vector<fs::path> folders = {fs::path{}};
  const fs::path file = fs::absolute(text.name, failed);
  for (fs::path at = file.parent_path(); !failed && !at.empty(); at = at.parent_path()) {
    folders.push_back(at);
    if (at == at.parent_path()) break;
  }
  for (const fs::path& folder : folders) {
    const std::string path = (folder / *name).string();
    if (!fs::is_regular_file(path, failed)) continue;
    Result<std::string> other = read_config_file(path);
    if (!other) return other.error();
    return std::optional(ConfigText{path, *std::move(other)});
  }
  return std::optional<ConfigText>{};
}

}  // namespace

Result<ImportedRequest> import_request(const std::vector<std::string>& files,
                                       const Settings& flags) {
  std::vector<ConfigText> texts;
  for (const std::string& file : files) {
    Result<std::string> text = read_config_file(file);
    if (!text) return text.error();
    texts.push_back({file, *std::move(text)});
  }
  if (texts.size() == 1) {
    Result<std::optional<ConfigText>> other = named_by(texts.front());
    if (!other) return other.error();
    if (*other) texts.push_back(*std::move(*other));
  }
  const Result<GivenRun> given = given_by(flags);
  if (!given) return given.error();
  Result<ImportedConfig> imported = import_config(texts, *given);
  if (!imported) return imported.error();
  ImportedRequest out{*std::move(imported)};
  answer(out.config, flags);
  if (!out.config.asks.empty()) return out;
  const Result<PlanConstraints> changes = constraints_of(flags);
  if (!changes) return changes.error();
  Settings settings = flags;
  settings.add_below(settings_of(changed_by(pinned_by(out.config), *changes)));
  settings.add_below(job_settings(out.config));
  Result<ResolvedRequest> resolved = resolve(settings, &out.config.config.model);
  if (!resolved) return resolved.error();
  for (const std::string& each : out.config.unpriced) {
    resolved->request.assumptions.push_back("not priced: " + each);
  }
  resolved->request.unpriced_savings = out.config.unpriced_savings;
  if (out.config.config.packed_documents && !resolved->request.job.documents) {
    resolved->request.assumptions.emplace_back(
        "not priced: attention within documents, whose lengths the file does not state "
        "(--document-lengths)");
  }
  out.resolved = *std::move(resolved);
  return out;
}

Result<ImportedRequest> complete_import(const std::string& file, const Settings& flags) {
  Result<ImportedRequest> imported = import_request({file}, flags);
  if (!imported || imported->resolved) return imported;
  std::string missing;
  for (const std::string& each : imported->config.asks) {
    missing += (missing.empty() ? "" : "; ") + each;
  }
  return input_error(file, "a configuration that does not state all", missing);
}

}  // namespace echelon::cli
