#!/usr/bin/env python3
"""Looks for plans that `plan predict` accepts and that beat the winner of `plan search`.

    brute_force.py PLAN [--by WHAT] [--calls N] [--jobs N] [--space NAME] [--all]

PLAN is the program; nothing of its source is used. Each of the spaces below is a job with
some axes pinned. The rest are enumerated here, by loops that know only what divides what: degrees,
expert grids, microbatches, chunks, sequence parallelism, ZeRO stages, shard groups, rank orders,
offload (in some spaces in parts), larger groups of microbatches in one, DualPipe and DualPipeV where
they are pinned; under megatron-core with experts also dispatchers, overlap of their exchange, CUDA
graphs of layers. A plan that is faster than the winner with nothing recomputed, but does not fit, is priced
again with the fewest recomputed layers that fit (bisection), for recomputing more is never faster,
and under megatron-core with the modules that free most for their time: the norms, of experts then
also the activation.
The fastest plans with several stages also try other layers per stage, one layer at a time.

Then each technique is forbidden in turn (--forbid): the winner must not use it, and no plan tried
that does not use it may be faster. A plan whose step is more than 4 % shorter than its closed form is
outside the assumptions of the certificate: it is counted, and fails only where it lies below the gap
that is proved without them.

--by says what "faster" compares:
    closed-form  the step by the closed form of the pipeline
    simulated    the step with the pipeline simulated event by event
    expected     the step times (1 + 2 (1 - P(fits))) (1 + the prices of unusual features), over the
                 plans at most 3 % slower than the fastest that fits with P of 0.9 or more
By default what the search minimizes: simulated steps (of --prefer fastest) where the program has
--prefer, else the closed form.

At most --calls plans of a space are priced in the first pass, drawn with a fixed seed where it has
more (--all: every one). Exit code 1 when a plan beats a winner, when `plan predict` refuses the plan
file of a winner or prices it differently, or when a winner with a pinned rank order is faster than
the one without.
"""
import argparse
import concurrent.futures
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import typing

RISK = 2  # of --prefer balanced
SAFE = 0.9
MOST_GIVEN_UP = 0.03
EXPOSED_SHARE = 0.01
CLOSED_FORM_EXCESS = 0.04  # a search assumes that no step is shorter than its closed form by more
PRICES = {  # of unusual features, as docs/search.md names them: shares of the step
    "unequal-chunks": 0.005, "own-layout": 0.002, "many-chunks": 0.002, "zero-group": 0.003,
    "offload": 0.015, "crosses-domains": 0.01, "stages": 0.005, "fsdp": 0.005,
    "fsdp-with-tp": 0.005, "pp-inside-dp": 0.005,
    "partial-recomputation": 0.001, "overlap-ep": 0.002, "cuda-graphs": 0.002}

DENSE = {  # of Llama's shape
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
    "hidden_size": 4096, "intermediate_size": 11008, "num_attention_heads": 32,
    "num_key_value_heads": 8, "num_hidden_layers": 8, "vocab_size": 32000,
    "max_position_embeddings": 32768, "tie_word_embeddings": False, "rms_norm_eps": 1e-05,
    "rope_theta": 10000.0}
MIXTURE = {**DENSE, "architectures": ["MixtralForCausalLM"], "model_type": "mixtral",
           "num_local_experts": 8, "num_experts_per_tok": 2, "hidden_size": 2048,
           "intermediate_size": 5632, "num_attention_heads": 16, "num_key_value_heads": 4}


WHOLE_AND_NONE = (0, 1)
FIFTHS = (0, 0.2, 0.4, 0.6, 0.8, 1)  # parts of the optimizer that a search may offload


class Space:
    """One job: what both programs are asked, and which values of the open axes are tried here (where
    all fifths of offload are not tried, its values also bind the search: `bound`)."""

    def __init__(self, name, model, gpus, batch, flags, pins=None, stack="megatron-core",
                 groups=False, **axes):
        self.name, self.model, self.gpus, self.batch = name, model, gpus, batch
        self.stack, self.pins = stack, pins or {}
        self.file = ""  # of the model
        self.layers = model["num_hidden_layers"]
        self.experts = model.get("num_local_experts", 0)
        self.groups = groups  # also larger groups of microbatches than the smallest
        # Recomputed in place of whole layers: those that free most for their time, one by one.
        self.modules = []
        if stack == "megatron-core":
            self.modules = ["layernorm"] + (["layernorm,moe_act"] if self.experts else [])
        self.counts = stack not in ("torchtitan", "deepspeed")  # else all layers or none
        self.axes = {**{axis: [value] for axis, value in self.pins.items()}, **axes}
        self.flags = ["--gpus", str(gpus), "--global-batch", str(batch), "--framework", stack,
                      *flags.split()]

    def tries(self, plan):
        return all(plan[axis] in values for axis, values in self.axes.items() if axis in plan)


