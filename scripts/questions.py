#!/usr/bin/env python3
"""Asks the planner the questions of examples/questions.tsv and judges each answer.

questions.py PLAN [--accepted FILE] [--write PAGE] [--only TEXT]

PLAN is the program. The table goes to standard output, or into PAGE (docs/anchors.md) between the
lines `<!-- questions -->` and `<!-- /questions -->`, at its end where it has none.

FILE tells what the training framework itself makes of the winners: the page with the table that
tests/external/megatron.sh writes, or lines `question<TAB>accepted` and `question<TAB>refused: why`.

Exit code 1 where
  - a question has no answer, or the framework refuses the winner,
  - the winner fits with a probability below 0.9 although another plan of the answer does not,
  - two of the listed plans are of one family: equal tp, cp, pp, ep, etp, both or neither with
    ZeRO 2 or 3, both or neither with offload.
Each is named on standard error. Seconds and MiB are those of the program's process, read from the
operating system; run on an idle machine.
"""

import argparse
import json
import os
import resource
import shlex
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BEGIN, END = "<!-- questions -->", "<!-- /questions -->"
SURE = 0.9
GIB = 2**30
HEAD = ["question", "winner", "spare GiB", "P(fits)", "simulated", "closed form", "fastest plan",
        "accepted", "families", "user s", "MiB"]


def read_table(path):
    """Lines of `name<TAB>value` without comments."""
    rows = []
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            line = line.rstrip("\n")
            if not line or line.startswith("#"):
                continue
            name, tab, value = line.partition("\t")
            if not tab:
                sys.exit(f"questions: {path}:{number}: found no tab, expected name<TAB>value")
            rows.append((name, value))
    return rows


