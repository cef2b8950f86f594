"""Feeds exported configurations to the parsers of accelerate, DeepSpeed and torchtitan themselves.

ask_parsers.py [PLAN]: PLAN is the planner's program (default: build/release/cli/plan). No GPU is
used. A package that is absent is reported as skipped, with the reason. Exit codes: 0 all that was
asked is read as the plan has it, 1 something is refused or read as something else.
"""

import contextlib
import importlib.util
import io
import json
import re
import subprocess
import sys
import tempfile
import types
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
JOB = {"--model": "llama3-8b", "--gpus": "64", "--seq": "8192", "--global-batch": "512"}

# What a user fills in, as TOML.
FILLED = {"steps": "100", "lr": "3e-4", "dataset": "'c4_test'", "hf_assets_path": "'.'"}

# Arguments of a plan, and what torchtitan must read: section.option to value.
TORCHTITAN = [
    (["--zero", "3"],
     {"parallelism.data_parallel_shard_degree": 64, "training.local_batch_size": 1,
      "training.global_batch_size": 512, "training.seq_len": 8192,
      "activation_checkpoint.mode": "none", "compile.enable": True}),
    (["--tp", "4", "--zero", "3", "--overlap", "dp,tp", "--recompute", "selective"],
     {"parallelism.tensor_parallel_degree": 4, "parallelism.enable_async_tensor_parallel": True,
      "parallelism.data_parallel_shard_degree": 16, "compile.enable": True,
      "activation_checkpoint.mode": "selective", "activation_checkpoint.selective_ac_option": "op"}),
    (["--pp", "4", "--vpp", "2", "--zero", "2", "--recompute", "full"],
     {"parallelism.pipeline_parallel_degree": 4, "parallelism.pipeline_parallel_schedule":
      "Interleaved1F1B", "parallelism.pipeline_parallel_microbatch_size": 1,
      "training.local_batch_size": 32, "parallelism.fsdp_reshard_after_forward": "never",
      "activation_checkpoint.mode": "full"}),
    (["--cp", "2", "--zero", "3", "--zero-group-size", "8"],
     {"parallelism.context_parallel_degree": 2, "parallelism.data_parallel_shard_degree": 4,
      "parallelism.data_parallel_replicate_degree": 8}),
]

# The same for its recipes in Python, of the release and of main: JOB is of a batch of 512.
RECIPES = [
    (["--zero", "3"],
     {"parallelism.data_parallel_shard_degree": 64, "compile.enable": True,
      "activation_checkpoint": None, "training.disable_cuda_graphs": True,
      "gradient_accumulation": 8, "microbatches": 1, "sequences": 1}),
    (["--zero", "3", "--cuda-graphs", "full_iteration"],
     {"training.disable_cuda_graphs": False, "compile.enable": True}),
    (["--model", "gpt-oss-20b", "--zero", "3", "--cuda-graphs", "full_iteration"],
     {"training.disable_cuda_graphs": False, "attention": "FlexAttention"}),
    (["--tp", "4", "--zero", "3", "--overlap", "dp,tp", "--recompute", "selective"],
     {"parallelism.tensor_parallel_degree": 4, "compile.enable_async_tensor_parallel": True,
      "parallelism.data_parallel_shard_degree": 16, "gradient_accumulation": 32,
      "policy": "SelectiveAC"}),
    (["--pp", "4", "--vpp", "2", "--zero", "2", "--recompute", "full"],
     {"parallelism.pipeline_parallel_degree": 4, "parallelism.pipeline_parallel_schedule":
      "Interleaved1F1B", "parallelism.fsdp_reshard_after_forward": "never", "chunks": 8,
      "layers": 32, "gradient_accumulation": 1, "microbatches": 32, "sequences": 1,
      "policy": "FullAC"}),
    (["--cp", "2", "--zero", "3", "--zero-group-size", "8"],
     {"parallelism.context_parallel_degree": 2, "parallelism.data_parallel_shard_degree": 4,
      "parallelism.data_parallel_replicate_degree": 8, "gradient_accumulation": 16}),
    (["--model", "deepseek-v3", "--seq", "4096", "--pp", "4", "--ep", "16", "--zero", "2"],
     {"parallelism.expert_parallel_degree": 16, "layers": 61, "microbatches": 32,
      "gradient_accumulation": 1, "training.disable_cuda_graphs": True}),
    (["--model", "qwen3-8b", "--zero", "3", "--microbatch", "2"],
     {"flavor": "8B", "layers_of_model": 36, "gradient_accumulation": 4, "sequences": 2}),
    (["--model", "llama3.1-405b", "--tp", "8", "--zero", "3"],
     {"flavor": "405B", "layers_of_model": 126, "fp8": False}),
    (["--model", "gpt-oss-20b", "--cp", "2", "--zero", "3"],
     {"flavor": "20b", "parallelism.context_parallel_degree": 2, "attention": "FlexAttention"}),
    (["--model", "qwen3-235b-a22b", "--ep", "8", "--zero", "3"],
     {"flavor": "235B-A22B", "layers_of_model": 94, "dispatcher": "AllToAllTokenDispatcher"}),
    (["--model", "deepseek-v3", "--seq", "4096", "--ep", "16", "--zero", "3", "--dispatcher",
      "deepep"], {"dispatcher": "DeepEPTokenDispatcher"}),
    (["--model", "gpt-oss-20b", "--cp", "2", "--ep", "8", "--zero", "3", "--dispatcher",
      "hybridep"], {"dispatcher": "HybridEPTokenDispatcher", "attention": "FlexAttention"}),
]

