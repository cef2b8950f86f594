#include "interop/logs/run_facts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include "core/base/text.hpp"

namespace echelon {

namespace {

/// Two values of one of these describe two jobs, or a log that is not of its configuration.
constexpr std::array<std::string_view, 12> kDecisive = {
    "layers", "hidden", "heads", "seq", "gpus",       "tp",
    "cp",     "ep",     "pp",    "dp",  "microbatch", "global_batch"};

std::optional<double> as_number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(value)) return {};
  return value;
}

}  // namespace

void RunFacts::set(std::string_view column, std::string value, FactOrigin origin,
                   std::string from) {
  const RunFact* known = find(column);
  if (known == nullptr) {
    facts_.push_back({std::string(column), std::move(value), origin, std::move(from)});
    return;
  }
  const auto before = as_number(known->value);
  const auto now = as_number(value);
  const bool same = before && now ? *before == *now : known->value == value;
  if (same || std::ranges::find(kDecisive, column) == kDecisive.end()) return;
  contradictions_.push_back(
      fmt::format("{} is {} ({}) and {} ({})", column, known->value, known->from, value, from));
}

void RunFacts::set(std::string_view column, double value, FactOrigin origin, std::string from) {
  set(column, fmt::format("{}", value), origin, std::move(from));
}

void RunFacts::set_model(const ModelSpec& model, FactOrigin origin, const std::string& from) {
  set("model", model.name, origin, from);
  const auto count = [&](std::string_view column, std::int64_t value) {
    set(column, fmt::format("{}", value), origin, from);
  };
  count("layers", model.layers);
  count("hidden", model.hidden);
  count("ffn_hidden", model.ffn_hidden);
  count("heads", model.heads);
  count("kv_heads", model.kv_heads);
  count("head_dim", model.head_dim);
  count("vocab", model.vocab);
  count("gated_mlp", model.gated_mlp ? 1 : 0);
  count("tied_embeddings", model.tied_embeddings ? 1 : 0);
  const std::string kinds = beyond_columns(model);
  set("attention",
      model.latent()                 ? "mla"
      : !kinds.empty()               ? "other"
      : model.kv_heads < model.heads ? "gqa"
                                     : "mha",
      origin, from);
  if (!kinds.empty()) {
    set("attention_detail", kinds, origin, from);
    if (!whole_model_) whole_model_ = model;
  }
  if (model.moe.experts == 0) return;
  count("experts", model.moe.experts);
  count("experts_per_token", model.moe.experts_per_token);
  count("expert_ffn_hidden", model.moe.expert_ffn_hidden);
  count("shared_expert_ffn_hidden", model.moe.shared_ffn_hidden);
  count("first_dense_layers", model.moe.first_dense_layers);
}

std::string beyond_columns(const ModelSpec& model) {
  if (model.latent()) return "latent attention";
  const int others = model.delta.layers + model.ssm.layers + model.conv.layers;
  if (others == 0 && model.mlp_only_layers == 0) {
    if (model.windowed_layers == 0) return {};
    return fmt::format("{} of {} layers with a window", model.windowed_layers, model.layers);
  }
  std::string text;
  const auto add = [&](int layers, std::string_view what) {
    if (layers > 0) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", layers, what);
  };
  add(model.delta.layers, "gated delta net");
  add(model.ssm.layers, "Mamba-2");
  add(model.conv.layers, "short convolution");
  add(model.mlp_only_layers, model.moe.experts > 0 ? "experts" : "MLP");
  add(model.layers - others - model.mlp_only_layers, "attention");
  return text + " layers";
}

const RunFact* RunFacts::find(std::string_view column) const {
  const auto found = std::ranges::find(facts_, column, &RunFact::column);
  return found == facts_.end() ? nullptr : &*found;
}

std::optional<double> RunFacts::number(std::string_view column) const {
  const RunFact* fact = find(column);
  return fact == nullptr ? std::nullopt : as_number(fact->value);
}

Result<MeasuredRun> row_of(const RunFacts& facts, const std::string& path) {
  MeasuredRun row;
  row.whole_model = facts.whole_model();
  for (const RunFact& fact : facts.all()) {
    const auto columns = run_columns();
    const auto column = std::ranges::find(columns, fact.column, &RunColumn::name);
    if (column == columns.end()) continue;
    const std::string expected = set_cell(*column, fact.value, row);
    if (expected.empty()) continue;
    return input_error(fmt::format("{}, {}", path, fact.from), in_quotes(fact.value, 40),
                       fmt::format("{}: {}", fact.column, expected));
  }
  return row;
}

}  // namespace echelon
