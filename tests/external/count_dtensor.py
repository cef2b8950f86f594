#!/usr/bin/env python3
"""Counts what tensor parallelism by DTensor, with sequence parallelism, copies and sums.

    python3 tests/external/count_dtensor.py [-v]

One block of Llama 3 8B's shapes is split as torchtitan v0.2.2 splits it (llama3/infra/
parallelize.py, apply_tp: the sequence, the second dimension, between the products) over eight ranks
of a process group that sends nothing, on the meta device, counted by kernel_counter.py. Printed are
the bytes per token of the whole microbatch and unit of the hidden width, in bf16, of what tensor
parallelism does not divide: the copies beside gathers and reduce-scatters, for two sequences and
for one, and the sums of gradients of products that read the same input, which
costmodel/operators/build.cpp prices; with -v every operation.
"""

import argparse

import torch
import torch.distributed
import torch.nn.functional as F
from kernel_counter import Attention, Counter
from torch import nn
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.testing._internal.distributed.fake_pg import FakeStore

RANKS, SEQUENCE, HIDDEN, HEADS, KV_HEADS, HEAD_DIM, FFN = 8, 4096, 4096, 32, 8, 128, 14336


class SelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.wq = nn.Linear(HIDDEN, HEADS * HEAD_DIM, bias=False)
        self.wk = nn.Linear(HIDDEN, KV_HEADS * HEAD_DIM, bias=False)
        self.wv = nn.Linear(HIDDEN, KV_HEADS * HEAD_DIM, bias=False)
        self.wo = nn.Linear(HEADS * HEAD_DIM, HIDDEN, bias=False)

    def forward(self, x):
        shape = (*x.shape[:2], -1, HEAD_DIM)
        heads = [each(x).view(shape).transpose(1, 2) for each in (self.wq, self.wk, self.wv)]
        attended = Attention.apply(*heads).transpose(1, 2)
        return self.wo(attended.reshape(*x.shape[:2], -1))


class FeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1 = nn.Linear(HIDDEN, FFN, bias=False)
        self.w2 = nn.Linear(FFN, HIDDEN, bias=False)
        self.w3 = nn.Linear(HIDDEN, FFN, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = SelfAttention()
        self.feed_forward = FeedForward()
        self.attention_norm = nn.RMSNorm(HIDDEN)
        self.ffn_norm = nn.RMSNorm(HIDDEN)

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + self.feed_forward(self.ffn_norm(x))


def layouts():
    gathered = PrepareModuleInput(
        input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)
    )
    return {
        "attention_norm": SequenceParallel(),
        "attention": gathered,
        "attention.wq": ColwiseParallel(),
        "attention.wk": ColwiseParallel(),
        "attention.wv": ColwiseParallel(),
        "attention.wo": RowwiseParallel(output_layouts=Shard(1)),
        "ffn_norm": SequenceParallel(),
        "feed_forward": gathered,
        "feed_forward.w1": ColwiseParallel(),
        "feed_forward.w2": RowwiseParallel(output_layouts=Shard(1)),
        "feed_forward.w3": ColwiseParallel(),
    }


def count(mesh, sequences):
    """Operations of the block, forward and backward, the second time: at first DTensor runs each on
    whole tensors too, for its shapes."""
    with torch.device("meta"):
        block = parallelize_module(Block().bfloat16(), mesh, layouts())
        run(block, sequences)
        return run(block, sequences)


def run(block, sequences):
    with torch.device("meta"):
        hidden = torch.empty(
            sequences, SEQUENCE // RANKS, HIDDEN, dtype=torch.bfloat16, requires_grad=True
        )
        with Counter() as forward:
            output = block(hidden)
        with Counter() as backward:
            output.backward(torch.empty_like(output))
    return forward, backward


def show(mesh, sequences, verbose):
    unit = sequences * SEQUENCE * HIDDEN
    whole = (sequences, SEQUENCE, HIDDEN)
    for name, counter in zip(("forward", "backward"), count(mesh, sequences)):
        operations = counter.operations
        copied = sum(each[2] for each in operations if each[0] == "cat") / unit
        summed = sum(
            each[2] for each in operations if each[0] == "add" and each[3] == [whole, whole]
        ) / unit
        print(f"{sequences} sequence(s) {name:8} copies {copied:5.1f}, sums {summed:5.1f} bytes")
        if verbose:
            counter.show(unit)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-v", action="store_true", help="every operation")
    verbose = parser.parse_args().v
    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=RANKS)
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (RANKS,))
    print(f"torch {torch.__version__}")
    for sequences in (2, 1):
        show(mesh, sequences, verbose)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
