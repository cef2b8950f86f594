"""Reads the example configurations of LLaMA-Factory or axolotl, and counts what becomes of them.

read_examples.py [-v] SOURCE [PLAN]: SOURCE is a checkout of either project, whose folder "examples"
is read, PLAN the planner's program (default: build/release/cli/plan). A file is read where its model
and GPUs alone are given, asks where something else has to be, and is refused with a reason; -v lists
the files and reasons. Exit codes: 0 all have one of the three, 1 a file ends otherwise.
"""

import collections
import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GIVEN = ["--gpus", "8"]
STAND_IN = "llama3-8b"


def outcome(plan, source, file):
    """("read" or "asks" or "refused" or "failed", the model that is asked for, the reason)"""
    asks_for_model = False
    flags = list(GIVEN)
    for _ in range(2):
        done = subprocess.run([plan, "import", str(file.relative_to(source)), "--json", *flags],
                              cwd=source, capture_output=True, text=True)
        if done.returncode == 2 and not done.stdout and done.stderr.startswith("plan: "):
            return "refused", asks_for_model, done.stderr[len("plan: "):]
        if done.returncode not in (0, 1, 2) or not done.stdout:
            return "failed", asks_for_model, done.stdout + done.stderr
        answer = json.loads(done.stdout)
        asked = answer["ask"]
        if not asked:
            return "read", asks_for_model, answer["format"]
        if any(each.startswith("--model:") for each in asked) and not asks_for_model:
            asks_for_model = True
            flags += ["--model", STAND_IN]
            continue
        return "asks", asks_for_model, "; ".join(asked)
    return "failed", asks_for_model, "asks for the model again"


def main():
    words = [word for word in sys.argv[1:] if word != "-v"]
    if not words:
        sys.exit(__doc__)
    source = Path(words[0]).resolve()
    plan = Path(words[1]).resolve() if len(words) > 1 else ROOT / "build/release/cli/plan"
    files = sorted(file for pattern in ("*.yaml", "*.yml")
                   for file in (source / "examples").rglob(pattern))
    counts = collections.Counter()
    reasons = collections.Counter()
    stand_ins = 0
    for file in files:
        kind, stood_in, reason = outcome(str(plan), source, file)
        counts[kind] += 1
        stand_ins += stood_in and kind == "read"
        shown = re.sub(r"\s+", " ", reason)
        if kind != "read":
            reasons[f"{kind}: " + re.sub(r"examples/\S+?( line \d+)?: ", "", shown)[:120]] += 1
        if "-v" in sys.argv:
            print(f"{kind:8} {file.relative_to(source)}{' (model given)' if stood_in else ''}: {shown[:300]}")
    for reason, count in reasons.most_common(40):
        print(f"{count:4}  {reason}")
    print(f"{len(files)} files: {counts['read']} read ({stand_ins} with --model {STAND_IN} in place of "
          f"one that is not in the catalog), {counts['asks']} ask for more, {counts['refused']} "
          f"refused, {counts['failed']} failed")
    sys.exit(1 if counts["failed"] else 0)


main()
