#!/usr/bin/env python3
"""Runs, from a tree that packed.py made, everything that needs a GPU; one JSON says how it went.

gpu_day.py OUT.json [--budget SECONDS] [--limit PART=SECONDS] [--python PYTHON]
    The parts share one budget (default: 530 s), and each has a limit of its own, after which it is
    killed. A part that fails, hangs or lacks something is recorded with the reason, and the next
    one runs. OUT.json is written after every part, so that an end from outside loses one part.
    Exit code 0: every part is ok; 1: not every part; 3: there is no GPU.

    status of a part: ok; failed; timed out (killed at its limit); missing (this machine or build
    lacks something); no time (the budget was spent before it).
"""

import argparse
import datetime
import hashlib
import json
import os
import platform
import shutil
import signal
import sys
import tarfile
import tempfile
import time
import traceback

import measure
import parts

HERE = os.path.dirname(os.path.realpath(__file__))
TREE = os.path.realpath(os.path.join(HERE, "..", ".."))
MOST_BYTES = 16 << 20
SHORTEST = 2.0  # seconds: a part is not begun with less


def say(text):
    try:
        print(text, flush=True)
    except OSError:  # nobody reads it any more; the file is what counts
        pass


class Day:
    """The parts so far, their budget and their file."""

    def __init__(self, out, manifest, budget, limits):
        self.out, self.limits = out, limits
        self.begin = time.monotonic()
        self.end = self.begin + budget
        self.document = {
            "schema": 1, "kind": "gpu day", "date": datetime.date.today().isoformat(),
            "version": manifest["version"], "stand_ins": manifest["stand_ins"],
            "budget_seconds": budget, "machine": {}, "parts": []}

    def part(self, name, limit, act):
        """Runs act(seconds), whose result is the part's; returns it, or None."""
        begin = time.monotonic()
        limit = min(self.limits.pop(name, limit), self.end - begin)
        entry = {"name": name, "status": "ok", "reason": "", "limit_seconds": round(limit, 1)}
        result = None
        try:
            if limit < SHORTEST:
                entry.update(status="no time", reason="the budget was spent before this part")
            else:
                result = act(limit)
        except parts.Missing as error:
            entry.update(status="missing", reason=str(error))
        except parts.Failed as error:
            entry.update(status="timed out" if error.timed_out else "failed", reason=str(error))
        except Exception:  # ours: the next part runs all the same
            entry.update(status="failed", reason=traceback.format_exc()[-2000:])
        entry["seconds"] = round(time.monotonic() - begin, 1)
        if result is not None:
            entry["result"] = result
        self.document["parts"].append(entry)
        self.write()
        say(f"{entry['seconds']:7.1f} s  {entry['status']:<9} {name}"
            + (f": {entry['reason'].splitlines()[0][:200]}" if entry["reason"] else ""))
        return result

    def write(self):
        self.document["seconds"] = round(time.monotonic() - self.begin, 1)
        done = self.document["parts"]
        self.document["not_done"] = {each["name"]: f"{each['status']}: {each['reason']}"
                                     for each in done if each["status"] != "ok"}
        text = json.dumps(self.document, indent=1)
        if len(text) > MOST_BYTES:
            largest = max(done, key=lambda each: len(json.dumps(each)))
            largest.pop("result", None)
            largest.update(status="failed", reason="its result does not fit the file's 16 MiB")
            return self.write()
        with open(self.out + ".part", "w", encoding="utf-8") as file:
            file.write(text + "\n")
        os.replace(self.out + ".part", self.out)
        return None

    def exit_code(self):
        """3 if no part but tests, which emulated GPUs pass too, found a GPU."""
        parts_of_gpu = [each for each in self.document["parts"] if each["name"][:5] != "tests"]
        if not self.document["not_done"]:
            return 0
        return 3 if all(each["status"] == "missing" for each in parts_of_gpu) else 1


def unpacked():
    """The folder with the programs; the first run unpacks them. Those of another archive, which a
    tree that was packed again found here, are replaced."""
    programs, path = os.path.join(TREE, "programs"), os.path.join(TREE, "programs.tar.gz")
    stamp = os.path.join(programs, "archive.sha256")
    with open(path, "rb") as file:
        digest = hashlib.sha256(file.read()).hexdigest()
    try:
        with open(stamp, encoding="utf-8") as file:
            if file.read() == digest:
                return programs
    except OSError:
        pass
    shutil.rmtree(programs, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=TREE) as folder:
        with tarfile.open(path) as archive:
            for entry in archive:
                archive.extract(entry, folder)
        with open(os.path.join(folder, os.path.basename(stamp)), "w", encoding="utf-8") as file:
            file.write(digest)
        os.rename(folder, programs)
        os.mkdir(folder)  # for its own removal
    return programs


def machine():
    """What the system tells about itself; None where it does not."""
    def first_line(path, key):
        try:
            with open(path, encoding="utf-8") as file:
                lines = [line.split(":")[1].strip() for line in file if line.startswith(key)]
                return lines[0] if lines else None
        except OSError:
            return None

    return {"kernel": platform.release(), "processor": first_line("/proc/cpuinfo", "model name"),
            "cores": len(os.sched_getaffinity(0)), "python": platform.python_version(),
            "nvidia_smi_before": measure.smi()}


def main():
    flags = argparse.ArgumentParser(prog="gpu_day.sh run", description=__doc__,
                                    formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("out", metavar="OUT.json")
    flags.add_argument("--budget", type=float, default=530)
    flags.add_argument("--limit", action="append", default=[], metavar="PART=SECONDS")
    flags.add_argument("--python", help="with PyTorch; default: python3, or one below /opt")
    asked = flags.parse_args()
    limits = {name: float(seconds) for name, _, seconds in
              (each.rpartition("=") for each in asked.limit)}
    try:
        with open(os.path.join(TREE, "manifest.json"), encoding="utf-8") as file:
            manifest = json.load(file)
    except OSError:
        sys.exit(f"gpu_day.py: {TREE} is no packed tree: scripts/gpu_day.sh pack DIR makes one")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    day = Day(os.path.abspath(asked.out), manifest, asked.budget, limits)
    with tempfile.TemporaryDirectory() as scratch:
        python = asked.python or parts.python_with_torch()
        programs = parts.Programs(unpacked(), manifest, scratch, python)
        day.document["machine"] = {**machine(), "libraries": programs.libraries()}
        day.write()
        parts.run_all(day, programs)
        day.document["machine"]["nvidia_smi_after"] = measure.smi()
        if limits:
            sys.exit(f"gpu_day.py: --limit of no part: {', '.join(limits)}")
        day.write()
    undone = day.document["not_done"]
    say(f"{len(day.document['parts']) - len(undone)} of {len(day.document['parts'])} parts in "
        f"{day.document['seconds']:.0f} s, written to {asked.out}")
    sys.exit(day.exit_code())


if __name__ == "__main__":
    main()
