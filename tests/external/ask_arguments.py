"""Feeds exported scripts to the argument parser and the checks of Megatron-LM itself.

ask_arguments.py SOURCE [PLAN]: SOURCE is a checkout of Megatron-LM (core_v0.16.1 or d98e8a64), PLAN
the planner's program (default: build/release/cli/plan). Every model of the catalog is exported, with
what Megatron-LM cannot express left out (--downgrade), every precision that has settings of its
own, and plans that split hybrid models and experts in every way. Each script goes through parse_args,
validate_args and core_transformer_config_from_args, as pretrain_gpt.py and pretrain_hybrid.py do it;
the layers that a hybrid model's pattern gives each stage are asked of select_pipeline_segment.
No GPU is used. "newer": the script says itself that it needs a later release.
Exit codes: 0 all others are accepted, 1 some are refused.
"""

import contextlib
import importlib
import importlib.util
import io
import json
import os
import shlex
import subprocess
import sys
import traceback
import typing
import warnings
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
PRECISIONS = ["fp8", "fp8:primary-weights", "fp8:bf16-gradients", "fp8:precision-aware",
              "fp8:blockwise", "fp8:deepseek-v3", "mxfp8", "mxfp8:bf16-gradients", "mxfp8:muon",
              "nvfp4", "bf16:muon", "bf16:adam-bf16-states", "bf16:precision-aware"]
# A sequence beyond the context, and plans with chunks, layouts and experts.
OTHERS = [
    ["--model", "llama3-8b", "--gpus", "8", "--seq", "131072", "--global-batch", "8", "--cp", "8"],
    ["--model", "deepseek-v3", "--gpus", "256", "--pp", "8", "--vpp", "4", "--ep", "32",
     "--zero", "1", "--global-batch", "4096"],
    ["--model", "llama3-70b", "--gpus", "64", "--tp", "4", "--pp", "4", "--vpp", "2", "--zero", "1",
     "--sequence-parallel", "--recompute", "selective", "--global-batch", "512"],
]
# Hybrid models, split in every way that their layers can be.
HYBRIDS = [
    ("nemotron-h-8b", ["--gpus", "16", "--tp", "4", "--sequence-parallel"]),
    ("nemotron-h-8b", ["--gpus", "16", "--pp", "4"]),
    ("nemotron-h-8b", ["--gpus", "16", "--pp", "2", "--layers-per-stage", "25,27"]),
    ("nemotron-h-8b", ["--gpus", "16", "--pp", "4", "--vpp", "13"]),
    ("nemotron-h-8b", ["--gpus", "16", "--cp", "2", "--recompute", "full"]),
    ("nemotron-h-8b", ["--gpus", "16", "--recompute", "selective"]),
    ("nemotron-h-56b", ["--gpus", "64", "--tp", "8", "--sequence-parallel", "--pp", "2"]),
    ("nemotron-nano-9b-v2", ["--gpus", "16", "--zero", "3"]),
    ("nemotron-nano-9b-v2", ["--gpus", "16", "--cuda-graphs", "layers"]),
    ("nemotron-nano-9b-v2", ["--gpus", "16", "--precision", "fp8"]),
]
# Experts with every dispatcher and overlap, alone and behind shared experts, latent attention and
# modules for multi-token prediction.
EXPERTS = ["mixtral-8x7b", "qwen1.5-moe-a2.7b", "deepseek-v2-lite", "deepseek-v3", "glm-4.5-air",
           "gpt-oss-20b", "qwen3-next-80b-a3b", "nemotron-3-nano-30b-a3b",
           "nemotron-3-super-120b-a12b"]
EXCHANGES = [
    *(["--dispatcher", each] for each in ("alltoall", "allgather", "deepep", "hybridep")),
    ["--overlap", "dp,tp,pp,ep"],
    ["--dispatcher", "deepep", "--overlap", "dp,tp,pp,ep"],
    ["--overlap", "dp,tp,pp,shared"],
    ["--tp", "2", "--sequence-parallel", "--etp", "1"],
    ["--tp", "2", "--sequence-parallel", "--etp", "2"],
    ["--pp", "2"],
    ["--dispatcher", "hybridep", "--cuda-graphs", "full_iteration"],
    ["--cuda-graphs", "layers"],
    ["--recompute-modules", "moe"],
    ["--zero", "3"],
]
# What a user fills in.
FILLED = {"data-path": "data", "tokenizer-type": "NullTokenizer", "tokenizer-model": "none",
          "train-iters": "10", "lr": "1e-4"}