def changed(model, **values):
    return {**model, **values}


SPACES = [
    Space("dense", DENSE, 8, 8, "--seq 2048 --cluster dgx-h100", {"cp": 1}),
    Space("two nodes", changed(DENSE, hidden_size=6144, intermediate_size=16384), 16, 16,
          "--seq 4096 --cluster dgx-a100 --max-memory 30GiB", {"cp": 1, "microbatch": 1},
          zero=[1, 3], offload=[0]),
    Space("interleaved", changed(DENSE, num_hidden_layers=12), 8, 16,
          "--seq 4096 --cluster dgx-a100 --max-memory 10GiB", {"cp": 1, "pp": 4}),
    Space("offload", DENSE, 8, 8, "--seq 4096 --cluster l40s --max-memory 12GiB",
          {"cp": 1, "microbatch": 1}),
    Space("long sequences", DENSE, 8, 8, "--seq 16384 --cluster dgx-h100 --max-memory 24GiB",
          {"microbatch": 1}, zero=[1, 3], offload=[0]),
    Space("experts", MIXTURE, 16, 16, "--seq 4096 --cluster aws-p4d",
          {"cp": 1, "microbatch": 1, "zero": 1}, offload=[0]),
    Space("expert orders", MIXTURE, 16, 32, "--seq 4096 --cluster aws-p4d",
          {"cp": 1, "tp": 2, "zero": 1}, offload=[0]),
    Space("expert groups", changed(MIXTURE, num_hidden_layers=6), 16, 16,
          "--seq 2048 --cluster l40s", {"cp": 1, "pp": 1, "microbatch": 1}, zero=[1, 2, 3]),
    Space("interleaved experts", changed(MIXTURE, num_hidden_layers=12), 8, 16,
          "--seq 4096 --cluster l40s --max-memory 9GiB", {"cp": 1, "pp": 2, "zero": 1}),
    Space("torchtitan", MIXTURE, 8, 8, "--seq 4096 --cluster dgx-a100 --max-memory 20GiB",
          {"cp": 1, "microbatch": 1}, "torchtitan"),
    Space("deepspeed", MIXTURE, 8, 8, "--seq 4096 --cluster dgx-a100", {"cp": 1, "pp": 2},
          "deepspeed", vpp=[1], microbatch=[1, 2]),
    Space("llm-foundry", DENSE, 16, 32, "--seq 4096 --cluster dgx-a100 --max-memory 30GiB",
          {"cp": 1}, "llm-foundry", tp=[1, 2], pp=[1, 2], vpp=[1, 2], offload=[0]),
    Space("offload in parts", DENSE, 4, 8, "--seq 4096 --cluster dgx-a100 --max-memory 20GiB",
          {"cp": 1, "microbatch": 1}, zero=[1], offload=FIFTHS),
    Space("groups of microbatches", changed(DENSE, num_hidden_layers=12), 8, 16,
          "--seq 2048 --cluster l40s --max-memory 24GiB", {"cp": 1, "tp": 1, "microbatch": 1},
          groups=True, zero=[0, 1], offload=[0]),
    Space("dualpipev", changed(DENSE, num_hidden_layers=16), 8, 16,
          "--seq 4096 --cluster dgx-h100", {"cp": 1, "schedule": "dualpipev"}, "torchtitan",
          zero=[0, 2]),
    Space("dualpipe", changed(DENSE, num_hidden_layers=16), 8, 16,
          "--seq 4096 --cluster dgx-h100", {"cp": 1, "schedule": "dualpipe"}, "hai-llm"),
]


def divisors(n):
    return [d for d in range(1, n + 1) if n % d == 0]


