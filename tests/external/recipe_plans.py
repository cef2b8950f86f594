"""What ask_bridge.py and ask_nemo.py share: plans, exports, comparison with what was read."""

import importlib.machinery
import json
import subprocess
import sys
import tempfile
import types
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
CATALOG = ROOT / "core" / "model" / "catalog"

SP = ["--sequence-parallel"]
LLAMA = ["llama3-8b", "--gpus", "64"]
EXPERTS = ["--gpus", "64", "--zero", "1", "--ep", "8"]
V3 = ["deepseek-v3", "--gpus", "256", "--zero", "1", "--ep", "32", "--pp", "8", "--global-batch",
      "2048"]
# A model and the arguments of its plan.
CASES = [
    ["llama2-7b", "--gpus", "64", "--zero", "1", "--dp", "64"],
    [*LLAMA, "--tp", "2", *SP, "--zero", "1"],
    [*LLAMA, "--zero", "0"],
    [*LLAMA, "--zero", "1", "--cp", "2", "--cp-comm", "a2a", "--seq", "16k"],
    [*LLAMA, "--zero", "1", "--recompute", "full"],
    [*LLAMA, "--zero", "1", "--recompute", "selective"],
    [*LLAMA, "--zero", "3"],
    [*LLAMA, "--zero", "2"],
    [*LLAMA, "--zero", "1", "--zero-group-size", "8"],
    [*LLAMA, "--zero", "1", "--precision", "fp8"],
    [*LLAMA, "--zero", "1", "--precision", "fp8:blockwise"],
    [*LLAMA, "--zero", "1", "--precision", "fp8:bf16-gradients"],
    [*LLAMA, "--zero", "1", "--precision", "bf16:adam-bf16-gradients"],
    [*LLAMA, "--zero", "1", "--precision", "mxfp8", "--cluster", "dgx-b200"],
    [*LLAMA, "--zero", "1", "--precision", "nvfp4", "--cluster", "gb200-nvl72"],
    [*LLAMA, "--tp", "2", *SP, "--zero", "1", "--overlap", "dp,tp"],
    [*LLAMA, "--zero", "1", "--cuda-graphs", "full_iteration"],
    [*LLAMA, "--zero", "1", "--cuda-graphs", "layers"],
    [*LLAMA, "--pp", "4", "--zero", "1"],
    [*LLAMA, "--pp", "2", "--zero", "1", "--layers-per-stage", "17,15"],
    [*LLAMA, "--tp", "2", *SP, "--zero", "1", "--rank-order", "tp-cp-ep-pp-dp", "--pp", "2"],
    ["llama3-70b", "--gpus", "64", "--tp", "8", *SP, "--zero", "1", "--dp", "8"],
    ["llama3-70b", "--gpus", "64", "--tp", "4", "--pp", "4", "--vpp", "5", *SP, "--zero", "1",
     "--global-batch", "128"],
    ["llama3-70b", "--gpus", "64", "--tp", "4", "--pp", "4", "--vpp", "1", *SP, "--zero", "1",
     "--global-batch", "128", "--recompute", "full"],
    ["llama3.1-405b", "--gpus", "512", "--tp", "8", "--pp", "8", "--vpp", "8", *SP, "--zero", "1",
     "--global-batch", "512", "--layers-per-stage", "15,16,16,16,16,16,16,15"],
    ["qwen3-8b", "--gpus", "64", "--zero", "1", "--tp", "2", *SP],
    ["qwen3-32b", "--gpus", "64", "--zero", "1", "--tp", "8", *SP, "--recompute", "none", "--dp",
     "8"],
    ["qwen3-30b-a3b", *EXPERTS, "--dp", "64"],
    ["qwen3-30b-a3b", *EXPERTS, "--tp", "2", "--etp", "1", *SP, "--pp", "2"],
    ["qwen3-235b-a22b", "--gpus", "256", "--zero", "1", "--ep", "16", "--tp", "4", "--etp", "1",
     *SP, "--pp", "8", "--layers-per-stage", "11,12,12,12,12,12,12,11"],
    V3,
    [*V3, "--vpp", "2", "--dispatcher", "deepep", "--overlap", "dp,pp,ep"],
    [*V3, "--recompute-modules", "mla_up_proj,mlp", "--dispatcher", "alltoall"],
    ["deepseek-v2-lite", *EXPERTS, "--dp", "64"],
    ["gpt-oss-20b", *EXPERTS, "--dp", "64"],
    ["gpt-oss-120b", "--gpus", "64", "--zero", "1", "--ep", "16", "--pp", "2", "--dispatcher",
     "hybridep", "--cluster", "gb200-nvl72"],
    ["glm-4.5-air", *EXPERTS, "--pp", "2"],
    ["glm-4.5", "--gpus", "256", "--zero", "1", "--ep", "16", "--pp", "8", "--recompute", "full",
     "--global-batch", "1024", "--layers-per-stage", "11,12,12,12,12,11,11,11"],
    ["gemma3-1b", "--gpus", "8", "--zero", "1"],
    ["gemma2-9b", "--gpus", "64", "--zero", "1", "--tp", "2", *SP],
    ["qwen3-next-80b-a3b", *EXPERTS, "--dp", "64"],
]


