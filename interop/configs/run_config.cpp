#include "interop/configs/run_config.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <type_traits>
#include <utility>

#include "core/base/did_you_mean.hpp"
#include "core/base/expects.hpp"
#include "core/base/parse_quantity.hpp"
#include "core/base/text.hpp"
#include "core/model/model_io.hpp"

namespace echelon {

namespace {

using X = MixtureOfExperts;
using L = LatentAttention;
using I = SparseAttention;
using D = GatedDeltaNet;
using S = StateSpace;
using G = GlobalAttention;
using K = ShortConvolution;
using C = ModelConstants;
using R = RotaryEmbedding;

constexpr std::string_view kBetweenTexts = " | ";  // which themselves have commas and semicolons

template <class Enum>
using Names = std::vector<std::pair<Enum, std::string_view>>;

const Names<Normalization>& names_for(Normalization) {
  static const Names<Normalization> kNames = {{Normalization::layer_norm, "layer_norm"},
                                              {Normalization::rms_norm, "rms_norm"}};
  return kNames;
}
const Names<Activation>& names_for(Activation) {
  static const Names<Activation> kNames = {{Activation::gelu, "gelu"},
                                           {Activation::relu, "relu"},
                                           {Activation::squared_relu, "squared_relu"},
                                           {Activation::silu, "silu"}};
  return kNames;
}
const Names<PositionEmbedding>& names_for(PositionEmbedding) {
  static const Names<PositionEmbedding> kNames = {{PositionEmbedding::learned, "learned"},
                                                  {PositionEmbedding::rope, "rope"},
                                                  {PositionEmbedding::alibi, "alibi"},
                                                  {PositionEmbedding::none, "none"}};
  return kNames;
}

const Names<RouterScore>& names_for(RouterScore) {
  static const Names<RouterScore> kNames = {{RouterScore::softmax, "softmax"},
                                            {RouterScore::sigmoid, "sigmoid"}};
  return kNames;
}
const Names<RopeScaling>& names_for(RopeScaling) {
  static const Names<RopeScaling> kNames = {
      {RopeScaling::none, "none"},       {RopeScaling::linear, "linear"},
      {RopeScaling::llama3, "llama3"},   {RopeScaling::yarn, "yarn"},
      {RopeScaling::dynamic, "dynamic"}, {RopeScaling::longrope, "longrope"}};
  return kNames;
}

const RunConfig& owner(const RunConfig& config, const RunConfig*) { return config; }
const ModelSpec& owner(const RunConfig& config, const ModelSpec*) { return config.model; }
const X& owner(const RunConfig& config, const X*) { return config.model.moe; }
const L& owner(const RunConfig& config, const L*) { return config.model.mla; }
const I& owner(const RunConfig& config, const I*) { return config.model.dsa; }
const D& owner(const RunConfig& config, const D*) { return config.model.delta; }
const S& owner(const RunConfig& config, const S*) { return config.model.ssm; }
const G& owner(const RunConfig& config, const G*) { return config.model.global; }
const K& owner(const RunConfig& config, const K*) { return config.model.conv; }
/// Of a model that has none, the usual ones.
const C& owner(const RunConfig& config, const C*) {
  static const C kUsual;
  return config.model.constants ? *config.model.constants : kUsual;
}
const R& owner(const RunConfig& config, const R*) {
  return owner(config, static_cast<const C*>(nullptr)).rope;
}

template <class T, class Owner>
const T& value(const RunConfig& config, T Owner::*member) {
  return owner(config, static_cast<const Owner*>(nullptr)).*member;
}
template <class T, class Owner>
T& value(RunConfig& config, T Owner::*member) {
  if constexpr (std::is_same_v<Owner, C> || std::is_same_v<Owner, R>) {
    if (!config.model.constants) config.model.constants.emplace();
  }
  return const_cast<T&>(value(std::as_const(config), member));  // of a config that is not const
}

std::string text(std::int64_t number) { return std::to_string(number); }
std::string text(int number) { return std::to_string(number); }
std::string text(bool on) { return on ? "true" : "false"; }
std::string text(double number) { return fmt::format("{}", number); }
const std::string& text(const std::string& word) { return word; }
std::string text(const std::vector<std::string>& words) {
  return fmt::format("{}", fmt::join(words, kBetweenTexts));
}
template <class Enum>
requires std::is_enum_v<Enum> std::string text(Enum named) {
  for (const auto& [each, name] : names_for(named)) {
    if (each == named) return std::string(name);
  }
  return "?";
}

template <class T, class Parsed>
Status take(T& target, const Result<Parsed>& parsed) {
  if (!parsed) return parsed.error();
  target = static_cast<T>(*parsed);
  return Done{};
}

Result<std::vector<int>> parse_ints(std::string_view text, std::string_view where) {
  std::vector<int> out;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    const Result<int> each = parse_int(text.substr(0, comma), where, 0);
    if (!each) return each.error();
    out.push_back(*each);
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return out;
}

Status parse_into(int& target, std::string_view text, std::string_view where) {
  return take(target, parse_int(text, where, 0));
}
Status parse_into(std::int64_t& target, std::string_view text, std::string_view where) {
  return take(target, parse_count(text, where, 0));
}
Status parse_into(bool& target, std::string_view text, std::string_view where) {
  return take(target, parse_bool(text, where));
}
Status parse_into(double& target, std::string_view text, std::string_view where) {
  return take(target, parse_ratio(text, where, 0, 1e30));
}
Status parse_into(std::string& target, std::string_view text, std::string_view) {
  target = text;
  return Done{};
}
Status parse_into(std::vector<std::string>& target, std::string_view text, std::string_view) {
  target.clear();
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(kBetweenTexts), text.size());
    target.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + kBetweenTexts.size(), text.size()));
  }
  return Done{};
}
Status parse_into(std::vector<int>& target, std::string_view text, std::string_view where) {
  Result<std::vector<int>> parsed = parse_ints(text, where);
  if (!parsed) return parsed.error();
  target = *std::move(parsed);
  return Done{};
}
Status parse_into(std::optional<Bytes>& target, std::string_view text, std::string_view where) {
  if (text.empty()) {
    target.reset();
    return Done{};
  }
  const Result<Bytes> size = parse_bytes(text, where);
  if (!size) return size.error();
  target = *size;
  return Done{};
}
Status parse_into(RecomputeModules& target, std::string_view text, std::string_view where) {
  if (text.empty()) {
    target = {};
    return Done{};
  }
  const Result<RecomputeModules> parsed = parse_recompute_modules(text, std::string(where));
  if (!parsed) return parsed.error();
  target = *parsed;
  return Done{};
}
Status parse_into(OffloadModules& target, std::string_view text, std::string_view where) {
  if (text.empty()) {
    target = {};
    return Done{};
  }
  const Result<OffloadModules> parsed = parse_offload_modules(text, where);
  if (!parsed) return parsed.error();
  target = *parsed;
  return Done{};
}
template <class Enum>
requires std::is_enum_v<Enum> Status parse_into(Enum& target, std::string_view text,
                                                std::string_view where) {
  std::vector<std::string> known;
  for (const auto& [each, name] : names_for(Enum{})) {
    if (name == text) {
      target = each;
      return Done{};
    }
    known.emplace_back(name);
  }
  return input_error(std::string(where), in_quotes(text), "a known name",
                     did_you_mean(text, known));
}

