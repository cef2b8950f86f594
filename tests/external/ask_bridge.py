"""Feeds exported overrides to Megatron-Bridge's own command line, recipes and checks.

ask_bridge.py SOURCE CORE [PLAN]: SOURCE is a checkout of Megatron-Bridge, CORE one of the
Megatron-LM that it names, PLAN the planner's program (default: build/release/cli/plan). Asked are
run_recipe.py's parser, the recipe, Hydra's overrides and runtime_config_update, with
ConfigContainer.validate. The configurations of HuggingFace that recipes load are made from the
catalog. No GPU is used. Exit codes: 0 all that was asked is read as the plan has it, 1 something is
refused or read as something else.
"""

import os
import shlex
import sys
import warnings
from pathlib import Path
from unittest import mock

from recipe_plans import (CASES, EXPERTS, ROOT, SP, Absent, ask, catalog, layers_of_layout,
                          stand_in_for)

RECIPES = {
    "": "--recipe ",
    "llama2-7b": "llama2_7b_pretrain_config", "llama3-8b": "llama3_8b_pretrain_config",
    "llama3-70b": "llama3_70b_pretrain_config", "llama3.1-405b": "llama31_405b_pretrain_config",
    "qwen3-8b": "qwen3_8b_pretrain_config", "qwen3-32b": "qwen3_32b_pretrain_config",
    "qwen3-30b-a3b": "qwen3_30b_a3b_pretrain_config",
    "qwen3-235b-a22b": "qwen3_235b_a22b_pretrain_config",
    "qwen3-next-80b-a3b": "qwen3_next_80b_a3b_pretrain_config",
    "deepseek-v3": "deepseek_v3_pretrain_config",
    "deepseek-v2-lite": "deepseek_v2_lite_pretrain_config",
    "gpt-oss-20b": "gpt_oss_20b_pretrain_config", "gpt-oss-120b": "gpt_oss_120b_pretrain_config",
    "glm-4.5": "glm45_355b_pretrain_config", "glm-4.5-air": "glm45_air_106b_pretrain_config",
    "gemma2-9b": "gemma2_9b_pretrain_config", "gemma3-1b": "gemma3_1b_pretrain_config",
    "qwen3-14b": "qwen3_14b_pretrain_config", "nemotron-h-8b": "nemotronh_8b_pretrain_config",
    "nemotron-nano-9b-v2": "nemotron_nano_9b_v2_pretrain_config",
    "nemotron-3-nano-30b-a3b": "nemotron_3_nano_pretrain_config",
    "gpt3-175b": "gpt3_175b_pretrain_32gpu_h100_bf16_config",
}
MORE = [
    ["qwen3-14b", "--gpus", "64", "--zero", "1", "--tp", "2", *SP],
    ["nemotron-h-8b", "--gpus", "64", "--zero", "1"],
    ["nemotron-nano-9b-v2", "--gpus", "64", "--zero", "1"],
    ["nemotron-3-nano-30b-a3b", *EXPERTS],
    ["gpt3-175b", "--gpus", "128", "--zero", "1", "--tp", "8", "--pp", "8", *SP, "--global-batch",
     "256", "--seq", "2048"],
    ["qwen3-30b-a3b", "--gpus", "64", "--zero", "0", "--ep", "8"],
    ["qwen3-8b", "--gpus", "64", "--zero", "3"],
    ["deepseek-v3", "--gpus", "256", "--zero", "2", "--ep", "32", "--global-batch", "2048"],
    ["gpt-oss-20b", *EXPERTS, "--precision", "bf16:adam-bf16-gradients"],
    ["qwen3-8b", "--gpus", "64", "--zero", "1", "--cp", "2"],
]
FILLED = {"dataset.data_path=": "data", "train.train_iters=": "10", "optimizer.lr=": "3e-4"}

# Names on the Hub, where they are not the catalog's with capitals.
HUB = {"Llama-2-7b-hf": "llama2-7b", "Meta-Llama-3-8B": "llama3-8b",
       "Meta-Llama-3-70B": "llama3-70b", "Meta-Llama-3.1-405B": "llama3.1-405b",
       "gemma-2-9b": "gemma2-9b", "gemma-3-1b-pt": "gemma3-1b",
       "Qwen3-Next-80B-A3B-Instruct": "qwen3-next-80b-a3b"}

