"""The parts of gpu_day.py, in their order: what matters most comes first, for a budget may end
early. Each is a function of the seconds it may take that returns its result, or raises Missing or
Failed."""

import dataclasses
import glob
import json
import os
import re
import shutil
import sys

import measure

HERE = os.path.dirname(os.path.realpath(__file__))
# Where NVIDIA's libraries lie if the loader does not find them: Python's wheels, then the toolkit.
NVIDIA_FOLDERS = ("/usr/local/cuda/lib64", "/usr/local/cuda-*/lib64",
                  "/usr/local/nvidia/lib64", "/usr/local/nvidia/lib")
OTHER_PYTHONS = ("/opt/*/bin/python3", "/opt/*/.venv/bin/python3")
# cuDNN is no dependency: it is looked for when the backend runs (docs/cuda.md).
CUDNN = "libcudnn.so.9"
LOADED_CUDNN = (f"import ctypes; ctypes.CDLL({CUDNN!r}); print(next(line.split()[-1] for line in "
                f"open('/proc/self/maps') if {CUDNN!r} in line))")
KILLED = "killed by signal"  # so plan reports it, with exit code 3
CLUSTERS = {"H200": "dgx-h200", "A100": "dgx-a100", "B200": "dgx-b200"}  # else dgx-h100


class Missing(Exception):
    """The machine or the build lacks what a part needs."""


class Failed(Exception):
    """A part's program failed; `timed_out`: it was killed at its limit."""

    def __init__(self, reason, timed_out=False):
        super().__init__(reason)
        self.timed_out = timed_out


def passed(found, missing=(3, 127)):
    """A result of measure.py, unless it says why there is none. `missing`: exit codes that mean so,
    3 of plan; 127 is the loader's, or there is no such program."""
    if "failed" not in found:
        return found
    killed = found["timed_out"] or KILLED in found["failed"]
    if found["exit_code"] in missing and not killed:
        raise Missing(found["failed"])
    raise Failed(found["failed"], found["timed_out"])


def python_with_torch():
    """The first Python that has PyTorch, by its path; python3 if none has."""
    usual = shutil.which("python3") or sys.executable
    others = [path for pattern in OTHER_PYTHONS for path in sorted(glob.glob(pattern))]
    code = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
    return next((path for path in [usual, *others]
                 if measure.output_of([path, "-c", code], limit=20).returncode == 0), usual)


def nvidia_folders(python):
    """Folders with libraries of NVIDIA: of the wheels of `python`, which PyTorch uses too, then of
    the toolkit."""
    packages = measure.output_of([python, "-c", "import sys; print(*sys.path, sep='\\n')"],
                                 limit=20).stdout.split("\n")
    patterns = [os.path.join(glob.escape(each), "nvidia", "*", "lib") for each in packages if each]
    found = [folder for pattern in [*patterns, *NVIDIA_FOLDERS]
             for folder in sorted(glob.glob(pattern))]
    return [folder for folder in found if os.path.isdir(folder)]