Status set_plan_text(const PlanField& field, std::string_view text, std::string_view where,
                     ParallelPlan& plan) {
  return std::visit(
      [&](auto member) -> Status {
        using Value = std::remove_reference_t<decltype(plan.*member)>;
        if constexpr (std::is_enum_v<Value>) {
          return set_name(field, text, where, plan);
        } else {
          return parse_into(plan.*member, text, where);
        }
      },
      field.member);
}

template <class T>
bool same(const T& a, const T& b) {
  return a == b;
}
bool same(double a, double b) {
  constexpr double kRounding = 1e-9;
  return std::abs(a - b) <= kRounding * std::max(std::abs(a), std::abs(b));
}

const NamedConfigField* named(const ConfigField& field) {
  for (const auto* all : {&job_fields(), &model_fields(), &arithmetic_fields()}) {
    const auto at = std::ranges::find(*all, field, &NamedConfigField::field);
    if (at != all->end()) return &*at;
  }
  return nullptr;
}

bool same_shapes(const ModelSpec& a, const ModelSpec& b, bool any_vocabulary) {
  RunConfig left{.model = a};
  RunConfig right{.model = b};
  if (any_vocabulary) left.model.vocab = right.model.vocab = 0;
  // Neither the context of a published model nor its dropout changes its shapes.
  left.model.max_positions = right.model.max_positions = 0;
  left.model.hidden_dropout = right.model.hidden_dropout = 0;
  left.model.attention_dropout = right.model.attention_dropout = 0;
  // Nor do the order of layers that are counted, and the limits of the router.
  left.model.layer_pattern = right.model.layer_pattern = "";
  left.model.moe.router_groups = right.model.moe.router_groups = 1;
  left.model.moe.router_group_topk = right.model.moe.router_group_topk = 1;
  // Scripts of pretraining often leave out the modules for multi-token prediction, and so do files.
  left.model.prediction_modules = right.model.prediction_modules = 0;
  return std::ranges::all_of(model_fields(), [&](const NamedConfigField& each) {
    return same_value(each.field, left, right);
  });
}

}  // namespace

