// The groups of a model's parameters, against shapes multiplied by hand.
#include "core/model/parameter_groups.hpp"

#include <string_view>

#include "core/model/model_io.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

namespace {

ParameterGroup group_of(const ModelSpec& model, std::string_view name) {
  for (const ParameterGroup& group : parameter_groups(model)) {
    if (group.name == name) return group;
  }
  FAIL("no group " << name);
  return {};
}

}  // namespace

TEST_CASE("the groups of every model's parameters add up to all and to the active ones") {
  for (const CatalogModel& entry : model_catalog()) {
    INFO(entry.name);
    const ModelSpec model = load_model(entry.name).value();
    std::int64_t all = 0;
    std::int64_t active = 0;
    for (const ParameterGroup& group : parameter_groups(model)) {
      CHECK(group.count > 0);
      all += group.count;
      active += group.active;
    }
    CHECK(all == model.parameters());
    CHECK(active == model.active_parameters());
  }
}

TEST_CASE("the groups of DeepSeek-V3 are the products of its shapes") {
  const ModelSpec model = load_model("deepseek-v3").value();
  const ParameterGroup experts = group_of(model, "routed experts");
  CHECK(experts.count == std::int64_t{58} * 256 * 3 * 7168 * 2048);
  CHECK(experts.active == std::int64_t{58} * 8 * 3 * 7168 * 2048);
  CHECK(group_of(model, "shared experts").count == std::int64_t{58} * 3 * 7168 * 2048);
  CHECK(group_of(model, "MLP").count == std::int64_t{3} * 3 * 7168 * 18432);
  CHECK(group_of(model, "down projections to latents").count ==
        std::int64_t{61} * 7168 * (512 + 64 + 1536));
  CHECK(group_of(model, "embedding").count == std::int64_t{129280} * 7168);
}

TEST_CASE("layers of several mixers and windows are counted each with its own shapes") {
  const ModelSpec model = load_model("qwen3-next-80b-a3b").value();
  const std::int64_t delta = model.layers_with(TokenMixer::delta_net);
  const std::int64_t attention = model.layers - delta;
  CHECK(delta == 36);
  // Queries with their gate, keys, values, output; in, of q, k, v, gate, decay and strength, and
  // out.
  const std::int64_t of_attention =
      std::int64_t{2048} * (2 * 16 * 256 + 2 * 2 * 256) + std::int64_t{16} * 256 * 2048;
  const std::int64_t of_delta =
      std::int64_t{2048} * (2 * 16 * 128 + 2 * 32 * 128 + 2 * 32) + std::int64_t{32} * 128 * 2048;
  CHECK(group_of(model, "attention and other token mixers").count ==
        attention * of_attention + delta * of_delta);
}
