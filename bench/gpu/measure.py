#!/usr/bin/env python3
"""Measures this machine's GPUs: kernels and products, and training of small plans.

measure.py BUILD [--models gpt2,gpt2-xl,llama3.2-1b,llama2-7b] [--steps N] [--out FOLDER]
                 [--python PYTHON]
    BUILD: the folder where plan, plan-run and echelon_cuda.so were built. The script runs `plan
    calibrate --backend cuda`, then for each model it searches a plan with these rates and runs it
    for N steps (default: 20). It reports tokens/s, MFU by the planner's formula, and time and
    memory by category, next to the prediction. If PYTHON has torch, it also trains the same model
    in PyTorch on one GPU. Other models, without PyTorch: MODEL:TxB, where MODEL is an argument of
    `plan --model`, T is the sequence length and B the number of samples per step on each GPU.
    The measurements are written to FOLDER (default: bench/results/) with machine, clocks and
    versions. Without a GPU nothing is written and the exit code is 3.
measure.py --self-test
    checks the arithmetic on synthetic reports.
"""

import argparse
import dataclasses
import datetime
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.realpath(__file__))
WARM_UP = 3  # steps in which algorithms are selected and clocks settle
# Sequence length, and samples per step on each GPU.
CASES = {
    "gpt2": (1024, 64),
    "gpt2-xl": (1024, 16),
    "llama3.2-1b": (2048, 16),
    "llama2-7b": (2048, 8),
}


def model_flops(prediction, model):
    """FLOPs per token by both formulas in use, from `plan predict --json` and the model in the plan
    file: 6N + 12LhT counts every score of attention (Megatron-LM, arXiv 2104.04473), 6N + 6LhT only
    what a causal mask leaves (llm.c, FlashAttention). N: parameters, L: layers, h: heads times
    head_dim, T: sequence."""
    made = prediction["throughput"]
    full = made["model_tflops_per_gpu"] * 1e12 / made["tokens_per_second_per_gpu"]
    masked = 6 * model["layers"] * model["heads"] * model["head_dim"] * prediction["seq"]
    return {"6N+6LhT": full - masked, made["mfu_formula"]: full}


def throughput(report, prediction, model):
    """Medians after the warm-up, from the report of a run and `plan predict --json` of its plan.
    The model FLOPs of a step are the same in both, so the MFU scales with the step times."""
    steps = report["steps"][WARM_UP:]
    if not steps:
        return None
    seconds = statistics.median(step["seconds"] for step in steps)
    predicted = prediction["time"]["step_seconds"]
    predicted_throughput = prediction["throughput"]
    mfu = predicted_throughput["mfu"] * predicted / seconds
    flops = model_flops(prediction, model)
    whole = flops[predicted_throughput["mfu_formula"]]
    return {
        "step_seconds": seconds,
        "predicted_step_seconds": predicted,
        "predicted_over_measured": predicted / seconds,
        "tokens_per_second": statistics.median(step["tokens_per_second"] for step in steps),
        "mfu": {formula: mfu * each / whole for formula, each in flops.items()},
        "model_flops_per_token": flops,
        "steps": len(steps),
    }


def memory(report):
    """Memory of the stage with the largest total, by category, next to the prediction."""
    measured, predicted = (report[which]["memory"] for which in ("measured", "predicted"))
    totals = [stage["total_bytes"] for stage in measured["stages"]]
    largest = totals.index(max(totals))
    return {
        "measured": measured["stages"][largest],
        "predicted": predicted["stages"][largest],
        "predicted_over_measured": predicted["peak_bytes"] / measured["peak_bytes"],
    }


def case_of(text):
    """(model, sequence, samples) of "gpt2" or "MODEL:TxB"; None if it is neither."""
    if text in CASES:
        return (text, *CASES[text])
    found = re.fullmatch(r"(.+):(\d+)x(\d+)", text)
    return (found[1], int(found[2]), int(found[3])) if found else None


