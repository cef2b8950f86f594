// Megatron-Bridge, NeMo 2 and NeMo 1: Megatron-Core's fields under the names of their sections.
// Over 400 lines because the three share the rows of one table.
#include <initializer_list>

#include "interop/configs/bridge_spelling.hpp"
#include "interop/configs/rows.hpp"

namespace echelon {

namespace {

using P = ParallelPlan;

/// Names of the sections, which is all in which Bridge and NeMo 2 differ.
struct Sections {
  std::string_view tp{}, pp{}, vpp{}, cp{}, ep{}, etp{}, sequence_parallel{};
  std::string_view layout{}, first{}, last{}, embedding{}, loss{};
  std::string_view group{};  ///< of microbatches
  std::string_view granularity, method, layers;
  std::string_view mbs, gbs, seq;
  std::string_view model_seq{};  ///< the same of the model; "": the framework copies it
  std::string_view distributed, grad_overlap, param_overlap, fsdp, strategy, instances;
  std::string_view optimizer_distributed{};  ///< either of both switches ZeRO-1 on
  std::string_view checkpoint{};             ///< format of checkpoints
  std::string_view tp_overlap, rank_order;
  std::string_view cp_comm{};                      ///< "": it has none
  std::string_view rank{}, targets{};              ///< of adapters; "": in the recipe
  std::string_view zero_default, overlap_default;  ///< "1" and "true" of recipes
};

/// Bridge and NeMo 1 have Megatron-Core's degrees in the section of the model.
Sections in_model_section(Sections others) {
  others.tp = "model.tensor_model_parallel_size";
  others.pp = "model.pipeline_model_parallel_size";
  others.vpp = "model.virtual_pipeline_model_parallel_size";
  others.cp = "model.context_parallel_size";
  others.ep = "model.expert_model_parallel_size";
  others.etp = "model.expert_tensor_parallel_size";
  others.sequence_parallel = "model.sequence_parallel";
  others.layout = "model.pipeline_model_parallel_layout";
  others.first = "model.num_layers_in_first_pipeline_stage";
  others.last = "model.num_layers_in_last_pipeline_stage";
  others.embedding = "model.account_for_embedding_in_pipeline_split";
  others.loss = "model.account_for_loss_in_pipeline_split";
  others.group = "model.microbatch_group_size_per_vp_stage";
  return others;
}

MaybeValue bool_at(const ConfigRow& row, const ConfigReading& reading) {
  const ConfigEntry* entry = row.keys.empty() ? nullptr : reading.find(row.keys[0]);
  if (entry == nullptr) {
    return std::optional(ReadValue{std::string(row.absent), Origin::assumed, "default of recipes"});
  }
  return std::optional(ReadValue{entry->value.first().text, Origin::found, reading.place(*entry)});
}

ConfigRow on_off(ConfigField field, std::string_view key, std::string_view absent) {
  ConfigRow row = computed(
      field, {key},
      [](const ConfigRow& r, const RunConfig& config, ConfigDocument& out) {
        out.set(r.keys[0], scalar(text_of(r.field, config)));
      },
      bool_at);
  row.absent = absent;
  return row;
}

/// Adapters are those of a recipe of peft, whose own rank and targets these replace.
void write_adapters(const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
  if (config.adapters == "none") return;
  const std::size_t colon = config.adapters.find(':');
  out.set(row.keys[0], scalar(config.adapters.substr(0, colon)));
  out.set(row.keys[1], scalar("[" + config.adapters.substr(colon + 1) + "]"));
}

MaybeValue read_adapters(const ConfigRow& row, const ConfigReading& reading) {
  const ConfigEntry* rank = reading.find(row.keys[0]);
  const ConfigEntry* targets = reading.find(row.keys[1]);
  if (rank == nullptr && targets == nullptr) {
    return std::optional(ReadValue{"none", Origin::assumed, "a recipe that trains all parameters"});
  }
  const auto of = [](const ConfigEntry* entry) {
    return entry == nullptr ? std::string() : std::string(entry->value.first().text);
  };
  std::string names = of(targets);
  std::erase_if(names, [](char c) { return c == '[' || c == ']' || c == ' '; });
  const ConfigEntry& stated = rank != nullptr ? *rank : *targets;
  const std::string text = names.empty() ? of(rank) : of(rank) + ":" + names;
  return std::optional(ReadValue{text, Origin::found, reading.place(stated)});
}

/// Keys: that of the data, which is read; that of the model.
void write_sequence(const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
  for (const std::string_view key : row.keys) write_number(out, key, config.sequence);
}

MaybeValue read_sequence(const ConfigRow& row, const ConfigReading& reading) {
  const ConfigEntry* entry = reading.find(row.keys[0]);
  if (entry == nullptr) return std::optional<ReadValue>{};
  return std::optional(ReadValue{entry->value.first().text, Origin::found, reading.place(*entry)});
}

/// Keys: gradients, which are read; parameters, which ZeRO alone gathers.
void write_overlap_of_gathers(const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
  const bool gathers = config.plan.overlap_dp && config.plan.zero > 0;
  out.set(row.keys[0], scalar(config.plan.overlap_dp ? "true" : "false"));
  out.set(row.keys[1], scalar(gathers ? "true" : "false"));
}

/// Recipes of long sequences have a kind of their own, which matters with cp > 1 alone.
void write_cp_comm(const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
  if (config.plan.cp > 1) {
    out.set(row.cases.front().settings.front().key, scalar(text_of(row.field, config)));
  }
}

ConfigRow cp_comm_row(std::string_view key) {
  if (key.empty()) return fixed(plan_part<&P::cp_comm>, "p2p");
  ConfigRow row = choice(plan_part<&P::cp_comm>, {{"a2a", {{key, "a2a"}}},
                                                  {"all_gather", {{key, "all_gather"}}},
                                                  {"p2p", {}},
                                                  {"p2p", {{key, "p2p"}}}});
  row.write = write_cp_comm;
  return row;
}

/// Megatron-FSDP saves in a format of its own. Source: Megatron-Bridge 067f987d,
/// src/megatron/bridge/training/config.py, and NeMo 8cfedd72,
/// nemo/lightning/pytorch/strategies/megatron_strategy.py. Either of the switches of ddp and of the
/// optimizer shards the states: both are off without ZeRO (the same files).
ConfigRow zero_row(const Sections& s) {
  std::vector<ConfigSetting> three = {{s.fsdp, "true"}, {s.strategy, "optim_grads_params"}};
  std::vector<ConfigSetting> two = {{s.fsdp, "true"}, {s.strategy, "optim_grads"}};
  if (!s.checkpoint.empty()) {
    three.push_back({s.checkpoint, "fsdp_dtensor", false, true});
    two.push_back({s.checkpoint, "fsdp_dtensor", false, true});
  }
  for (auto* fsdp : {&three, &two}) fsdp->push_back({s.distributed, "true", false, true});
  std::vector<ConfigSetting> none = {{s.distributed, "false"}};
  if (!s.optimizer_distributed.empty()) {
    none.push_back({s.optimizer_distributed, "false", false, true});
  }
  return choice(plan_part<&P::zero>, {{"3", std::move(three)},
                                      {"2", std::move(two)},
                                      {"1", {{s.distributed, "true"}}},
                                      {"0", std::move(none)},
                                      {s.zero_default, {}}});
}

/// Stages and recomputation of a recipe, of which the plan may have none.
std::vector<Reset> resets_of(const Sections& s, std::string_view none) {
  return {{s.vpp, none},    {s.layout, none},       {s.first, none},   {s.last, none},
          {s.group, none},  {s.embedding, "false"}, {s.loss, "false"}, {s.granularity, none},
          {s.method, none}, {s.layers, none}};
}

void add_resets(ConfigFormat& format, std::initializer_list<Reset> more) {
  format.resets.insert(format.resets.end(), more);
}

std::vector<ConfigRow> plan_rows(const Sections& s) {
  std::vector<std::string_view> sequences = {s.seq};
  if (!s.model_seq.empty()) sequences.push_back(s.model_seq);
  std::vector<ConfigRow> rows = {
      computed(&RunConfig::sequence, std::move(sequences), write_sequence, read_sequence),
      fixed(&RunConfig::framework, "megatron-core"),
      fixed(&RunConfig::flash_attention, "true"),
      fixed(&RunConfig::packed_documents, "false"),
      s.rank.empty()
          ? fixed(&RunConfig::adapters, "none")
          : computed(&RunConfig::adapters, {s.rank, s.targets}, write_adapters, read_adapters),
      fixed(&RunConfig::quantized, "none"),
      plain(plan_part<&P::tp>, {s.tp}, "1"),
      plain(plan_part<&P::cp>, {s.cp}, "1"),
      plain(plan_part<&P::pp>, {s.pp}, "1"),
      plain(plan_part<&P::ep>, {s.ep}, "1"),
      computed(
          plan_part<&P::etp>, {s.etp},
          [](const ConfigRow& row, const RunConfig& c, ConfigDocument& out) {
            if (c.model.moe.experts > 0) write_number(out, row.keys[0], c.plan.etp);
          },
          etp_is_tp),
      cp_comm_row(s.cp_comm),
      follows(plan_part<&P::dp>, dp_of_gpus),
      plain(plan_part<&P::microbatch>, {s.mbs}),
      computed(
          &RunConfig::global_batch, {s.gbs},
          [](const ConfigRow& row, const RunConfig& c, ConfigDocument& out) {
            write_number(out, row.keys[0], c.global_batch);
          },
          read_global_batch),
      computed(plan_part<&P::vpp>, {s.vpp, "", s.layout}, write_vpp, read_vpp),
      follows(plan_part<&P::schedule>, schedule_of_vpp),
      computed(plan_part<&P::microbatch_group>, {s.group}, write_group_of_microbatches,
               group_of_vpp),
      computed(plan_part<&P::layers_per_stage>, {s.layout, s.first, s.last, s.embedding, s.loss},
               write_stage_layers, read_stage_layers),
  };
  rows.push_back(zero_row(s));
  rows.push_back(
      computed(plan_part<&P::shard_group>, {s.instances}, write_instances, read_instances));
  rows.push_back(on_off(plan_part<&P::sequence_parallel>, s.sequence_parallel, "false"));
  rows.push_back(choice(plan_part<&P::recompute>,
                        {{"full", {{s.granularity, "full"}, {s.method, "block", false, true}}},
                         {"selective", {{s.granularity, "selective"}}},
                         {"none", {}}}));
  rows.push_back(computed(plan_part<&P::recompute_layers>, {s.layers, s.method},
                          write_recompute_layers, read_recompute_layers));
  rows.push_back(follows(plan_part<&P::selective_layers>, no_layers));
  rows.push_back(fixed(plan_part<&P::offload_optimizer>, "0"));
  ConfigRow overlap = computed(plan_part<&P::overlap_dp>, {s.grad_overlap, s.param_overlap},
                               write_overlap_of_gathers, bool_at);
  overlap.absent = s.overlap_default;
  rows.push_back(std::move(overlap));
  rows.push_back(on_off(plan_part<&P::overlap_tp>, s.tp_overlap, "false"));
  rows.push_back(follows(plan_part<&P::overlap_pp>, overlap_of_interleaving));
  rows.push_back(follows(plan_part<&P::bucket>, no_layers));
  rows.push_back(choice(plan_part<&P::rank_order>,
                        {{"tp-cp-ep-pp-dp", {{s.rank_order, "true"}}}, {"tp-cp-ep-dp-pp", {}}}));
  return rows;
}

/// Recipes of precision that differ from ours. Source: Megatron-Bridge 067f987d,
/// src/megatron/bridge/training/mixed_precision.py.
constexpr std::string_view kReducesInFp32 = "reduces gradients in fp32";
constexpr std::string_view kReduceIn16 =
    "if the recipe's own cfg.mixed_precision is this one with grad_reduce_in_fp32 = False, and "
    "without this option";
constexpr std::string_view kKeep16Bits =
    "if the recipe's own cfg.mixed_precision is this one with fp8_param_gather = False, and "
    "without this option";

}  // namespace

ConfigFormat megatron_bridge_format() {
  ConfigFormat format{
      .name = "megatron-bridge",
      .title = "Megatron-Bridge",
      .version = "067f987d",
      .source = "src/megatron/bridge/training/config.py",
      .syntax = ConfigSyntax::arguments,
      .program = "scripts/training/run_recipe.py",
      .usage = "bash FILE on every node",
      .rows =
          {computed(&RunConfig::gpus,
                    {"nproc-per-node", "nnodes", "sbatch.gpus-per-node", "sbatch.nodes"}, nullptr,
                    read_launcher),
           choice(
               &RunConfig::precision,
               {{"bf16:adam-fp32-master", {{"mixed_precision", "bf16_mixed"}}},
                // A recipe that is named sets the reduction itself.
                {"bf16:adam-bf16-gradients",
                 {{"mixed_precision.grad_reduce_in_fp32", "false"},
                  {"mixed_precision.bf16", "true", false, true},
                  {"mixed_precision.params_dtype", "torch.bfloat16", false, true},
                  {"mixed_precision.pipeline_dtype", "torch.bfloat16", false, true},
                  {"ddp.grad_reduce_in_fp32", "false", false, true}}},
                {"fp8:primary-weights",
                 {{"mixed_precision", "bf16_with_fp8_delayed_scaling_mixed"}}},
                {"fp8:adam-fp32-master",
                 {{"mixed_precision", "bf16_with_fp8_delayed_scaling_mixed"}},
                 "keeps weights of layers in fp8 alone",
                 kKeep16Bits},
                {"fp8:bf16-gradients",
                 {{"mixed_precision", "bf16_with_fp8_current_scaling_mixed"}},
                 "reduces gradients in fp32 and computes its first and last layer in bf16",
                 "if the recipe's own cfg.mixed_precision is this one with grad_reduce_in_fp32 = "
                 "False and first_last_layers_bf16 = False, and without this option"},
                {"fp8:blockwise",
                 {{"mixed_precision", "bf16_with_fp8_subchannel_scaling_mixed"}},
                 kReducesInFp32,
                 kReduceIn16},
                {"mxfp8:bf16-gradients",
                 {{"mixed_precision", "bf16_with_mxfp8_mixed"}},
                 kReducesInFp32,
                 kReduceIn16},
                {"mxfp8:adam-fp32-master",
                 {{"mixed_precision", "bf16_with_mxfp8_mixed"}},
                 "keeps weights of layers in mxfp8 alone",
                 kKeep16Bits},
                {"nvfp4:bf16-gradients",
                 {{"mixed_precision", "bf16_with_nvfp4_mixed"}},
                 kReducesInFp32,
                 kReduceIn16},
                {"nvfp4:adam-fp32-master",
                 {{"mixed_precision", "bf16_with_nvfp4_mixed"}},
                 "keeps weights of layers in fp4 alone",
                 "if the recipe's own cfg.mixed_precision is this one with fp4_param_gather = "
                 "False, and "
                 "without this option"},
                {"bf16:adam-fp32-master", {}}})},
  };
  const Sections sections =
      in_model_section({.granularity = "model.recompute_granularity",
                        .method = "model.recompute_method",
                        .layers = "model.recompute_num_layers",
                        .mbs = "train.micro_batch_size",
                        .gbs = "train.global_batch_size",
                        .seq = "dataset.seq_length",
                        .distributed = "ddp.use_distributed_optimizer",
                        .grad_overlap = "ddp.overlap_grad_reduce",
                        .param_overlap = "ddp.overlap_param_gather",
                        .fsdp = "ddp.use_megatron_fsdp",
                        .strategy = "ddp.data_parallel_sharding_strategy",
                        .instances = "ddp.num_distributed_optimizer_instances",
                        .optimizer_distributed = "optimizer.use_distributed_optimizer",
                        .checkpoint = "checkpoint.ckpt_format",
                        .tp_overlap = "comm_overlap.tp_comm_overlap",
                        .rank_order = "dist.use_tp_pp_dp_mapping",
                        .cp_comm = "model.cp_comm_type",
                        .rank = "peft.dim",
                        .targets = "peft.target_modules",
                        .zero_default = "1",
                        .overlap_default = "true"});
  add_rows(format, plan_rows(sections));
  format.resets = resets_of(sections, "null");
  format.fill_in = {{"recipe", "recipe of the model, for example llama3_8b_pretrain_config"},
                    {"dataset.data_path", "prefix of the tokenized data"},
                    {"train.train_iters", "number of steps"},
                    {"optimizer.lr", "learning rate"}};
  format.key_notes = {
      {"peft.dim", "the recipe has to be one of peft, for example llama3_8b_peft_config"}};
  format.unpriced = {{"model.cpu_offloading", "", "", "the offload of activations"},
                     {"optimizer.use_precision_aware_optimizer"}};
  add_resets(format, {{"model.recompute_modules", "null"},
                      {"model.cuda_graph_impl", "none"},
                      {"model.mtp_num_layers", "null"},
                      {"optimizer.use_precision_aware_optimizer", "false"},
                      {"optimizer.main_grads_dtype", "torch.float32"},
                      {"optimizer.exp_avg_dtype", "torch.float32"},
                      {"optimizer.exp_avg_sq_dtype", "torch.float32"}});
  format.model_notes = {{kNestedArchitecture,
                         "model.transformer.KEY is model.KEY in releases up to v0.6.0, and for "
                         "recipes of models that are not Llama"}};
  format.spell = spell_for_bridge;
  format.unspell = unspell_bridge;
  add_rows(format,
           expert_rows(
               {.modules = "model.recompute_modules",
                .moe_recompute = "",
                .dispatcher = "model.moe_token_dispatcher_type",
                .dispatcher_default = "alltoall",
                .backend = "model.moe_flex_dispatcher_backend",
                .overlap = "comm_overlap.overlap_moe_expert_parallel_comm",
                .delay_wgrad = "comm_overlap.delay_wgrad_compute",
                .shared_overlap = "model.moe_shared_expert_overlap",
                .graphs = "model.cuda_graph_impl",
                .graph_scope = "model.cuda_graph_scope",
                .whole_step = {{"rerun_state_machine.check_for_nan_in_loss", "false", false, true},
                               {"ddp.check_for_nan_in_grad", "false", false, true}},
                .any_graph = {{"model.use_te_rng_tracker", "true", false, true}},
                .offload = "model.fine_grained_activation_offloading",
                .offload_modules = "model.offload_modules",
                .offloads_in_flight = "model.fine_grained_offloading_max_inflight_offloads"}));
  return format;
}

ConfigFormat nemo_format() {
  ConfigFormat format{
      .name = "nemo",
      .title = "NeMo 2",
      .version = "8cfedd72 (NeMo 2.4/2.5)",
      .source = "nemo/lightning/pytorch/strategies/megatron_strategy.py",
      .syntax = ConfigSyntax::arguments,
      .starts_ranks = true,
      .program = "nemo llm pretrain --yes",
      .usage = "bash FILE; NeMo-Run starts the nodes",
      .rows = {computed(&RunConfig::gpus, {"trainer.devices", "trainer.num_nodes"}, write_launcher,
                        read_launcher),
               choice(&RunConfig::precision,
                      {{"bf16:adam-fp32-master", {{"trainer.plugins.grad_reduce_in_fp32", "true"}}},
                       {"bf16:adam-bf16-gradients",
                        {{"trainer.plugins.grad_reduce_in_fp32", "false"}}},
                       // Source: nemo/lightning/pytorch/plugins/mixed_precision.py
                       {"fp8:adam-fp32-master",
                        {{"trainer.plugins.fp8", "*"},
                         {"trainer.plugins.fp8_recipe", "delayed"},
                         {"trainer.plugins.fp8_param_gather", "false", false, true}}},
                       {"fp8:adam-fp32-master", {{"trainer.plugins.fp8", "*"}}},
                       {"fp8:primary-weights",
                        {{"trainer.plugins.fp8", "*"},
                         {"trainer.plugins.fp8_recipe", "delayed"},
                         {"trainer.plugins.fp8_param_gather", "true"}}},
                       {"fp8:bf16-gradients",
                        {{"trainer.plugins.fp8", "*"},
                         {"trainer.plugins.fp8_recipe", "tensorwise"},
                         {"trainer.plugins.fp8_param_gather", "true"},
                         {"trainer.plugins.grad_reduce_in_fp32", "false"}}},
                       {"mxfp8:adam-fp32-master",
                        {{"trainer.plugins.fp8", "*", false, false, "e4m3"},
                         {"trainer.plugins.fp8_recipe", "mxfp8"},
                         {"trainer.plugins.fp8_param_gather", "false", false, true}}},
                       {"bf16:adam-fp32-master", {}}})},
  };
  const Sections sections = {
      .tp = "trainer.strategy.tensor_model_parallel_size",
      .pp = "trainer.strategy.pipeline_model_parallel_size",
      .vpp = "trainer.strategy.virtual_pipeline_model_parallel_size",
      .cp = "trainer.strategy.context_parallel_size",
      .ep = "trainer.strategy.expert_model_parallel_size",
      .etp = "trainer.strategy.expert_tensor_parallel_size",
      .sequence_parallel = "trainer.strategy.sequence_parallel",
      .layout = "trainer.strategy.pipeline_model_parallel_layout",
      .first = "trainer.strategy.num_layers_in_first_pipeline_stage",
      .last = "trainer.strategy.num_layers_in_last_pipeline_stage",
      .embedding = "trainer.strategy.account_for_embedding_in_pipeline_split",
      .loss = "trainer.strategy.account_for_loss_in_pipeline_split",
      .group = "trainer.strategy.microbatch_group_size_per_vp_stage",
      .granularity = "model.config.recompute_granularity",
      .method = "model.config.recompute_method",
      .layers = "model.config.recompute_num_layers",
      .mbs = "data.micro_batch_size",
      .gbs = "data.global_batch_size",
      .seq = "data.seq_length",
      .model_seq = "model.config.seq_length",
      .distributed = "trainer.strategy.ddp.use_distributed_optimizer",
      .grad_overlap = "trainer.strategy.ddp.overlap_grad_reduce",
      .param_overlap = "trainer.strategy.ddp.overlap_param_gather",
      .fsdp = "trainer.strategy.ddp.use_megatron_fsdp",
      .strategy = "trainer.strategy.ddp.data_parallel_sharding_strategy",
      .instances = "trainer.strategy.ddp.num_distributed_optimizer_instances",
      .optimizer_distributed = "optim.config.use_distributed_optimizer",
      .checkpoint = "trainer.strategy.save_ckpt_format",
      .tp_overlap = "model.config.tp_comm_overlap",
      .rank_order = "trainer.strategy.use_tp_pp_dp_mapping",
      .cp_comm = "model.config.cp_comm_type",
      .zero_default = "1",
      .overlap_default = "true"};
  add_rows(format, plan_rows(sections));
  format.resets = resets_of(sections, "None");
  format.fill_in = {{"factory", "recipe of the model, for example llama3_8b"},
                    {"trainer.max_steps", "number of steps"},
                    {"optim.config.lr", "learning rate"}};
  add_resets(format, {{"model.config.recompute_modules", "None"},
                      {"model.config.mtp_num_layers", "None"},
                      {"optim.config.use_precision_aware_optimizer", "false"},
                      {"optim.config.main_grads_dtype", "torch.float32"},
                      {"optim.config.exp_avg_dtype", "torch.float32"},
                      {"optim.config.exp_avg_sq_dtype", "torch.float32"}});
  format.spell = [](const RunConfig& config, ConfigDocument& out) {
    const int modules = config.model.prediction_modules;
    if (modules > 0) write_number(out, "model.config.mtp_num_layers", modules);
  };
  // Source: NeMo 8cfedd72, nemo/collections/llm/recipes: deepseek_v3.py, deepseek_v2_lite.py,
  // gpt_oss_20b.py, gpt_oss_120b.py.
  constexpr std::string_view kDeepEp =
      "trainer.callbacks of the recipe deepseek_v3 or deepseek_v2_lite has DeepEPCallback, which "
      "dispatches tokens by DeepEP: as priced without it";
  constexpr std::string_view kNoRecipe =
      "requires a recipe of your own: NeMo 8cfedd72 has none that pretrains GPT-OSS";
  format.model_notes = {{"deepseek_v3", kDeepEp}, {"deepseek_v2", kDeepEp}, {"gpt_oss", kNoRecipe}};
  add_rows(format, without_expert_rows());
  return format;
}

ConfigFormat nemo1_format() {
  ConfigFormat format{
      .name = "nemo-1",
      .title = "NeMo 1",
      .version = "v1.23",
      .source = "examples/nlp/language_modeling/conf/megatron_gpt_config.yaml",
      .syntax = ConfigSyntax::yaml,
      .exported = false,
      .rows = {plain(&ModelSpec::layers, {"model.num_layers"}),
               plain(&ModelSpec::hidden, {"model.hidden_size"}),
               plain(&ModelSpec::heads, {"model.num_attention_heads"}),
               computed(&RunConfig::gpus, {"trainer.devices", "trainer.num_nodes"}, nullptr,
                        read_launcher),
               choice(&RunConfig::precision,
                      {{"fp8:adam-fp32-master", {{"model.fp8", "true"}}},
                       {"bf16:adam-fp32-master", {{"trainer.precision", "bf16"}}},
                       {"bf16:adam-fp32-master", {{"trainer.precision", "bf16-mixed"}}},
                       {"fp16:adam-fp32-master", {{"trainer.precision", "16"}}},
                       {"fp16:adam-fp32-master", {}},
                       {"fp32", {{"trainer.precision", "32"}}}})},
  };
  add_rows(format,
           plan_rows(in_model_section({.granularity = "model.activations_checkpoint_granularity",
                                       .method = "model.activations_checkpoint_method",
                                       .layers = "model.activations_checkpoint_num_layers",
                                       .mbs = "model.micro_batch_size",
                                       .gbs = "model.global_batch_size",
                                       .seq = "model.encoder_seq_length",
                                       .distributed = "model.use_distributed_optimizer",
                                       .grad_overlap = "model.optim.overlap_grad_sync",
                                       .param_overlap = "model.optim.overlap_param_sync",
                                       .fsdp = "model.fsdp",
                                       .strategy = "model.fsdp_sharding_strategy",
                                       .instances = "model.num_distributed_optimizer_instances",
                                       .tp_overlap = "model.ub_tp_comm_overlap",
                                       .rank_order = "model.use_tp_pp_dp_mapping",
                                       .zero_default = "0",
                                       .overlap_default = "false"})));
  for (ConfigRow& row : format.rows) {
    if (row.field == ConfigField{plan_part<&P::zero>}) {
      row.cases = {{"1", {{"model.optim.name", "distributed_fused_adam"}}},
                   {"3", {{"model.fsdp", "true"}, {"model.fsdp_sharding_strategy", "full"}}},
                   {"2", {{"model.fsdp", "true"}, {"model.fsdp_sharding_strategy", "grad"}}},
                   {"0", {{"model.optim.name", "*"}}},
                   {"0", {}}};
    }
  }
  add_rows(format, without_expert_rows());
  return format;
}

}  // namespace echelon
