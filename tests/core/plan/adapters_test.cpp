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
    return adapter_parameters(model, parse_adapters(text, "", kAll).value());
  };
  CHECK(count("16:linear_qkv") == 80 * 16 * (8192 + 8192 + 2 * 1024));
  CHECK(count("16:linear_qkv,linear_proj") == 44'564'480);
  CHECK(count("16:linear_fc1") == 80 * 16 * (8192 + 2 * 28672));
  CHECK(count("32") ==
        2 * (count("16:linear_qkv,linear_proj") + count("16:linear_fc1") + count("16:linear_fc2")));
}
