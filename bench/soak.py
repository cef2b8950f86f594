#!/usr/bin/env python3
"""Kills runs at random moments, damages checkpoints, restarts them with the same command line, and
counts what was lost.

    bench/soak.py build/release/cli/plan --kills 1000
    bench/soak.py build/release/cli/plan --kills 100 --launcher env
    bench/soak.py build/release/cli/plan --hours 1 --launcher mpi

Every fault is drawn from a seed. One round: `plan run ... --resume auto --checkpoint-every N` is
started, and after a random time a SIGKILL ends it: all of its processes, plan alone, mpirun alone, or
plan-run alone (one rank, where every rank is a process). Before some rounds a byte of the newest
checkpoint is flipped, a file of it is cut off, or a file is removed. Checked in every round:

  * it resumes from the newest checkpoint that is complete and not damaged, and names it
  * the losses of its steps are, bit for bit, those of a run that nothing disturbed
  * none of its processes is left, wherever mpirun put it: all carry a mark in their environment

and at the end that the weights and moments are the same bytes. Exit code 1 if anything differs.
"""

import argparse
import itertools
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

KEEP = 3  # two may be damaged in a row
MARK = "ECHELON_SOAK_RUN"
PATIENCE = 120  # seconds until processes that should end count as left behind
RESUMING = re.compile(r"resuming from .*step_(\d+) after")