def read_verdicts(path):
    """What the framework makes of each question's winner. Rows of a page count if their third cell
    is such a verdict: those of tests/external/megatron.sh."""
    with open(path, encoding="utf-8") as file:
        if "|---|" not in file.read():
            return dict(read_table(path))
    verdicts = {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
            if len(cells) > 2 and cells[2].startswith(("accepted", "refused")):
                verdicts[cells[0]] = cells[2]
    return verdicts


def ask(program, arguments):
    """(answer or None, what stderr says, user seconds, largest resident set in MiB as text). Linux
    counts what this interpreter held when it started the program, so that is the least it tells."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = subprocess.Popen([program, *shlex.split(arguments), "--json", "--no-config"],
                                 stdout=out, stderr=err)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        text, said = out.read().decode(), err.read().decode().strip()
    answer = json.loads(text) if child.returncode in (0, 1) and text else None
    here = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    mebibytes = f"{usage.ru_maxrss / 1024:.0f}"  # Linux: KiB
    return answer, said, usage.ru_utime, "< " + mebibytes if usage.ru_maxrss <= here else mebibytes


def runs_of(numbers):
    """16,16,16,14 as "3x16,14"."""
    parts = []
    for number in numbers:
        if parts and parts[-1][1] == number:
            parts[-1][0] += 1
        else:
            parts.append([1, number])
    return ",".join(f"{count}x{number}" if count > 1 else str(number) for count, number in parts)


def compact(plan):
    """A plan in one line; degrees of 1 are left out."""
    words = [f"tp{plan['tp']}"]
    if plan["cp"] > 1:
        words.append(f"cp{plan['cp']}({plan['cp_comm']})")
    words += [f"{axis}{plan[axis]}" for axis in ("pp", "vpp", "ep", "etp") if plan[axis] > 1]
    words += [f"dp{plan['dp']}", f"mb{plan['microbatch']}"]
    group = plan["zero_group_size"]
    ranks = plan["dp"] * plan["cp"]
    grouped = plan["zero"] > 0 and group < ranks
    words.append(f"ZeRO-{plan['zero']}" + (f" over {group}" if grouped else ""))
    if plan["recompute"] == "selective":
        words.append("recompute selective")
    elif plan["recompute_layers"] == plan["layers_per_stage"]:
        words.append("recompute all")
    elif any(plan["recompute_layers"]):
        words.append(f"recompute {runs_of(plan['recompute_layers'])}")
    offloaded = {part: share for part, share in plan["offload"].items() if share > 0}
    words += [f"offload {part} {share:g}" for part, share in offloaded.items()]
    if plan["rank_order"] != "tp-cp-ep-dp-pp":
        words.append("pp in dp")
    if len(set(plan["layers_per_stage"])) > 1:
        words.append(f"layers {runs_of(plan['layers_per_stage'])}")
    return " ".join(words)


def family(plan):
    return (*(plan[axis] for axis in ("tp", "cp", "pp", "ep", "etp")), plan["zero"] >= 2,
            any(share > 0 for share in plan["offload"].values()))


def times(candidate):
    """(simulated step, closed form) in seconds, the first None where it was not simulated. A
    candidate that names its closed form has the simulated step as its step."""
    time = candidate["time"]
    if "closed_form_seconds" in time:
        return time["step_seconds"], time["closed_form_seconds"]
    return time.get("simulated_seconds"), time["step_seconds"]


def duration(seconds):
    return "–" if seconds is None else f"{seconds:.3f} s" if seconds < 10 else f"{seconds:.2f} s"


def judge(name, answer, accepted, complain):
    """Names to `complain` what is wrong with the answer; returns (families, plans) listed."""
    verdict = accepted.get(name, "not asked")
    if verdict.startswith("refused"):
        complain(f"by the framework {verdict}")
    winner, listed = answer["winner"], answer["candidates"]
    all_plans = [winner, *listed, *answer.get("pareto", [])]
    chances = [plan.get("fits_probability") for plan in all_plans]
    if "fits_probability" not in winner:
        complain("the answer has no fits_probability")
    elif winner["fits_probability"] is not None and winner["fits_probability"] < SURE:
        if any(chance is not None and chance >= SURE for chance in chances):
            complain(f"P(fits) is {winner['fits_probability']:.2f}, and other plans have {SURE}")
    families = [family(candidate["plan"]) for candidate in listed]
    if len(set(families)) < len(families):
        complain(f"{len(families)} listed plans are of {len(set(families))} families")
    return len(set(families)), len(families)


def row_of(name, answer, accepted, families, seconds, mebibytes):
    winner, fastest = answer["winner"], answer.get("fastest")
    memory = winner["memory"]
    chance = winner.get("fits_probability")
    simulated, closed = times(winner)
    beside = "–"
    if fastest is not None:
        if fastest["plan"] == winner["plan"]:
            beside = "the same"
        else:
            step, closed_step = times(fastest)
            time = duration(closed_step if step is None else step)
            beside = f"{compact(fastest['plan'])}: {time}"
    return [name, compact(winner["plan"]),
            f"{(memory['capacity_bytes'] - memory['peak_reserved_bytes']) / GIB:.2f}",
            "–" if chance is None else f"{chance:.2f}", duration(simulated), duration(closed),
            beside, accepted.get(name, "not asked"), f"{families[0]} of {families[1]}",
            f"{seconds:.2f}", mebibytes]


def table_of(rows):
    lines = ["| " + " | ".join(HEAD) + " |", "|" + "---|" * len(HEAD)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def write_between_markers(page, table):
    with open(page, encoding="utf-8") as file:
        text = file.read()
    before, begin, rest = text.partition(BEGIN + "\n")
    _, end, after = rest.partition(END)
    if not begin:
        before = text.rstrip("\n") + "\n\n"
        after = "\n"
    elif not end:
        sys.exit(f"questions: {page}: found {BEGIN} without {END}; expected both around the table")
    with open(page, "w", encoding="utf-8") as file:
        file.write(before + BEGIN + "\n" + table + END + after)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plan", help="the program")
    parser.add_argument("--questions", default=os.path.join(HERE, "examples", "questions.tsv"))
    parser.add_argument("--accepted", metavar="FILE", help="what the framework made of the winners")
    parser.add_argument("--write", metavar="PAGE", help="put the table into this page")
    parser.add_argument("--only", metavar="TEXT", default="", help="questions whose name has TEXT")
    asked = parser.parse_args()
    accepted = read_verdicts(asked.accepted) if asked.accepted else {}
    wrong, rows = 0, []
    for name, arguments in read_table(asked.questions):
        if asked.only not in name:
            continue

        def complain(text):
            nonlocal wrong
            wrong += 1
            print(f"{name}: {text}", file=sys.stderr)

        answer, said, seconds, mebibytes = ask(asked.plan, arguments)
        if answer is None or answer["winner"] is None:
            complain(said or "no plan fits")
            rows.append([name, "none", *["–"] * 7, f"{seconds:.2f}", mebibytes])
            continue
        families = judge(name, answer, accepted, complain)
        rows.append(row_of(name, answer, accepted, families, seconds, mebibytes))
    table = table_of(rows)
    if asked.write:
        write_between_markers(asked.write, table)
    else:
        print(table, end="")
    print(f"{len(rows)} questions, {wrong} findings", file=sys.stderr)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