# How a release refuses what a later one takes.
OF_NEWER = ["invalid choice", "Muon optimizer does not support", "--hybrid-layer-pattern",
            "--moe-pad-experts-for-cuda-graph-inference",
            "unrecognized arguments: --dsa-kernel-backend",
            "unrecognized arguments: --fine-grained-offloading-max-inflight-offloads"]
NEEDS = ("# needs Megatron-LM core", "# requires Megatron-LM core")
TRANSFORMER_ENGINE = "2.9.0"  # needs a GPU to be built; the checks ask for its version only


def planned(plan, arguments):
    """The program, options and GPUs of the exported script, None if there is none; and the release
    that it says it needs, or why there is none."""
    command = [plan, "export", "megatron-lm", "--cluster", "dgx-b200", *arguments]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        return None, run.stdout + run.stderr
    lines = [line for line in run.stdout.splitlines() if not line.startswith("#")]
    words = shlex.split("\n".join(lines).replace("\\\n", " "))
    program = next(i for i, word in enumerate(words) if word.endswith(".py"))
    options = words[program + 1:]
    for key, value in FILLED.items():
        options[options.index(f"--{key}") + 1] = value
    gpus = int(words[words.index("--nproc_per_node") + 1]) * int(words[words.index("--nnodes") + 1])
    newer = [line for line in run.stdout.splitlines() if line.startswith(NEEDS)]
    return (words[program], options, gpus), newer[0][2:] if newer else ""


def megatron(source):
    """Its module of arguments, with what needs a GPU or its libraries replaced."""
    sys.path.insert(0, source)
    if not hasattr(typing, "override"):  # Python 3.11
        typing.override = importlib.import_module("typing_extensions").override
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module("megatron.training.arguments")


def core_config(arguments, args):
    """The configuration of the transformer: in newer releases with another module's function."""
    make = getattr(arguments, "core_transformer_config_from_args", None)
    if make is None:
        module = importlib.import_module("megatron.training.argument_utils")
        make = module.core_transformer_config_from_args
    return make(args)


@contextlib.contextmanager
def a_node_of_gpus(gpus):
    """Environment of rank 0, and libraries and devices that are not here."""
    from packaging.version import Version
    import torch

    utils = importlib.import_module("megatron.core.utils")
    rope = importlib.import_module("megatron.core.models.common.embeddings.rope_utils")
    version = Version(TRANSFORMER_ENGINE)
    with contextlib.ExitStack() as stack:
        enter = stack.enter_context
        enter(mock.patch.dict(os.environ, RANK="0", WORLD_SIZE=str(gpus), LOCAL_RANK="0",
                              CUDA_DEVICE_MAX_CONNECTIONS="1"))
        enter(mock.patch.object(utils, "get_te_version", lambda: version))
        for kernel in ("fused_apply_rotary_pos_emb", "fused_apply_rotary_pos_emb_thd"):
            enter(mock.patch.object(rope, kernel, mock.Mock(), create=True))
        enter(mock.patch.object(utils, "_missing_cudnn_dsa_kernel_dependencies", list, create=True))
        enter(mock.patch.object(torch.cuda, "get_device_capability", lambda *_: (10, 0)))
        enter(mock.patch.object(torch.cuda, "is_available", lambda: True))
        enter(mock.patch.object(torch.cuda, "current_device", lambda: 0))
        enter(mock.patch.object(torch.cuda, "get_device_properties", lambda *_: mock.Mock(major=10)))
        enter(mock.patch.object(torch.cuda, "device_count", lambda: 8))
        yield


def layers_of_pattern(args):
    """The letters of a hybrid model's layers, as its stages and chunks take them one by one."""
    allocation = importlib.import_module("megatron.core.models.hybrid.hybrid_layer_allocation")
    import torch

    pattern = allocation.parse_hybrid_pattern(args.hybrid_layer_pattern).main_pattern
    stages = args.pipeline_model_parallel_size
    letters = ""
    for chunk in range(args.virtual_pipeline_model_parallel_size or 1):
        for stage in range(stages):
            with mock.patch.object(torch.distributed, "get_rank", lambda _, stage=stage: stage), \
                 mock.patch.object(torch.distributed, "get_world_size", lambda _: stages), \
                 mock.patch.object(allocation, "log_on_each_pipeline_stage"):
                virtual = chunk if args.virtual_pipeline_model_parallel_size else None
                layers, first = allocation.select_pipeline_segment(pattern, "pp", virtual)
            assert first == len(letters), f"stage {stage} begins with layer {first}"
            letters += "".join(layers)
    return letters


