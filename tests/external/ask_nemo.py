"""Feeds exported overrides to the command line of NeMo 2, on its own recipes.

ask_nemo.py SOURCE CORE [PLAN]: SOURCE is a checkout of NeMo, CORE one of the Megatron-LM that it
names, PLAN the planner's program (default: build/release/cli/plan). Asked are nemo_run's parser of
`nemo llm pretrain`, the recipe, and what fiddle builds of it: strategy, plugin of precision,
configurations of optimizer and model. No GPU is used. Exit codes: 0 all that was asked is read as
the plan has it, 1 something is refused or read as something else.
"""

import importlib.metadata
import shlex
import sys
from pathlib import Path
from unittest import mock

from recipe_plans import CASES, ROOT, Absent, ask, layers_of_layout, stand_in_for

# NeMo has no recipe that pretrains GPT-OSS or GLM; nemo_run refuses the one of Nemotron-H.
RECIPES = {
    "": "--factory ",
    "llama2-7b": "llama2_7b", "llama3-8b": "llama3_8b", "llama3-70b": "llama3_70b",
    "llama3.1-405b": "llama31_405b", "qwen3-8b": "qwen3_8b", "qwen3-32b": "qwen3_32b",
    "qwen3-30b-a3b": "qwen3_30b_a3b", "qwen3-235b-a22b": "qwen3_235b_a22b",
    "deepseek-v3": "deepseek_v3", "deepseek-v2-lite": "deepseek_v2_lite",
    "gemma2-9b": "gemma2_9b", "gemma3-1b": "gemma3_1b", "mixtral-8x7b": "mixtral_8x7b",
}
FILLED = {"trainer.max_steps=": "10", "optim.config.lr=": "3e-4"}
MORE = [
    ["mixtral-8x7b", "--gpus", "64", "--zero", "1", "--ep", "8", "--dp", "64"],
    ["llama3-8b", "--gpus", "64", "--zero", "1", "--precision", "fp8:primary-weights"],
]

# fp8, its recipe, weights in fp8 alone, gradients reduced in fp32.
PRECISIONS = {
    "bf16:adam-fp32-master": (None, None, None, True),
    "bf16:adam-bf16-gradients": (None, None, None, False),
    "fp8:adam-fp32-master": ("hybrid", "delayed", False, True),
    "fp8:primary-weights": ("hybrid", "delayed", True, True),
    "fp8:bf16-gradients": ("hybrid", "tensorwise", True, False),
    "mxfp8:adam-fp32-master": ("e4m3", "mxfp8", False, True),
}


def layout_of(strategy, read):
    """Layers on every rank, or what stands beside a layout and contradicts it."""
    from megatron.core.transformer.pipeline_parallel_layer_layout import (
        PipelineParallelLayerLayout)
    layout = PipelineParallelLayerLayout.from_str(strategy.pipeline_model_parallel_layout,
                                                  read["pp"])
    chunks = getattr(strategy, "virtual_pipeline_model_parallel_size", None)
    first = getattr(strategy, "num_layers_in_first_pipeline_stage", None)
    last = getattr(strategy, "num_layers_in_last_pipeline_stage", None)
    if first or last or chunks not in (None, layout.virtual_pipeline_model_parallel_size):
        return f"a layout beside {chunks} chunks, {first} and {last} layers of the end stages"
    read["vpp"] = layout.virtual_pipeline_model_parallel_size
    return layers_of_layout(layout)


def zero_of(task, strategy):
    """Of the built strategy, which takes the optimizer's switch for its own."""
    if strategy._fsdp == "megatron":
        kinds = {"optim_grads_params": 3, "optim_grads": 2}
        return kinds.get(task.trainer.strategy.ddp.data_parallel_sharding_strategy, "?")
    mine = bool(getattr(task.trainer.strategy.ddp, "use_distributed_optimizer", False))
    theirs = bool(task.optim.config.use_distributed_optimizer)
    return int(mine) if mine == theirs else f"{mine} of ddp, {theirs} of the optimizer"