# fp8, its recipe, fp4, weights in fp8 alone, gradients reduced in fp32: what each precision's
# settings do, as the export says.
PRECISIONS = {
    "bf16:adam-fp32-master": (None, None, None, None, True),
    "bf16:adam-bf16-gradients": (None, None, None, None, False),
    "fp8:adam-fp32-master": ("hybrid", "delayed", None, True, True),
    "fp8:bf16-gradients": ("hybrid", "tensorwise", None, True, True),
    "fp8:blockwise": ("hybrid", "blockwise", None, False, True),
    "mxfp8:adam-fp32-master": ("e4m3", "mxfp8", None, True, True),
    "nvfp4:adam-fp32-master": (None, None, "e2m1", None, True),
}


def hub_config(path, **_):
    """The configuration of a model on the Hub, from the catalog's shapes."""
    import transformers as hub
    last = str(path).rsplit("/", maxsplit=1)[-1]
    model = catalog(HUB.get(last, last.lower().replace("-base", "")))
    moe, mla = model.get("moe", {}), model.get("mla", {})
    theta = model.get("rope", {}).get("theta", 10000.0)
    base = {"hidden_size": model["hidden"], "num_hidden_layers": model["layers"],
            "num_attention_heads": model["heads"], "num_key_value_heads": model["kv_heads"],
            "intermediate_size": model["ffn_hidden"] or 4 * model["hidden"],
            "vocab_size": model["vocab"], "max_position_embeddings": model["max_positions"],
            "rms_norm_eps": model.get("norm_epsilon", 1e-5), "head_dim": model["head_dim"],
            "tie_word_embeddings": model["tied_embeddings"], "rope_theta": theta,
            "torch_dtype": "bfloat16"}
    experts = {}
    if moe:
        experts = {"num_experts_per_tok": moe["experts_per_token"],
                   "moe_intermediate_size": moe["expert_ffn_hidden"]}
    more = {}
    if last.startswith("Qwen3-Next"):
        kind = "Qwen3Next"
    elif last.startswith("Qwen3") and moe:
        kind, more = "Qwen3Moe", {"num_experts": moe["experts"], **experts}
    elif last.startswith("Qwen3"):
        kind = "Qwen3"
    elif last.startswith("DeepSeek"):
        kind = "DeepseekV3" if "V3" in last else "DeepseekV2"
        base.pop("head_dim")
        base["num_key_value_heads"] = model["heads"]
        more = {"n_routed_experts": moe["experts"], **experts,
                "n_shared_experts": moe["shared_ffn_hidden"] // moe["expert_ffn_hidden"],
                "first_k_dense_replace": moe["first_dense_layers"],
                "q_lora_rank": mla.get("q_lora_rank") or None,
                "kv_lora_rank": mla["kv_lora_rank"], "v_head_dim": mla["v_head_dim"],
                "qk_nope_head_dim": mla["qk_nope_head_dim"],
                "qk_rope_head_dim": mla["qk_rope_head_dim"]}
    elif last.startswith("GLM"):
        kind = "Glm4Moe"
        more = {"n_routed_experts": moe["experts"], **experts, "n_shared_experts": 1,
                "first_k_dense_replace": moe["first_dense_layers"],
                "use_qk_norm": model["qk_norm"], "attention_bias": True}
    elif last.startswith("gpt-oss"):
        kind = "GptOss"
        base["intermediate_size"] = moe["expert_ffn_hidden"]
        more = {"num_local_experts": moe["experts"],
                "num_experts_per_tok": moe["experts_per_token"]}
    elif last.startswith("gemma-2"):
        kind = "Gemma2"
    elif last.startswith("gemma-3"):
        kind = "Gemma3Text"
    else:
        kind = "Llama"
    config = getattr(hub, f"{kind}Config")(**base, **more)
    if kind in ("DeepseekV3", "DeepseekV2", "Glm4Moe"):
        config.num_nextn_predict_layers = 1
    if kind.startswith("Deepseek"):
        three = kind == "DeepseekV3"
        config.rope_scaling = {"rope_type": "yarn", "type": "yarn", "factor": 40, "mscale": 1.0,
                               "mscale_all_dim": 1.0, "beta_fast": 32, "beta_slow": 1,
                               "original_max_position_embeddings": 4096, "rope_theta": theta}
        config.moe_layer_freq, config.aux_loss_alpha = 1, 0.001
        config.scoring_func = "sigmoid" if three else "softmax"
        config.topk_method = "noaux_tc"
    if "3.1" in last:
        config.rope_scaling = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                               "high_freq_factor": 4.0, "rope_theta": theta,
                               "original_max_position_embeddings": 8192}
    config.architectures = ["Gemma3ForCausalLM" if kind == "Gemma3Text" else f"{kind}ForCausalLM"]
    return config