class Programs:
    """How to run what was packed."""

    def __init__(self, build, manifest, scratch, python):
        self.build, self.manifest, self.scratch, self.python = build, manifest, scratch, python
        folders = [os.path.join(build, "lib"), *nvidia_folders(python)]
        known = os.environ.get("LD_LIBRARY_PATH")
        self.environment = {
            "LD_LIBRARY_PATH": ":".join(folders + ([known] if known else [])),
            "XDG_CACHE_HOME": os.path.join(scratch, "cache"),
            "XDG_CONFIG_HOME": os.path.join(scratch, "config")}
        self.flags = self.catalog_flags()
        self.calibration = None

    @staticmethod
    def catalog_flags():
        """Flags of `plan` without a calibration: the catalog's machine with such GPUs."""
        name = (measure.smi() or [{"name": ""}])[0]["name"]
        cluster = next((each for part, each in CLUSTERS.items() if part in name), "dgx-h100")
        return ["--cluster", cluster, "--framework", "echelon"]

    def libraries(self):
        """The files that the loader takes for NVIDIA's libraries, by name."""
        said = measure.output_of(["ldd", os.path.join(self.build, "cli", "echelon_cuda.so")], 20,
                                 self.environment).stdout
        found = dict(re.findall(r"^\s*(lib(?:cu|nccl|nv)\S+) => (/\S+|not found)", said, re.M))
        cudnn = measure.output_of([self.python, "-c", LOADED_CUDNN], 20, self.environment)
        return {**found, CUDNN: cudnn.stdout.strip() or "not found"}

    def test(self, test, limit, wrapper=()):
        """A test program; `wrapper`: what runs it."""
        ended = measure.output_of([*wrapper, os.path.join(self.build, test["program"]),
                                   "--durations", "yes", *test["arguments"]], limit,
                                  self.environment)
        said = ended.stdout + ended.stderr
        if ended.returncode != 0:
            return passed(measure.failed(test["program"], ended), missing=(127,))
        skipped = re.findall("^SKIPPED: .*", said, re.M)
        if "All tests passed" not in said:  # a name that no test has is no error to Catch2
            if skipped:
                raise Missing(skipped[0])
            raise Failed("no test ran: " + said.strip()[-500:])
        return {"program": test["program"], "arguments": test["arguments"], "skipped": skipped,
                "output": said.strip()[-2000:]}

    def calibrate(self, limit):
        ended, flags = measure.calibrate(self.build, self.scratch, limit, self.environment)
        if ended.returncode != 0:
            return passed(measure.failed("plan calibrate", ended))
        self.flags = flags
        self.calibration = json.loads(ended.stdout)
        files = {}
        for name in ("rates", "rates.cluster"):
            with open(os.path.join(self.scratch, name + ".json"), encoding="utf-8") as file:
                files[name] = json.load(file)
        return {**self.calibration, "rates": files["rates"], "cluster": files["rates.cluster"]}

    def train(self, job, limit, environment=(), flags=None):
        """measure.run_of, with this environment on top of ours."""
        job = dataclasses.replace(job, environment={**self.environment, **dict(environment)})
        return passed(measure.run_of(self.build, self.flags if flags is None else flags, job,
                                     self.scratch, limit))

    def times_of(self, what):
        """Times that the calibration has for an operation, by shape."""
        if self.calibration is None:
            raise Missing("there is no calibration to read it from")
        found = {tuple(each["shape"]): each["seconds"] for each in self.calibration["measurements"]
                 if each["what"] == what}
        if not found:
            raise Missing(f"plan calibrate of this build does not measure '{what}'")
        return found


@dataclasses.dataclass
class Sizes:
    """What is trained."""
    jobs: dict  # by their label
    settings: tuple  # of ECHELON_CUDA_GRAPHS
    graphs: measure.Job
    pipeline: measure.Job
    tensor_parallel: measure.Job  # on two GPUs
    data_parallel: measure.Job
    host: measure.Job
    head_norms: measure.Job
    experts: measure.Job
    expert_parallel: measure.Job  # on two GPUs, or two ranks of one
    context_parallel: measure.Job
    attention: tuple  # sequences
    attention_model: str
    soak_steps: int
    sanitized: str  # tests of kernels