# The same for accelerate: attribute of its configuration, or option of a section of it.
ACCELERATE = [
    (["--zero", "3"],
     {"distributed_type": "FSDP", "num_processes": 64, "num_machines": 8, "mixed_precision": "bf16",
      "fsdp_config.fsdp_version": 2, "fsdp_config.fsdp_reshard_after_forward": True}),
    (["--zero", "2", "--recompute", "full"],
     {"fsdp_config.fsdp_reshard_after_forward": False,
      "fsdp_config.fsdp_activation_checkpointing": True}),
]


# The same for DeepSpeed; data_parallel: ranks that share a batch. Its buckets count numbers, of 16
# bits. MiCS is not asked: releases since 0.19.8 refuse it, as the export says.
DEEPSPEED = [
    (["--zero", "3"],
     {"train_batch_size": 512, "train_micro_batch_size_per_gpu": 1,
      "gradient_accumulation_steps": 8, "zero_config.stage": 3, "zero_config.overlap_comm": True,
      "bfloat16_config.enabled": True, "data_parallel": 64}),
    (["--zero", "2", "--offload", "optimizer=1", "--overlap", "none"],
     {"zero_config.stage": 2, "zero_config.overlap_comm": False,
      "zero_config.offload_optimizer.device": "cpu"}),
    (["--zero", "1", "--bucket", "500000000"],
     {"zero_config.stage": 1, "zero_config.reduce_bucket_size": 250000000}),
    (["--zero", "3", "--cp", "4"],
     {"gradient_accumulation_steps": 32, "data_parallel": 16}),
    (["--zero", "1", "--tp", "4", "--framework", "deepspeed"],
     {"tensor_parallel_config.autotp_size": 4, "gradient_accumulation_steps": 32,
      "data_parallel": 16, "zero_config.stage": 1}),
    (["--zero", "2", "--ep", "8", "--model", "qwen3-30b-a3b", "--framework", "deepspeed"],
     {"expert_parallel_config.enabled": True, "expert_parallel_config.autoep_size": 8,
      "gradient_accumulation_steps": 8}),
    (["--zero", "1", "--precision", "fp16:adam-fp32-master", "--framework", "deepspeed"],
     {"float16_config.enabled": True, "bfloat16_config.enabled": False}),
]


