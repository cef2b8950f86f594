// Megatron-LM's options.
#include "interop/configs/rows.hpp"

namespace echelon {

namespace {

using P = ParallelPlan;

constexpr std::string_view kWorldSize = "world-size";

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

/// It refuses the option where no tensor-parallel communication can overlap. Source: Megatron-LM
/// d98e8a64, megatron/training/arguments.py:1441.
void write_tp_overlap(const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
  if (config.plan.sequence_parallel) write_switch(row, config, out);
}

/// Ranks that a run printed, else those that the launcher starts.
MaybeValue read_ranks(const ConfigRow& row, const ConfigReading& reading) {
  if (const ConfigEntry* all = reading.find(kWorldSize)) {
    return std::optional(ReadValue{all->value.first().text, Origin::found, reading.place(*all)});
  }
  return read_launcher(row, reading);
}

std::vector<ConfigRow> job_rows() {
  return {
      // Options that only releases before Megatron Core had.
      choice(&RunConfig::framework,
             {{"megatron-core", {}},
              {"megatron-2021", {{"DDP-impl", "*"}}},
              {"megatron-2021", {{"checkpoint-activations", "true"}}},
              {"megatron-2021", {{"activations-checkpoint-method", "*"}}},
              {"megatron-deepspeed", {{.key = "zero-stage", .value = "*", .weight = 2}}}}),
      plain(&RunConfig::sequence, {"seq-length"}),
      megatron_precision_row(),
      choice(&RunConfig::flash_attention,
             {{"false", {{"attention-backend", "unfused"}}},
              {"false", {{"attention-backend", "local"}}},
              {"false", {{"DDP-impl", "*"}}},
              {"false", {{"checkpoint-activations", "true"}}},
              {"false", {{"activations-checkpoint-method", "*"}}},
              // Else the data loader makes a mask of s x s bytes.
              {"true", {{"no-create-attention-mask-in-dataloader", "true", false, true}}},
              {"true", {}},
              {"true", {{"attention-backend", "*"}}}}),
      choice(&RunConfig::packed_documents,
             {{"true", {{"dataloader-inter-document-masking", "true"}}}, {"false", {}}}),
      fixed(&RunConfig::adapters, "none"),
      fixed(&RunConfig::quantized, "none"),
      computed(&RunConfig::gpus,
               {"nproc-per-node", "nnodes", "sbatch.gpus-per-node", "sbatch.nodes",
                "sbatch.ntasks-per-node", "sbatch.nodes", "sbatch.gres", "sbatch.nodes"},
               nullptr, read_ranks),
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
      choice(plan_part<&P::cp_comm>, {{"a2a", {{"cp-comm-type", "a2a"}}},
                                      {"all_gather", {{"cp-comm-type", "all_gather"}}},
                                      {"all_gather", {{"cp-comm-type", "allgather"}}},
                                      {"p2p", {}},
                                      {"p2p", {{"cp-comm-type", "p2p"}}}}),
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
               write_megatron_vpp, read_megatron_vpp),
      follows(plan_part<&P::schedule>, schedule_of_vpp),
      computed(plan_part<&P::microbatch_group>,
               {"microbatch-group-size-per-virtual-pipeline-stage"}, write_group_of_microbatches,
               group_of_vpp),
      computed(plan_part<&P::layers_per_stage>,
               {"pipeline-model-parallel-layout", "decoder-first-pipeline-num-layers",
                "decoder-last-pipeline-num-layers", "account-for-embedding-in-pipeline-split",
                "account-for-loss-in-pipeline-split", "standalone-embedding-stage"},
               write_megatron_stages, read_megatron_stages),
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
           {"0", {}},  // before the next, which Megatron-LM does not have
           // Of Megatron-DeepSpeed, which repeats what its JSON says.
           {"0", {{"zero-stage", "0"}}},
           {"1", {{"zero-stage", "1"}}},
           {"2", {{"zero-stage", "2"}}},
           {"3", {{"zero-stage", "3"}}},
           {"1", {{"optimizer", "dist_muon"}}},
           {"1", {{"use-megatron-fsdp", "true"}, {"data-parallel-sharding-strategy", "optim"}}},
           {"0", {{"data-parallel-sharding-strategy", "no_shard"}}},
           {"0", {{"optimizer", "*"}}}}),
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
      computed(plan_part<&P::overlap_tp>, {"tp-comm-overlap"}, write_tp_overlap,
               [](const ConfigRow& row, const ConfigReading& reading) {
                 return found_or(reading, row.keys[0], "false");
               }),
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
      .hybrid_program = "pretrain_hybrid.py",
      .usage = "bash FILE on every node",
  };
  for (std::vector<ConfigRow> part : {megatron_model_rows(), job_rows(), plan_rows()}) {
    for (ConfigRow& row : part) format.rows.push_back(std::move(row));
  }
  format.fill_in = {{"data-path", "prefix of the tokenized data"},
                    {"tokenizer-type", "tokenizer"},
                    {"tokenizer-model", "path of the tokenizer"},
                    {"train-iters", "number of steps"},
                    {"lr", "learning rate"}};
  format.unpriced = {{"fine-grained-activation-offloading"},
                     {"cpu-offloading-num-layers", "0", "", "the offload of activations"},
                     {"rampup-batch-size"},
                     {"hierarchical-context-parallel-sizes"},
                     {"distribute-saved-activations", "", "", "sharded saved activations"},
                     {"distribute-checkpointed-activations", "", "", "sharded saved activations"},
                     {"overlap-param-gather-with-optimizer-step"},
                     {"moe-extended-tp"},
                     {"moe-expert-capacity-factor"},
                     {"encoder-tensor-model-parallel-size", "0"},
                     {"encoder-pipeline-model-parallel-size", "0"},
                     {"disable-mamba-mem-eff-path"},
                     {"mamba-training-ssm-states-dtype"},
                     {"mamba-inference-conv-states-dtype", "bf16"},
                     {"mamba-inference-ssm-states-dtype", "bf16"},
                     {"hybrid-context-parallel"},
                     {"tensor-parallel-num-weight-shards"},
                     {"step-batch-size-schedule"},
                     {"main-params-dtype", "fp32", "", "master weights of 16 bits"},
                     {"vision-model-type"},
                     {"freeze-LM"},
                     {"freeze-ViT"},
                     {"lora-rank"}};
  // Source: Megatron-LM v2.6 to d98e8a64, pretrain_*.py, tools/ and examples/.
  format.unread_programs = {{"pretrain_bert", "trains an encoder"},
                            {"pretrain_t5", "trains an encoder with a decoder"},
                            {"pretrain_retro", "trains a decoder that retrieves"},
                            {"pretrain_ict", "trains a pair of encoders"},
                            {"pretrain_vision", "trains a model of images"},
                            {"pretrain_vit", "trains a model of images"},
                            {"pretrain_vlm", "trains a model of images and text"},
                            {"text_generation", "generates text"},
                            {"_ptq", "quantizes a model"}};
  format.key_notes = {
      {"dataloader-inter-document-masking",
       "needs Megatron-LM core 0.19 or newer for attention within documents "
       "(--dataloader-inter-document-masking)"},
      {"num-experts",
       "nothing balances the experts' load but a correction of the router, where there is one: "
       "choose --moe-aux-loss-coeff, which is 0 by default"},
      {"yarn-beta-fast", "needs Megatron-LM core 0.19 or newer for YaRN (--yarn-beta-fast …)"},
      {"optimizer",
       "needs Megatron-LM core 0.18 or newer for Muon with sharded states or an overlapped "
       "reduction, and the package emerging-optimizers"},
      {"hybrid-layer-pattern",
       "needs Megatron-LM core 0.18 or newer; before, hybrid models are trained by "
       "pretrain_mamba.py with --spec megatron.core.models.mamba.mamba_layer_specs "
       "mamba_stack_spec, up to core 0.16 with --hybrid-override-pattern"},
      {"dsa-indexer-loss-coeff",
       "needs Megatron-LM core 0.19 or newer for the kernels of sparse attention "
       "(--dsa-kernel-backend); 0.01 is the factor in its own test: choose yours"},
      {"fine-grained-offloading-max-inflight-offloads",
       "needs Megatron-LM core 0.18 or newer for offloaded activations in a CUDA graph of a whole "
       "step"},
      {"softmax-type", "needs Transformer Engine 2.8 or newer for attention sinks"}};
  format.switches = {"sequence-parallel",
                     "overlap-grad-reduce",
                     "overlap-param-gather",
                     "tp-comm-overlap",
                     "no-overlap-p2p-communication",
                     "optimizer-cpu-offload",
                     "account-for-embedding-in-pipeline-split",
                     "account-for-loss-in-pipeline-split",
                     "moe-grouped-gemm",
                     "moe-permute-fusion",
                     "group-query-attention",
                     "swiglu",
                     "disable-bias-linear",
                     "untie-embeddings-and-output-weights",
                     "fine-grained-activation-offloading"};
  format.also_unpriced = add_what_fp8_leaves_open;
  format.why_lost = why_megatron_loses;
  add_rows(format, expert_rows({}));
  return format;
}

}  // namespace echelon
