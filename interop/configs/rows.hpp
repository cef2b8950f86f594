// Rows whose values several formats compute in the same way; their keys are the formats' own.
#pragma once

#include "interop/configs/format.hpp"

namespace echelon {

using RowWriter = void (*)(const ConfigRow&, const RunConfig&, ConfigDocument&);
using RowReader = MaybeValue (*)(const ConfigRow&, const ConfigReading&);

[[nodiscard]] ReadValue derived(std::string text, std::string from);
[[nodiscard]] ReadValue derived(std::int64_t number, std::string from);
[[nodiscard]] ReadValue assumed(std::string text, std::string from = "the default");
/// What stands behind the key, or `usual`.
[[nodiscard]] MaybeValue found_or(const ConfigReading& reading, std::string_view key,
                                  std::string_view usual);
/// Whether the key has this value.
[[nodiscard]] bool says(const ConfigReading& reading, std::string_view key, std::string_view value);
/// The whole number behind an entry.
[[nodiscard]] Result<int> number_of(const ConfigReading& reading, const ConfigEntry& entry);
/// The number behind the first of these keys that there is; nothing without one.
[[nodiscard]] Result<std::optional<int>> number_at(const ConfigReading& reading,
                                                   std::string_view key);
void write_number(ConfigDocument& out, std::string_view key, std::int64_t number);
/// Of cases with the field's value the first, which is written; of precisions else the nearest;
/// null: no case has it, and the comparison finds it.
[[nodiscard]] const ConfigCase* written_case(const ConfigRow& row, const RunConfig& config);
/// The settings of the written case.
void write_choice(const ConfigRow& row, const RunConfig& config, ConfigDocument& out);

/// The setting that names another file of the format; null: none does.
[[nodiscard]] const ConfigEntry* names_other_file(const ConfigReading& reading);

/// Where a script with transformers says how its frozen weights are kept.
inline constexpr std::string_view kQuantizedElsewhere =
    "BitsAndBytesConfig of transformers: load_in_4bit, bnb_4bit_quant_type nf4, where FSDP or "
    "ZeRO-3 shards them bnb_4bit_quant_storage bfloat16; double-quant is "
    "bnb_4bit_use_double_quant, fp32-rest prepare_model_for_kbit_training of PEFT, fp32-norms "
    "peft_module_casting_to_bf16 of TRL";

/// Adapters and weights in 4 bits, as trainers of transformers' models state them; what they leave
/// open, and what has no price.
[[nodiscard]] std::vector<ConfigRow> adapter_rows();
[[nodiscard]] std::vector<AskedSetting> asked_of_adapters();
[[nodiscard]] std::vector<UnpricedSetting> unpriced_of_adapters();
void add_unpriced_adapters(const ConfigReading& reading, std::vector<std::string>& out);

/// Layers of a trainer of transformers: its own modules, unless its arguments or accelerate's file
/// ask for Liger's kernels or for torch.compile.
[[nodiscard]] ConfigRow layer_code_row();

// Fields that follow from others.
[[nodiscard]] MaybeValue dp_of_gpus(const ConfigRow&, const ConfigReading&);  ///< gpus/(tp·cp·pp)
[[nodiscard]] MaybeValue schedule_of_vpp(const ConfigRow&, const ConfigReading&);
[[nodiscard]] MaybeValue group_of_vpp(const ConfigRow&, const ConfigReading&);
[[nodiscard]] MaybeValue whole_zero_group(const ConfigRow&, const ConfigReading&);  ///< dp·cp
/// One number for each stage: all layers with full recomputation, else none.
[[nodiscard]] MaybeValue recompute_all(const ConfigRow&, const ConfigReading&);
/// As the framework of the run deals them, or as equally as can be.
[[nodiscard]] MaybeValue dealt_stages(const ConfigRow&, const ConfigReading&);
[[nodiscard]] MaybeValue no_layers(const ConfigRow&, const ConfigReading&);  ///< an empty list
[[nodiscard]] MaybeValue overlap_of_interleaving(const ConfigRow&, const ConfigReading&);
[[nodiscard]] MaybeValue head_dim_of_heads(const ConfigRow&, const ConfigReading&);
[[nodiscard]] MaybeValue sequence_parallel_of_tp(const ConfigRow&, const ConfigReading&);
/// Of experts: tp, as the framework takes it by default; 1 for a dense model.
[[nodiscard]] MaybeValue etp_is_tp(const ConfigRow&, const ConfigReading&);

/// GPUs = ranks per node x nodes; keys: those of torchrun, then those of Slurm.
void write_launcher(const ConfigRow&, const RunConfig&, ConfigDocument&);
[[nodiscard]] MaybeValue read_launcher(const ConfigRow&, const ConfigReading&);

/// The precision, by Megatron-LM's options, and what they say that it does not have.
[[nodiscard]] ConfigRow megatron_precision_row();
void add_what_fp8_leaves_open(const ConfigReading& reading, std::vector<std::string>& out);
/// The model, by Megatron-LM's options; after the first, the parts of its attention.
[[nodiscard]] std::vector<ConfigRow> megatron_model_rows();
[[nodiscard]] std::vector<ConfigRow> megatron_attention_rows();
/// Its layers, their kinds and prediction modules, and the state spaces of hybrid models.
[[nodiscard]] std::vector<ConfigRow> megatron_layer_rows();
[[nodiscard]] std::vector<ConfigRow> megatron_mamba_rows();
[[nodiscard]] std::vector<ConfigRow> megatron_rotary_rows();
[[nodiscard]] std::vector<ConfigRow> megatron_router_rows();
/// For each layer of "([1]*3+[0]*1)*8" whether it has the feature; and that text, also of a list
/// that a run printed.
[[nodiscard]] std::string layer_pattern_text(const ConfigEntry& entry);
[[nodiscard]] Result<std::vector<bool>> parse_layer_pattern(std::string_view text,
                                                            std::string_view where);
/// --moe-layer-freq: "([0]*3+[1]*58)", an entry for each layer; or a number, the first of every so
/// many.
void write_moe_layers(const ConfigRow&, const RunConfig&, ConfigDocument&);
[[nodiscard]] MaybeValue read_first_dense(const ConfigRow&, const ConfigReading&);
[[nodiscard]] MaybeValue read_every(const ConfigRow&, const ConfigReading&);
/// Whether linear layers have biases: without --disable-bias-linear.
[[nodiscard]] bool megatron_has_biases(const ConfigReading& reading);
/// Norms of queries and keys.
[[nodiscard]] ConfigRow megatron_qk_norm_row();
/// The context, or the sequence where it is longer and positions are no table.
void write_context(const ConfigRow&, const RunConfig&, ConfigDocument&);

// Megatron-LM's and its descendants' rows. Keys: chunks per rank; layers per chunk; layout.
void write_vpp(const ConfigRow&, const RunConfig&, ConfigDocument&);
[[nodiscard]] MaybeValue read_vpp(const ConfigRow&, const ConfigReading&);
/// Keys: layout; layers of the first, of the last stage; embedding, loss counted as a layer; then
/// perhaps the switch for a first stage with the embedding alone.
void write_stage_layers(const ConfigRow&, const RunConfig&, ConfigDocument&);
[[nodiscard]] MaybeValue read_stage_layers(const ConfigRow&, const ConfigReading&);
/// The sums of chunks per stage; an error if they are not the model's layers.
[[nodiscard]] MaybeValue stages_of_chunks(const ConfigReading& reading, const std::string& place,
                                          const std::vector<int>& chunks);
/// A group of more microbatches than pp, which is the default.
void write_group_of_microbatches(const ConfigRow&, const RunConfig&, ConfigDocument&);
/// The same of Megatron-LM itself, where the pattern of a hybrid model states the chunks.
void write_megatron_vpp(const ConfigRow&, const RunConfig&, ConfigDocument&);
[[nodiscard]] MaybeValue read_megatron_vpp(const ConfigRow&, const ConfigReading&);
void write_megatron_stages(const ConfigRow&, const RunConfig&, ConfigDocument&);
[[nodiscard]] MaybeValue read_megatron_stages(const ConfigRow&, const ConfigReading&);
/// Why layers of a hybrid model get lost; "" for all other fields.
[[nodiscard]] std::string why_megatron_loses(const ConfigField& field, const RunConfig& config);
/// Keys: layers, method; perhaps their names in older releases. Layers recomputed fully: so many
/// of each chunk.
void write_recompute_layers(const ConfigRow&, const RunConfig&, ConfigDocument&);
[[nodiscard]] MaybeValue read_recompute_layers(const ConfigRow&, const ConfigReading&);
/// Key: copies of the sharded state (--num-distributed-optimizer-instances).
void write_instances(const ConfigRow&, const RunConfig&, ConfigDocument&);
[[nodiscard]] MaybeValue read_instances(const ConfigRow&, const ConfigReading&);
/// Key: bucket size in gradients.
void write_bucket(const ConfigRow&, const RunConfig&, ConfigDocument&);
[[nodiscard]] MaybeValue read_bucket(const ConfigRow&, const ConfigReading&);
/// Why the plan has no size of a bucket, whatever the file says; "" where it has one. Frameworks
/// have the setting in such plans too: DeepSpeed edaa7221, runtime/zero/stage3.py:1533.
[[nodiscard]] std::string why_bucket_is_unused(const ConfigReading& reading);
/// The size of buckets in which a plan without a setting for it reduces.
void add_unused_bucket(const ConfigReading& reading, std::vector<std::string>& out);
/// Key: sequences per step; without it microbatch x dp.
[[nodiscard]] MaybeValue read_global_batch(const ConfigRow&, const ConfigReading&);
/// Keys: sequences of one microbatch … gradient accumulation: global batch = mbs·accumulation·dp.
void write_accumulation(const ConfigRow&, const RunConfig&, ConfigDocument&);
[[nodiscard]] MaybeValue read_accumulation(const ConfigRow&, const ConfigReading&);

/// LLM Foundry's model.
[[nodiscard]] std::vector<ConfigRow> llm_foundry_model_rows();

// torchtitan's rows, of its TOML files and of its Python recipes.

/// Writes the modules of each chunk; the second with the name that the head has since 2026.
void write_titan_modules(const ConfigRow&, const RunConfig&, ConfigDocument&);
void write_titan_recipe_modules(const ConfigRow&, const RunConfig&, ConfigDocument&);
/// Key: the dispatcher of experts, "standard" where it is alltoall.
[[nodiscard]] MaybeValue read_titan_dispatcher(const ConfigRow&, const ConfigReading&);
/// tp, cp, pp, ep.
[[nodiscard]] std::vector<ConfigRow> titan_degree_rows();
/// Schedule, chunks, layers per stage, ZeRO and its group.
[[nodiscard]] std::vector<ConfigRow> titan_layout_rows(void (*write_modules)(const ConfigRow&,
                                                                             const RunConfig&,
                                                                             ConfigDocument&));
/// Microbatch and global batch in sequences, as releases up to v0.3.0 state them.
[[nodiscard]] std::vector<ConfigRow> titan_batch_rows();
/// The function that a recipe imports, and its model where that is another one.
void write_registry_model(const RunConfig& config, ConfigDocument& document);
/// Adds what the function that a recipe imports sets itself, where the recipe does not, with the
/// keys of v0.3.0, or with those of main, which count tokens. A function that is not known is an
/// entry of its own.
void add_release_settings(ConfigDocument& document);
void add_main_settings(ConfigDocument& document);
/// What follows recomputation; `async_tp`: the key of asynchronous tensor parallelism.
[[nodiscard]] std::vector<ConfigRow> titan_end_rows(std::string_view async_tp);

// Recomputed modules, dispatcher and overlap of experts, CUDA graphs.

/// Megatron-LM's options, or a descendant's. Source: Megatron-LM core_v0.16.1,
/// megatron/training/arguments.py, and d98e8a64, docs/cuda_graph.md.
struct ExpertKeys {
  std::string_view modules = "recompute-modules";
  std::string_view moe_recompute = "moe-layer-recompute";  ///< of core 0.8 to 0.15; "": none
  std::string_view dispatcher = "moe-token-dispatcher-type";
  std::string_view dispatcher_default = "allgather";
  std::string_view backend = "moe-flex-dispatcher-backend";
  std::string_view overlap = "overlap-moe-expert-parallel-comm";
  std::string_view delay_wgrad = "delay-wgrad-compute";  ///< comes with the overlap
  std::string_view shared_overlap = "moe-shared-expert-overlap";
  std::string_view graphs = "cuda-graph-impl";
  std::string_view graph_scope = "cuda-graph-scope";
  std::vector<ConfigSetting> whole_step = {  ///< that a graph of a whole step asks for
      {"no-check-for-nan-in-loss-and-grad", "true", false, true}};
  std::vector<ConfigSetting> any_graph{};  ///< that all graphs do
  std::string_view offload = "fine-grained-activation-offloading";
  std::string_view offload_modules = "offload-modules";
  /// Messages to the host that wait at once, which a graph of a whole step has to limit.
  std::string_view offloads_in_flight = "fine-grained-offloading-max-inflight-offloads";
};
[[nodiscard]] std::vector<ConfigRow> expert_rows(const ExpertKeys& keys);
/// Of formats that have none of these: what their software always does.
[[nodiscard]] std::vector<ConfigRow> without_expert_rows();
[[nodiscard]] std::vector<ConfigRow> without_expert_rows(ConfigRow dispatcher);
void add_rows(ConfigFormat& format, std::vector<ConfigRow> rows);

}  // namespace echelon
