#!/usr/bin/env python3
"""Counts the kernels that a layer of transformers launches, and the bytes that they move.

    python3 tests/external/count_transformers.py [-v] [FAMILY ...]

One decoder layer of each family's default configuration runs forward and backward on the meta
device, so nothing is allocated and no GPU is needed; torch's dispatcher names every operation.
Views and allocations launch nothing. An operation reads each input once, as far as it is stored
(expanded dimensions count once), and writes its results. Attention is one operation forward and
one backward, as of flash kernels. Experts run by grouped_mm. Printed are the kernels, and of all
but products and attention the bytes per token and unit of the hidden width in bf16, which
costmodel/operators/transformers_code.cpp prices; with -v every operation.
"""

import argparse

import torch
import transformers
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

TOKENS = 4096
FAMILIES = ["llama", "mistral", "qwen2", "qwen3", "qwen3_moe", "gpt_oss"]
NOTHING = {
    "_reshape_alias", "_unsafe_view", "alias", "detach", "empty", "empty_like", "empty_strided",
    "lift_fresh", "new_empty", "new_empty_strided",
}  # fmt: skip
PRODUCTS = {"mm", "addmm", "bmm", "baddbmm", "_grouped_mm"}
# What the composite operation launches on a device: zeros, then a copy into a part of them.
CLEARED_AND_COPIED = {"slice_backward", "select_backward"}


def stored(tensor):
    """Bytes of a tensor's elements, those of expanded dimensions once."""
    elements = 1
    for size, stride in zip(tensor.shape, tensor.stride()):
        elements *= size if stride else 1
    return elements * tensor.element_size()


class Counter(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.operations = []  # name, kernels, bytes, shapes

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        name = function.overloadpacket._qualified_op_name.split("::")[1]
        if name in NOTHING or function.is_view:
            return result
        read = [each for each in tree_flatten((args, kwargs))[0] if isinstance(each, torch.Tensor)]
        written = [each for each in tree_flatten(result)[0] if isinstance(each, torch.Tensor)]
        moved = sum(map(stored, read)) + sum(map(stored, written))
        kernels = 1
        if name.startswith("new_"):  # the input gives a format alone
            moved = sum(map(stored, written))
        if name in CLEARED_AND_COPIED:
            kernels, moved = 2, moved + sum(map(stored, read))
        self.operations.append((name, kernels, moved, [tuple(each.shape) for each in read]))
        return result


library = torch.library.Library("counted", "DEF")
library.define("attention(Tensor q, Tensor k, Tensor v) -> Tensor")
library.define("attention_backward(Tensor g, Tensor q, Tensor k, Tensor v, Tensor o) "
               "-> (Tensor, Tensor, Tensor)")  # fmt: skip
library.impl("attention", lambda q, k, v: torch.empty_like(q), "Meta")
library.impl(
    "attention_backward",
    lambda g, q, k, v, o: (torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)),
    "Meta",
)


class Attention(torch.autograd.Function):
    @staticmethod
    def forward(context, q, k, v):
        output = torch.ops.counted.attention(q, k, v)
        context.save_for_backward(q, k, v, output)
        return output

    @staticmethod
    def backward(context, gradient):
        return torch.ops.counted.attention_backward(gradient, *context.saved_tensors)


def attention(module, query, key, value, mask, **kwargs):
    return Attention.apply(*(each.transpose(1, 2) for each in (query, key, value))), None


def count(family):
    """Operations of one layer, forward and backward."""
    config = transformers.AutoConfig.for_model(family, num_hidden_layers=2)
    config._attn_implementation = "counted"
    if family.endswith("moe") or family == "gpt_oss":
        config._experts_implementation = "grouped_mm"
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
        hidden = torch.empty(1, TOKENS, config.hidden_size, dtype=torch.bfloat16, requires_grad=True)
        positions = torch.arange(TOKENS)[None]
        embeddings = model.model.rotary_emb(hidden, positions)
        with Counter() as forward:
            output = model.model.layers[1](
                hidden,
                attention_mask=None,
                position_ids=positions,
                position_embeddings=embeddings,
            )
        output = output[0] if isinstance(output, tuple) else output
        gradient = torch.empty_like(output)
        with Counter() as backward:
            output.backward(gradient)
    return config, forward.operations, backward.operations


def show(family, verbose):
    config, *passes = count(family)
    unit = TOKENS * config.hidden_size
    for name, operations in zip(("forward", "backward"), passes):
        others = [each for each in operations
                  if each[0] not in PRODUCTS and "attention" not in each[0]]  # fmt: skip
        kernels = sum(each[1] for each in operations)
        moved = sum(each[2] for each in others) / unit
        print(f"{family:10} {name:8} {kernels:4} kernels, {moved:6.1f} bytes element by element")
        if verbose:
            for operation, launched, size, shapes in operations:
                print(f"    {operation:24} {launched} {size / unit:8.2f} {shapes}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("families", nargs="*", default=FAMILIES)
    parser.add_argument("-v", action="store_true", help="every operation")
    arguments = parser.parse_args()
    ALL_ATTENTION_FUNCTIONS.register("counted", attention)
    print(f"transformers {transformers.__version__}, torch {torch.__version__}")
    for family in arguments.families:
        show(family, arguments.v)


if __name__ == "__main__":
    main()
