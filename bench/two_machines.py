#!/usr/bin/env python3
"""Predicted and measured communication between two machines whose network has a shaped bandwidth.

    sudo bench/two_machines.py build/release/cli/plan [MEGABITS...]

The machines are network namespaces of this one, a processor core each, with a veth pair between
them and a token bucket (tc tbf) in both directions. A plan of dp 2 averages the gradients of
gpt2-tiny over it. Needs root and iproute2. The prediction knows the bandwidth by the cluster's
description; its latency and efficiency are those of the shipped calibration for processor cores.
"""
import json
import os
import subprocess
import sys
import tempfile

STEPS = 12
PATH = os.environ["PATH"] + ":/usr/sbin:/sbin"
ADDRESS = ["10.77.1.1", "10.77.1.2"]
MACHINES = [f"echelon-bench-{machine}" for machine in (0, 1)]


def call(words, **more):
    return subprocess.run(words, check=True, env=dict(os.environ, PATH=PATH), **more)


def down():
    for name in MACHINES:
        subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL,
                       env=dict(os.environ, PATH=PATH), check=False)


def up(megabits):
    down()
    for name in MACHINES:
        call(["ip", "netns", "add", name])
    call(["ip", "link", "add", "eth0", "netns", MACHINES[0], "type", "veth", "peer", "name",
          "eth0", "netns", MACHINES[1]])
    for name, address in zip(MACHINES, ADDRESS):
        call(["ip", "-n", name, "addr", "add", address + "/24", "dev", "eth0"])
        for device in ("lo", "eth0"):
            call(["ip", "-n", name, "link", "set", device, "up"])
        call(["tc", "-n", name, "qdisc", "add", "dev", "eth0", "root", "tbf", "rate",
              f"{megabits}mbit", "burst", "64kb", "latency", "200ms"])


def description(megabits):
    return {"schema": 1, "name": "two-cores", "gpus": 2,
            "gpu": {"name": "cpu", "memory": "4 GB", "hbm": "50 GB/s", "fp32": "80 GFLOP/s",
                    "fp64": "40 GFLOP/s", "bf16": "80 GFLOP/s", "sms": 1, "boost": "2500 MHz",
                    "l2": "1 MB", "launch": "0.01 us"},
            "node": {"gpus": 1, "cores": 1, "interconnect": {"kind": "pcie", "latency": "5 us"},
                     "pcie": {"gpu_link": "50 GB/s"}, "cpu_memory": "8 GB",
                     "nics": {"count": 1, "rate": f"{megabits} Mbps", "latency": "50 us"}}}


def communication(prediction):
    return prediction["dp_comm_exposed_seconds"]


def run(plan, megabits, folder):
    with open(os.path.join(folder, "cores.json"), "w", encoding="utf-8") as out:
        json.dump(description(megabits), out)
    call([plan, "--model", "gpt2-tiny", "--cluster", "cores.json", "--gpus", "2", "--seq", "32",
          "--global-batch", "8", "--microbatch", "1", "--dp", "2", "--tp", "1", "--framework",
          "echelon", "-o", "plan.json", "--quiet"], cwd=folder, stdout=subprocess.DEVNULL)
    up(megabits)
    ranks = []
    for rank in (1, 0):
        variables = {"RANK": rank, "WORLD_SIZE": 2, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1,
                     "MASTER_ADDR": ADDRESS[0], "MASTER_PORT": 29500, "OMP_NUM_THREADS": 1}
        ranks.append(subprocess.Popen(
            ["ip", "netns", "exec", MACHINES[rank], plan, "run", "plan.json", "--steps", str(STEPS),
             "--quiet", "--report", "report.json"], cwd=folder, stdout=subprocess.DEVNULL,
            env=dict(os.environ, PATH=PATH, **{key: str(value) for key, value in variables.items()})))
    if any(rank.wait() != 0 for rank in ranks):
        sys.exit("plan run failed")
    with open(os.path.join(folder, "report.json"), encoding="utf-8") as text:
        report = json.load(text)
    return report["measured"]["time"], report["predicted"]["time"]


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    plan = os.path.abspath(sys.argv[1])
    print(f"{'Mbit/s':>8} {'measured ms':>12} {'predicted ms':>13} {'error':>8}")
    try:
        for megabits in [int(word) for word in sys.argv[2:]] or [20, 50, 100, 200]:
            with tempfile.TemporaryDirectory() as folder:
                measured, predicted = (1e3 * communication(each)
                                       for each in run(plan, megabits, folder))
            print(f"{megabits:8} {measured:12.1f} {predicted:13.1f} "
                  f"{predicted / measured - 1:+8.1%}")
    finally:
        down()


if __name__ == "__main__":
    main()