class Absent(Exception):
    """A package that is not installed."""


def exported(plan, form, arguments, path):
    """The configuration as the planner writes it, filled in."""
    job = [word for flag, value in JOB.items() if flag not in arguments for word in (flag, value)]
    command = [plan, "export", form, *job, *arguments, "-o", str(path), "--quiet"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: {run.stdout}{run.stderr}")
    text = path.read_text()
    for name, value in FILLED.items():
        text = re.sub(rf"(?m)^(\s*(?:config\.[a-z_.]*)?{name} = )('FILL_IN'|FILL_IN)$",
                      rf"\g<1>{value}", text)
    path.write_text(text)


def at(config, path):
    """The value of section.option, whether the section is an object or a dictionary."""
    for name in path.split("."):
        config = config[name] if isinstance(config, dict) else getattr(config, name)
    return config


def differences(config, expected):
    """What was read as something else."""
    for path, value in expected.items():
        read = at(config, path)
        read = getattr(read, "value", read)  # of an enumeration
        if read != value:
            yield f"{path} is read as {read!r}, not {value!r}"


def kind(config):
    """FullAC of a FullAC.Config."""
    return type(config).__qualname__.split(".")[0]


def recipe_of(config, gpus):
    """What torchtitan makes of a recipe's configuration, its checks passed."""
    from torchtitan.distributed.parallel_dims import ParallelDims
    config.__post_init__()
    config.model_spec.model.update_from_config(config=config)
    parallelism, training = config.parallelism, config.training
    dims = ParallelDims.from_config(parallelism, gpus)
    data = dims.dp_replicate * dims.dp_shard
    by_tokens = hasattr(training, "num_tokens_per_train_step")
    if by_tokens:
        microbatches = parallelism.num_pp_microbatches if dims.pp > 1 else 1
        each = training.num_tokens_per_microbatch_per_dp_rank
        step, length = training.num_tokens_per_train_step, training.max_context_length
    else:
        each = (parallelism.pipeline_parallel_microbatch_size if dims.pp > 1
                else training.local_batch_size)
        microbatches = training.local_batch_size // each
        step, length = training.global_batch_size, 1
    parts = parallelism.module_fqns_per_model_part or []
    model = config.model_spec.model
    moe = getattr(model.layers[-1], "moe", None)
    known = {"gradient_accumulation": step / (each * microbatches * data),
             "microbatches": microbatches, "sequences": each / length, "chunks": len(parts),
             "layers": sum(name.startswith("layers.") for part in parts for name in part),
             "policy": kind(config.activation_checkpoint),
             "flavor": config.model_spec.flavor, "layers_of_model": len(model.layers),
             "fp8": "Float8" in repr(model),
             "dispatcher": moe and kind(moe.routed_experts.token_dispatcher),
             "attention": kind(model.layers[0].attention.inner_attention)}
    return types.SimpleNamespace(**known, parallelism=parallelism, training=training,
                                 compile=config.compile,
                                 activation_checkpoint=config.activation_checkpoint)


def recipe_parser():
    """A function from the path of a recipe to what torchtitan makes of it."""
    spec = importlib.util.find_spec("torchtitan")
    if spec is None:
        raise Absent("torchtitan is not installed: pip install torch torchtitan==0.3.0")
    if (Path(spec.submodule_search_locations[0]) / "config" / "job_config.py").exists():
        raise Absent("this torchtitan has TOML files: pip install torchtitan==0.3.0")
    try:
        importlib.import_module("torchtitan.trainer")
    except ModuleNotFoundError as missing:
        raise Absent(f"{missing.name} is not installed, which torchtitan needs") from None

    def parse(path):
        module = importlib.util.spec_from_file_location("plans", path)
        plans = importlib.util.module_from_spec(module)
        module.loader.exec_module(plans)
        return recipe_of(plans.plan(), 64)
    return parse


def recipe_format():
    """The format that the installed torchtitan reads."""
    if importlib.util.find_spec("torchtitan") is None:
        return "torchtitan"
    try:
        configs = importlib.import_module("torchtitan.config.configs")
    except ModuleNotFoundError:
        return "torchtitan"
    counts_tokens = "max_context_length" in configs.TrainingConfig.__dataclass_fields__
    return "torchtitan-main" if counts_tokens else "torchtitan"


def torchtitan_parser():
    """A function from the path of a TOML file to its configuration.

    The package's own __init__ loads models and torch; its parser needs neither.
    """
    spec = importlib.util.find_spec("torchtitan")
    if spec is None:
        raise Absent("torchtitan is not installed: pip install --no-deps torchtitan==0.2.2 tyro")
    root = Path(spec.submodule_search_locations[0])
    if not (root / "config" / "job_config.py").exists():
        raise Absent("this torchtitan has no TOML files any more: pip install torchtitan==0.2.2")
    for name in ("torchtitan", "torchtitan.config"):
        package = types.ModuleType(name)
        package.__path__ = [str(root.joinpath(*name.split(".")[1:]))]
        sys.modules[name] = package
    try:
        manager = importlib.import_module("torchtitan.config.manager")
    except ModuleNotFoundError as missing:
        raise Absent(f"{missing.name} is not installed, which torchtitan needs") from None
    return lambda path: manager.ConfigManager().parse_args(["--job.config_file", str(path)])


def deepspeed_parser():
    """A function from the path of a JSON file to DeepSpeed's configuration on 64 ranks."""
    try:
        config = importlib.import_module("deepspeed.runtime.config")
    except ModuleNotFoundError as missing:
        raise Absent(f"{missing.name} is not installed: DS_BUILD_OPS=0 pip install deepspeed "
                     "torch") from None
    config.dist.get_rank = lambda *group: 0

    def parse(path):
        document = json.loads(path.read_text())
        split = (document.get("sequence_parallel_size", 1)
                 * document.get("tensor_parallel", {}).get("autotp_size", 1))
        ranks = types.SimpleNamespace(get_data_parallel_world_size=lambda: 64 // split)
        read = config.DeepSpeedConfig(str(path), mpu=ranks)
        read.data_parallel = read.world_size
        return read
    return parse


def accelerate_parser():
    """A function from the path of a YAML file to its configuration."""
    try:
        args = importlib.import_module("accelerate.commands.config.config_args")
    except ModuleNotFoundError as missing:
        raise Absent(f"{missing.name} is not installed: pip install accelerate torch") from None
    return lambda path: args.load_config_from_file(str(path))


def ask(plan, form, ending, parser, cases):
    """Number of configurations that the package refuses or reads as something else."""
    try:
        parse = parser()
    except Absent as reason:
        print(f"SKIPPED: {form}: {reason}")
        return 0
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for arguments, expected in cases:
            path = Path(folder) / f"run.{ending}"
            exported(plan, form, arguments, path)
            try:
                with contextlib.redirect_stderr(io.StringIO()) as printed:
                    found = list(differences(parse(path), expected))
            except (Exception, SystemExit) as refusal:  # whatever the package raises
                found = [f"{type(refusal).__name__}: {refusal} {printed.getvalue()[-500:]}"]
            wrong += bool(found)
            print(f"{'WRONG' if found else 'ok'}: {form} {' '.join(arguments)}")
            for each in found:
                print(f"  {each}")
    return wrong


def main():
    plan = str(Path(sys.argv[1]).resolve()) if len(sys.argv) > 1 else str(
        ROOT / "build" / "release" / "cli" / "plan")
    wrong = ask(plan, "torchtitan-toml", "toml", torchtitan_parser, TORCHTITAN)
    wrong += ask(plan, recipe_format(), "py", recipe_parser, RECIPES)
    wrong += ask(plan, "deepspeed", "json", deepspeed_parser, DEEPSPEED)
    wrong += ask(plan, "accelerate", "yaml", accelerate_parser, ACCELERATE)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
