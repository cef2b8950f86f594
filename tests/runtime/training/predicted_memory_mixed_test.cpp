// The memory of stages that hold both dense layers and layers with experts: which of them share a
// chunk, a unit of ZeRO and a buffer follows from their places in the model.
#include "tests/runtime/training/predicted_memory.hpp"

using namespace echelon;
using namespace echelon::predicted_memory;

namespace {

/// Three dense layers, then five with experts: at ep 1 these have more parameters than the dense
/// ones, at ep 4 fewer.
ModelSpec first_layers_dense(ModelSpec model) {
  model.name += ", first layers dense";
  model.moe.experts = 16;
  model.moe.experts_per_token = 4;
  model.moe.expert_ffn_hidden = 128;
  model.moe.shared_ffn_hidden = 128;
  model.moe.first_dense_layers = 3;
  return model;
}

ModelSpec small_glm() {
  ModelSpec model = measured_llama();
  model.name = "small-glm-4.5";
  model.qk_norm = true;
  return first_layers_dense(model);
}

/// Within half a percent: a block of the wrong kind is several. The cost model has room for a few
/// messages more than these interleaved schedules need.
void check_mixed(const ModelSpec& model, const Grid& g) {
  check<Bfloat16>(model, g, "bf16", {.share = 0.005, .boundaries = g.vpp > 1 ? 4 : 1});
}

constexpr auto kPolicies = {Recompute::none, Recompute::selective, Recompute::full};

}  // namespace

TEST_CASE("memory of dense and expert layers on one stage is predicted, at every ZeRO stage") {
  using enum ScheduleKind;
  const std::vector<std::vector<int>> layers{{4, 4}, {5, 3}, {3, 5}};
  std::size_t next = 0;
  for (const Recompute recompute : kPolicies) {
    for (int zero = 0; zero < 4; ++zero) {
      for (const int ep : {1, 4}) {
        Grid g{1, 1, 1, 4, zero, false, recompute, one_f_one_b, {}, 1, 1, ep};
        check_mixed(small_glm(), g);
        g.pp = 2;
        for (const ScheduleKind schedule : {gpipe, one_f_one_b, zero_bubble_h1}) {
          g.schedule = schedule;
          g.layers = layers[next++ % layers.size()];
          check_mixed(small_glm(), g);
        }
        ++next;
      }
    }
  }
}

TEST_CASE("memory of dense and expert layers behind latent attention is predicted") {
  using enum ScheduleKind;
  const ModelSpec model = first_layers_dense(measured_latent(96));
  for (const Recompute recompute : kPolicies) {
    for (const int zero : {0, 2, 3}) {
      for (const int ep : {1, 4}) {
        check_mixed(model, {1, 1, 1, 4, zero, false, recompute, one_f_one_b, {}, 1, 1, ep});
        check_mixed(model, {1, 2, 1, 4, zero, false, recompute, gpipe, {5, 3}, 1, 1, ep});
        check_mixed(model, {1, 2, 1, 4, zero, false, recompute, zero_bubble_h1, {}, 1, 1, ep});
        check_mixed(model, {1, 2, 2, 4, zero, false, recompute, interleaved, {5, 3}, 3, 1, ep});
      }
    }
  }
}

TEST_CASE("memory of interleaved chunks of either kind, or of both, is predicted") {
  using enum ScheduleKind;
  const ModelSpec model = small_glm();
  for (const Recompute recompute : kPolicies) {
    for (const int zero : {0, 1, 2, 3}) {
      for (const int ep : {1, 4}) {
        // Two dense layers and two with experts; one of each and two with experts.
        check_mixed(model, {1, 2, 2, 4, zero, false, recompute, interleaved, {}, 1, 1, ep});
        check_mixed(model, {1, 2, 4, 4, zero, false, recompute, interleaved, {}, 4, 1, ep});
        check_mixed(model, {1, 2, 2, 4, zero, false, recompute, interleaved, {5, 3}, 3, 1, ep});
        check_mixed(model, {1, 2, 3, 4, zero, false, recompute, interleaved, {5, 3}, 1, 1, ep});
      }
    }
  }
}

TEST_CASE("memory of every second layer with experts is predicted") {
  ModelSpec model = small_glm();
  model.moe.first_dense_layers = 1;
  model.moe.every = 2;
  using enum ScheduleKind;
  for (const int zero : {0, 2, 3}) {
    for (const int ep : {1, 2}) {
      check_mixed(model, {2, 1, 1, 2, zero, true, Recompute::none, one_f_one_b, {}, 1, 1, ep});
      check_mixed(model, {2, 2, 1, 2, zero, true, Recompute::full, gpipe, {}, 1, 1, ep});
      check_mixed(model, {1, 4, 1, 2, zero, false, Recompute::none, one_f_one_b, {}, 1, 1, ep});
      check_mixed(model, {1, 2, 2, 2, zero, false, Recompute::none, interleaved, {3, 5}, 1, 1, ep});
    }
  }
}

TEST_CASE("memory of a long step is predicted from its first microbatches and its last ones") {
  using enum ScheduleKind;
  const ModelSpec model = small_glm();
  for (const ScheduleKind schedule : {gpipe, one_f_one_b, zero_bubble_h1}) {
    Grid g{1, 4, 1, 2, 3, false, Recompute::none, schedule};
    g.microbatches = 31;
    check_mixed(model, g);
  }
  for (const int group : {1, 3}) {
    Grid g{1, 2, 2, 2, 3, false, Recompute::none, interleaved, {5, 3}, group};
    g.microbatches = 44;
    check_mixed(model, g);
  }
}

TEST_CASE("the embedding and the head share a buffer of gathered weights where layers are odd") {
  for (const int layers : {6, 7}) {
    ModelSpec model = measured_llama();
    model.layers = layers;
    model.vocab = 8000;
    model.tied_embeddings = false;
    for (const bool experts : {false, true}) {
      if (experts) model = first_layers_dense(model);
      check_mixed(model, {1, 1, 1, 2, 3, false, Recompute::none, ScheduleKind::one_f_one_b});
    }
  }
}
