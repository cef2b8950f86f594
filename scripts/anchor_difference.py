#!/usr/bin/env python3
"""One sentence on how our winner differs from a published plan, for docs/anchors.md.

anchor_difference.py NAME < (plan compare PUBLISHED.json WINNER.json --json): what differs between the
two plans, and the largest parts of the step that are shorter or longer, each at least a hundredth of
the published plan's step by our prediction. scripts/anchors.sh calls it.
"""

import json
import sys

DEGREES = ("tp", "cp", "pp", "vpp", "ep", "dp", "microbatch", "zero")
NAMES = {"zero": "ZeRO"}
PARTS = {
    "compute": "compute",
    "recompute": "recomputation",
    "tp_comm_exposed": "tensor-parallel traffic",
    "cp_comm_exposed": "context-parallel traffic",
    "ep_comm_exposed": "exchange between experts",
    "pp_comm_exposed": "messages between stages",
    "dp_comm_exposed": "exposed reduction and gather",
    "fill_drain": "fill and drain",
    "imbalance": "stage imbalance",
    "stragglers": "slowest node",
    "optimizer": "optimizer step",
    "host": "waiting for the host",
}
LEAST_SHARE = 0.01
BAND = 0.04  # closer plans cannot be told apart by the model: docs/explain.md
GIB = 2.0**30


def seconds(value):
    return f"{value:.3g} s" if value >= 1 else f"{1000 * value:.0f} ms"


def changes(ours, theirs):
    """The degrees that differ, then other fields by name."""
    out = [
        f"{NAMES.get(key, key)} {theirs[key]} → {ours[key]}"
        for key in DEGREES
        if theirs[key] != ours[key]
    ]
    if theirs["recompute"] != ours["recompute"] or theirs.get("recompute_modules") != ours.get(
        "recompute_modules"
    ):
        modules = ours.get("recompute_modules")
        what = " + ".join(modules) if modules else ours["recompute"]
        out.append(f"recomputes {what}")
    if "ep" in ours.get("overlap", []) and "ep" not in theirs.get("overlap", []):
        out.append("overlaps the exchange between experts")
    if ours["offload"].get("optimizer", 0) != theirs["offload"].get("optimizer", 0):
        out.append(f"offloads {100 * ours['offload'].get('optimizer', 0):.0f} % of the optimizer")
    if ours["layers_per_stage"] != theirs["layers_per_stage"] and ours["pp"] == theirs["pp"]:
        out.append("other layers per stage")
    return out


def sentence(name, compared):
    theirs, ours = compared["a"]["candidate"], compared["b"]["candidate"]
    delta = compared["delta"]["time"]
    what = changes(ours["plan"], theirs["plan"])
    step, new = theirs["time"]["step_seconds"], ours["time"]["step_seconds"]
    if not what:
        return f"**{name}.** The same plan."
    parts = sorted((delta[part + "_seconds"], text) for part, text in PARTS.items())
    less = [f"{seconds(-by)} less {text}" for by, text in parts if -by >= LEAST_SHARE * step][:2]
    more = [f"{seconds(by)} more {text}" for by, text in parts[::-1] if by >= LEAST_SHARE * step][:2]
    out = f"**{name}.** Ours: {', '.join(what)}. {seconds(step)} → {seconds(new)}"
    if less:
        out += ": " + " and ".join(less)
    if more:
        out += (", at the cost of " if less else ": ") + " and ".join(more)
    if abs(new / step - 1) <= BAND:
        out += "; too close to call"
    memory = [each["memory"]["peak_reserved_bytes"] / GIB for each in (theirs, ours)]
    return out + f"; {memory[1]:.0f} instead of {memory[0]:.0f} GiB."


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    print(sentence(sys.argv[1], json.load(sys.stdin)))