class FusedAdam:
    """The arguments by which Megatron-Core recognizes Transformer Engine's."""

    def __init__(self, params=None, lr=1e-3, store_param_remainders=False, exp_avg_dtype=None,
                 exp_avg_sq_dtype=None, master_weight_dtype=None, use_decoupled_grad=False, **_):
        pass


def stages(model, pp):
    """Layers of every rank, from a layout or from the settings of the ends."""
    layout = model.pipeline_model_parallel_layout
    if layout is not None:
        from megatron.core.transformer.pipeline_parallel_layer_layout import (
            PipelineParallelLayerLayout)
        if not isinstance(layout, PipelineParallelLayerLayout):
            layout = PipelineParallelLayerLayout.from_str(layout, pp)
        return layers_of_layout(layout)
    first = model.num_layers_in_first_pipeline_stage
    last = model.num_layers_in_last_pipeline_stage
    embedding = bool(model.account_for_embedding_in_pipeline_split)
    loss = bool(model.account_for_loss_in_pipeline_split)
    others = pp - (first is not None) - (last is not None)
    rest = model.num_layers + embedding + loss - (first or 0) - (last or 0)
    out = [rest // others if others else 0] * pp
    out[0] = (out[0] if first is None else first) - embedding
    out[-1] = (out[-1] if last is None else last) - loss
    return out


def read_of(recipe, wanted):
    """The plan's values in a recipe that passed its checks."""
    model, ddp, train = recipe.model, recipe.ddp, recipe.train
    read = {"tp": model.tensor_model_parallel_size, "pp": model.pipeline_model_parallel_size,
            "cp": model.context_parallel_size, "ep": model.expert_model_parallel_size,
            "dp": recipe.data_parallel_size,
            "vpp": model.virtual_pipeline_model_parallel_size or 1,
            "microbatch": train.micro_batch_size, "batch": train.global_batch_size,
            "seq": model.seq_length, "sequence_parallel": bool(model.sequence_parallel),
            "recompute": model.recompute_granularity or "none",
            "mtp": model.mtp_num_layers or 0,
            "precision_aware": bool(recipe.optimizer.use_precision_aware_optimizer)}
    if model.recompute_granularity == "selective":
        read["modules"] = sorted(model.recompute_modules or [])
    if read["cp"] > 1:
        read["cp_comm"] = model.cp_comm_type or "p2p"
    strategies = {"optim_grads_params": 3, "optim_grads": 2, "optim": 1, "no_shard": 0}
    read["zero"] = (strategies[ddp.data_parallel_sharding_strategy] if ddp.use_megatron_fsdp
                    else int(ddp.use_distributed_optimizer))
    if read["zero"]:
        read["group"] = (read["dp"] * read["cp"]) // ddp.num_distributed_optimizer_instances
    if read["pp"] > 1:
        read["layers_per_stage"] = stages(model, read["pp"])
    read["rank_order"] = ("tp-cp-ep-pp-dp" if recipe.dist.use_tp_pp_dp_mapping
                          else "tp-cp-ep-dp-pp")
    overlap = {"dp"} if ddp.overlap_grad_reduce else set()
    unread = {"pp"}  # follows from the schedule
    if read["tp"] == 1:
        unread.add("tp")
    elif model.tp_comm_overlap:
        overlap.add("tp")
    if wanted["model"].get("moe"):
        read["etp"] = model.expert_tensor_parallel_size
        if model.overlap_moe_expert_parallel_comm:
            overlap.add("ep")
        if model.moe_shared_expert_overlap:
            overlap.add("shared")
        if read["ep"] > 1:
            kind = model.moe_token_dispatcher_type
            read["dispatcher"] = model.moe_flex_dispatcher_backend if kind == "flex" else kind
    read["overlap"] = sorted(overlap | (set(wanted["overlap"]) & unread))
    graphs = {"local": "full_iteration", "transformer_engine": "layers"}
    read["graphs"] = graphs.get(model.cuda_graph_impl, model.cuda_graph_impl)
    mixed = recipe.mixed_precision
    state = (mixed.fp8, mixed.fp8_recipe if mixed.fp8 else None, mixed.fp4,
             bool(mixed.fp8_param_gather) if mixed.fp8 else None, ddp.grad_reduce_in_fp32)
    asked = PRECISIONS[wanted["precision"]]
    read["precision"] = wanted["precision"] if state == asked else f"{state}, not {asked}"
    return read


def bridge_parser(source, core):
    """A function from the path of a script to the values of the plan."""
    for folder in (source / "src", source / "scripts" / "training", core):
        if not folder.is_dir():
            raise Absent(f"there is no folder {folder}")
    sys.path[:0] = [str(source / "src"), str(source / "scripts" / "training"),
                    str(source / "scripts" / "common"), str(core)]
    stand_in_for("transformer_engine", "transformer_engine_torch", "diffusers", "modelopt",
                 "megatron.energon")
    warnings.simplefilter("ignore")
    try:
        import logging
        logging.disable(logging.CRITICAL)
        import megatron.core.utils as core_utils
        import recipe_runner
        import run_recipe
        import torch
        import transformer_engine.pytorch.optimizers as te_optimizers
        import transformers
        from megatron.bridge.models.conversion import auto_bridge
        from megatron.bridge.models.hf_pretrained import safe_config_loader
        from megatron.bridge.training import config as configs
        from packaging.version import Version
    except ModuleNotFoundError as missing:
        raise Absent(f"{missing.name} is not installed") from None
    auto_bridge.safe_load_config_with_retry = hub_config
    safe_config_loader.safe_load_config_with_retry = hub_config
    transformers.AutoConfig.from_pretrained = staticmethod(hub_config)
    te_optimizers.FusedAdam = FusedAdam
    core_utils._te_version = Version("2.12.0")
    core_utils.get_te_version = lambda: core_utils._te_version
    gpu = {"capability": (9, 0)}
    torch.cuda.is_available = lambda: True
    torch.cuda.get_device_capability = lambda *_: gpu["capability"]
    torch.cuda.get_device_properties = lambda *_: mock.Mock(
        major=gpu["capability"][0], minor=0, multi_processor_count=132)
    torch.cuda.get_device_name = lambda *_: (
        "NVIDIA H100 80GB HBM3" if gpu["capability"][0] == 9 else "NVIDIA B200")
    torch.cuda.current_device = lambda: 0
    torch.cuda.device_count = lambda: 8

    def parse(path, wanted):
        lines = [x for x in path.read_text().splitlines() if not x.startswith("#")]
        words = shlex.split("\n".join(lines).replace("\\\n", " "))
        arguments = words[words.index("scripts/training/run_recipe.py") + 1:]
        blackwell = wanted["cluster"] in ("dgx-b200", "gb200-nvl72")
        gpu["capability"] = (10, 0) if blackwell else (9, 0)
        environment = {"WORLD_SIZE": str(wanted["gpus"]), "RANK": "0", "LOCAL_RANK": "0"}
        for line in lines:
            if line.startswith("export "):
                name, value = line.removeprefix("export ").split("=", 1)
                environment[name] = value
        before = {k: v for k, v in os.environ.items() if k != "CUDA_DEVICE_MAX_CONNECTIONS"}
        with mock.patch.dict(os.environ, {**before, **environment}, clear=True):
            args, overrides = run_recipe.parse_args(arguments)
            recipe = run_recipe._apply_dataset(run_recipe._load_selected_recipe(args), args)
            recipe = recipe_runner.apply_cli_overrides(recipe, overrides)
            recipe = recipe_runner.sync_model_pipeline_layout(recipe, cli_overrides=overrides)
            recipe = recipe_runner.apply_runtime_environment(recipe)
            recipe = recipe_runner.sync_offline_packing_alignment(recipe)
            recipe = recipe_runner.sync_model_dataset_sequence_length(recipe)
            configs.runtime_config_update(recipe)
        return read_of(recipe, wanted)

    return parse


def main():
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    source, core = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    plan = str(Path(sys.argv[3]).resolve() if len(sys.argv) > 3
               else ROOT / "build" / "release" / "cli" / "plan")
    sys.argv = sys.argv[:1]
    return 1 if ask(plan, "megatron-bridge", lambda: bridge_parser(source, core), RECIPES, FILLED,
                    [*CASES, *MORE]) else 0


if __name__ == "__main__":
    sys.exit(main())
