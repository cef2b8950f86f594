// Megatron-LM's options of the router of experts. Source: Megatron-LM core_v0.16.1,
// megatron/core/transformer/moe/moe_utils.py, topk_routing_with_score_function, and router.py.
#include "interop/configs/rows.hpp"

namespace echelon {

namespace {

using X = MixtureOfExperts;

ConfigRow score_row() {
  return computed(
      &X::router_score, {"moe-router-score-function"},
      [](const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
        const bool sigmoid = config.model.moe.router_score == RouterScore::sigmoid;
        if (sigmoid) out.set(row.keys[0], scalar("sigmoid"));
      },
      [](const ConfigRow& row, const ConfigReading& reading) -> MaybeValue {
        if (reading.config.model.moe.experts == 0) return std::optional<ReadValue>{};
        return found_or(reading, row.keys[0], "softmax");
      });
}

/// A bias that corrects sigmoid scores, or the ordinary one of the router's linear layer.
ConfigRow router_bias_row() {
  return computed(
      &X::router_bias, {"moe-router-enable-expert-bias"},
      [](const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
        const X& moe = config.model.moe;
        const bool corrects = moe.router_bias && moe.router_score == RouterScore::sigmoid;
        if (corrects) out.set(row.keys[0], scalar("true"));
      },
      [](const ConfigRow& row, const ConfigReading& reading) -> MaybeValue {
        if (reading.config.model.moe.experts == 0) return std::optional<ReadValue>{};
        if (const ConfigEntry* on = reading.find(row.keys[0])) {
          return std::optional(ReadValue{"true", Origin::found, reading.place(*on)});
        }
        const char* of_layers = megatron_has_biases(reading) ? "true" : "false";
        return std::optional(derived(of_layers, "that of linear layers"));
      });
}

/// Softmax over all experts before the choice leaves the weights of the chosen as they are; sigmoid
/// scores are always divided by their sum, of a single expert never.
ConfigRow normalized_row() {
  return computed(
      &X::router_normalized, {"moe-router-pre-softmax"},
      [](const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
        const X& moe = config.model.moe;
        const bool softmax = moe.experts > 0 && moe.router_score == RouterScore::softmax;
        if (softmax && (!moe.router_normalized || moe.experts_per_token == 1)) {
          out.set(row.keys[0], scalar("true"));
        }
      },
      [](const ConfigRow& row, const ConfigReading& reading) -> MaybeValue {
        const X& moe = reading.config.model.moe;
        if (moe.experts == 0) return std::optional<ReadValue>{};
        if (moe.router_score == RouterScore::sigmoid) {
          return std::optional(
              derived(moe.experts_per_token > 1 ? "true" : "false", "sigmoid scores"));
        }
        const ConfigEntry* before = reading.find(row.keys[0]);
        if (before == nullptr) return std::optional(assumed("true"));
        return std::optional(ReadValue{"false", Origin::found, reading.place(*before)});
      });
}

/// A number of the router that is not written where it is 1.
template <auto member>
ConfigRow router_number_row(std::string_view key) {
  return computed(
      member, {key},
      [](const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
        const std::string text = text_of(row.field, config);
        if (config.model.moe.experts > 0 && text != "1") out.set(row.keys[0], scalar(text));
      },
      [](const ConfigRow& row, const ConfigReading& reading) -> MaybeValue {
        if (reading.find(row.keys[0]) == nullptr) return std::optional<ReadValue>{};
        return found_or(reading, row.keys[0], "1");
      });
}

}  // namespace

bool megatron_has_biases(const ConfigReading& reading) {
  const ConfigEntry* off = reading.find("disable-bias-linear");
  return off == nullptr || off->value.first().text == "false";
}

std::vector<ConfigRow> megatron_router_rows() {
  return {
      score_row(),
      router_bias_row(),
      normalized_row(),
      router_number_row<&X::router_scaling>("moe-router-topk-scaling-factor"),
      router_number_row<&X::router_groups>("moe-router-num-groups"),
      router_number_row<&X::router_group_topk>("moe-router-group-topk"),
  };
}

}  // namespace echelon
