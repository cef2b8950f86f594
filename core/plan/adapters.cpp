#include "core/plan/adapters.hpp"

#include <fmt/format.h>

#include "core/base/parse_quantity.hpp"
#include "core/base/text.hpp"

namespace echelon {

std::string_view name_of(AdapterTarget target) {
  switch (target) {
    case AdapterTarget::linear_qkv: return "linear_qkv";
    case AdapterTarget::linear_proj: return "linear_proj";
    case AdapterTarget::linear_fc1: return "linear_fc1";
    case AdapterTarget::linear_fc2: return "linear_fc2";
  }
  return "?";
}

std::string Adapters::text() const { return fmt::format("{}:{}", rank, text_of(targets)); }

std::int64_t adapter_parameters(const ModelSpec& model, const Adapters& adapters,
                                bool each_module) {
  const std::int64_t hidden = model.hidden;
  const std::int64_t queries = model.query_width();
  const std::int64_t heads = queries + (model.attention_output_gate ? queries : 0) +
                             std::int64_t{2} * model.kv_heads * model.head_dim;
  const std::int64_t ffn = model.ffn_hidden;
  std::int64_t widths = 0;
  const auto add = [&](AdapterTarget target, std::int64_t in, std::int64_t out, int modules = 1) {
    if (adapters.targets.contains(target)) widths += (each_module ? modules : 1) * in + out;
  };
  const int gate_and_up = model.gated_mlp ? 2 : 1;
  add(AdapterTarget::linear_qkv, hidden, heads, 3);
  add(AdapterTarget::linear_proj, model.attention_output_width(), hidden);
  add(AdapterTarget::linear_fc1, hidden, gate_and_up * ffn, gate_and_up);
  add(AdapterTarget::linear_fc2, ffn, hidden);
  return std::int64_t{model.layers} * adapters.rank * widths;
}

Result<Adapters> parse_adapters(std::string_view text, const std::string& where,
                                AdapterTargets unnamed) {
  const std::size_t colon = text.find(':');
  const std::string rank(text.substr(0, colon));
  const Result<int> number = parse_int(rank, where);
  constexpr int kLargest = 4096;
  if (!number || *number < 1 || *number > kLargest) {
    return input_error(where, in_quotes(rank) + " as the rank of adapters",
                       "a rank from 1 to 4,096, with targets as in 16:linear_qkv,linear_proj");
  }
  Adapters out{*number, unnamed};
  if (colon == std::string_view::npos) return out;
  const Result<AdapterTargets> targets =
      parse_modules<AdapterTarget>(text.substr(colon + 1), where, "to adapt");
  if (!targets) {
    Error error = targets.error();
    error.expected +=
        " (PEFT's q_proj, k_proj, v_proj are linear_qkv, o_proj is linear_proj, gate_proj and "
        "up_proj are linear_fc1, down_proj is linear_fc2)";
    return error;
  }
  out.targets = *targets;
  return out;
}

}  // namespace echelon