SLICE = os.path.join(HERE, "llama2-7b-8-layers.json")  # 1.9 B parameters, as wide as 7 B
MIXTURE = os.path.join(HERE, "qwen3-30b-a3b-2-layers.json")  # 1.9 B parameters, 128 experts
TINY = os.path.join(HERE, "..", "..", "tests", "cli", "wide_heads.json")
TINY_QWEN3 = os.path.join(HERE, "..", "..", "tests", "cli", "wide_heads_qwen3.json")
TINY_MIXTURE = os.path.join(HERE, "..", "..", "tests", "cli", "wide_heads_qwen3_moe.json")
PIPELINE = ("--pp", "2", "--microbatch", "1")
DATA_PARALLEL = ("--dp", "2", "--zero", "1", "--microbatch", "4")
TENSOR_PARALLEL = ("--tp", "2", "--sequence-parallel", "--microbatch", "1")
EXPERT_PARALLEL = ("--ep", "2", "--dp", "2", "--zero", "1", "--microbatch", "1")
CONTEXT_PARALLEL = ("--cp", "2", "--cp-comm", "a2a", "--microbatch", "1")
ON_GPUS = Sizes(
    jobs={"GPT-2 124M, 1024 tokens": measure.Job("gpt2", 1024, 64),
          "GPT-2 1.5B, 1024 tokens": measure.Job("gpt2-xl", 1024, 16),
          "Llama 2 7B, 8 layers, 2048 tokens": measure.Job(SLICE, 2048, 8),
          "Llama 2 7B, 8 layers, 4096 tokens": measure.Job(SLICE, 4096, 4)},
    settings=("never", "always", ""), graphs=measure.Job("gpt2", 1024, 8, steps=12),
    pipeline=measure.Job("gpt2", 1024, 4, gpus=2, steps=12, plan_flags=PIPELINE),
    tensor_parallel=measure.Job("gpt2-xl", 1024, 4, gpus=2, steps=12, plan_flags=TENSOR_PARALLEL),
    data_parallel=measure.Job("gpt2-xl", 1024, 16, gpus=2, steps=12, plan_flags=DATA_PARALLEL),
    host=measure.Job("gpt2", 64, 1, steps=12),
    head_norms=measure.Job("qwen3-0.6b", 2048, 16, steps=12),
    experts=measure.Job(MIXTURE, 4096, 4, steps=12),
    expert_parallel=measure.Job(MIXTURE, 2048, 2, gpus=2, steps=12, plan_flags=EXPERT_PARALLEL),
    context_parallel=measure.Job("qwen3-0.6b", 4096, 2, gpus=2, steps=12,
                                 plan_flags=CONTEXT_PARALLEL),
    attention=(4096, 8192, 16384), attention_model=SLICE, soak_steps=1000,
    sanitized="CUDA attention agrees*,CUDA norms agree*,CUDA embeddings*,CUDA cross entropy*,"
              "CUDA routers*,CUDA kernels that gather*,CUDA splits and joins*")
# Emulated threads are slow.
ON_STAND_INS = Sizes(
    jobs={"tiny, 16 tokens": measure.Job(TINY, 16, 2, steps=4)},
    settings=("always",), graphs=measure.Job(TINY, 16, 1, steps=4),
    pipeline=measure.Job(TINY, 16, 1, gpus=2, steps=4, plan_flags=PIPELINE),
    tensor_parallel=measure.Job(TINY, 16, 1, gpus=2, steps=4, plan_flags=TENSOR_PARALLEL),
    data_parallel=measure.Job(TINY, 16, 8, gpus=2, steps=4, plan_flags=DATA_PARALLEL),
    host=measure.Job(TINY, 16, 1, steps=4),
    head_norms=measure.Job(TINY_QWEN3, 16, 1, steps=4),
    experts=measure.Job(TINY_MIXTURE, 16, 1, steps=4),
    expert_parallel=measure.Job(TINY_MIXTURE, 16, 1, gpus=2, steps=4, plan_flags=EXPERT_PARALLEL),
    context_parallel=measure.Job(TINY, 16, 1, gpus=2, steps=4, plan_flags=CONTEXT_PARALLEL),
    attention=(64,), attention_model=TINY, soak_steps=6,
    sanitized="gradients are clipped*")


def sanitize(programs, sizes, limit):
    """The kernels' tests under compute-sanitizer's memcheck."""
    name = "compute-sanitizer"
    tool = shutil.which(name) or shutil.which("/usr/local/cuda/bin/" + name)
    if tool is None:
        raise Missing("compute-sanitizer is not installed")
    kernels = dict(programs.manifest["tests"][0], arguments=[sizes.sanitized])
    try:
        return programs.test(kernels, limit, [tool, "--tool", "memcheck", "--error-exitcode", "99"])
    except Failed as error:
        if "Device not supported" in str(error):
            raise Missing(f"compute-sanitizer refuses this machine: {error}") from None
        raise


