// Frequencies of the rotary embedding against those of transformers 5.
#include "runtime/model/rotary.hpp"

#include <cmath>
#include <utility>
#include <vector>

#include "core/model/model_io.hpp"
#include "tests/support/catch.hpp"

namespace echelon {
namespace {

struct Published {
  RotaryEmbedding rope;
  int head_dim;
  double scale;
  std::vector<std::pair<int, double>> angles;  ///< of some pairs, as floats
};

RotaryEmbedding rope_of(const char* model) { return load_model(model)->constants->rope; }

/// By _compute_llama3_parameters and _compute_yarn_parameters of transformers 5 on PyTorch 2.15.
std::vector<Published> published() {
  return {{rope_of("llama3.1-8b"),
           128,
           1,
           {{0, 1.0},
            {20, 0.016560440883040428},
            {27, 0.003942275885492563},
            {30, 0.0013718936825171113},
            {33, 0.0003126936499029398},
            {36, 7.784655463183299e-05},
            {63, 3.068925877869333e-07}}},
          {rope_of("llama3.2-1b"),
           64,
           1,
           {{0, 1.0},
            {14, 0.0032114461064338684},
            {15, 0.0012905480107292533},
            {16, 0.000429556705057621},
            {17, 9.708286233944818e-05},
            {31, 9.418306490260875e-08}}},
          {rope_of("gpt-oss-20b"),
           64,
           1.3465735902799727,
           {{0, 1.0},
            {5, 0.15532298386096954},
            {9, 0.031705696135759354},
            {12, 0.006794959306716919},
            {15, 0.00105260219424963},
            {18, 3.830881178146228e-05},
            {31, 3.023511396804679e-07}}},
          {{.theta = 1e6,
            .scaling = RopeScaling::yarn,
            .factor = 4,
            .original_positions = 32'768,
            .attention_factor = 1.138629436111989},
           128,
           1.138629436111989,
           {{0, 1.0},
            {15, 0.03924189880490303},
            {24, 0.005375321488827467},
            {30, 0.0010643609566614032},
            {36, 0.0001798411540221423},
            {40, 4.4456985051510856e-05},
            {63, 3.102344408034696e-07}}}};
}

TEST_CASE("scaled rotary frequencies equal those of transformers to the last place of a float") {
  for (const Published& each : published()) {
    const RotaryFrequencies got = rotary_frequencies(each.rope, each.head_dim);
    REQUIRE(got.angles.size() == static_cast<std::size_t>(each.head_dim / 2));
    CHECK(got.scale == Approx(each.scale).epsilon(1e-15));
    for (const auto& [pair, angle] : each.angles) {
      CAPTURE(each.head_dim, pair);
      constexpr double kFloat = 2e-6;  // a float's power, product and quotient
      CHECK(got.angles[static_cast<std::size_t>(pair)] == Approx(angle).epsilon(kFloat));
    }
  }
}

TEST_CASE("without scaling pair i turns by theta^(-2i/d), with linear scaling by a part of it") {
  const RotaryFrequencies plain = rotary_frequencies({.theta = 500'000}, 10);
  const RotaryFrequencies linear =
      rotary_frequencies({.theta = 500'000, .scaling = RopeScaling::linear, .factor = 4}, 10);
  REQUIRE(plain.angles.size() == 5);
  for (std::size_t i = 0; i < 5; ++i) {
    CHECK(plain.angles[i] == Approx(std::pow(500'000, -static_cast<double>(i) / 5)));
    CHECK(linear.angles[i] == plain.angles[i] / 4);
  }
  CHECK(plain.scale == 1);
}

TEST_CASE("equal bounds of a scaling give a step, not a division by zero") {
  RotaryEmbedding rope = rope_of("llama4-scout");
  REQUIRE(rope.low_frequency_factor == rope.high_frequency_factor);
  for (const double angle : rotary_frequencies(rope, 128).angles) CHECK(angle > 0);
  rope = rope_of("kimi-k2");
  REQUIRE(rope.beta_fast == rope.beta_slow);
  for (const double angle : rotary_frequencies(rope, 64).angles) CHECK(angle > 0);
  rope.beta_fast = rope.beta_slow = 1e6;  // before the first pair: both bounds are 0
  for (const double angle : rotary_frequencies(rope, 64).angles) CHECK(angle > 0);
}

}  // namespace
}  // namespace echelon
