// Adapters as text, and their number of parameters.
#include "core/plan/adapters.hpp"

#include "core/model/model_io.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

namespace {

const AdapterTargets kAll{AdapterTarget::linear_qkv, AdapterTarget::linear_proj,
                          AdapterTarget::linear_fc1, AdapterTarget::linear_fc2};

std::string refusal(std::string_view text) {
  const Result<Adapters> read = parse_adapters(text, "--lora", kAll);
  return read ? "none" : read.error().message();
}

}  // namespace

TEST_CASE("a rank alone adapts the usual targets, and text is read as it is written") {
  const Adapters usual = parse_adapters("16", "--lora", kAll).value();
  CHECK(usual.rank == 16);
  CHECK(usual.targets == kAll);
  const Adapters two = parse_adapters("8:linear_proj,linear_qkv", "--lora", kAll).value();
  CHECK(two.text() == "8:linear_qkv,linear_proj");
  CHECK(parse_adapters(two.text(), "", {}).value() == two);
}

TEST_CASE("wrong adapters are refused with what is allowed") {
  for (const std::string_view text : {"", "0", "-1", "4097", "x:linear_qkv", ":linear_qkv"}) {
    CAPTURE(text);
    CHECK(refusal(text).find("a rank from 1 to 4,096") != std::string::npos);
  }
  CHECK(refusal("8:q_proj").find("q_proj, k_proj, v_proj are linear_qkv") != std::string::npos);
  CHECK(refusal("8:").find("unknown module to adapt ''") != std::string::npos);
  CHECK(refusal("8:linear_qkv,linear_fc3").find("did you mean 'linear_fc1'?") != std::string::npos);
}

// Llama 2 70B: hidden 8192, 64 heads of 128 over 8 key/value heads, 80 layers.
TEST_CASE("adapters have r (in + out) parameters per matrix") {
  const ModelSpec model = load_model("llama2-70b").value();
  const auto count = [&](std::string_view text) {
    return adapter_parameters(model, parse_adapters(text, "", kAll).value(), false);
  };
  CHECK(count("16:linear_qkv") == 80 * 16 * (8192 + 8192 + 2 * 1024));
  CHECK(count("16:linear_qkv,linear_proj") == 44'564'480);
  CHECK(count("16:linear_fc1") == 80 * 16 * (8192 + 2 * 28672));
  CHECK(count("32") ==
        2 * (count("16:linear_qkv,linear_proj") + count("16:linear_fc1") + count("16:linear_fc2")));
}

// Printed by PEFT's print_trainable_parameters for target_modules "all-linear": Llama 2 7B at rank
// 64 (159,907,840), and a Llama of 2 layers, hidden 512, MLP 1,376, 8 heads over 2, at rank 8.
TEST_CASE("PEFT gives each linear module an adapter of its own") {
  ModelSpec model = load_model("llama2-7b").value();
  CHECK(adapter_parameters(model, parse_adapters("64", "", kAll).value(), true) == 159'907'840);
  CHECK(adapter_parameters(model, parse_adapters("64", "", kAll).value(), false) < 159'907'840);
  model.layers = 2;
  model.hidden = 512;
  model.ffn_hidden = 1376;
  model.heads = 8;
  model.kv_heads = 2;
  model.head_dim = 64;
  CHECK(adapter_parameters(model, parse_adapters("8", "", kAll).value(), true) == 143'872);
}