def self_test():
    steps = [{"seconds": 9.0, "tokens_per_second": 1.0}] * WARM_UP
    steps += [{"seconds": s, "tokens_per_second": 100 / s} for s in (2.0, 2.5, 4.0)]
    # 10 FLOPs a token by 6N + 12LhT, of which a causal mask leaves out 6LhT = 6.
    prediction = {"time": {"step_seconds": 2.0}, "seq": 1,
                  "throughput": {"mfu": 0.5, "mfu_formula": "6N+12LhT",
                                 "model_tflops_per_gpu": 1e-9, "tokens_per_second_per_gpu": 100}}
    model = {"layers": 1, "heads": 1, "head_dim": 1}
    found = throughput({"steps": steps}, prediction, model)
    assert found["step_seconds"] == 2.5 and found["steps"] == 3, found
    assert found["tokens_per_second"] == 40, found
    assert abs(found["mfu"]["6N+12LhT"] - 0.4) < 1e-12, found
    assert abs(found["mfu"]["6N+6LhT"] - 0.16) < 1e-12, found
    assert throughput({"steps": steps[:WARM_UP]}, prediction, model) is None

    def of(*totals):
        return {"memory": {"peak_bytes": max(totals),
                           "stages": [{"total_bytes": total} for total in totals]}}

    held = memory({"measured": of(10, 40), "predicted": of(20, 30)})
    assert held["measured"]["total_bytes"] == 40 and held["predicted"]["total_bytes"] == 30, held
    assert held["predicted_over_measured"] == 0.75, held
    assert case_of("gpt2") == ("gpt2", 1024, 64) and case_of("a:b.json:16x4") == ("a:b.json", 16, 4)
    assert case_of("gpt3") is None and case_of("m.json:16") is None
    ended = output_of(["sh", "-c", "echo begun; sleep 60 & wait"], limit=0.3)
    assert ended.timed_out and ended.returncode != 0 and ended.stdout == "begun\n", ended
    ended = output_of(["sh", "-c", "echo $WORD >&2; exit 3"], limit=30, environment={"WORD": "x"})
    assert (ended.returncode, ended.stderr, ended.timed_out) == (3, "x\n", False), ended
    assert output_of(["/nowhere/program"]).returncode == 127
    print("self-test passed")


@dataclasses.dataclass
class Ended:
    """How a program ended: 127 if it is not there, -9 if its limit passed."""
    returncode: int
    stdout: str
    stderr: str
    timed_out: bool = False


