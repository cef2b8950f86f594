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
import datetime
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.realpath(__file__))
WARM_UP = 3  # steps in which algorithms are selected and clocks settle
# Sequence length, and samples per step on each GPU.
CASES = {
    "gpt2": (1024, 64),
    "gpt2-xl": (1024, 16),
    "llama3.2-1b": (2048, 16),
    "llama2-7b": (2048, 8),
}


def throughput(report, prediction):
    """Medians after the warm-up, from the report of a run and `plan predict --json` of its plan.
    The model FLOPs of a step are the same in both, so the MFU scales with the step times."""
    steps = report["steps"][WARM_UP:]
    if not steps:
        return None
    seconds = statistics.median(step["seconds"] for step in steps)
    predicted = prediction["time"]["step_seconds"]
    predicted_throughput = prediction["throughput"]
    return {
        "step_seconds": seconds,
        "predicted_step_seconds": predicted,
        "predicted_over_measured": predicted / seconds,
        "tokens_per_second": statistics.median(step["tokens_per_second"] for step in steps),
        "mfu": predicted_throughput["mfu"] * predicted / seconds,
        "mfu_formula": predicted_throughput["mfu_formula"],
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
    prediction = {"time": {"step_seconds": 2.0}, "throughput": {"mfu": 0.5, "mfu_formula": "f"}}
    found = throughput({"steps": steps}, prediction)
    assert found["step_seconds"] == 2.5 and found["steps"] == 3, found
    assert found["tokens_per_second"] == 40 and abs(found["mfu"] - 0.4) < 1e-12, found
    assert throughput({"steps": steps[:WARM_UP]}, prediction) is None

    def of(*totals):
        return {"memory": {"peak_bytes": max(totals),
                           "stages": [{"total_bytes": total} for total in totals]}}

    held = memory({"measured": of(10, 40), "predicted": of(20, 30)})
    assert held["measured"]["total_bytes"] == 40 and held["predicted"]["total_bytes"] == 30, held
    assert held["predicted_over_measured"] == 0.75, held
    assert case_of("gpt2") == ("gpt2", 1024, 64) and case_of("a:b.json:16x4") == ("a:b.json", 16, 4)
    assert case_of("gpt3") is None and case_of("m.json:16") is None
    print("self-test passed")


def output_of(command, **more):
    return subprocess.run(command, text=True, capture_output=True, check=False, **more)


def smi():
    """The fields that nvidia-smi reports for every GPU, or None."""
    if shutil.which("nvidia-smi") is None:
        return None
    fields = ("name,uuid,driver_version,clocks.sm,clocks.max.sm,clocks.mem,power.draw,power.limit,"
              "temperature.gpu")
    found = output_of(["nvidia-smi", "--query-gpu=" + fields, "--format=csv,noheader"])
    if found.returncode != 0:
        return None
    return [dict(zip(fields.split(","), map(str.strip, line.split(","))))
            for line in found.stdout.splitlines()]


def calibrated(build, folder):
    """The measurements, and the flags of `plan` that use them; exits without a GPU."""
    rates = os.path.join(folder, "rates.json")
    found = output_of([os.path.join(build, "cli", "plan"), "calibrate", "--backend", "cuda", "--json",
                       "-o", rates])
    if found.returncode != 0:
        sys.stderr.write(found.stderr)
        print("measure.py: no GPU was measured; nothing is written", file=sys.stderr)
        sys.exit(3)
    cluster = os.path.join(folder, "rates.cluster.json")
    return json.loads(found.stdout), ["--cluster", cluster, "--calibration", rates,
                                      "--framework", "echelon"]


def run_of(build, flags, case, gpus, steps, folder):
    """Trains one model; returns its throughput and memory, or {"failed": reason}."""
    plan = os.path.join(build, "cli", "plan")
    model, sequence, samples = case
    file = os.path.join(folder, "plan.json")
    made = output_of([plan, "--model", model, "--gpus", str(gpus), "--seq", str(sequence),
                      "--global-batch", str(samples * gpus), "-q", "-o", file] + flags)
    if made.returncode != 0:
        return {"failed": (made.stderr or made.stdout).strip()}
    predicted = output_of([plan, "predict", file, "--json"])
    report = os.path.join(folder, "report.json")
    ran = output_of([plan, "run", file, "--backend", "cuda", "--steps", str(steps), "--report",
                     report, "-q"])
    if predicted.returncode != 0 or ran.returncode != 0:
        return {"failed": (predicted.stderr + ran.stderr).strip()}
    with open(report, encoding="utf-8") as text:
        read = json.load(text)
    prediction = json.loads(predicted.stdout)
    found = throughput(read, prediction)
    if found is None:
        return {"failed": f"fewer than {WARM_UP + 1} steps"}
    times = {which: read[which]["time"] for which in ("measured", "predicted")}
    return {**found, "time": times, "memory": memory(read), "gpus": gpus, "sequence": sequence,
            "global_batch": samples * gpus, "plan": prediction["plan"],
            "environment": read.get("environment", {})}


def pytorch_of(python, case, microbatch, steps):
    model, sequence, samples = case
    found = output_of([python, os.path.join(HERE, "pytorch.py"), model, str(sequence), str(samples),
                       str(min(microbatch, samples)), str(steps + WARM_UP)])
    if found.returncode != 0:
        return {"failed": found.stderr.strip()[-500:]}
    return json.loads(found.stdout)


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
        measurements, plan_flags = calibrated(asked.build, folder)
        gpu = measurements["gpu"]
        results = {"schema": 1, "date": datetime.date.today().isoformat(), "gpu": gpu,
                   "nvidia_smi_before": idle, "measurements": measurements["measurements"],
                   "runs": {}}
        version = output_of([os.path.join(asked.build, "cli", "plan"), "--version"])
        results["version"] = version.stdout.strip()
        for text, case in cases.items():
            for gpus in sorted({1, gpu["gpus"]}):
                print(f"{text} on {gpus} of {gpu['name']}", file=sys.stderr)
                found = run_of(asked.build, plan_flags, case, gpus, asked.steps, folder)
                entry = {"echelon": found}
                if gpus == 1 and text in CASES:  # the models that pytorch.py knows
                    microbatch = found.get("plan", {}).get("microbatch", 1)
                    entry["pytorch"] = pytorch_of(asked.python, case, microbatch, asked.steps)
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
            summary = ours.get("failed") or (f"{ours['tokens_per_second']:.0f} tokens/s, "
                                             f"MFU {ours['mfu']:.3f}, predicted / measured "
                                             f"{ours['predicted_over_measured']:.2f} (memory "
                                             f"{ours['memory']['predicted_over_measured']:.2f})")
            if "tokens_per_second" in theirs:
                summary += (f"; PyTorch {theirs['torch']}: "
                            f"{theirs['tokens_per_second']:.0f} tokens/s")
            print(f"{name}: {summary}")
        print("written to " + path)
    return None


if __name__ == "__main__":
    main()
