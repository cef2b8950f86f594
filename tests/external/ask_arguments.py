"""Feeds exported scripts to the argument parser and the checks of Megatron-LM itself.

ask_arguments.py SOURCE [PLAN]: SOURCE is a checkout of Megatron-LM (core_v0.16.1 or d98e8a64), PLAN
the planner's program (default: build/release/cli/plan). Every model of the catalog is exported, with
what Megatron-LM cannot express left out (--downgrade), and every precision that has settings of its
own. Each script goes through parse_args, validate_args and core_transformer_config_from_args, as
pretrain_gpt.py does it. No GPU is used. "newer": the script says itself that it needs a later release.
Exit codes: 0 all others are accepted, 1 some are refused.
"""

import contextlib
import importlib
import io
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
# What a user fills in.
FILLED = {"data-path": "data", "tokenizer-type": "NullTokenizer", "tokenizer-model": "none",
          "train-iters": "10", "lr": "1e-4"}
# How a release refuses what a later one takes.
OF_NEWER = ["invalid choice", "Muon optimizer does not support"]
TRANSFORMER_ENGINE = "2.9.0"  # needs a GPU to be built; the checks ask for its version only


def planned(plan, arguments):
    """The options of the exported script, and its exit code."""
    command = [plan, "export", "megatron-lm", "--cluster", "dgx-b200", *arguments]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        return None, run.stdout + run.stderr
    lines = [line for line in run.stdout.splitlines() if not line.startswith("#")]
    words = shlex.split("\n".join(lines).replace("\\\n", " "))
    options = words[words.index("pretrain_gpt.py") + 1:]
    for key, value in FILLED.items():
        options[options.index(f"--{key}") + 1] = value
    gpus = int(words[words.index("--nproc_per_node") + 1]) * int(words[words.index("--nnodes") + 1])
    newer = [line for line in run.stdout.splitlines() if line.startswith("# needs Megatron-LM core")]
    return (options, gpus), newer[0][2:] if newer else ""


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
        enter(mock.patch.object(torch.cuda, "get_device_capability", lambda *_: (10, 0)))
        enter(mock.patch.object(torch.cuda, "is_available", lambda: True))
        enter(mock.patch.object(torch.cuda, "current_device", lambda: 0))
        enter(mock.patch.object(torch.cuda, "get_device_properties", lambda *_: mock.Mock(major=10)))
        enter(mock.patch.object(torch.cuda, "device_count", lambda: 8))
        yield


def refusal(arguments, options, gpus):
    """What Megatron-LM says against the options; None: nothing."""
    connections = "CUDA_DEVICE_MAX_CONNECTIONS"
    with a_node_of_gpus(gpus), contextlib.redirect_stdout(io.StringIO()):
        with contextlib.redirect_stderr(io.StringIO()) as printed, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                with mock.patch.object(sys, "argv", ["pretrain_gpt.py", *options]):
                    args = arguments.parse_args()
                if getattr(args, "overlap_moe_expert_parallel_comm", False) or getattr(
                        args, "use_megatron_fsdp", False):
                    os.environ.pop(connections, None)
                arguments.validate_args(args)
                core_config(arguments, args)
            except (Exception, SystemExit) as reason:  # whatever it raises
                frames = traceback.extract_tb(reason.__traceback__)
                place = " ".join(f"{Path(each.filename).name}:{each.lineno}" for each in frames[-2:])
                return f"{place}: {type(reason).__name__}: {reason} {printed.getvalue()[-300:]}"
    return None


def cases(plan):
    models = sorted(file.stem for file in (ROOT / "core" / "model" / "catalog").glob("*.json"))
    for model in models:
        yield ["--model", model, "--gpus", "8", "--zero", "1"]
    for precision in PRECISIONS:
        yield ["--model", "llama3-8b", "--gpus", "8", "--zero", "1", "--precision", precision]
        yield ["--model", "deepseek-v3", "--gpus", "256", "--pp", "8", "--ep", "32", "--zero", "1",
               "--precision", precision]
    yield from OTHERS


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
        reason = why if script is None else refusal(arguments, *script)
        if script is not None and reason:
            found = "newer" if why and any(sign in reason for sign in OF_NEWER) else "WRONG"
            reason = why if found == "newer" else reason
        counts[found] += 1
        print(f"{found}: {' '.join(case)}{lost}" + (f"\n  {reason}" if reason else ""))
    print(", ".join(f"{count} {name}" for name, count in counts.items()))
    return 1 if counts["WRONG"] else 0


if __name__ == "__main__":
    sys.exit(main())