Result<bool> parse_bool(std::string_view text, std::string_view where) {
  const std::string word = lower_case(text);
  if (word == "true" || word == "yes" || word == "on" || word == "1") return true;
  if (word == "false" || word == "no" || word == "off" || word == "0") return false;
  return input_error(std::string(where), in_quotes(text), "true or false");
}

std::string_view label_of(const ConfigField& field) {
  if (const auto* plan = std::get_if<const PlanField*>(&field)) return (*plan)->label;
  const NamedConfigField* known = named(field);
  EXPECTS(known != nullptr, "every field of a run has a name");
  return known->label;
}

std::string_view flag_of(const ConfigField& field) {
  if (const auto* plan = std::get_if<const PlanField*>(&field)) return (*plan)->flag;
  const NamedConfigField* known = named(field);
  EXPECTS(known != nullptr, "every field of a run has a name");
  return known->flag;
}

std::string text_of(const ConfigField& field, const RunConfig& config) {
  return std::visit(
      [&](auto member) -> std::string {
        if constexpr (std::is_same_v<decltype(member), const PlanField*>) {
          return value_text(*member, config.plan);
        } else {
          return text(value(config, member));
        }
      },
      field);
}

Status set_text(const ConfigField& field, std::string_view text, std::string_view where,
                RunConfig& config) {
  return std::visit(
      [&](auto member) -> Status {
        if constexpr (std::is_same_v<decltype(member), const PlanField*>) {
          return set_plan_text(*member, text, where, config.plan);
        } else {
          return parse_into(value(config, member), text, where);
        }
      },
      field);
}

bool same_value(const ConfigField& field, const RunConfig& a, const RunConfig& b) {
  return std::visit(
      [&](auto member) {
        if constexpr (std::is_same_v<decltype(member), const PlanField*>) {
          return value_text(*member, a.plan) == value_text(*member, b.plan);
        } else {
          return same(value(a, member), value(b, member));
        }
      },
      field);
}

std::vector<std::string> catalog_names_of(const ModelSpec& model, bool any_vocabulary,
                                          std::optional<double> theta) {
  std::vector<std::string> found;
  std::vector<int> vocabularies;
  for (const CatalogModel& each : model_catalog()) {
    const Result<ModelSpec> known = load_model(each.name);
    if (!known || !same_shapes(model, *known, any_vocabulary)) continue;
    if (theta && known->constants && known->constants->rope.theta != *theta) continue;
    if (std::ranges::find(vocabularies, known->vocab) != vocabularies.end()) continue;
    vocabularies.push_back(known->vocab);
    found.push_back(each.name);
  }
  return found;
}

}  // namespace echelon
