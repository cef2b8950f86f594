// PEFT's description of adapters.
#include "core/json/json_io.hpp"
#include "runtime/io/weights/huggingface.hpp"

namespace echelon {

/// Source: PEFT 5d602fdb, src/peft/tuners/lora/config.py. Without the name of a model: the weights
/// that were trained on are the user's to name.
std::string peft_config(const PeftConfig& config) {
  return Json{{"peft_type", "LORA"},
              {"task_type", "CAUSAL_LM"},
              {"base_model_name_or_path", nullptr},
              {"inference_mode", true},
              {"r", config.rank},
              {"lora_alpha", config.alpha},
              {"lora_dropout", 0.0},
              {"bias", "none"},
              {"fan_in_fan_out", config.conv1d},
              {"target_modules", config.modules}}
             .dump(2) +
         "\n";
}

}  // namespace echelon
