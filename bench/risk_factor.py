#!/usr/bin/env python3
"""Chooses c of E = T (1 + c (1 - P)) on published runs that ended out of memory.

    plan validate tests/validation/runs.csv --cross-validate 10 --predictions rows.csv
    bench/risk_factor.py tests/validation/runs.csv rows.csv

Jobs are the runs of one model, number of GPUs, sequence and batch, some of which ended out of
memory. From each, random sets of ten plans are drawn (seed 1). Of the plans with P >= 1/2 the one
with the least E by its predicted step is started; if it ran out of memory, the next one. Prints for
each c how often the first choice ran out of memory, and how much slower than the best measured plan
the one that ran is on average; then the sum of both with a failed start at four times the step.
"""
import collections
import csv
import random
import sys

FACTORS = (0, 0.5, 1, 1.5, 2, 3, 4, 6, 8)
PLANS = 10
SETS = 300  # per job
FAILED_START = 4  # in units of the regret: the step lost once


def jobs_of(runs, predictions):
    jobs = collections.defaultdict(list)
    odd = ("twin-ran", "stalled", "overfull", "not-for-time", "sanity-only")
    for row in predictions:
        if not row["fits_probability"] or any(flag in row["flags"] for flag in odd):
            continue
        ran = row["measured_fits"] == "1"
        if ran and not row["measured_step_seconds"]:
            continue
        run = runs[row["row_id"]]
        job = tuple(run[key] for key in ("framework", "model", "gpu", "gpus", "seq", "global_batch"))
        measured = float(row["measured_step_seconds"]) if ran else None
        jobs[job].append((float(row["predicted_step_seconds"]), float(row["fits_probability"]),
                          measured))
    return {job: plans for job, plans in jobs.items() if mixed(plans)}


def mixed(plans):
    """Two ran, so that there is a choice, and one ended out of memory."""
    ran = sum(measured is not None for _, _, measured in plans)
    return ran >= 2 and ran < len(plans)


def sets_of(jobs):
    draw = random.Random(1)
    for _, plans in sorted(jobs.items()):
        for _ in range(SETS):
            chosen = draw.sample(plans, min(PLANS, len(plans)))
            if mixed(chosen):
                yield chosen


def outcome(plans, factor):
    """Whether the first choice failed, and the regret of the plan that ran; None: none is likely."""
    likely = sorted((plan for plan in plans if plan[1] >= 0.5),
                    key=lambda plan: plan[0] * (1 + factor * (1 - plan[1])))
    if not likely:
        return None
    best = min(measured for _, _, measured in plans if measured is not None)
    rest = sorted((plan for plan in plans if plan[1] < 0.5), key=lambda plan: -plan[1])
    ran = next(plan for plan in likely + rest if plan[2] is not None)
    return likely[0][2] is None, ran[2] / best - 1


def main(runs_file, predictions_file):
    with open(runs_file, encoding="utf-8") as file:
        runs = {row["row_id"]: row for row in csv.DictReader(file)}
    with open(predictions_file, encoding="utf-8") as file:
        jobs = jobs_of(runs, csv.DictReader(file))
    drawn = list(sets_of(jobs))
    print(f"{len(jobs)} jobs, {len(drawn)} sets of at most {PLANS} plans")
    print("c     out of memory  regret   sum")
    for factor in FACTORS:
        outcomes = [each for each in (outcome(plans, factor) for plans in drawn) if each]
        failed = sum(first for first, _ in outcomes) / len(outcomes)
        regret = sum(slower for _, slower in outcomes) / len(outcomes)
        print(f"{factor:<5} {failed:13.2%} {regret:7.2%} {regret + FAILED_START * failed:6.2%}")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2])
