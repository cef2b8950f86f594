#include "interop/configs/unread_files.hpp"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "interop/configs/import.hpp"

namespace echelon {

namespace {

/// Files that are no configuration of a framework that is read; single settings have the same
/// names.
struct UnreadFile {
  std::string_view found;
  std::vector<std::string_view> keys;  ///< that it is recognized by, all of them
  std::string_view instead;
};

const std::vector<UnreadFile>& unread_files() {
  static const std::vector<UnreadFile> kFiles = {
      {"a plan of this program",
       {"hashes.contents", "request.model.name"},
       "plan predict, explain, compare and export take it as a word, without --from"},
      {"a model of HuggingFace", {"model_type", "vocab_size"}, "--model takes it"},
      {"a configuration of LLaMA-Factory",
       {"finetuning_type"},
       "the JSON that its setting deepspeed names is read, with --model, --gpus, --precision, "
       "--seq (cutoff_len), --microbatch (per_device_train_batch_size), --global-batch, and "
       "--recompute full unless it has disable_gradient_checkpointing; adapters are --lora RANK"},
      {"a configuration of GPT-NeoX",
       {"pipe_parallel_size", "model_parallel_size"},
       "its JSON for DeepSpeed lacks the degrees: --model, --gpus, --tp (model_parallel_size), "
       "--pp (pipe_parallel_size) and the others to plan predict --framework megatron-deepspeed"},
      {"a configuration of GPT-NeoX",
       {"pipe-parallel-size", "model-parallel-size"},
       "its JSON for DeepSpeed lacks the degrees: --model, --gpus, --tp (model-parallel-size), "
       "--pp (pipe-parallel-size) and the others to plan predict --framework megatron-deepspeed"},
      {"a configuration of axolotl",
       {"base_model", "micro_batch_size"},
       "the JSON that its setting deepspeed names is read, with --model, --gpus, --precision, "
       "--seq (sequence_len), --microbatch (micro_batch_size), --global-batch, and --recompute "
       "full where it has gradient_checkpointing; adapters are --lora RANK"},
      {"arguments of HuggingFace's trainer with FSDP",
       {"fsdp"},
       "they as flags: plan predict --framework fsdp1 --zero 3 (full_shard; 2 is shard_grad_op), "
       "with --model, --gpus, --precision, --seq, --microbatch (per_device_train_batch_size), "
       "--global-batch, and --recompute full where they have gradient_checkpointing"},
  };
  return kFiles;
}

}  // namespace

std::optional<Error> refuse_unread(const ConfigDocument& document) {
  for (const UnreadFile& file : unread_files()) {
    const bool is_it = std::ranges::all_of(file.keys, [&](std::string_view key) {
      const ConfigEntry* entry = document.find(key);
      return entry != nullptr && !entry->value.joined().empty() &&
             !same_word(entry->value.joined(), "false");
    });
    if (!is_it) continue;
    return input_error(document.name, std::string(file.found),
                       "a configuration of a training framework", std::string(file.instead));
  }
  return std::nullopt;
}

}  // namespace echelon
