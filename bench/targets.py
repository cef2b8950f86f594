#!/usr/bin/env python3
"""Time and memory of whole commands of `plan`, compared with what they may take on two cores.

targets.py PLAN [--tries N] [--only TEXT]

PLAN is the program. Of N tries (default: 1) the one with the fewest wall seconds counts. Exit code 1
where a command takes longer or more memory than its target, or fails. Run on an idle machine: a search
on several threads needs its cores. bench_search and bench_scaling measure searches alone.
"""

import argparse
import os
import shlex
import subprocess
import sys
import time
import typing


class Target(typing.NamedTuple):
    """A command, and what it may take: wall seconds, MB of the largest resident set."""
    arguments: str
    seconds: float
    megabytes: float = float("inf")


TARGETS = [
    Target("--model 7b --gpus 64", 0.1),
    Target("explain --model llama3-70b --gpus 256", 1.5),
    Target("--model deepseek-v3 --gpus 2048 --seq 4096 --global-batch 15360", 4),
    Target("--model deepseek-v3 --gpus 98304 --global-batch 98304", 10, 400),
    Target("--model deepseek-v3 --max-gpus 512", 6),
]


def measured(program, target):
    """(wall seconds, user seconds, MB), or None where the command fails."""
    began = time.monotonic()
    child = subprocess.Popen([program, *shlex.split(target.arguments), "--json", "--no-config"],
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    wall = time.monotonic() - began
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode not in (0, 1):
        return None
    return wall, usage.ru_utime, usage.ru_maxrss * 1024 / 1e6  # Linux: KiB


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plan", help="the program")
    parser.add_argument("--tries", type=int, default=1, help="runs of each command")
    parser.add_argument("--only", metavar="TEXT", default="", help="commands that have TEXT")
    asked = parser.parse_args()
    over = 0
    print("| command | wall s | user s | MB | target |\n|---|---|---|---|---|")
    for target in TARGETS:
        if asked.only not in target.arguments:
            continue
        tries = [measured(asked.plan, target) for _ in range(asked.tries)]
        memory = f", {target.megabytes:.0f} MB" if target.megabytes < float("inf") else ""
        limit = f"{target.seconds:g} s{memory}"
        if None in tries:
            over += 1
            print(f"| `plan {target.arguments}` | fails | | | {limit} |", flush=True)
            continue
        wall, user, megabytes = min(tries)
        misses = wall > target.seconds or megabytes > target.megabytes
        over += misses
        print(f"| `plan {target.arguments}` | {wall:.2f} | {user:.2f} | {megabytes:.0f} | "
              f"{limit}{': missed' if misses else ''} |", flush=True)
    sys.exit(1 if over else 0)


if __name__ == "__main__":
    main()