class Run:
    """One start of the command line."""

    def __init__(self, soak, steps, directory):
        self.steps = {}  # step -> loss
        self.checkpoints = []
        self.notes = []
        self.first_step = threading.Event()
        self.mark = f"{os.getpid()}-{next(soak.starts)}"
        reading, writing = os.pipe()
        self.processes = []
        ranks = range(soak.ranks) if soak.launcher == "env" else [None]
        port = free_port() if soak.launcher == "env" else None
        for rank in ranks:
            command = [soak.plan, "run", soak.plan_file, "--quiet", "--steps", str(steps),
                       "--lr-decay-steps", "100000", "--checkpoint-dir", directory,
                       "--checkpoint-every", str(soak.every), "--keep-last", str(KEEP),
                       "--resume", "auto"]
            command += ["--async-checkpoints"] if soak.asynchronous else []
            command += ["--launcher", soak.launcher] if soak.launcher != "env" else []
            command += ["--timeout", "30s"]  # also for processes that never come to the others
            environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMP_NUM_THREADS="1",
                               OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", TMPDIR=soak.folder)
            environment[MARK] = self.mark
            if rank is not None:
                environment.update(RANK=str(rank), WORLD_SIZE=str(soak.ranks),
                                   LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(soak.ranks),
                                   MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
            leads = rank in (None, 0)
            if leads:
                command += ["--events", str(writing)]
            self.processes.append(subprocess.Popen(
                command, env=environment, start_new_session=True, text=True,
                pass_fds=[writing] if leads else [], stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE if leads else subprocess.DEVNULL))
        os.close(writing)
        self.reader = threading.Thread(target=self.read, args=(reading,))
        self.reader.start()

    def read(self, reading):
        with os.fdopen(reading) as lines:
            for line in lines:
                try:
                    event = json.loads(line)
                except ValueError:
                    continue  # cut off by the kill
                if event["event"] == "step":
                    self.steps[event["step"]] = event["loss"]
                    self.first_step.set()
                elif event["event"] == "checkpoint":
                    self.checkpoints.append(int(re.search(r"step (\d+)", event["text"]).group(1)))
                elif event["event"] == "note":
                    self.notes.append(event["text"])

    def pids(self, name=None):
        """Running processes of the run, or those of this name: with its mark in their environment,
        which survives the death of their parent and a new session."""
        mark = f"{MARK}={self.mark}".encode()
        found = []
        for entry in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{entry}/environ", "rb") as environment:
                    if mark not in environment.read().split(b"\0"):
                        continue
                with open(f"/proc/{entry}/comm", encoding="utf-8") as command:
                    own = command.read().strip()
            except OSError:
                continue
            if name in (None, own):
                found.append(int(entry))
        return found

    def kill_all(self):
        while pids := self.pids():  # again: one may just have started another
            for pid in pids:
                kill(pid)

    def end(self):
        """Exit code of the first process, none if processes do not end; what it wrote; processes
        that it left behind."""
        try:
            codes = [process.wait(timeout=PATIENCE) for process in self.processes]
        except subprocess.TimeoutExpired:
            codes = [None]
        until = time.monotonic() + PATIENCE
        while (left := self.pids()) and time.monotonic() < until:  # they end by themselves
            time.sleep(0.01)
        self.kill_all()
        for process in self.processes:
            process.wait()
        errors = self.processes[0].stderr.read()
        self.reader.join(timeout=PATIENCE)
        return codes[0], errors, left

    def resumed(self):
        for note in self.notes:
            if match := RESUMING.search(note):
                return int(match.group(1))
        return 0


def kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Soak:
    def __init__(self, options, folder):
        self.plan = os.path.abspath(options.plan)
        self.launcher = options.launcher
        self.victims = ["plan-run"] + (["mpirun"] if options.launcher == "mpi" else [])
        self.asynchronous = options.asynchronous
        self.ranks = options.ranks
        self.every = options.every
        self.starts = itertools.count()
        self.folder = folder
        self.random = random.Random(options.seed)
        self.plan_file = os.path.join(folder, "plan.json")
        self.directory = os.path.join(folder, "steps")
        self.good = set()  # steps of checkpoints that were complete and are not damaged
        self.bad = {}  # damaged ones: step -> inode, which changes when it is written again
        self.losses = {}
        self.counts = {}
        self.lost_steps = self.most_lost = self.faults = 0
        self.seen = 0  # steps done before the last kill
        self.problems = []

    def make_plan(self):
        degrees = ["--pp", "2", "--dp", str(self.ranks // 2), "--tp", "1"]
        subprocess.run([self.plan, "--model", "gpt2-tiny", "--cluster", "this-machine", "--gpus",
                        str(self.ranks), "--seq", "16", "--global-batch", "4", "--microbatch", "1",
                        *degrees, "--zero", "1" if self.ranks > 2 else "0", "-o", self.plan_file,
                        "--quiet"], check=True, stdout=subprocess.DEVNULL)

    def count(self, what):
        self.faults += 1
        self.counts[what] = self.counts.get(what, 0) + 1

    def on_disk(self):
        names = os.listdir(self.directory) if os.path.isdir(self.directory) else []
        return sorted(int(n[5:]) for n in names if re.fullmatch(r"step_\d+", n))

    def damage(self):
        """Damages the newest checkpoint, if an undamaged one is left before it."""
        steps = self.on_disk()
        good = [step for step in steps if step in self.good]
        if len(good) < 2 or good[-1] != steps[-1]:
            return
        folder = os.path.join(self.directory, f"step_{good[-1]}")
        path = os.path.join(folder, self.random.choice(sorted(os.listdir(folder))))
        how = self.random.choice(["a byte flipped", "a file cut off", "a file removed"])
        size = os.path.getsize(path)
        if how == "a file removed":
            os.remove(path)
        elif how == "a file cut off":
            os.truncate(path, self.random.randrange(size))
        else:
            with open(path, "r+b") as file:
                at = self.random.randrange(size)
                file.seek(at)
                byte = file.read(1)[0]
                file.seek(at)
                file.write(bytes([byte ^ (1 << self.random.randrange(8))]))
        self.good.discard(good[-1])
        self.bad[good[-1]] = os.stat(folder).st_ino
        self.count(how)

    def check(self, run, code, errors, left, killed):
        """What the run resumed from, the losses of its steps, and how it ended."""
        newest = max((step for step in self.good), default=0)
        started = run.steps or run.notes
        if started and run.resumed() != newest:
            self.problems.append(f"resumed from step {run.resumed()} instead of {newest}: "
                                 f"{run.notes}")
        named = any("skipped a damaged" in note for note in run.notes)
        if any(step > newest for step in self.bad) and started and not named:
            self.problems.append(f"a damaged checkpoint was not named: {run.notes}")
        if started:
            lost = max(0, self.seen - run.resumed())
            self.lost_steps += lost
            self.most_lost = max(self.most_lost, lost)
            self.seen = run.resumed()
        for step, loss in run.steps.items():
            if self.losses.setdefault(step, loss) != loss:
                self.problems.append(f"step {step}: loss {loss} instead of {self.losses[step]}")
        self.seen = max([self.seen] + [step + 1 for step in run.steps])
        # A checkpoint may be complete although its line did not reach us.
        there = {step: os.stat(os.path.join(self.directory, f"step_{step}")).st_ino
                 for step in self.on_disk()}
        self.bad = {step: node for step, node in self.bad.items() if there.get(step) == node}
        self.good = {step for step in there
                     if step not in self.bad and (step > newest or step in self.good)}
        if code is None:
            self.problems.append(f"processes did not end: {len(run.steps)} steps, {errors}")
        elif left:
            self.problems.append(f"{len(left)} processes were left behind: {errors}")
        if not killed and code != 0:
            self.problems.append(f"exit code {code}: {errors}")

    def round(self):
        if self.random.random() < 0.15:
            self.damage()
        run = Run(self, 10**6, self.directory)
        if self.random.random() < 0.9:
            run.first_step.wait(PATIENCE)
        time.sleep(self.random.random() * (0.25 if self.random.random() < 0.9 else 1.0))
        whom = self.random.choice(["all processes", "plan", *self.victims])
        if whom in self.victims and (pids := run.pids(whom)):
            kill(self.random.choice(pids))
        elif whom == "plan":
            kill(self.random.choice(run.processes).pid)
        else:
            whom = "all processes"
            run.kill_all()
        self.count(f"SIGKILL of {whom}")
        self.check(run, *run.end(), True)

    def last_run(self):
        """To the end, and a run beside it that nothing disturbed."""
        # Under mpirun a checkpoint may be complete whose steps were not yet forwarded.
        steps = max([self.seen, *self.on_disk()]) + 3
        last = Run(self, steps, self.directory)
        self.check(last, *last.end(), False)
        whole = Run(self, steps, os.path.join(self.folder, "undisturbed"))
        code, errors, _ = whole.end()
        if code != 0:
            self.problems.append(f"the undisturbed run: exit code {code}: {errors}")
        for step, loss in self.losses.items():
            if whole.steps.get(step) != loss:
                self.problems.append(f"step {step}: {loss}, undisturbed {whole.steps.get(step)}")
        different = 0
        if not os.path.isdir(os.path.join(self.directory, f"step_{steps}")):
            self.problems.append(f"no checkpoint of step {steps} in the end: {last.notes}")
            return steps, different
        for name in sorted(os.listdir(os.path.join(self.folder, "undisturbed", f"step_{steps}"))):
            if not name.endswith(".safetensors"):
                continue
            with open(os.path.join(self.directory, f"step_{steps}", name), "rb") as one, \
                    open(os.path.join(self.folder, "undisturbed", f"step_{steps}", name),
                         "rb") as other:
                a, b = one.read(), other.read()
                different += abs(len(a) - len(b)) + sum(x != y for x, y in zip(a, b)) \
                    if a != b else 0
        if different:
            self.problems.append(f"{different} bytes differ from the undisturbed run")
        return steps, different

    def report(self, steps, different, seconds):
        print(f"| launcher | {self.launcher}, {self.ranks} ranks"
              f"{', asynchronous' if self.asynchronous else ''} |")
        print(f"| faults injected | {self.faults} |")
        for what, count in sorted(self.counts.items()):
            print(f"| … {what} | {count} |")
        print(f"| survived | {self.faults - len(self.problems)} |")
        print(f"| steps trained | {steps}, a checkpoint every {self.every} |")
        print(f"| steps repeated | {self.lost_steps}, at most {self.most_lost} at once |")
        print(f"| bytes of weights and moments that differ in the end | {different} |")
        print(f"| time | {seconds:.0f} s |")
        for problem in self.problems[:20]:
            print("PROBLEM:", problem)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("plan", help="the program plan, next to plan-run")
    parser.add_argument("--kills", type=int, help="default: 1000, without --hours")
    parser.add_argument("--hours", type=float, help="rounds begin until then")
    parser.add_argument("--launcher", choices=["local", "env", "mpi"], default="local")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--every", type=int, default=2, help="steps between checkpoints")
    parser.add_argument("--async", dest="asynchronous", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if options.launcher == "mpi" and shutil.which("mpirun") is None:
        print("SKIPPED: mpirun is not installed")
        return 0
    start = time.monotonic()
    kills = options.kills or (1000 if options.hours is None else None)
    folder = tempfile.mkdtemp(prefix="soak-")
    try:
        soak = Soak(options, folder)
        soak.make_plan()
        for done in itertools.count():
            if done == kills or len(soak.problems) > 20:
                break
            if options.hours is not None and time.monotonic() - start > 3600 * options.hours:
                break
            soak.round()
        steps, different = soak.last_run()
        soak.report(steps, different, time.monotonic() - start)
    finally:
        shutil.rmtree(folder)
    return 1 if soak.problems else 0


if __name__ == "__main__":
    sys.exit(main())
