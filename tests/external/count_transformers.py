#!/usr/bin/env python3
"""Counts the kernels that a layer of transformers launches, and the bytes that they move.

    python3 tests/external/count_transformers.py [-v] [FAMILY ...]

One decoder layer of each family's default configuration runs forward and backward on the meta
device, counted by kernel_counter.py. Experts run by grouped_mm. Printed are the kernels, and of all
but products and attention the bytes per token and unit of the hidden width in bf16, which
costmodel/operators/transformers_code.cpp prices; with -v every operation.
"""

import argparse

import torch
import transformers
from kernel_counter import PRODUCTS, Attention, Counter
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

TOKENS = 4096
FAMILIES = ["llama", "mistral", "qwen2", "qwen3", "qwen3_moe", "gpt_oss"]


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
    return config, forward, backward


def show(family, verbose):
    config, *passes = count(family)
    unit = TOKENS * config.hidden_size
    for name, counter in zip(("forward", "backward"), passes):
        operations = counter.operations
        others = [each for each in operations
                  if each[0] not in PRODUCTS and "attention" not in each[0]]  # fmt: skip
        kernels = sum(each[1] for each in operations)
        moved = sum(each[2] for each in others) / unit
        print(f"{family:10} {name:8} {kernels:4} kernels, {moved:6.1f} bytes element by element")
        if verbose:
            counter.show(unit)


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
