"""Feeds exported configurations to the parsers of accelerate and torchtitan themselves.

ask_parsers.py [PLAN]: PLAN is the planner's program (default: build/release/cli/plan). No GPU is
used. A package that is absent is reported as skipped, with the reason. Exit codes: 0 all that was
asked is read as the plan has it, 1 something is refused or read as something else.
"""

import contextlib
import importlib.util
import io
import re
import subprocess
import sys
import tempfile
import types
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
JOB = ["--model", "llama3-8b", "--gpus", "64", "--seq", "8192", "--global-batch", "512"]

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

# The same for accelerate: attribute of its configuration, or option of a section of it.
ACCELERATE = [
    (["--zero", "3"],
     {"distributed_type": "FSDP", "num_processes": 64, "num_machines": 8, "mixed_precision": "bf16",
      "fsdp_config.fsdp_version": 2, "fsdp_config.fsdp_reshard_after_forward": True}),
    (["--zero", "2", "--recompute", "full"],
     {"fsdp_config.fsdp_reshard_after_forward": False,
      "fsdp_config.fsdp_activation_checkpointing": True}),
]


class Absent(Exception):
    """A package that is not installed."""


def exported(plan, form, arguments, path):
    """The configuration as the planner writes it, filled in."""
    command = [plan, "export", form, *JOB, *arguments, "-o", str(path), "--quiet"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: {run.stdout}{run.stderr}")
    text = path.read_text()
    for name, value in FILLED.items():
        text = re.sub(rf"(?m)^(\s*{name} = )'FILL_IN'$", rf"\g<1>{value}", text)
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
    wrong = ask(plan, "torchtitan", "toml", torchtitan_parser, TORCHTITAN)
    wrong += ask(plan, "accelerate", "yaml", accelerate_parser, ACCELERATE)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