class Absent(Exception):
    """A package or a folder that is not there."""


class Stand:
    """Modules that are not here, each name in them a class or a mock."""

    def __init__(self, roots):
        self.roots = roots

    def find_spec(self, name, _path=None, _target=None):
        if any(name == root or name.startswith(root + ".") for root in self.roots):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.__path__ = []
        module.__version__ = "2.8.0"

        def made(name):
            if name.startswith("__"):
                raise AttributeError(name)
            value = mock.MagicMock(name=name)
            if name[:1].isupper():
                value = type(name, (), {"__init__": lambda self, *a, **k: None,
                                        "__class_getitem__": classmethod(lambda c, i: c)})
            setattr(module, name, value)
            return value

        module.__getattr__ = made
        return module

    def exec_module(self, module):
        pass


def stand_in_for(*roots):
    """Modules that need a GPU, or that only other parts of the framework use."""
    sys.meta_path.append(Stand(roots))


def catalog(name):
    return json.loads((CATALOG / f"{name}.json").read_text())


def wanted_of(plan, arguments):
    """What the parsers' answers are compared with."""
    command = [plan, "predict", *arguments, "--json", "--quiet", "--no-config"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        document = json.loads(run.stdout)
        wanted = dict(document["plan"])
    except (ValueError, KeyError):
        raise SystemExit(f"{' '.join(command)}: {run.stdout}{run.stderr}") from None
    model = document["model"]
    wanted["model"] = catalog(model if isinstance(model, str) else model["name"])
    for name in ("gpus", "seq", "precision", "cluster"):
        wanted[name] = document[name]
    wanted["batch"] = document["global_batch"]
    wanted["group"] = wanted["zero_group_size"]
    wanted["overlap"] = sorted(wanted["overlap"])
    wanted["graphs"] = wanted.get("cuda_graphs", "none")
    wanted["dispatcher"] = wanted.get("dispatcher", "alltoall")
    # Selective recomputation without names is that of the attention's core.
    wanted["modules"] = sorted(wanted.get("recompute_modules") or ["core_attn"])
    wanted["mtp"] = wanted["model"].get("prediction_modules", 0)
    wanted["precision_aware"] = False  # of no precision that these formats have
    return wanted


def layers_of_layout(layout):
    """Layers on every rank of a Megatron-Core layout."""
    from megatron.core.transformer.enums import LayerType
    return [sum(sum(x == LayerType.decoder for x in chunk) for chunk in rank)
            for rank in layout.layout]


def ask(plan, form, parser, recipes, filled, cases):
    """Number of exports that the framework refuses or reads as something else."""
    try:
        parse = parser()
    except Absent as reason:
        print(f"SKIPPED: {form}: {reason}")
        return 0
    counts = {"ok": 0, "WRONG": 0, "not exported": 0}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.sh"
        for case in cases:
            if case[0] not in recipes:
                continue
            arguments = ["--model", *case]
            wanted = wanted_of(plan, arguments)
            command = [plan, "export", form, *arguments, "-o", str(path), "--quiet", "--no-config"]
            run = subprocess.run(command, capture_output=True, text=True, check=False)
            said = run.stdout + run.stderr
            outcome, found = "not exported", said.splitlines()
            if run.returncode == 0:
                text = path.read_text()
                for name, value in {**filled, recipes[""]: recipes[case[0]]}.items():
                    text = text.replace(f"{name}FILL_IN", f"{name}{value}")
                path.write_text(text)
                try:
                    read = parse(path, wanted)
                    found = [f"{name} is read as {value!r}, not {wanted[name]!r}"
                             for name, value in read.items() if value != wanted[name]]
                except (Exception, SystemExit) as refusal:  # whatever the framework raises
                    found = [f"{type(refusal).__name__}: {str(refusal)[-600:]}"]
                outcome = "WRONG" if found else "ok"
            counts[outcome] += 1
            print(f"{outcome}: {form} {' '.join(arguments)}")
            for each in found:
                print(f"  {each}")
    print(form, counts)
    return counts["WRONG"]
