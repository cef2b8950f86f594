// How measured runs say that they keep frozen weights in 4 bits.
#include <variant>

#include "evaluation/run_mapping.hpp"
#include "tests/evaluation/table_rows.hpp"

namespace echelon {

TEST_CASE("a task says how weights under adapters are kept") {
  const auto kept = [](std::string_view id) {
    return mapped(row_of(whole_table(), id)).job.quantized_weights;
  };
  CHECK(kept("answerai-0001") == QuantizedWeights{.double_quant = true});
  CHECK(kept("answerai-0003") == std::nullopt);
  CHECK(kept("fms-acceleration-0009") ==
        QuantizedWeights{.double_quant = true, .fp32_norms = true});
  MeasuredRun eight_bits = row_of(whole_table(), "fms-acceleration-0009");
  eight_bits.task = "lora 16:linear_qkv int8";
  const auto result = RunMapper().map(eight_bits);
  REQUIRE(std::holds_alternative<SkippedRun>(result));
  CHECK(std::get<SkippedRun>(result).reason.find("have no price") != std::string::npos);
}

}  // namespace echelon
