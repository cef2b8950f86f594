// Megatron-LM's options.
#include "interop/configs/rows.hpp"

namespace echelon {

namespace {

using P = ParallelPlan;
using M = ModelSpec;
using X = MixtureOfExperts;
using L = LatentAttention;

constexpr std::string_view kWorldSize = "world-size";

/// Source: Megatron-LM d98e8a64, megatron/training/arguments.py, validate_args: 4h, or two thirds
/// of it in multiples of 64 with --swiglu.
MaybeValue ffn_width(const ConfigRow& row, const ConfigReading& reading) {
  if (const ConfigEntry* entry = reading.find(row.keys)) {
    const Result<int> width = number_of(reading, *entry);
    if (!width) return width.error();
    return std::optional(ReadValue{std::to_string(*width), Origin::found, reading.place(*entry)});
  }
  const std::int64_t hidden = reading.config.model.hidden;
  if (hidden <= 0) return std::optional<ReadValue>{};
  const bool gated = reading.config.model.gated_mlp;
  return std::optional(
      derived(gated ? 4 * hidden * 2 / 3 / 64 * 64 : 4 * hidden,
              gated ? "8/3 of the hidden size, in multiples of 64" : "4 times the hidden size"));
}

void write_kv_heads(const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
  if (config.model.kv_heads == config.model.heads) return;
  out.set(row.keys[0], scalar("true"));
  write_number(out, row.keys[1], config.model.kv_heads);
}

MaybeValue read_kv_heads(const ConfigRow& row, const ConfigReading& reading) {
  const ConfigEntry* grouped = reading.find(row.keys[0]);
  const ConfigEntry* groups = reading.find(row.keys[1]);
  if (grouped != nullptr && groups != nullptr) {
    const Result<int> heads = number_of(reading, *groups);
    if (!heads) return heads.error();
    return std::optional(ReadValue{std::to_string(*heads), Origin::found, reading.place(*groups)});
  }
  if (reading.config.model.heads <= 0) return std::optional<ReadValue>{};
  return std::optional(derived(reading.config.model.heads, "one for each attention head"));
}

/// "([0]*3+[1]*58)" or a number: every so many layers.
void write_moe_layers(const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
  const X& moe = config.model.moe;
  if (moe.experts == 0 || (moe.first_dense_layers == 0 && moe.every == 1)) return;
  std::string text = "([0]*" + std::to_string(moe.first_dense_layers) + "+[1]*" +
                     std::to_string(config.model.layers - moe.first_dense_layers) + ")";
  if (moe.first_dense_layers == 0) text = std::to_string(moe.every);
  out.set(row.keys[0], quoted(text));
}

MaybeValue read_first_dense(const ConfigRow& row, const ConfigReading& reading) {
  const ConfigEntry* entry = reading.find(row.keys);
  if (entry == nullptr) return std::optional(ReadValue{"0", Origin::assumed, "the default"});
  std::string text = entry->value.joined();
  int dense = 0;
  const std::size_t zeros = text.find("[0]*");
  if (zeros != std::string::npos) {
    for (std::size_t i = zeros + 4; i < text.size() && text[i] >= '0' && text[i] <= '9'; ++i) {
      dense = std::min(10 * dense + (text[i] - '0'), 100'000);
    }
  }
  return std::optional(ReadValue{std::to_string(dense), Origin::found, reading.place(*entry)});
}

MaybeValue read_every(const ConfigRow& row, const ConfigReading& reading) {
  const ConfigEntry* entry = reading.find(row.keys);
  if (entry == nullptr || entry->value.first().text.find('[') != std::string::npos) {
    return std::optional(ReadValue{"1", Origin::assumed, "the default"});
  }
  const Result<int> every = number_of(reading, *entry);
  if (!every) return every.error();
  return std::optional(ReadValue{std::to_string(*every), Origin::found, reading.place(*entry)});
}

void write_cpu_offload(const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
  if (config.plan.offload_optimizer <= 0) return;
  out.set(row.keys[0], scalar("true"));
  out.set(row.keys[1], scalar(text_of(row.field, config)));
  out.set(row.keys[2], scalar("true"));
}

MaybeValue read_cpu_offload(const ConfigRow& row, const ConfigReading& reading) {
  const ConfigEntry* on = reading.find(row.keys[0]);
  if (on == nullptr) return std::optional(ReadValue{"0", Origin::assumed, "the default"});
  const ConfigEntry* share = reading.find(row.keys[1]);
  if (share == nullptr) return std::optional(ReadValue{"1", Origin::found, reading.place(*on)});
  return std::optional(ReadValue{share->value.first().text, Origin::found, reading.place(*share)});
}

void write_dp_overlap(const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
  if (!config.plan.overlap_dp) return;
  out.set(row.keys[0], scalar("true"));
  if (config.plan.zero > 0) out.set(row.keys[1], scalar("true"));
}

MaybeValue read_dp_overlap(const ConfigRow& row, const ConfigReading& reading) {
  const ConfigEntry* on = reading.find(row.keys[0]);
  if (on == nullptr) return std::optional(ReadValue{"false", Origin::assumed, "the default"});
  return std::optional(ReadValue{on->value.first().text, Origin::found, reading.place(*on)});
}

/// The overlap of pipeline messages: on with interleaving, unless switched off.
void write_pp_overlap(const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
  if (config.plan.vpp > 1 && !config.plan.overlap_pp) out.set(row.keys[0], scalar("true"));
}

MaybeValue read_pp_overlap(const ConfigRow& row, const ConfigReading& reading) {
  if (const ConfigEntry* off = reading.find(row.keys)) {
    return std::optional(ReadValue{"false", Origin::found, reading.place(*off)});
  }
  return overlap_of_interleaving(row, reading);
}

MaybeValue sequence_parallel(const ConfigRow& row, const ConfigReading& reading) {
  const ConfigEntry* on = reading.find(row.keys);
  if (on == nullptr) return std::optional(ReadValue{"false", Origin::assumed, "the default"});
  if (reading.config.plan.tp == 1) {
    return std::optional(derived("false", reading.place(*on) + ", which tp 1 switches off"));
  }
  return std::optional(ReadValue{"true", Origin::found, reading.place(*on)});
}

void write_switch(const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
  if (text_of(row.field, config) == "true") out.set(row.keys[0], scalar("true"));
}

/// The padded one is in arguments that a run printed, where the tokenizer brings the vocabulary.
MaybeValue read_vocabulary(const ConfigRow& row, const ConfigReading& reading) {
  const ConfigEntry* entry = reading.find(row.keys);
  if (entry == nullptr) return std::optional<ReadValue>{};
  return std::optional(ReadValue{entry->value.first().text, Origin::found, reading.place(*entry)});
}

/// Ranks that a run printed, else those that the launcher starts.
MaybeValue read_gpus(const ConfigRow& row, const ConfigReading& reading) {
  if (const ConfigEntry* all = reading.find(kWorldSize)) {
    return std::optional(ReadValue{all->value.first().text, Origin::found, reading.place(*all)});
  }
  return read_launcher(row, reading);
}

/// A width of latent attention, which is off without its switch. Keys: switch, width.
template <auto member, int width_by_default>
ConfigRow latent_row(std::string_view key) {
  return computed(
      member, {"multi-latent-attention", key},
      [](const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
        if (!config.model.latent()) return;
        out.set(row.keys[0], scalar("true"));
        if (config.model.mla.*member > 0) write_number(out, row.keys[1], config.model.mla.*member);
      },
      [](const ConfigRow& row, const ConfigReading& reading) -> MaybeValue {
        if (reading.find(row.keys[0]) == nullptr) {
          return std::optional(ReadValue{"0", Origin::assumed, "no --multi-latent-attention"});
        }
        const Result<std::optional<int>> width = number_at(reading, row.keys[1]);
        if (!width) return width.error();
        if (!*width) {
          return std::optional(
              ReadValue{std::to_string(width_by_default), Origin::assumed, "the default"});
        }
        return std::optional(ReadValue{std::to_string(**width), Origin::found,
                                       reading.place(*reading.find(row.keys[1]))});
      });
}

MaybeValue experts_per_token(const ConfigRow& row, const ConfigReading& reading) {
  if (reading.config.model.moe.experts == 0) return std::optional(derived(0, "a dense model"));
  const Result<std::optional<int>> stated = number_at(reading, row.keys[0]);
  if (!stated) return stated.error();
  return std::optional(derived(stated->value_or(2), "--moe-router-topk, by default 2"));
}

/// --disable-bias-linear takes all biases away, --add-qkv-bias adds these again.
ConfigRow qkv_bias_row() {
  ConfigRow row =
      choice(&M::qkv_bias, {{"true", {{"disable-bias-linear", "true"}, {"add-qkv-bias", "true"}}},
                            {"true", {{"add-qkv-bias", "true"}}},
                            {"false", {{"disable-bias-linear", "true"}}},
                            {"true", {}}});
  row.keys = {"add-qkv-bias"};
  row.write = [](const ConfigRow& self, const RunConfig& config, ConfigDocument& out) {
    if (config.model.qkv_bias && !config.model.mlp_bias) out.set(self.keys[0], scalar("true"));
  };
  return row;
}

std::vector<ConfigRow> model_rows() {
  return {
      plain(&M::layers, {"num-layers"}),
      plain(&M::hidden, {"hidden-size"}),
      plain(&M::heads, {"num-attention-heads"}),
      computed(&M::kv_heads, {"group-query-attention", "num-query-groups"}, write_kv_heads,
               read_kv_heads),
      choice(&M::gated_mlp, {{"true", {{"swiglu", "true"}}}, {"false", {}}}),
      choice(&M::activation, {{"silu", {{"swiglu", "true"}}},
                              {"squared_relu", {{"squared-relu", "true"}}},
                              {"gelu", {}}}),
      computed(
          &M::ffn_hidden, {"ffn-hidden-size"},
          [](const ConfigRow& row, const RunConfig& c, ConfigDocument& out) {
            write_number(out, row.keys[0], c.model.ffn_hidden);
          },
          ffn_width),
      computed(
          &M::vocab, {"vocab-size", "padded-vocab-size"},
          [](const ConfigRow& row, const RunConfig& c, ConfigDocument& out) {
            write_number(out, row.keys[0], c.model.vocab);
          },
          read_vocabulary),
      plain(&M::max_positions, {"max-position-embeddings"}, "0"),
      choice(&M::normalization, {{"rms_norm", {{"normalization", "RMSNorm"}}},
                                 {"layer_norm", {}},
                                 {"layer_norm", {{"normalization", "LayerNorm"}}}}),
      choice(&M::position, {{"rope", {{"position-embedding-type", "rope"}}},
                            {"rope", {{"use-rotary-position-embeddings", "true"}}},
                            {"none", {{"position-embedding-type", "none"}}},
                            {"rope", {{"position-embedding-type", "yarn"}}},
                            {"learned", {{"position-embedding-type", "learned_absolute"}}},
                            {"learned", {}}}),
      choice(&M::tied_embeddings,
             {{"false", {{"untie-embeddings-and-output-weights", "true"}}}, {"true", {}}}),
      choice(&M::attention_output_bias,
             {{"false", {{"disable-bias-linear", "true"}}}, {"true", {}}}),
      choice(&M::mlp_bias, {{"false", {{"disable-bias-linear", "true"}}}, {"true", {}}}),
      qkv_bias_row(),
      choice(&M::qk_norm, {{"true", {{"qk-layernorm", "true"}}}, {"false", {}}}),
      plain(&M::hidden_dropout, {"hidden-dropout"}, "0.1"),
      plain(&M::attention_dropout, {"attention-dropout"}, "0.1"),
      // Without grouped GEMMs the experts of a rank would run one after the other.
      computed(
          &X::experts, {"num-experts", "moe-grouped-gemm"},
          [](const ConfigRow& row, const RunConfig& c, ConfigDocument& out) {
            if (c.model.moe.experts == 0) return;
            write_number(out, row.keys[0], c.model.moe.experts);
            out.set(row.keys[1], scalar("true"));
          },
          [](const ConfigRow& row, const ConfigReading& reading) -> MaybeValue {
            const ConfigEntry* entry = reading.find(row.keys[0]);
            if (entry == nullptr) {
              return std::optional(ReadValue{"0", Origin::assumed, "the default"});
            }
            return std::optional(
                ReadValue{entry->value.first().text, Origin::found, reading.place(*entry)});
          }),
      computed(
          &X::experts_per_token, {"moe-router-topk"},
          [](const ConfigRow& row, const RunConfig& c, ConfigDocument& out) {
            if (c.model.moe.experts > 0) {
              write_number(out, row.keys[0], c.model.moe.experts_per_token);
            }
          },
          experts_per_token),
      plain(&X::expert_ffn_hidden, {"moe-ffn-hidden-size"}, "0"),
      plain(&X::shared_ffn_hidden, {"moe-shared-expert-intermediate-size"}, "0"),
      computed(&X::first_dense_layers, {"moe-layer-freq"}, write_moe_layers, read_first_dense),
      computed(&X::every, {"moe-layer-freq"}, nullptr, read_every),
      choice(&X::router_bias,
             {{"true", {{"moe-router-enable-expert-bias", "true"}}}, {"false", {}}}),
      choice(&X::shared_expert_gate,
             {{"true", {{"moe-shared-expert-gate", "true"}}}, {"false", {}}}),
      latent_row<&L::kv_lora_rank, 32>("kv-lora-rank"),
      latent_row<&L::q_lora_rank, 0>("q-lora-rank"),
      latent_row<&L::qk_nope_head_dim, 128>("qk-head-dim"),
      latent_row<&L::qk_rope_head_dim, 64>("qk-pos-emb-head-dim"),
      latent_row<&L::v_head_dim, 128>("v-head-dim"),
      computed(
          &M::head_dim, {"kv-channels"},
          [](const ConfigRow& row, const RunConfig& c, ConfigDocument& out) {
            if (!c.model.latent()) write_number(out, row.keys[0], c.model.head_dim);
          },
          head_dim_of_heads),
  };
}

std::vector<ConfigRow> job_rows() {
  return {
      // Options that only releases before Megatron Core had.
      choice(&RunConfig::framework, {{"megatron-core", {}},
                                     {"megatron-2021", {{"DDP-impl", "*"}}},
                                     {"megatron-2021", {{"checkpoint-activations", "true"}}},
                                     {"megatron-2021", {{"activations-checkpoint-method", "*"}}}}),
      plain(&RunConfig::sequence, {"seq-length"}),
      choice(&RunConfig::precision,
             {{"bf16:adam-fp32-master", {{"bf16", "true"}}},
              {"bf16:precision-aware",
               {{"bf16", "true"},
                {"grad-reduce-in-bf16", "true"},
                {"use-precision-aware-optimizer", "true", false, true},
                {"exp-avg-dtype", "bf16"},
                {"exp-avg-sq-dtype", "bf16"}}},
              {"bf16:adam-bf16-states",
               {{"bf16", "true"},
                {"use-precision-aware-optimizer", "true", false, true},
                {"exp-avg-dtype", "bf16"},
                {"exp-avg-sq-dtype", "bf16"}}},
              {"bf16:adam-bf16-gradients", {{"bf16", "true"}, {"grad-reduce-in-bf16", "true"}}},
              {"bf16:muon", {{"bf16", "true"}, {"optimizer", "muon"}}},
              {"fp8:mxfp8",
               {{"bf16", "true"},
                {"fp8-format", "*"},
                {"fp8-recipe", "mxfp8"},
                {"fp8-param-gather", "true"},
                {"grad-reduce-in-bf16", "true"},
                {"reuse-grad-buf-for-mxfp8-param-ag", "true", false, true}}},
              {"mxfp8:adam-fp32-master",
               {{"bf16", "true"}, {"fp8-format", "*"}, {"fp8-recipe", "mxfp8"}}},
              {"nvfp4:adam-fp32-master",
               {{"bf16", "true"}, {"fp4-format", "e2m1"}, {"fp4-recipe", "nvfp4", false, true}}},
              {"fp8:precision-aware",
               {{"bf16", "true"},
                {"fp8-format", "*"},
                {"fp8-recipe", "tensorwise"},
                {"fp8-param-gather", "true"},
                {"grad-reduce-in-bf16", "true"},
                {"use-precision-aware-optimizer", "true", false, true},
                {"exp-avg-dtype", "bf16"},
                {"exp-avg-sq-dtype", "bf16"}}},
              {"fp8:bf16-gradients",
               {{"bf16", "true"},
                {"fp8-format", "*"},
                {"fp8-recipe", "tensorwise"},
                {"fp8-param-gather", "true"},
                {"grad-reduce-in-bf16", "true"}}},
              {"fp8:blockwise",
               {{"bf16", "true"},
                {"fp8-format", "*"},
                {"fp8-recipe", "blockwise"},
                {"grad-reduce-in-bf16", "true"}}},
              {"fp16:adam-fp32-master", {{"fp16", "true"}}},
              {"fp8:primary-weights",
               {{"bf16", "true"}, {"fp8-format", "*"}, {"fp8-param-gather", "true"}}},
              {"fp8:adam-fp32-master", {{"bf16", "true"}, {"fp8-format", "*"}}},
              {"fp8:adam-fp32-master",
               {{"bf16", "true"}, {"fp8-format", "*"}, {"fp8-recipe", "delayed"}}},
              {"fp32", {}},
              {"fp32", {{"optimizer", "*"}}}}),
      choice(&RunConfig::flash_attention, {{"false", {{"attention-backend", "unfused"}}},
                                           {"false", {{"attention-backend", "local"}}},
                                           {"false", {{"DDP-impl", "*"}}},
                                           {"false", {{"checkpoint-activations", "true"}}},
                                           {"false", {{"activations-checkpoint-method", "*"}}},
                                           {"true", {}},
                                           {"true", {{"attention-backend", "*"}}}}),
      computed(&RunConfig::gpus,
               {"nproc-per-node", "nnodes", "sbatch.gpus-per-node", "sbatch.nodes",
                "sbatch.ntasks-per-node", "sbatch.nodes", "sbatch.gres", "sbatch.nodes"},
               nullptr, read_gpus),
  };
}

std::vector<ConfigRow> plan_rows() {
  return {
      plain(plan_part<&P::tp>, {"tensor-model-parallel-size"}, "1"),
      plain(plan_part<&P::cp>, {"context-parallel-size"}, "1"),
      plain(plan_part<&P::pp>, {"pipeline-model-parallel-size"}, "1"),
      plain(plan_part<&P::ep>, {"expert-model-parallel-size"}, "1"),
      computed(
          plan_part<&P::etp>, {"expert-tensor-parallel-size"},
          [](const ConfigRow& row, const RunConfig& c, ConfigDocument& out) {
            if (c.model.moe.experts > 0) write_number(out, row.keys[0], c.plan.etp);
          },
          etp_is_tp),
      choice(plan_part<&P::cp_comm>,
             {{"a2a", {{"cp-comm-type", "a2a"}}}, {"p2p", {}}, {"p2p", {{"cp-comm-type", "p2p"}}}}),
      follows(plan_part<&P::dp>, dp_of_gpus),
      plain(plan_part<&P::microbatch>, {"micro-batch-size"}),
      computed(
          &RunConfig::global_batch, {"global-batch-size"},
          [](const ConfigRow& row, const RunConfig& c, ConfigDocument& out) {
            write_number(out, row.keys[0], c.global_batch);
          },
          read_global_batch),
      computed(plan_part<&P::vpp>,
               {"num-virtual-stages-per-pipeline-rank", "num-layers-per-virtual-pipeline-stage",
                "pipeline-model-parallel-layout"},
               write_vpp, read_vpp),
      follows(plan_part<&P::schedule>, schedule_of_vpp),
      computed(
          plan_part<&P::microbatch_group>, {"microbatch-group-size-per-virtual-pipeline-stage"},
          [](const ConfigRow& row, const RunConfig& c, ConfigDocument& out) {
            if (c.plan.vpp > 1 && c.plan.microbatch_group > c.plan.pp) {
              write_number(out, row.keys[0], c.plan.microbatch_group);
            }
          },
          group_of_vpp),
      computed(plan_part<&P::layers_per_stage>,
               {"pipeline-model-parallel-layout", "decoder-first-pipeline-num-layers",
                "decoder-last-pipeline-num-layers", "account-for-embedding-in-pipeline-split",
                "account-for-loss-in-pipeline-split", "standalone-embedding-stage"},
               write_stage_layers, read_stage_layers),
      choice(
          plan_part<&P::zero>,
          {{"3",
            {{"use-megatron-fsdp", "true"},
             {"data-parallel-sharding-strategy", "optim_grads_params"},
             {"use-distributed-optimizer", "true", false, true},
             {"ckpt-format", "fsdp_dtensor", false, true}}},
           {"2",
            {{"use-megatron-fsdp", "true"},
             {"data-parallel-sharding-strategy", "optim_grads"},
             {"use-distributed-optimizer", "true", false, true},
             {"ckpt-format", "fsdp_dtensor", false, true}}},
           {"3",
            {{"use-custom-fsdp", "true"},
             {"data-parallel-sharding-strategy", "optim_grads_params"}}},
           {"2", {{"use-custom-fsdp", "true"}, {"data-parallel-sharding-strategy", "optim_grads"}}},
           {"3", {{"use-torch-fsdp2", "true"}}},
           {"1", {{"use-distributed-optimizer", "true"}}},
           {"1", {{"use-megatron-fsdp", "true"}, {"data-parallel-sharding-strategy", "optim"}}},
           {"0", {}},
           {"0", {{"data-parallel-sharding-strategy", "no_shard"}}}}),
      computed(plan_part<&P::shard_group>, {"num-distributed-optimizer-instances"}, write_instances,
               read_instances),
      computed(plan_part<&P::sequence_parallel>, {"sequence-parallel"}, write_switch,
               sequence_parallel),
      choice(plan_part<&P::recompute>,
             {{"full",
               {{"recompute-granularity", "full"}, {"recompute-method", "block", false, true}}},
              {"selective", {{"recompute-granularity", "selective"}}},
              {"selective", {{"recompute-activations", "true"}}},
              {"selective", {{"moe-layer-recompute", "true"}}},
              {"full", {{"checkpoint-activations", "true"}}},
              {"full", {{"activations-checkpoint-method", "*"}}},
              {"none", {}}}),
      computed(plan_part<&P::recompute_layers>,
               {"recompute-num-layers", "recompute-method", "activations-checkpoint-num-layers",
                "activations-checkpoint-method"},
               write_recompute_layers, read_recompute_layers),
      follows(plan_part<&P::selective_layers>, no_layers),
      choice(plan_part<&P::rank_order>,
             {{"tp-cp-ep-pp-dp", {{"use-tp-pp-dp-mapping", "true"}}}, {"tp-cp-ep-dp-pp", {}}}),
      computed(
          plan_part<&P::offload_optimizer>,
          {"optimizer-cpu-offload", "optimizer-offload-fraction", "use-precision-aware-optimizer"},
          write_cpu_offload, read_cpu_offload),
      computed(plan_part<&P::overlap_dp>, {"overlap-grad-reduce", "overlap-param-gather"},
               write_dp_overlap, read_dp_overlap),
      choice(plan_part<&P::overlap_tp>, {{"true", {{"tp-comm-overlap", "true"}}}, {"false", {}}}),
      computed(plan_part<&P::overlap_pp>, {"no-overlap-p2p-communication"}, write_pp_overlap,
               read_pp_overlap),
      computed(plan_part<&P::bucket>, {"ddp-bucket-size"}, write_bucket, read_bucket),
  };
}

}  // namespace

ConfigFormat megatron_lm_format() {
  ConfigFormat format{
      .name = "megatron-lm",
      .title = "Megatron-LM",
      .version = "core_v0.16.1 and d98e8a64 (2026-08-22)",
      .source = "megatron/training/arguments.py, megatron/training/config/training_config.py",
      .syntax = ConfigSyntax::arguments,
      .program = "pretrain_gpt.py",
      .usage = "bash FILE on every node",
  };
  for (std::vector<ConfigRow> part : {model_rows(), job_rows(), plan_rows()}) {
    for (ConfigRow& row : part) format.rows.push_back(std::move(row));
  }
  format.fill_in = {{"data-path", "prefix of the tokenized data"},
                    {"tokenizer-type", "tokenizer"},
                    {"tokenizer-model", "path of the tokenizer"},
                    {"train-iters", "number of steps"},
                    {"lr", "learning rate"}};
  format.unpriced = {{"fine-grained-activation-offloading"},
                     {"cpu-offloading-num-layers", "0"},
                     {"rampup-batch-size"},
                     {"hierarchical-context-parallel-sizes"},
                     {"mtp-num-layers"},
                     {"window-size"},
                     {"distribute-saved-activations"},
                     {"distribute-checkpointed-activations"},
                     {"overlap-param-gather-with-optimizer-step"},
                     {"moe-extended-tp"},
                     {"moe-expert-capacity-factor"},
                     {"encoder-tensor-model-parallel-size", "0"},
                     {"encoder-pipeline-model-parallel-size", "0"},
                     {"hybrid-override-pattern"},
                     {"hybrid-layer-pattern"},
                     {"tensor-parallel-num-weight-shards"}};
  add_rows(format, expert_rows({}));
  return format;
}

}  // namespace echelon
