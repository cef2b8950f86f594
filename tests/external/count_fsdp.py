#!/usr/bin/env python3
"""Counts what PyTorch's FSDP copies around its collectives.

    python3 tests/external/count_fsdp.py [-v]

Six linear layers in three units are split by FSDP2, with and without resharding after the forward
(ZeRO-3, ZeRO-2), and by FSDP1, over eight ranks of a process group that sends nothing, with weights
of bf16 and a reduction in fp32; ZeRO-2 also with four microbatches whose gradients are reduced
once. Printed are the bytes per parameter of a step, counted by kernel_counter.py, which
costmodel/time/stage_reduction.cpp (copies_of) prices: copies of gathered weights, and casts, sums
and copies of gradients, those of FSDP1 in the stream of the compute alone (its cast runs in another
one); with -v every operation.
"""

import argparse

import torch
import torch.distributed
from kernel_counter import Counter
from torch import nn
from torch.distributed.fsdp import (
    FullyShardedDataParallel,
    MixedPrecision,
    MixedPrecisionPolicy,
    fully_shard,
)
from torch.testing._internal.distributed.fake_pg import FakeStore

RANKS, WIDTH, UNITS = 8, 256, 3
PARAMETERS = UNITS * 2 * 4 * WIDTH * WIDTH
WEIGHTS = {"split_with_sizes_copy"}
GRADIENTS = {"_to_copy", "add_", "chunk_cat_mixed_dtype"}
FLAT_GRADIENTS = {"cat"}


def unit():
    up = nn.Linear(WIDTH, 4 * WIDTH, bias=False)
    return nn.Sequential(up, nn.Linear(4 * WIDTH, WIDTH, bias=False))


def fsdp2(mesh, reshard):
    model = nn.Sequential(*[unit() for _ in range(UNITS)])
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for each in [*model, model]:
        fully_shard(each, mesh=mesh, mp_policy=policy, reshard_after_forward=reshard)
    return model


def fsdp1():
    policy = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    units = [
        FullyShardedDataParallel(
            unit(), device_id=torch.device("cpu"), mixed_precision=policy, use_orig_params=True
        )
        for _ in range(UNITS)
    ]
    return nn.Sequential(*units)


def step(model, microbatches):
    """A step; with several microbatches the last one reduces."""
    for each in range(microbatches):
        if microbatches > 1:
            model.set_requires_gradient_sync(each + 1 == microbatches)
        model(torch.randn(4, WIDTH, requires_grad=True)).sum().backward()


def show(name, model, microbatches, gradients, verbose):
    if microbatches == 1:
        step(model, 1)  # the first one allocates
        model.zero_grad()
    with Counter() as counter:
        step(model, microbatches)
    least = PARAMETERS / 64  # activations are less

    def moved(names):
        sizes = [each[2] for each in counter.operations if each[0] in names and each[2] > least]
        return sum(sizes) / PARAMETERS

    print(f"{name:24} weights {moved(WEIGHTS):5.1f}, gradients {moved(gradients):5.1f} bytes")
    if verbose:
        counter.show(PARAMETERS)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-v", action="store_true", help="every operation")
    verbose = parser.parse_args().v
    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=RANKS)
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (RANKS,))
    print(f"torch {torch.__version__}")
    show("FSDP2, ZeRO-3", fsdp2(mesh, True), 1, GRADIENTS, verbose)
    show("FSDP2, ZeRO-2", fsdp2(mesh, False), 1, GRADIENTS, verbose)
    show("FSDP2, four microbatches", fsdp2(mesh, False), 4, GRADIENTS, verbose)
    show("FSDP1, ZeRO-3", fsdp1(), 1, FLAT_GRADIENTS, verbose)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