def degrees(space):
    """tp, cp, pp, dp that multiply to the GPUs."""
    for tp, cp, pp in itertools.product(divisors(space.gpus), repeat=3):
        if space.gpus % (tp * cp * pp):
            continue
        if space.model["num_attention_heads"] % tp or pp > space.layers + 2:
            continue
        at = {"tp": tp, "cp": cp, "pp": pp, "dp": space.gpus // (tp * cp * pp)}
        if space.tries(at):
            yield at


def inside(space, at):
    """What is chosen inside a stage: expert grid, microbatch, how cp meets, sequence parallelism."""
    grids = [(1, 1)]
    if space.experts:
        ranks = at["tp"] * at["cp"] * at["dp"]
        grids = [(ep, etp) for ep in divisors(space.experts) for etp in divisors(at["tp"])
                 if ranks % (ep * etp) == 0]
    for (ep, etp), microbatch in itertools.product(grids, divisors(space.batch // at["dp"] or 1)):
        if space.batch % (at["dp"] * microbatch) or not space.tries({"microbatch": microbatch}):
            continue
        for comm in ("p2p", "a2a") if at["cp"] > 1 else ("",):
            for sequence in (True, False) if at["tp"] > 1 else (False,):
                yield {**at, "ep": ep, "etp": etp, "microbatch": microbatch, "cp-comm": comm,
                       "sequence-parallel": sequence}


def kernels(space, cut, vpp):
    """How experts' tokens travel, what runs beside that, and whether layers are replayed as graphs."""
    if not space.experts or space.stack != "megatron-core":
        yield {}
        if space.stack == "torchtitan" and cut["pp"] == cut["ep"] == 1:
            yield {"cuda-graphs": "full_iteration"}
        return
    overlaps = "dp,pp" if vpp > 1 else "dp"
    for graphs in ("none", "layers"):
        yield {"cuda-graphs": graphs}
        for dispatcher in ("alltoall", "deepep", "hybridep") if cut["ep"] > 1 else ():
            for overlap in (overlaps, overlaps + ",ep"):
                yield {"cuda-graphs": graphs, "dispatcher": dispatcher, "overlap": overlap}


def chunks(space, at):
    """Model chunks per stage and microbatches per group: a group holds pp or more, the last one too
    if it is smaller. Larger groups than the smallest are tried in some spaces: they hide messages,
    which a search ignores below one percent of the step."""
    if space.pins.get("schedule", "").startswith("dualpipe"):
        yield 2, 1
        return
    yield 1, 1
    microbatches = space.batch // (at["dp"] * at["microbatch"])
    fill = [group for group in range(at["pp"], microbatches + 1)
            if microbatches % group == 0 or microbatches % group >= at["pp"]]
    if space.stack not in ("megatron-core", "echelon"):
        fill = [group for group in fill if group == at["pp"]]
    if at["pp"] > 1 and fill:
        for vpp in range(2, (space.layers + 2) // at["pp"] + 1):
            for group in fill if space.groups else fill[:1]:
                yield vpp, group


def plans(space):
    """Every plan of the space with balanced layers and nothing recomputed, as flags."""
    pinned = {name: space.pins[name] for name in ("schedule",) if name in space.pins}
    for at in degrees(space):
        data = at["dp"] * at["cp"]
        for cut, zero in itertools.product(inside(space, at), range(4)):
            if not space.tries({"zero": zero}):
                continue
            groups = [g for g in divisors(data) if g > 1 or data == 1] if zero else [data]
            offloads = space.axes.get("offload", WHOLE_AND_NONE) if zero else (0,)
            orders = (("tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp") if at["pp"] > 1 and at["dp"] > 1
                      else ("tp-cp-ep-dp-pp",))
            for (vpp, turn), group, offload, order in itertools.product(chunks(space, cut), groups,
                                                                        offloads, orders):
                if not space.tries({"vpp": vpp}):
                    continue
                for kernel in kernels(space, cut, vpp):
                    yield {**cut, **pinned, "vpp": vpp, "microbatch-group-size": turn, "zero": zero,
                           "zero-group-size": group, "rank-order": order,
                           "offload": f"optimizer={offload}", **kernel}


def flags_of(plan):
    out = []
    for name, value in plan.items():
        if value is True or value is False:
            out.append(f"--{name}" if value else f"--no-{name}")
        elif value != "":
            out += [f"--{name}", str(value)]
    return out


class Priced(typing.NamedTuple):
    """A plan as `plan predict` sees it."""
    fits: bool
    value: float  # what is compared, in seconds
    step: float   # lower bound of it, in seconds; recomputing more never shortens it
    safe: bool    # fits with a probability of at least SAFE
    layers: list  # per stage
    plan: dict    # as the program prints it
    assumed: bool  # the step is not much shorter than its closed form
    gap: float = 0  # of a winner: what the search proves without assumptions


class Program:
    """The program under test; counts its runs."""

    def __init__(self, path, jobs, by):
        self.path, self.calls = path, 0
        self.pool = concurrent.futures.ThreadPoolExecutor(jobs)
        usage = subprocess.run([path, "search", "--help"], capture_output=True, text=True,
                               check=True).stdout
        self.weighs = "--prefer" in usage  # risk and complexity; its steps are simulated
        self.by = by or ("simulated" if self.weighs else "closed-form")
        if self.by == "expected" and not self.weighs:
            sys.exit(f"{path} has no --prefer: it expects nothing but its step")
        self.search_flags = ["--prefer", "fastest"] if self.weighs and by != "expected" else []

    def run(self, verb, space, flags):
        return self.run_alone(verb, "--model", space.file, *space.flags, *flags)

    def run_alone(self, verb, *flags):
        self.calls += 1
        done = subprocess.run([self.path, verb, *flags, "--json", "--no-config"],
                              capture_output=True, text=True, check=False)
        if done.returncode not in (0, 1, 2):
            sys.exit(f"{' '.join(done.args)}: exit code {done.returncode}\n{done.stderr}")
        return done.returncode, json.loads(done.stdout) if done.returncode < 2 else done.stderr

    def priced(self, candidate):
        times = candidate["time"]
        closed_form = times.get("closed_form_seconds", times["step_seconds"])
        simulated = times["step_seconds"] if "closed_form_seconds" in times else \
            times["simulated_seconds"]
        chance = candidate.get("fits_probability")  # null: within the memory that was asked for
        chance = 1 if chance is None else chance
        step = closed_form if self.by == "closed-form" or simulated is None else simulated
        value = step
        if self.by == "expected":
            value *= 1 + RISK * (1 - chance)
            value *= 1 + sum(PRICES[name] for name in candidate["unusual"])
        return Priced(candidate["fits"], value, step, candidate["fits"] and chance >= SAFE,
                      candidate["plan"]["layers_per_stage"], candidate["plan"],
                      step >= closed_form * (1 - CLOSED_FORM_EXCESS))

    def price(self, space, plan):
        """Priced, or None where the plan breaks a rule."""
        code, answer = self.run("predict", space, flags_of(plan))
        return None if code == 2 else self.priced(answer)

    def price_all(self, space, all_plans):
        return list(self.pool.map(lambda plan: self.price(space, plan), all_plans))


def fewest_recomputed(program, space, plan, layers, limit):
    """The plan with the fewest recomputed layers that fit, when it is faster than `limit`: a pair
    of plan and Priced. Where risk counts, more of them may be better still."""
    vpp, most = plan.get("vpp", 1), max(layers)

    def with_layers(of_each_chunk, fewer=0):
        count = min(most, of_each_chunk * vpp) - fewer
        one = {**plan, "recompute": "full", "recompute-layers": count}
        return one, program.price(space, one)

    all_of_chunk = -(-most // vpp)
    low, high = 0, all_of_chunk
    best, priced = with_layers(high)
    if priced is None or not priced.fits:
        return None
    if not space.counts:
        return (best, priced) if priced.value < limit else None
    # Of each chunk as many, by bisection; then the counts between two such, should they be legal.
    while high - low > 1:
        middle = (low + high) // 2
        one, tried = with_layers(middle)
        if tried is None or (not tried.fits and tried.step >= limit):
            return None
        if tried.fits:
            best, priced, high = one, tried, middle
        else:
            low = middle
    others = [with_layers(high, fewer) for fewer in range(1, min(most, high * vpp) - low * vpp)]
    if program.by == "expected":
        others += [with_layers(more) for more in range(high + 1, all_of_chunk + 1)]
    for one, tried in others:
        if tried and tried.fits and tried.value < priced.value:
            best, priced = one, tried
    return (best, priced) if priced.value < limit else None


def improve(program, space, plan, priced, limit):
    """What beats `limit` with these layers: the plan as it is, or with some or a part of each
    recomputed."""
    if priced is None or priced.step >= limit:
        return None
    if priced.fits and priced.value < limit:
        return plan, priced
    if priced.fits and program.by != "expected":
        return None
    for modules in space.modules:
        one = {**plan, "recompute": "selective:" + modules}
        tried = program.price(space, one)
        if tried and tried.fits and tried.value < limit:
            return one, tried
    return fewest_recomputed(program, space, plan, priced.layers, limit)


def other_layers(layers):
    """Layouts one layer away."""
    for give, take in itertools.permutations(range(len(layers)), 2):
        if layers[give] > 0:
            moved = list(layers)
            moved[give] -= 1
            moved[take] += 1
            yield moved


def climb(program, space, plan, priced, limit, rounds=3):
    """Moves single layers as long as the step with nothing recomputed falls."""
    layers, step = priced.layers, priced.step
    for _ in range(rounds):
        tried = [{**plan, "layers-per-stage": ",".join(map(str, moved))}
                 for moved in other_layers(layers)]
        found = program.price_all(space, tried)
        for one, result in zip(tried, found):
            better = improve(program, space, one, result, limit)
            if better:
                return better
        faster = [(result.step, result.layers) for result in found if result]
        if not faster or min(faster)[0] >= step:
            return None
        step, layers = min(faster)
    return None


def winner_of(program, space, more=()):
    """Priced winner, the steps of all plans of the answer that surely fit, and what is wrong with
    the winner: its plan file must be priced the same. The winner is None where nothing fits."""
    pins = flags_of(space.pins)
    if space.axes.get("offload") == [0]:
        pins += ["--offload", "optimizer=0"]
    file = space.file + ".plan"
    code, answer = program.run("search", space, [*pins, *more, *program.search_flags, "--top", "1",
                                                 "-o", file])
    if code == 2 and more:  # nothing can be laid out so
        return None, [], []
    if code == 2:
        sys.exit(f"{space.name}: {answer}")
    if answer["winner"] is None:
        return None, [], []
    winner = program.priced(answer["winner"])._replace(gap=answer["certificate"]["gap"])
    others = [answer["winner"], *answer["candidates"], answer.get("fastest") or answer["winner"]]
    safe = [each.step for each in map(program.priced, others) if each.safe]
    code, again = program.run_alone("predict", file)
    if code == 2:
        return winner, safe, [f"predict refuses the winner's plan file {' '.join(more)}: {again}"]
    wrong = [] if winner.fits else ["the winner does not fit"]
    value = program.priced(again).value
    if value != winner.value:
        wrong.append(f"the winner takes {winner.value} s, its plan file {value} s")
    return winner, safe, wrong


def better_plans(program, space, tried, priced, limit):
    """Pairs of plan and Priced below `limit`: of the plans tried, with messages overlapped, with
    other layers per stage."""
    found = [better for better in program.pool.map(
        lambda pair: improve(program, space, *pair, limit), zip(tried, priced)) if better]
    with_stages = sorted((result.step, number) for number, result in enumerate(priced)
                         if result and tried[number]["pp"] > 1)
    for _, number in with_stages[:10]:
        ep = ",ep" if tried[number].get("overlap", "").endswith("ep") else ""
        overlapped = {**tried[number], "overlap": "dp,pp" + ep}
        better = improve(program, space, overlapped, program.price(space, overlapped), limit)
        if better:
            found.append(better)
    for _, number in with_stages[:3]:
        better = climb(program, space, tried[number], priced[number], limit)
        if better:
            found.append(better)
    return found


# What --forbid takes, and whether a plan as the program prints it uses it.
RESTRICTIONS = {
    **{axis: (lambda plan, axis=axis: plan.get(axis, 1) > 1) for axis in ("tp", "pp", "cp", "ep")},
    "vpp": lambda plan: plan.get("vpp", 1) > 1,
    "sequence-parallel": lambda plan: bool(plan.get("sequence_parallel")),
    "zero": lambda plan: plan["zero"] > 0,
    "recompute": lambda plan: plan["recompute"] != "none",
    "recompute-modules": lambda plan: bool(plan.get("recompute_modules")),
    "offload": lambda plan: bool(plan.get("offload")),
    "cp-comm": lambda plan: plan.get("cp_comm", "p2p") != "p2p",
    "rank-order": lambda plan: plan.get("rank_order", "tp-cp-ep-dp-pp") != "tp-cp-ep-dp-pp",
    "dispatcher": lambda plan: plan.get("dispatcher", "alltoall") != "alltoall",
    "overlap-ep": lambda plan: "ep" in plan.get("overlap", ()),
    "cuda-graphs": lambda plan: plan.get("cuda_graphs", "none") != "none",
}


def check_restrictions(program, space, tried, priced):
    """What is wrong with the winners without one technique each: it must not be in them, and no plan
    tried without it may be faster."""
    wrong = []
    for name, uses in RESTRICTIONS.items():
        if name in space.pins or (name == "vpp" and "schedule" in space.pins):
            continue
        winner, _, more_wrong = winner_of(program, space, ["--forbid", name])
        wrong += more_wrong
        if winner and uses(winner.plan):
            wrong.append(f"the winner uses {name} under --forbid {name}")
        if program.by == "expected":  # plans without it also limit the winner's step
            continue
        limit = winner.value * (1 - 1e-9) if winner else float("inf")
        open_plans = [(plan, result) for plan, result in zip(tried, priced)
                      if result and result.assumed and not uses(result.plan)]
        for plan, result in open_plans:
            if result.fits and below(space, plan, result.value, limit):
                wrong.append(f"{result.value * 1e3:.2f} ms without {name}, winner "
                             f"{limit * 1e3:.2f}: predict {' '.join(flags_of(plan))}")
                break
    return wrong


def below(space, plan, value, limit):
    """Whether a plan beats the limit; with a larger group of microbatches by more than the share of
    exposed messages that a search ignores."""
    microbatches = space.batch // (plan["dp"] * plan["microbatch"])
    smallest = plan["microbatch-group-size"] == 1 or not any(
        microbatches % group == 0 or microbatches % group >= plan["pp"]
        for group in range(plan["pp"], plan["microbatch-group-size"]))
    return value < limit * (1 if smallest else 1 - EXPOSED_SHARE)


def check(program, space, calls):
    """Counts what is wrong with the winner and the plans that beat it."""
    winner, safe, wrong = winner_of(program, space)
    best = winner.value if winner else float("inf")
    pinned, _, more_wrong = winner_of(program, space, ["--rank-order", "tp-cp-ep-pp-dp"])
    wrong += more_wrong
    # A pin may also slow the plan that limits the winner's step.
    if pinned and pinned.value < best * (1 - 1e-12) and program.by != "expected":
        wrong.append(f"faster with a pinned rank order: {pinned.value} s instead of {best} s")
    limit = best * (1 - 1e-9)
    every = list(plans(space))
    tried = every
    if calls and len(every) > calls:
        tried = random.Random(len(every)).sample(every, calls)
    priced = program.price_all(space, tried)
    legal = sum(result is not None for result in priced)
    found = better_plans(program, space, tried, priced, limit)
    if program.by == "expected":
        safe += [result.step for result in priced if result and result.safe]
        safe += [result.step for _, result in found if result.safe]
        longest = min(safe, default=float("inf")) * (1 + MOST_GIVEN_UP)
        found = [(plan, result) for plan, result in found if result.step <= longest]
    found = [(plan, result) for plan, result in found if below(space, plan, result.value, limit)]
    outside = [result for _, result in found if not result.assumed]
    found = [(plan, result) for plan, result in found if result.assumed]
    gap = winner.gap if winner else 0
    wrong += [f"{result.value * 1e3:.2f} ms, below the proved gap of {gap}: {result.plan}"
              for result in outside if result.value < (1 - gap) * limit]
    wrong += check_restrictions(program, space, tried, priced)
    print(f"{space.name}: {len(tried)} of {len(every)} plans, {legal} legal, winner "
          f"{best * 1e3:.2f} ms, {len(found)} faster, {len(outside)} outside the assumptions",
          flush=True)
    for plan, faster in sorted(found, key=lambda better: better[1].value)[:3]:
        print(f"  {faster.value * 1e3:.2f} ms ({(faster.value / best - 1) * 100:.2f} %): predict "
              f"{' '.join(space.flags)} {' '.join(flags_of(plan))}")
    for line in wrong:
        print(f"  {line.strip()}")
    return len(found) + len(wrong)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plan", help="the program")
    parser.add_argument("--by", choices=["closed-form", "simulated", "expected"],
                        help="what is compared; default: what the search minimizes")
    parser.add_argument("--calls", type=int, default=300, help="plans of a space, first pass")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 2, help="at once")
    parser.add_argument("--space", help="this one alone")
    parser.add_argument("--all", action="store_true", help="every plan of every space")
    asked = parser.parse_args()
    began = time.monotonic()
    program = Program(asked.plan, asked.jobs, asked.by)
    faster = 0
    with tempfile.TemporaryDirectory() as folder:
        for number, space in enumerate(SPACES):
            if asked.space not in (None, space.name):
                continue
            space.file = os.path.join(folder, f"model{number}.json")
            with open(space.file, "w", encoding="utf-8") as file:
                json.dump(space.model, file)
            faster += check(program, space, 0 if asked.all else asked.calls)
    print(f"{program.calls} runs of the program by {program.by}, "
          f"{time.monotonic() - began:.0f} s: {faster} findings")
    sys.exit(1 if faster else 0)


if __name__ == "__main__":
    main()