def output_of(command, limit=None, environment=None):
    """Runs a program, for at most `limit` seconds: then it is killed with all its children.
    `environment` is added to ours."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        def ended(code, timed_out=False):
            texts = []
            for file in (out, err):
                file.seek(0)
                texts.append(file.read().decode(errors="replace"))
            return Ended(code, texts[0], texts[1], timed_out)

        try:
            child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                     env={**os.environ, **(environment or {})},
                                     preexec_fn=os.setpgrp)  # of our session, with which it ends
        except OSError as error:
            return Ended(127, "", str(error))
        try:
            return ended(child.wait(timeout=limit))
        except subprocess.TimeoutExpired:
            return ended(-signal.SIGKILL, timed_out=True)
        finally:
            # The group outlives its leader as long as a child of it does.
            try:
                os.killpg(child.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            child.wait()


def smi():
    """The fields that nvidia-smi reports for every GPU, or None."""
    if shutil.which("nvidia-smi") is None:
        return None
    fields = ("name,uuid,driver_version,clocks.sm,clocks.max.sm,clocks.mem,power.draw,power.limit,"
              "temperature.gpu")
    found = output_of(["nvidia-smi", "--query-gpu=" + fields, "--format=csv,noheader"], limit=20)
    if found.returncode != 0:
        return None
    return [dict(zip(fields.split(","), map(str.strip, line.split(","))))
            for line in found.stdout.splitlines()]


def calibrate(build, folder, limit=None, environment=None):
    """`plan calibrate` on the GPUs: how it ended, and the flags of `plan` that use its rates."""
    rates = os.path.join(folder, "rates.json")
    ended = output_of([os.path.join(build, "cli", "plan"), "calibrate", "--backend", "cuda",
                       "--json", "-o", rates], limit, environment)
    cluster = os.path.join(folder, "rates.cluster.json")
    return ended, ["--cluster", cluster, "--calibration", rates, "--framework", "echelon"]


@dataclasses.dataclass
class Job:
    """What to train, and how: a model by `plan --model`, on so many GPUs."""
    model: str
    sequence: int
    samples: int  # per step on each GPU
    gpus: int = 1
    steps: int = 20
    plan_flags: tuple = ()  # degrees; none: the search decides
    environment: dict = dataclasses.field(default_factory=dict)  # of plan


def failed(what, ended):
    """Why a program gave no result, its last lines; "failed": what to name it in a report."""
    reason = (ended.stderr or ended.stdout).strip()[-800:]
    if ended.timed_out:
        reason = "killed: it had not ended within its limit. " + reason
    return {"failed": f"{what}: {reason or 'no message'}", "exit_code": ended.returncode,
            "timed_out": ended.timed_out}


def run_of(build, flags, job, folder, limit=None):
    """Trains one model; returns its throughput and memory, or failed(). `limit`: of all of it."""
    end = None if limit is None else time.monotonic() + limit

    def done(command):
        left = None if end is None else max(0.0, end - time.monotonic())
        return output_of(command, left, job.environment)

    plan = os.path.join(build, "cli", "plan")
    file = os.path.join(folder, "plan.json")
    verb = ["predict"] if job.plan_flags else []
    made = done([plan, *verb, "--model", job.model, "--gpus", str(job.gpus), "--seq",
                 str(job.sequence), "--global-batch", str(job.samples * job.gpus), "-q", "-o",
                 file, *job.plan_flags] + flags)
    if made.returncode != 0:
        return failed("plan", made)
    predicted = done([plan, "predict", file, "--json"])
    if predicted.returncode != 0:
        return failed("plan predict", predicted)
    report = os.path.join(folder, "report.json")
    ran = done([plan, "run", file, "--backend", "cuda", "--steps", str(job.steps), "--report",
                report, "-q"])
    if ran.returncode != 0:
        return failed("plan run", ran)
    with open(report, encoding="utf-8") as text:
        read = json.load(text)
    with open(file, encoding="utf-8") as text:
        model = json.load(text)["request"]["model"]
    prediction = json.loads(predicted.stdout)
    found = throughput(read, prediction, model)
    if found is None:
        return {"failed": f"fewer than {WARM_UP + 1} steps", "exit_code": 0, "timed_out": False}
    times = {which: read[which]["time"] for which in ("measured", "predicted")}
    return {**found, "time": times, "memory": memory(read), "gpus": job.gpus, "model": model,
            "sequence": job.sequence, "global_batch": job.samples * job.gpus,
            "plan": prediction["plan"], "calibration": prediction["calibration"],
            "losses": [read["steps"][0]["loss"], read["steps"][-1]["loss"]],
            "environment": read.get("environment", {})}


def pytorch_shapes(python, limit=None):
    """The models that pytorch.py knows."""
    return output_of([python, os.path.join(HERE, "pytorch.py")], limit).stdout.split()


def pytorch_of(python, job, microbatch, limit=None):
    """The same model in PyTorch on one GPU: its throughput, or failed()."""
    name = os.path.basename(job.model).removesuffix(".json")
    found = output_of([python, os.path.join(HERE, "pytorch.py"), name, str(job.sequence),
                       str(job.samples), str(min(microbatch, job.samples)),
                       str(job.steps + WARM_UP)], limit)
    if found.returncode != 0:
        return failed("PyTorch", found)
    return json.loads(found.stdout.splitlines()[-1])  # after what else it prints


def summary_of(ours):
    return (f"{ours['tokens_per_second']:.0f} tokens/s, MFU {ours['mfu']['6N+12LhT']:.3f}, "
            f"predicted / measured {ours['predicted_over_measured']:.2f} "
            f"(memory {ours['memory']['predicted_over_measured']:.2f})")


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    flags = argparse.ArgumentParser(description=__doc__,
                                    formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("build")
    flags.add_argument("--models", default=",".join(CASES))
    flags.add_argument("--steps", type=int, default=20)
    flags.add_argument("--out", default=os.path.join(HERE, "..", "results"))
    flags.add_argument("--python", default=sys.executable)
    asked = flags.parse_args()
    cases = {text: case_of(text) for text in asked.models.split(",")}
    unknown = [text for text, case in cases.items() if case is None]
    if unknown:
        flags.error(f"found model '{unknown[0]}', expected some of {', '.join(CASES)}, "
                    "or MODEL:TxB")
    if asked.steps <= WARM_UP:
        flags.error(f"found {asked.steps} steps, expected more than {WARM_UP} (the warm-up)")
    with tempfile.TemporaryDirectory() as folder:
        idle = smi()
        calibration, plan_flags = calibrate(asked.build, folder)
        if calibration.returncode != 0:
            sys.stderr.write(calibration.stderr)
            print("measure.py: no GPU was measured; nothing is written", file=sys.stderr)
            sys.exit(3)
        measurements = json.loads(calibration.stdout)
        gpu = measurements["gpu"]
        results = {"schema": 1, "date": datetime.date.today().isoformat(), "gpu": gpu,
                   "nvidia_smi_before": idle, "measurements": measurements["measurements"],
                   "runs": {}}
        version = output_of([os.path.join(asked.build, "cli", "plan"), "--version"])
        results["version"] = version.stdout.strip()
        for text, case in cases.items():
            for gpus in sorted({1, gpu["gpus"]}):
                print(f"{text} on {gpus} of {gpu['name']}", file=sys.stderr)
                job = Job(*case, gpus=gpus, steps=asked.steps)
                found = run_of(asked.build, plan_flags, job, folder)
                entry = {"echelon": found}
                if gpus == 1 and text in CASES:  # the models that pytorch.py knows
                    microbatch = found.get("plan", {}).get("microbatch", 1)
                    entry["pytorch"] = pytorch_of(asked.python, job, microbatch)
                results["runs"][f"{text} on {gpus}"] = entry
        results["nvidia_smi_after"] = smi()
        os.makedirs(asked.out, exist_ok=True)
        name = re.sub("[^a-z0-9]+", "-", gpu["name"].lower()) + "-" + results["date"]
        path = os.path.join(asked.out, f"gpu-{name}.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(results, file, indent=1)
            file.write("\n")
        for name, run in results["runs"].items():
            ours = run["echelon"]
            theirs = run.get("pytorch", {})
            summary = ours.get("failed") or summary_of(ours)
            if "tokens_per_second" in theirs:
                summary += (f"; PyTorch {theirs['torch']}: "
                            f"{theirs['tokens_per_second']:.0f} tokens/s")
            print(f"{name}: {summary}")
        print("written to " + path)
    return None


if __name__ == "__main__":
    main()