def pytorch(programs, job, trained, limit):
    """PyTorch on the same model and microbatch."""
    name = os.path.basename(job.model).removesuffix(".json")
    if trained is None:
        raise Missing("Echelon did not train it: no microbatch to take")
    if name not in measure.pytorch_shapes(programs.python, limit):
        raise Missing(f"bench/gpu/pytorch.py has no {name}")
    found = measure.pytorch_of(programs.python, job, trained["plan"]["microbatch"], limit)
    if "has no torch" in found.get("failed", "") or "sees no GPU" in found.get("failed", ""):
        raise Missing(found["failed"])
    return passed(found)


def attention(programs, sizes, sequence, environment, limit):
    """Two layers at a sequence: of its step, most changes with attention."""
    with open(sizes.attention_model, encoding="utf-8") as file:
        model = json.load(file)
    model.update({"layers": 2, "max_positions": sequence} if "layers" in model else
                 {"n_layer": 1, "n_positions": sequence})
    path = os.path.join(programs.scratch, "attention.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(model, file)
    return programs.train(measure.Job(path, sequence, 1, steps=6), limit, environment)


def soak(programs, sizes, limit):
    """A run that is killed in the middle, and the same command line again."""
    steps = sizes.soak_steps
    plan = os.path.join(programs.build, "cli", "plan")
    file = os.path.join(programs.scratch, "soak.json")
    made = measure.output_of([plan, "--model", TINY, "--gpus", "1", "--seq", "16", "--global-batch",
                              "2", "-q", "-o", file, *programs.flags], limit, programs.environment)
    if made.returncode != 0:
        return passed(measure.failed("plan", made))
    report = os.path.join(programs.scratch, "soak-report.json")
    command = [plan, "run", file, "--backend", "cuda", "--steps", str(steps), "--report", report,
               "--checkpoint-dir", os.path.join(programs.scratch, "soak"), "--checkpoint-every",
               str(steps // 3), "--resume", "auto", "-q"]
    killed = measure.output_of([*command, "--inject", f"kill@0:{steps // 2}"], limit / 2,
                               programs.environment)
    if killed.returncode == 0:
        raise Failed("the run that should be killed was not")
    if KILLED + " 9" not in killed.stderr:
        return passed(measure.failed("the run that should be killed", killed))
    again = measure.output_of(command, limit / 2, programs.environment)
    if again.returncode != 0:
        return passed(measure.failed("the resumed run", again))
    with open(report, encoding="utf-8") as text:
        done = json.load(text)["steps"]
    if done[0]["step"] != steps // 3 or done[-1]["step"] != steps - 1:
        raise Failed(f"resumed with step {done[0]['step']} and ended with {done[-1]['step']}, "
                     f"expected {steps // 3} and {steps - 1}")
    return {"steps": steps, "killed_in": steps // 2, "resumed_with": steps // 3,
            "losses": [done[0]["loss"], done[-1]["loss"]]}


def run_all(day, programs):
    sizes = ON_STAND_INS if programs.manifest["stand_ins"] else ON_GPUS
    kernels, *tests = programs.manifest["tests"]
    day.part("tests: " + kernels["name"], 60, lambda limit: programs.test(kernels, limit))
    day.part("calibration", 80, programs.calibrate)
    trained = {}
    for label, job in sizes.jobs.items():
        trained[label] = day.part("train " + label, 60,
                                  lambda limit, job=job: programs.train(job, limit))
    for label, job in sizes.jobs.items():
        day.part("PyTorch " + label, 75, lambda limit, job=job, label=label: pytorch(
            programs, job, trained[label], limit))
    for test in tests:
        day.part("tests: " + test["name"], 100, lambda limit, test=test: programs.test(test, limit))
    run_experiments(day, programs, sizes)
    day.part("sanitizer", 60, lambda limit: sanitize(programs, sizes, limit))


def run_experiments(day, programs, sizes):
    """What only a GPU can tell, each part by itself."""
    day.part("experiment: products of zeros", 10, lambda limit: {
        str(list(shape)): {"zeros_seconds": zeros,
                           "numbers_seconds": programs.times_of("gemm nt")[shape]}
        for shape, zeros in programs.times_of("product of zeros").items()})
    day.part("experiment: a message of NCCL", 10, lambda limit: {
        what + "_seconds": list(programs.times_of("call of NCCL, " + what).values())[0]
        for what in ("blocking", "nonblocking")})
    day.part("experiment: host time of layers", 10, lambda limit: {
        what: {str(list(shape)): seconds for shape, seconds in programs.times_of(what).items()}
        for what in ("host of layers forward", "host of layers backward")})
    if programs.manifest["stand_ins"] or len(measure.smi() or []) > 1:
        for name, environment in (("nonblocking", {}), ("blocking", {"ECHELON_NCCL_BLOCKING": "1"}),
                                  ("not split", {"ECHELON_NCCL_SPLIT": "0"})):
            day.part("experiment: tp 2, communicators " + name, 25, lambda limit, set=environment:
                     programs.train(sizes.tensor_parallel, limit, {**set, "PRETENDED_GPUS": "2"},
                                    programs.catalog_flags()))
        # kMaxCtas of runtime/cuda/comm/cuda_world.cpp is 16; the other is NCCL's limit on Hopper.
        for blocks in ("16", "32"):
            day.part(f"experiment: dp 2, {blocks} thread blocks", 25, lambda limit, n=blocks:
                     programs.train(sizes.data_parallel, limit,
                                    {"NCCL_MAX_CTAS": n, "PRETENDED_GPUS": "2"},
                                    programs.catalog_flags()))
    for graphs in sizes.settings:
        environment = {"ECHELON_CUDA_GRAPHS": graphs}
        name = graphs or "as chosen"
        day.part("experiment: CUDA graphs " + name, 25, lambda limit, set=environment:
                 programs.train(sizes.graphs, limit, set))
        day.part("experiment: a step of few tokens, CUDA graphs " + name, 20, lambda limit,
                 set=environment: programs.train(sizes.host, limit, set))
    day.part("experiment: norms of query and key heads", 30,
             lambda limit: programs.train(sizes.head_norms, limit))
    day.part("experiment: experts", 40, lambda limit: programs.train(sizes.experts, limit))
    day.part("experiment: deterministic attention", 25, lambda limit: programs.train(
        sizes.graphs, limit, {"ECHELON_DETERMINISTIC": "1"}))  # beside "CUDA graphs as chosen"
    day.part("experiment: CUDA graphs always, two stages on one GPU", 30,
             lambda limit: programs.train(sizes.pipeline, limit, {"ECHELON_CUDA_GRAPHS": "always"},
                                          programs.catalog_flags()))
    for name, job in (("experts", sizes.expert_parallel), ("sequence", sizes.context_parallel)):
        day.part(f"experiment: {name} over two ranks", 30, lambda limit, job=job: programs.train(
            job, limit, {"PRETENDED_GPUS": "2"} if programs.manifest["stand_ins"] else {},
            programs.catalog_flags()))
    for sequence in sizes.attention:
        for name, environment in (("as chosen", {}), ("own kernels", {"ECHELON_CUDNN": "never"}),
                                  ("deterministic", {"ECHELON_DETERMINISTIC": "1"})):
            day.part(f"experiment: attention of {sequence} tokens, {name}", 25,
                     lambda limit, at=sequence, set=environment: attention(programs, sizes, at, set,
                                                                           limit))
    day.part("experiment: killed and resumed", 40, lambda limit: soak(programs, sizes, limit))
