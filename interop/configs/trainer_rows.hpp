// Rows of trainers around transformers' models, which leave sharding to DeepSpeed, FSDP or DDP.
#pragma once

#include "interop/configs/rows.hpp"

namespace echelon {

/// What shards the states of a trainer's run.
enum class Sharder { ddp, fsdp, deepspeed };
[[nodiscard]] Sharder sharder_of(const ConfigReading& reading);

/// The format that spells its settings: DeepSpeed's or accelerate's.
[[nodiscard]] const ConfigFormat& format_of(Sharder sharder);

[[nodiscard]] ConfigRow sharders_framework_row();
/// Degrees and sharding: as the formats of DeepSpeed and accelerate read them, whose settings stand
/// in the trainer's file or in one that it names.
[[nodiscard]] std::vector<ConfigRow> sharding_rows();
void add_sharders_unpriced(ConfigFormat& format);

/// "full_shard auto_wrap", the trainer's argument, as accelerate's setting. Source: transformers
/// 5.24, src/transformers/training_args.py, _apply_legacy_fsdp_to_config.
void take_fsdp_argument(ConfigDocument& document);
/// fsdp_config.version as fsdp_config.fsdp_version: transformers and axolotl take both.
void take_fsdp_prefixes(ConfigDocument& document);

/// The recipe of "bf16", "fp16" or "fp32": DeepSpeed keeps 16-bit weights and an fp32 copy of them,
/// accelerate's FSDP and LLaMA-Factory's DDP trained weights in fp32. Source: accelerate v1.15,
/// src/accelerate/accelerator.py and utils/fsdp_utils.py, upcasts where mixed_precision is not no;
/// LLaMA-Factory ff6d4d12e, src/llamafactory/model/adapter.py, cast_trainable_params_to_fp32.
[[nodiscard]] std::string precision_of_sharder(const ConfigReading& reading,
                                               std::string_view width);
/// Optimizers other than AdamW, whose states and steps have no price.
void add_other_optimizer(const ConfigReading& reading, std::string_view key,
                         std::vector<std::string>& out);

/// A switch of a YAML file; an error where it is neither on nor off.
[[nodiscard]] Result<std::optional<bool>> switch_at(const ConfigReading& reading,
                                                    std::string_view key);
/// A switch, off where it is not stated.
[[nodiscard]] MaybeValue read_switch(const ConfigRow&, const ConfigReading&);
/// By its name in the catalog or on the Hub, or its folder, also from the file's, or the last part
/// of its name, whoever publishes it; of others --model is asked for.
[[nodiscard]] MaybeValue read_named_model(const ConfigRow&, const ConfigReading&);
/// The microbatch under the trainer's key or DeepSpeed's, which transformers refuses where they
/// differ (integrations/deepspeed.py, fill_match); of neither the trainer's default.
[[nodiscard]] ConfigRow microbatch_row(std::string_view key, std::string_view absent);

/// Key: gradient accumulation, in which the trainer's file and DeepSpeed's have to agree.
[[nodiscard]] MaybeValue read_trainer_batch(const ConfigRow&, const ConfigReading&);

/// Ranks that launchers start. Keys: two of all ranks; pairs of ranks on a node, nodes.
[[nodiscard]] MaybeValue read_started_ranks(const ConfigRow&, const ConfigReading&);
/// … as accelerate, Ray and torchrun are told of them in a trainer's file.
[[nodiscard]] ConfigRow started_ranks_row();

}  // namespace echelon