def read_of(task, wanted):
    """The plan's values in a task of nemo_run."""
    import fiddle
    strategy, config = task.trainer.strategy, task.model.config
    built = fiddle.build(strategy)
    for part in (task.trainer.plugins, config, task.optim.config):
        fiddle.build(part)

    def of(section, name, usual=None):
        value = getattr(section, name, None)
        return usual if value is None else value

    read = {"tp": strategy.tensor_model_parallel_size,
            "pp": strategy.pipeline_model_parallel_size, "cp": strategy.context_parallel_size,
            "ep": of(strategy, "expert_model_parallel_size", 1),
            "vpp": of(strategy, "virtual_pipeline_model_parallel_size", 1),
            "gpus": int(task.trainer.devices) * int(task.trainer.num_nodes),
            "microbatch": task.data.micro_batch_size, "batch": task.data.global_batch_size,
            "seq": task.data.seq_length, "zero": zero_of(task, built),
            "sequence_parallel": bool(of(strategy, "sequence_parallel", False)),
            "recompute": of(config, "recompute_granularity", "none"),
            "mtp": of(config, "mtp_num_layers", 0),
            "precision_aware": bool(of(task.optim.config, "use_precision_aware_optimizer", False))}
    if of(config, "seq_length", wanted["seq"]) != wanted["seq"]:
        read["seq"] = f"{read['seq']} of the data, {config.seq_length} of the model"
    if wanted["model"].get("moe"):
        read["etp"] = of(strategy, "expert_tensor_parallel_size")
    if read["cp"] > 1:
        read["cp_comm"] = of(config, "cp_comm_type", "p2p")
    overlap = {"dp"} if strategy.ddp.overlap_grad_reduce else set()
    unread = {"pp"}  # follows from the schedule
    if read["tp"] == 1:
        unread.add("tp")
    elif of(config, "tp_comm_overlap", False):
        overlap.add("tp")
    read["overlap"] = sorted(overlap | (set(wanted["overlap"]) & unread))
    if read["pp"] > 1 and of(strategy, "pipeline_model_parallel_layout"):
        read["layers_per_stage"] = layout_of(strategy, read)
    plugin = task.trainer.plugins
    fp8 = of(plugin, "fp8")
    state = (fp8, of(plugin, "fp8_recipe") if fp8 else None,
             bool(of(plugin, "fp8_param_gather", False)) if fp8 else None,
             of(plugin, "grad_reduce_in_fp32"))
    asked = PRECISIONS[wanted["precision"]]
    read["precision"] = wanted["precision"] if state == asked else f"{state}, not {asked}"
    return read


def stand_in_for_gpus():
    """What NeMo asks of a GPU, of compilers, and of packages while it is imported."""
    real = importlib.metadata.version

    def version(name):
        try:
            return real(name)
        except importlib.metadata.PackageNotFoundError:
            if "transformer" not in name and "flash" not in name:
                raise
            return "2.5.0"

    importlib.metadata.version = version
    import lightning.pytorch.loggers as loggers
    import torch.cuda.memory as memory
    import torch.utils.cpp_extension as extension
    memory.CUDAPluggableAllocator = lambda *_, **__: mock.MagicMock()
    extension.load = extension.load_inline = lambda *_, **__: mock.MagicMock(__file__="none.so")
    loggers.NeptuneLogger = getattr(loggers, "NeptuneLogger", type("NeptuneLogger", (), {}))


def nemo_parser(source, core):
    """A function from the path of a script to the values of the plan."""
    for folder in (source / "nemo", core / "megatron"):
        if not folder.is_dir():
            raise Absent(f"there is no folder {folder}")
    sys.path[:0] = [str(source), str(core)]
    stand_in_for("transformer_engine", "transformer_engine_torch", "modelopt", "wget", "onnx",
                 "sentencepiece", "cloudpickle", "braceexpand", "webdataset", "h5py",
                 "matplotlib", "sklearn", "leptonai", "tiktoken", "tensorstore")
    try:
        import logging
        logging.disable(logging.CRITICAL)
        import ml_dtypes  # noqa: F401 (NeMo asks for it late)
        stand_in_for_gpus()
        from nemo.collections import llm
        from nemo_run.cli.api import RunContext
    except ModuleNotFoundError as missing:
        raise Absent(f"{missing.name} is not installed") from None

    def parse(path, wanted):
        lines = [x for x in path.read_text().splitlines() if not x.startswith("#")]
        words = shlex.split("\n".join(lines).replace("\\\n", " "))
        command = words[words.index("nemo"):]
        if command[:4] != ["nemo", "llm", "pretrain", "--yes"]:
            raise ValueError(f"the command {command[:4]}")
        at = command.index("--factory")
        overrides = command[4:at] + command[at + 2:]
        context = RunContext(name="pretrain", factory=command[at + 1])
        return read_of(context.parse_fn(llm.pretrain, overrides), wanted)

    return parse


def main():
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    source, core = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    plan = str(Path(sys.argv[3]).resolve() if len(sys.argv) > 3
               else ROOT / "build" / "release" / "cli" / "plan")
    sys.argv = sys.argv[:1]
    return 1 if ask(plan, "nemo", lambda: nemo_parser(source, core), RECIPES, FILLED,
                    [*CASES, *MORE]) else 0


if __name__ == "__main__":
    sys.exit(main())
