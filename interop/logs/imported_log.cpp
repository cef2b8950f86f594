#include "interop/logs/imported_log.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <utility>

#include "core/base/text.hpp"
#include "core/model/model_io.hpp"
#include "interop/configs/hybrid_pattern.hpp"
#include "interop/configs/import.hpp"
#include "interop/logs/derived_facts.hpp"

namespace echelon {

namespace {

/// Columns that a prediction needs, and the flag that gives each.
struct NeededFact {
  std::string_view column;
  std::string_view flag;
};
constexpr std::array kNeeded = {
    NeededFact{"layers", "--model NAME|FILE"},
    NeededFact{"hidden", "--model NAME|FILE"},
    NeededFact{"heads", "--model NAME|FILE"},
    NeededFact{"ffn_hidden", "--model NAME|FILE"},
    NeededFact{"vocab", "--model NAME|FILE"},
    NeededFact{"gpu", "--cluster NAME|FILE"},
    NeededFact{"gpus", "--gpus N"},
    NeededFact{"seq", "--seq N"},
    NeededFact{"tp", "--tp N"},
    NeededFact{"pp", "--pp N"},
    NeededFact{"dp", "--dp N"},
    NeededFact{"microbatch", "--microbatch N"},
    NeededFact{"global_batch", "--global-batch N"},
};

/// The model of Megatron-LM's printed arguments, where its layers are of kinds that no column says.
/// Error: such layers, but without a price.
Status add_printed_model(const TrainingLog& log, RunFacts& facts) {
  const LoggedValue* pattern = log.find("layer_pattern");
  const bool hybrid = pattern != nullptr || states_hybrid(log.arguments);
  if (facts.has("layers")) {  // given by --model
    const std::optional<ModelSpec>& given = facts.whole_model();
    if (hybrid && (!given || given->mlp_only_layers == 0)) {
      facts.contradict(
          fmt::format("the layers of {} have a mixer and an MLP each ({}), those of "
                      "the log one part each (its hybrid layer pattern)",
                      facts.find("model")->value, facts.find("model")->from));
    }
    return Done{};
  }
  if (!log.arguments.entries.empty()) {
    const Result<std::optional<ModelSpec>> model = model_of_megatron(log.arguments);
    if (!model && hybrid) return model.error();
    if (model && *model && !beyond_columns(**model).empty()) {
      facts.set_model(**model, FactOrigin::found, "the arguments that Megatron-LM printed");
    }
  }
  if (pattern == nullptr || facts.has("attention")) return Done{};
  const std::string from = fmt::format("line {}: {}", pattern->line, pattern->key);
  facts.set("attention", "other", FactOrigin::found, from);
  facts.set("attention_detail", "the layers " + pattern->value, FactOrigin::found, from);
  return Done{};
}

/// What the log states: arguments, then the batch and sequence of its steps.
void add_found(const TrainingLog& log, RunFacts& facts) {
  for (const LoggedValue& value : log.values) {
    if (value.name == "kv_heads" && facts.has("attention") &&
        facts.find("attention")->value == "mha") {
      continue;  // Megatron prints num_query_groups = 1 for models without groups
    }
    facts.set(value.name, value.value, FactOrigin::found,
              fmt::format("line {}: {}", value.line, value.key));
  }
  const LoggedStep& last = log.steps.back();
  const std::string on_line = fmt::format("line {}: the step", last.line);
  if (last.sequence) facts.set("seq", *last.sequence, FactOrigin::found, on_line);
  if (!last.global_batch) return;
  // nanotron counts tokens from 2025-03 on, when the line lost "elapsed_".
  const auto tokens = last.tokens_per_second && last.seconds
                          ? std::optional(*last.tokens_per_second * *last.seconds)
                          : std::nullopt;
  const bool counts_tokens = tokens && std::abs(*tokens / *last.global_batch - 1) < 0.02;
  facts.set(counts_tokens ? "global_batch_tokens" : "global_batch", *last.global_batch,
            FactOrigin::found, on_line);
}

/// "llama3 8B", as torchtitan names it: a model of the catalog.
void add_named_model(RunFacts& facts) {
  const RunFact* named = facts.find("model");
  if (named == nullptr || facts.has("layers")) return;
  std::string name = lower_case(named->value);
  std::ranges::replace(name, ' ', '-');
  const Result<ModelSpec> model = load_model(name);
  if (model && name.find('/') == std::string::npos) {
    facts.set_model(*model, FactOrigin::derived, named->from + ", the catalog's " + model->name);
  }
}

void add_memory(const TrainingLog& log, ImportedLog& out) {
  constexpr std::int64_t kWithOptimizerStates = 2;  // Adam's are made at the end of step 1
  double allocated = 0, reserved = 0;
  bool early = false;
  for (const auto& [rank, memory] : log.memory) {
    if (memory.after_step.value_or(0) < kWithOptimizerStates) {
      early = true;
      continue;
    }
    allocated = std::max(allocated, memory.max_allocated.value_or(0));
    reserved = std::max(reserved, memory.max_reserved.value_or(0));
  }
  if (allocated > 0) {
    out.peak_memory_bytes = allocated;
    out.memory_kind = "allocated";
  } else if (reserved > 0) {
    out.peak_memory_bytes = reserved;
    out.memory_kind = "reserved";
  } else if (early) {
    out.remarks.emplace_back(
        "the memory printed after the first step misses what lives together from the second on: "
        "not used");
  }
}

std::string version_of(const TrainingLog& log) {
  if (log.version_from == 0) return {};
  if (log.version_until == 0) return fmt::format("core 0.{} or later", log.version_from);
  return fmt::format("core 0.{} to 0.{}", log.version_from, log.version_until);
}

/// The date of the first stamped line, or "".
std::string date_of(const TrainingLog& log) {
  const LoggedStep& first = log.steps.front();
  constexpr double kYear2010 = 1262304000;  // earlier: a stamp without a year, or none
  if (log.format->time == StepTime::clock || !first.clock || *first.clock < kYear2010) return {};
  const std::chrono::sys_days day{
      std::chrono::days{static_cast<int>(std::floor(*first.clock / 86400))}};
  const std::chrono::year_month_day date{day};
  return fmt::format("{:04}-{:02}-{:02}", static_cast<int>(date.year()),
                     static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()));
}

/// The file's name without folders and ending.
std::string stem_of(const std::string& path) {
  const std::string name = path.substr(path.rfind('/') + 1);
  const std::string stem = name.substr(0, name.rfind('.'));
  return stem.empty() ? name : stem;
}

void fill_row(const TrainingLog& log, ImportedLog& out) {
  MeasuredRun& row = out.row;
  row.row_id = row.source = row.group = stem_of(out.path);
  row.group.clear();
  row.status = "ok";
  row.task = "pretrain";
  row.framework = row.framework.empty() ? std::string(out.format->software) : row.framework;
  row.framework_detail =
      std::string(out.format->title) + (out.version.empty() ? "" : " " + out.version);
  row.date = date_of(log);
  const auto& facts = out.facts.all();
  const bool inferred = std::ranges::any_of(
      facts, [](const RunFact& fact) { return fact.origin == FactOrigin::derived; });
  row.grade = inferred ? "B" : "A";
  if (out.steps.step) {
    row.step_seconds = out.steps.step->in(kSecond);
    row.locator = fmt::format("{}:{}-{}", out.path, out.steps.first_line, out.steps.last_line);
    row.notes = fmt::format("log: {} of {} windows; spread {:.1f} %", out.steps.windows,
                            out.steps.printed, 100 * out.steps.spread);
  }
  row.peak_memory_bytes = out.peak_memory_bytes;
  row.memory_kind = out.memory_kind;
}

void ask_for_missing(ImportedLog& out) {
  const bool mixture = out.facts.number("experts").value_or(1) > 1;
  for (const NeededFact& needed : kNeeded) {
    const bool has = out.facts.has(needed.column) || (needed.column == "ffn_hidden" && mixture) ||
                     (needed.column == "ffn_hidden" && out.facts.has("hidden") &&
                      out.facts.number("gated_mlp").value_or(1) == 0);
    if (!has) out.ask.push_back({std::string(needed.column), std::string(needed.flag)});
  }
}

}  // namespace