def check_hybrid(args, program, model):
    """A hybrid model has its own program, and the layers of the catalog."""
    hybrid = getattr(args, "hybrid_layer_pattern", None) is not None
    assert (program == "pretrain_hybrid.py") == hybrid, f"{program} of such a model"
    if not hybrid:
        return
    module, name = args.spec
    source = importlib.util.find_spec(module)
    assert source is not None and f"{name} = ModuleSpec(" in Path(source.origin).read_text(), args.spec
    letters = layers_of_pattern(args)
    expected = json.loads((ROOT / "core" / "model" / "catalog" / f"{model}.json").read_text())
    assert letters == expected["layer_pattern"], f"layers {letters}"


def refusal(arguments, model, program, options, gpus):
    """What Megatron-LM says against the options; None: nothing."""
    connections = "CUDA_DEVICE_MAX_CONNECTIONS"
    with a_node_of_gpus(gpus), contextlib.redirect_stdout(io.StringIO()):
        with contextlib.redirect_stderr(io.StringIO()) as printed, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                with mock.patch.object(sys, "argv", [program, *options]):
                    args = arguments.parse_args()
                if getattr(args, "overlap_moe_expert_parallel_comm", False) or getattr(
                        args, "use_megatron_fsdp", False):
                    os.environ.pop(connections, None)
                arguments.validate_args(args)
                core_config(arguments, args)
                check_hybrid(args, program, model)
            except (Exception, SystemExit) as reason:  # whatever it raises
                frames = traceback.extract_tb(reason.__traceback__)
                place = " ".join(f"{Path(each.filename).name}:{each.lineno}" for each in frames[-2:])
                return f"{place}: {type(reason).__name__}: {reason} {printed.getvalue()[-300:]}"
    return None


def cases(plan):
    models = sorted(file.stem for file in (ROOT / "core" / "model" / "catalog").glob("*.json"))
    for model in models:
        yield ["--model", model, "--gpus", "8", "--zero", "1"]
    yield ["--model", "llama3-8b", "--gpus", "8", "--zero", "0"]
    for precision in PRECISIONS:
        yield ["--model", "llama3-8b", "--gpus", "8", "--zero", "1", "--precision", precision]
        yield ["--model", "deepseek-v3", "--gpus", "256", "--pp", "8", "--ep", "32", "--zero", "1",
               "--precision", precision]
    yield from OTHERS
    for model, split in HYBRIDS:
        yield ["--model", model, *split, *([] if "--zero" in split else ["--zero", "1"])]
    for model in EXPERTS:
        for exchange in EXCHANGES:
            zero = [] if "--zero" in exchange else ["--zero", "1"]
            yield ["--model", model, "--gpus", "64", "--ep", "4", *exchange, *zero]


def main():
    source = sys.argv[1]
    plan = str(Path(sys.argv[2]).resolve()) if len(sys.argv) > 2 else str(
        ROOT / "build" / "release" / "cli" / "plan")
    arguments = megatron(source)
    counts = {"ok": 0, "newer": 0, "WRONG": 0, "not exported": 0}
    for case in cases(plan):
        script, why = planned(plan, case)
        lost = ""
        if script is None:
            lost = " (without " + "; ".join(
                line.strip() for line in why.splitlines() if ": Megatron-LM would run" in line) + ")"
            script, why = planned(plan, [*case, "--downgrade"])
        found = "not exported" if script is None else "ok"
        reason = why if script is None else refusal(arguments, case[1], *script)
        if script is not None and reason:
            found = "newer" if why and any(sign in reason for sign in OF_NEWER) else "WRONG"
            reason = why if found == "newer" else reason
        counts[found] += 1
        print(f"{found}: {' '.join(case)}{lost}" + (f"\n  {reason}" if reason else ""))
    print(", ".join(f"{count} {name}" for name, count in counts.items()))
    return 1 if counts["WRONG"] else 0


if __name__ == "__main__":
    sys.exit(main())
