#include "core/plan/quantized_weights.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "core/base/did_you_mean.hpp"
#include "core/base/text.hpp"

namespace echelon {

namespace {

constexpr std::string_view kNf4 = "nf4";

Error unknown_storage(std::string_view format, const std::string& where) {
  const std::string expected = "nf4, or with options as in nf4:double-quant";
  if (format == "int8" || format == "8bit" || format == "llm-int8") {
    return input_error(where, in_quotes(format), expected,
                       "weights in 8 bits (LLM.int8()) have no price: their products run in int8 "
                       "next to those of outliers in 16 bits");
  }
  if (format == "fp4" || format == "4bit" || format == "int4") {
    return input_error(where, in_quotes(format), expected,
                       "bitsandbytes' fp4 takes the bytes and the time of nf4");
  }
  return input_error(where, "unknown format of quantised weights " + in_quotes(format), expected,
                     did_you_mean(format, std::vector{std::string(kNf4)}));
}

struct StorageOption {
  std::string_view name;
  bool QuantizedWeights::*member;
};
constexpr std::array kStorageOptions = {
    StorageOption{"double-quant", &QuantizedWeights::double_quant},
    StorageOption{"fp32-norms", &QuantizedWeights::fp32_norms},
    StorageOption{"fp32-rest", &QuantizedWeights::fp32_rest}};

Error unknown_storage_option(std::string_view name, const std::string& where) {
  std::vector<std::string> known;
  for (const StorageOption& each : kStorageOptions) known.emplace_back(each.name);
  return input_error(where, "unknown option of quantised weights " + in_quotes(name),
                     "double-quant (bnb_4bit_use_double_quant), fp32-norms "
                     "(peft_module_casting_to_bf16) or fp32-rest (prepare_model_for_kbit_training)",
                     did_you_mean(name, known));
}

}  // namespace

std::string QuantizedWeights::text() const {
  std::string out(kNf4);
  for (const StorageOption& each : kStorageOptions) {
    if (!(this->*each.member)) continue;
    out += out == kNf4 ? ":" : ",";
    out += each.name;
  }
  return out;
}

Result<QuantizedWeights> parse_quantized_weights(std::string_view text, const std::string& where) {
  const std::size_t colon = text.find(':');
  const std::string_view format = text.substr(0, colon);
  if (format != kNf4) return unknown_storage(format, where);
  QuantizedWeights out;
  if (colon == std::string_view::npos) return out;
  for (std::string_view rest = text.substr(colon + 1);;) {
    const std::size_t comma = rest.find(',');
    const std::string_view name = rest.substr(0, comma);
    const auto* option = std::ranges::find(kStorageOptions, name, &StorageOption::name);
    if (option == kStorageOptions.end()) return unknown_storage_option(name, where);
    out.*option->member = true;
    if (comma == std::string_view::npos) return out;
    rest.remove_prefix(comma + 1);
  }
}

}  // namespace echelon