Result<ImportedLog> import_log(const TrainingLog& log, const RunFacts& given) {
  ImportedLog out;
  out.path = log.path;
  out.format = log.format;
  out.version = version_of(log);
  out.facts = given;
  if (const Status model = add_printed_model(log, out.facts); !model) return model.error();
  add_found(log, out.facts);
  add_named_model(out.facts);
  // Each may enable another: the sequence gives the batch, the vocabulary the GPUs.
  for (int round = 0; round < 3; ++round) {
    std::vector<std::string> remarks;
    derive_degrees(log, out.facts);
    derive_from_shard(log, out.facts, remarks);
    derive_from_tokens(log, out.facts);
    derive_from_flops(log, out.facts, remarks);
    out.remarks = std::move(remarks);
    if (!out.facts.contradictions().empty()) break;
  }
  derive_degrees(log, out.facts);
  check_facts(log, out.facts);
  add_memory(log, out);
  out.steps = judge_steps(log, out.facts);
  out.refused = out.steps.refused;
  Result<MeasuredRun> row = row_of(out.facts, out.path);
  if (!row) return row.error();
  out.row = *std::move(row);
  fill_row(log, out);
  ask_for_missing(out);
  return out;
}

Result<ImportedLog> import_log(const std::string& path, const RunFacts& given) {
  const Result<TrainingLog> log = read_training_log(path);
  if (!log) return log.error();
  return import_log(*log, given);
}

Result<MeasuredRun> measured_run_of(const ImportedLog& imported) {
  if (!imported.refused.empty()) {
    return input_error(imported.path, imported.refused, "a log whose steps represent the job");
  }
  if (!imported.ask.empty()) {
    std::string missing, flags;
    for (const MissingFact& fact : imported.ask) {
      missing += (missing.empty() ? "" : ", ") + fact.column;
      if (flags.find(fact.flag) == std::string::npos)
        flags += (flags.empty() ? "" : " ") + fact.flag;
    }
    return input_error(imported.path, "the log does not say: " + missing,
                       "the facts that no line of it gives", "give " + flags);
  }
  if (!imported.steps.step) {
    return input_error(imported.path, "the log prints no step time", "seconds or rates of steps");
  }
  return imported.row;
}

Result<MeasuredRun> read_log(const std::string& path, const RunFacts& given) {
  const Result<ImportedLog> imported = import_log(path, given);
  if (!imported) return imported.error();
  return measured_run_of(*imported);
}

}  // namespace echelon
