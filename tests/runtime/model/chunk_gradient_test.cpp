// A serial chunk against finite differences, in double.
#include <cmath>

#include "tests/runtime/model/chunk_run.hpp"
#include "tests/support/catch.hpp"

namespace echelon {
namespace {

/// Central differences of `samples` elements of every tensor, against the gradient.
void check_against_differences(ChunkRun run, int samples = 4) {
  const ChunkOutcome exact = run_chunks<double>(run);
  double largest = 0;
  for (const auto& [name, gradient] : exact.gradients) {
    for (const double x : gradient) largest = std::max(largest, std::abs(x));
  }
  Numbers numbers(5);
  for (const auto& [name, gradient] : exact.gradients) {
    for (int sample = 0; sample < samples; ++sample) {
      const std::size_t index = numbers.below(gradient.size());
      // Errors: h²/6 of the third derivative, 1e-16/h of rounding.
      const double h = 1e-5;
      double sides[2];
      for (int side = 0; side < 2; ++side) {
        run.nudge = {name, static_cast<std::int64_t>(index), side == 0 ? -h : h};
        sides[side] = run_chunks<double>(run).loss;
      }
      const double difference = (sides[1] - sides[0]) / (2 * h);
      INFO(name << " at " << index);
      CHECK(std::abs(difference - gradient[index]) < 1e-8 * largest);
    }
  }
}

TEST_CASE("every gradient of a GPT-2-like model is the derivative of the loss") {
  ChunkRun run;
  run.model = test_gpt();
  check_against_differences(run);
  run.model.tied_embeddings = false;
  run.model.head_bias = true;
  run.model.activation = Activation::squared_relu;
  check_against_differences(run);
}

TEST_CASE("every gradient of a Llama-like model is the derivative of the loss") {
  ChunkRun run;
  run.model = test_llama();
  check_against_differences(run);
  run.model.tied_embeddings = run.model.qkv_bias = run.model.mlp_bias = true;
  run.model.activation = Activation::gelu;
  check_against_differences(run);
}

TEST_CASE("every gradient with norms of query and key heads is the derivative of the loss") {
  ChunkRun run;
  run.model = test_llama();
  run.model.qk_norm = true;
  check_against_differences(run);
  run.model.qkv_bias = true;
  run.model.position = PositionEmbedding::none;
  check_against_differences(run);
}

TEST_CASE("gradients without positions, and of ungated MLPs with relu or silu") {
  ChunkRun run;
  run.model = test_llama();
  run.model.position = PositionEmbedding::none;
  run.model.gated_mlp = false;
  check_against_differences(run);
  run.model.activation = Activation::relu;
  check_against_differences(run);
}

TEST_CASE("every gradient of a model with experts is the derivative of the loss") {
  ChunkRun run;
  constexpr int kSamples = 2;  // of the tensors of each expert
  for (const ModelSpec& model :
       {test_mixtral(), test_qwen2_moe(), test_shared_experts(), test_deepseek_experts(),
        test_deepseek_v2_experts(), test_glm4_moe(), test_qwen3_moe()}) {
    run.model = model;
    check_against_differences(run, kSamples);
  }
  run.model.gated_mlp = false;
  run.model.activation = Activation::gelu;
  run.model.moe.first_dense_layers = 2;
  run.model.moe.router_normalized = true;
  run.model.moe.shared_ffn_hidden = 12;
  check_against_differences(run, kSamples);
}

TEST_CASE("every gradient of a model with latent attention is the derivative of the loss") {
  ChunkRun run;
  for (const ModelSpec& model : {test_latent(), test_latent_direct()}) {
    run.model = model;
    check_against_differences(run);
  }
  run.model = test_latent();
  run.model.attention_output_bias = run.model.tied_embeddings = true;
  check_against_differences(run);
}

TEST_CASE("recomputation, units and halves of the backward change no bit") {
  ModelSpec head_norms = test_llama();
  head_norms.qk_norm = true;
  for (ChunkRun run :
       {ChunkRun{.model = test_gpt()}, ChunkRun{.model = test_llama()},
        ChunkRun{.model = head_norms}, ChunkRun{.model = test_mixtral()},
        ChunkRun{.model = test_qwen3_moe()}, ChunkRun{.model = test_qwen2_moe()},
        ChunkRun{.model = test_shared_experts()}, ChunkRun{.model = test_deepseek_experts()},
        ChunkRun{.model = test_glm4_moe()}, ChunkRun{.model = test_latent()},
        ChunkRun{.model = test_latent_direct()}, ChunkRun{.model = test_deepseek_v3()}}) {
    const ChunkOutcome plain = run_chunks<double>(run);
    using enum Recompute;
    for (const std::vector<Recompute>& recompute :
         {std::vector{none}, {selective}, {full}, {full, none, selective}}) {
      for (const bool halves : {false, true}) {
        for (const int units : {1, 2, 3, 4}) {
          run.recompute = recompute;
          run.halves = halves;
          run.units = units;
          const ChunkOutcome other = run_chunks<double>(run);
          CHECK(other.loss == plain.loss);
          CHECK((other.gradients == plain.gradients));
        }
      }
    }
  }
}

TEST_CASE("consecutive chunks are equivalent to one chunk") {
  for (ChunkRun run : {ChunkRun{.model = test_gpt()}, ChunkRun{.model = test_llama()},
                       ChunkRun{.model = test_qwen3_moe()}, ChunkRun{.model = test_latent()}}) {
    const ChunkOutcome one = run_chunks<double>(run);
    for (const int chunks : {2, 3, 5}) {  // of five, some have no layer
      run.chunks = chunks;
      const ChunkOutcome many = run_chunks<double>(run);
      CHECK(many.loss == one.loss);
      const Distance d = distance(many, one);
      INFO(d.tensor << " with " << chunks << " chunks");
      CHECK(d.largest < (run.model.tied_embeddings ? 1e-14 : 1e-300));
    }
  }
}

}  // namespace
}  // namespace echelon
