#include "interop/configs/unread_files.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/text.hpp"
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
      {"a configuration of GPT-NeoX",
       {"pipe_parallel_size", "model_parallel_size"},
       "its JSON for DeepSpeed lacks the degrees: --model, --gpus, --tp (model_parallel_size), "
       "--pp (pipe_parallel_size) and the others to plan predict --framework megatron-deepspeed"},
      {"a configuration of GPT-NeoX",
       {"pipe-parallel-size", "model-parallel-size"},
       "its JSON for DeepSpeed lacks the degrees: --model, --gpus, --tp (model-parallel-size), "
       "--pp (pipe-parallel-size) and the others to plan predict --framework megatron-deepspeed"},
      {"arguments of HuggingFace's trainer with FSDP",
       {"fsdp"},
       "they as flags: plan predict --framework fsdp1 --zero 3 (full_shard; 2 is shard_grad_op), "
       "with --model, --gpus, --precision, --seq, --microbatch (per_device_train_batch_size), "
       "--global-batch, and --recompute full where they have gradient_checkpointing"},
  };
  return kFiles;
}

bool is_off(const ConfigEntry& entry) {
  const std::string text = entry.value.joined();
  return text.empty() || same_word(text, "false") || same_word(text, "no") || text == "null" ||
         text == "~" || same_word(text, "none");
}

}  // namespace

std::optional<Error> refuse_unread(const ConfigDocument& document) {
  for (const UnreadFile& file : unread_files()) {
    const bool is_it = std::ranges::all_of(file.keys, [&](std::string_view key) {
      const ConfigEntry* entry = document.find(key);
      return entry != nullptr && !is_off(*entry);
    });
    if (!is_it) continue;
    return input_error(document.name, std::string(file.found),
                       "a configuration of a training framework", std::string(file.instead));
  }
  return std::nullopt;
}

Status check_refused(const ConfigFormat& format, const ConfigDocument& document) {
  for (const RefusedSetting& each : format.refused) {
    const ConfigEntry* entry = document.find(each.key);
    if (entry == nullptr || is_off(*entry)) continue;
    const ConfigEntry* unless = each.unless.empty() ? nullptr : document.find(each.unless);
    if (unless != nullptr && !is_off(*unless)) continue;
    const std::string text = entry->value.joined();
    const auto same = [&](std::string_view allowed) { return same_word(allowed, text); };
    if (std::ranges::any_of(each.allowed, same)) continue;
    const std::string key = entry->spelled.empty() ? entry->key : entry->spelled;
    return input_error(document.place(*entry),
                       fmt::format("{} = {}, which {}", key, printable(text, 80), each.what),
                       each.allowed.empty() ? fmt::format("a file of {} without it", format.title)
                                            : fmt::format("{}", fmt::join(each.allowed, " or ")),
                       std::string(each.instead));
  }
  return Done{};
}

}  // namespace echelon
