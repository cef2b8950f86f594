// plan export.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "cli/commands/command.hpp"
#include "cli/flags/exported.hpp"
#include "cli/flags/imported.hpp"
#include "core/base/did_you_mean.hpp"
#include "core/base/files.hpp"
#include "core/base/text.hpp"
#include "core/plan/plan_file.hpp"
#include "interop/configs/export.hpp"
#include "interop/configs/precisions.hpp"
#include "planner/explain/plan_detail.hpp"
#include "planner/search/optimize.hpp"
#include "planner/space/constraints_of_plan.hpp"
#include "report/format.hpp"
#include "report/interop.hpp"
#include "report/run.hpp"

namespace echelon::cli {

namespace {

using P = ParallelPlan;

/// Nodes of each NVLink domain that the plan's placement assumes; 0: domains do not matter, or the
/// job does not spread evenly.
int segment_of(const ClusterTopology& cluster) {
  const int segment = cluster.domain_gpus() / cluster.gpus_per_node();
  const bool even = cluster.nodes() % segment == 0;
  return segment > 1 && even ? segment : 0;
}

/// The request of the plan file, the configuration or the flags; with another framework if one is
/// given.
Result<ResolvedRequest> asked_for(const CommandContext& context, const std::string& framework) {
  const auto& words = context.arguments.words;
  Settings flags = settings_of_flags(context.arguments);
  if (!framework.empty() && !flags.has("framework")) {
    flags.set("framework", {framework, "the format"});
  }
  if (const auto from = context.arguments.value("from")) {
    const Result<ImportedRequest> imported = complete_import(*from, flags);
    if (!imported) return imported.error();
    return *imported->resolved;
  }
  if (words.size() > 1) {
    const Result<PlanFile> file = read_plan_file(words[1]);
    if (!file) return file.error();
    return resolve(*file, words[1], flags);
  }
  Settings settings = context.settings;
  if (!framework.empty() && !settings.has("framework")) {
    settings.set("framework", {framework, "the format"});
  }
  return resolve(settings);
}

struct Exported {
  ExportedConfig config;
  RunConfig run;
  std::vector<std::string> reasons;  ///< why the run cannot be expressed
  std::vector<ConfigField> lost;
  bool plan_kept = true;  ///< nothing of the plan is lost, at most parts of the model
};

Exported exported_plan(const ConfigFormat& format, const PlanRequest& request,
                       const ParallelPlan& plan) {
  Exported out;
  out.run = run_of(request, plan);
  out.config = export_config(format, out.run);
  for (const Inexpressible& lost : out.config.lost) {
    std::string reason = reason_of(lost, format);
    const bool said = std::ranges::find(out.reasons, reason) != out.reasons.end();
    if (!said) out.reasons.push_back(std::move(reason));
    out.lost.push_back(lost.field);
    out.plan_kept = out.plan_kept && is_of_model(lost.field);
  }
  return out;
}

/// Frees more and more of the plan until a search finds one that the format expresses. What is lost
/// stays as the format runs it, else the search would choose it again; then it is free as well.
std::optional<std::pair<Candidate, Exported>> nearest(const ConfigFormat& format,
                                                      const PlanRequest& request,
                                                      const PlanConstraints& wanted,
                                                      const Exported& first) {
  PlanRequest relaxed = request;
  relaxed.top = 20;
  std::vector<const PlanField*> lost;
  for (const ConfigField& field : first.lost) {
    if (const auto* plan = std::get_if<const PlanField*>(&field)) lost.push_back(*plan);
  }
  for (const bool as_run : {true, false}) {
    PlanConstraints& c = relaxed.constraints;
    c = wanted;
    for (int step = 0; step < 4; ++step) {
      if (step == 1) {
        c.release<&P::recompute, &P::recompute_layers, &P::selective_layers, &P::layers_per_stage,
                  &P::vpp, &P::schedule, &P::microbatch_group, &P::overlap_pp, &P::overlap_dp,
                  &P::overlap_tp, &P::bucket, &P::offload_optimizer>();
      }
      if (step == 2) {
        c.release<&P::zero, &P::shard_group, &P::sequence_parallel, &P::cp_comm, &P::rank_order,
                  &P::microbatch>();
      }
      if (step == 3) c = PlanConstraints{};
      for (const PlanField* field : lost) {
        if (as_run) {
          c.pin(*field, first.config.as_read);
        } else {
          c.release(*field);
        }
      }
      const Result<SearchResult> found = optimize(relaxed);
      if (!found) continue;
      for (const Candidate& candidate : found->report.candidates) {
        Exported exported = exported_plan(format, request, candidate.plan);
        if (exported.plan_kept) return std::pair(candidate, std::move(exported));
      }
    }
  }
  return std::nullopt;
}

/// The nearest precision that the format spells, where it does not spell the plan's.
void spell_precision(const ConfigFormat& format, PlanRequest& request) {
  const ConfigRow* row = row_of(format, &RunConfig::precision);
  if (row == nullptr || row->cases.empty()) return;
  const Result<PrecisionRecipe> spelled =
      find_precision(nearest_precision(row->cases, request.job.precision).value);
  if (spelled) request.job.precision = *spelled;
}

Result<CommandResult> finish(const CommandContext& context, std::string text,
                             const std::string& notes) {
  const auto target = context.arguments.value("output");
  if (!target || *target == "-") return CommandResult{std::move(text)};
  if (const Status written = write_file(*target, text); !written) {
    return at({*target, "--output"}, written.error());
  }
  return CommandResult{context.quiet ? "" : notes + "Written to " + *target + ".\n"};
}

Result<CommandResult> export_format(const CommandContext& context, const ConfigFormat& format,
                                    std::string_view launcher) {
  const bool downgrade = context.arguments.has("downgrade");
  Result<ResolvedRequest> resolved = asked_for(context, std::string(framework_of(format)));
  if (!resolved) return resolved.error();
  PlanRequest& request = resolved->request;
  std::string notes;
  if (downgrade) {
    const std::string before = request.job.precision.name;
    spell_precision(format, request);
    if (request.job.precision.name != before) {
      notes = fmt::format("precision {} instead of {}\n", request.job.precision.name, before);
    }
  }
  const Result<Candidate> wanted = predict(request);
  Exported exported;
  if (wanted) {
    exported = exported_plan(format, request, wanted->plan);
  } else {
    exported.reasons = {wanted.error().message()};
  }
  if (!exported.reasons.empty()) {
    if (!downgrade) {
      return CommandResult{inexpressible_text(format, exported.reasons), kNo};
    }
    // No other plan brings back a lost part of the model.
    const bool same_plan = wanted && exported.plan_kept;
    auto best = same_plan ? std::optional(std::pair(*wanted, exported))
                          : nearest(format, request, request.constraints, exported);
    if (!best) {
      return CommandResult{inexpressible_text(format, exported.reasons) +
                               "No plan for this request can be expressed and fits.\n",
                           kNo};
    }
    notes += fmt::format("{} per step for the nearest plan, {}",
                         duration(best->first.prediction.time.step),
                         described(best->first.plan, context.style));
    if (wanted) {
      notes += fmt::format(
          " instead of {} ({})", duration(wanted->prediction.time.step),
          signed_percent(best->first.prediction.time.step / wanted->prediction.time.step - 1));
    }
    notes += ". Not expressed:\n";
    for (const std::string& reason : exported.reasons) notes += "  " + reason + "\n";
    exported = std::move(best->second);
  }
  for (const std::string& note : exported.config.notes) notes += note + "\n";
  if (launcher.empty()) return finish(context, exported.config.text, notes);
  const Result<std::string> job =
      launch_job(launcher, format, exported.run, exported.config, segment_of(request.cluster));
  if (!job) return job.error();
  return finish(context, *job, notes);
}

/// The job that runs the plan with its framework.
Result<CommandResult> export_job(const CommandContext& context, const std::string& launcher) {
  const Result<ResolvedRequest> resolved = asked_for(context, "");
  if (!resolved) return resolved.error();
  const std::string& framework = resolved->request.framework.name;
  const ConfigFormat* format = format_of(framework);
  if (format != nullptr) return export_format(context, *format, launcher);
  if (framework != kExecutingFramework) {
    return input_error("plan export " + launcher, "a plan for " + framework,
                       "a plan for a framework whose configuration is written, or for " +
                           std::string(kExecutingFramework),
                       "--framework names another one");
  }
  const Result<Candidate> plan = predict(resolved->request);
  if (!plan) return plan.error();
  const auto& words = context.arguments.words;
  return finish(context,
                launch_plan_run(launcher, run_of(resolved->request, plan->plan),
                                words.size() > 1 ? words[1] : "plan.json",
                                segment_of(resolved->request.cluster)),
                "");
}

/// The simulated step for Perfetto or Chrome.
Result<CommandResult> export_trace(const CommandContext& context) {
  const Result<ResolvedRequest> resolved = asked_for(context, "");
  if (!resolved) return resolved.error();
  const Result<Candidate> plan = predict(resolved->request);
  if (!plan) return plan.error();
  if (const Status ok = check_traceable(resolved->request, *plan); !ok) return ok.error();
  return finish(context, step_trace(simulate_plan(resolved->request, *plan)),
                "One step as simulated, for ui.perfetto.dev or chrome://tracing.\n");
}

}  // namespace

std::vector<std::string> export_names() {
  std::vector<std::string> names;
  for (const ConfigFormat& each : config_formats()) {
    if (each.exported) names.emplace_back(each.name);
  }
  names.insert(names.end(), launchers().begin(), launchers().end());
  names.emplace_back("trace");
  return names;
}

Result<CommandResult> export_command(const CommandContext& context) {
  const std::string& name = context.arguments.words.front();
  if (name == "trace") return export_trace(context);
  if (std::ranges::find(launchers(), name) != launchers().end()) return export_job(context, name);
  const Result<const ConfigFormat*> format = find_config_format(name);
  if (format && (*format)->exported) return export_format(context, **format, "");
  const std::vector<std::string> known = export_names();
  return input_error("plan export", "unknown format " + in_quotes(name),
                     fmt::format("one of {}", fmt::join(known, ", ")), did_you_mean(name, known));
}

}  // namespace echelon::cli
