// Frozen weights in 4 bits: text and bytes.
#include "core/plan/quantized_weights.hpp"

#include "tests/support/catch.hpp"

using namespace echelon;

namespace {

QuantizedWeights quantized(std::string_view text) {
  return parse_quantized_weights(text, "").value();
}

std::string quantized_refusal(std::string_view text) {
  const auto parsed = parse_quantized_weights(text, "--quantized-weights");
  return parsed ? "none" : parsed.error().message();
}

}  // namespace

TEST_CASE("quantised weights are read as they are written") {
  for (const char* text :
       {"nf4", "nf4:double-quant", "nf4:fp32-norms", "nf4:double-quant,fp32-rest"}) {
    CAPTURE(text);
    CHECK(quantized(text).text() == text);
  }
  CHECK(quantized("nf4:fp32-rest,double-quant") == quantized("nf4:double-quant,fp32-rest"));
  CHECK_FALSE(quantized("nf4").double_quant);
}

TEST_CASE("other formats and options are refused with what is allowed") {
  const auto says = [](std::string_view text, const char* part) {
    CAPTURE(text, quantized_refusal(text));
    return quantized_refusal(text).find(part) != std::string::npos;
  };
  CHECK(says("nf8", "did you mean 'nf4'?"));
  CHECK(says("", "nf4, or with options as in nf4:double-quant"));
  CHECK(says("int8", "weights in 8 bits (LLM.int8()) have no price"));
  CHECK(says("fp4", "fp4 takes the bytes and the time of nf4"));
  CHECK(says("nf4:", "unknown option of quantised weights ''"));
  CHECK(says("nf4:double", "did you mean 'double-quant'?"));
  CHECK(says("nf4:double-quant,bf16", "fp32-rest (prepare_model_for_kbit_training)"));
  CHECK(says("nf4:fp32-norm", "did you mean 'fp32-norms'?"));
}

// Counted of the modules of transformers 5.18 and bitsandbytes 0.50.2: Llama of 2 layers, hidden
// 512, MLP 1,376, 8 heads over 2, whose Linear4bit hold 5,537,792 parameters.
TEST_CASE("packed weights and constants have the bytes of bitsandbytes' modules") {
  constexpr double kParameters = 5'537'792;
  CHECK(QuantizedWeights::kPayload * kParameters == 2'768'896);
  CHECK(quantized("nf4").constants() * kParameters == 346'112);
  CHECK(quantized("nf4:double-quant").constants() * kParameters == Approx(87'880));
}

TEST_CASE("unpacking writes 2 bytes per parameter, with double quantisation the constants first") {
  CHECK(quantized("nf4").unpacking() == Approx(0.5 + 1.0 / 16 + 2));
  CHECK(quantized("nf4:double-quant").unpacking() == Approx(0.5 + 1.0 / 16 + 2 + 13.0 / 64));
  CHECK(quantized("nf4").unpacking_kernels() == 1);
  CHECK(quantized("nf4:double-quant").unpacking_kernels() == 3);
}
