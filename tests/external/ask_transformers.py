#!/usr/bin/env python3
"""Asks transformers how many parameters the default configuration of every causal language model
has, and compares that with `plan models FILE --json`.

    python3 tests/external/ask_transformers.py [--plan PROGRAM] [--only FAMILY,...] [-v]

A module is made on the meta device, so no weights are allocated. What it keeps as buffers (the
corrections of routers) counts where its name says so. Families that `plan` refuses are listed with
its reason; a family that is read with another total is a failure (exit code 1).
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import torch
import transformers
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

def xielu(config):
    return 2 * config.num_hidden_layers


def gains(config):
    return -(2 * config.num_hidden_layers + 1) * config.hidden_size


# Parameters that no model file of ours has: those of xIELU in every layer, A.X K1's norm behind its
# experts, a bias per head of Beam's gate, two of OPT's positions. Below zero: what our files have
# and the module has not, gains of norms. The remarks of a model name them (other_arithmetic).
NOT_COUNTED = {
    "apertus": xielu,
    "apertus1p5_text": xielu,
    "axk1": lambda config: config.mlp_layer_types.count("sparse") * config.hidden_size,
    "beam": lambda config: config.num_hidden_layers * config.num_attention_heads,
    "nanochat": gains,
    "olmo": gains,
    "opt": lambda config: 2 * config.hidden_size,
}
# Modules of other networks within a language model's.
OTHER_NETWORKS = ("embed_tokens_extend.",)

CORRECTIONS = ("e_score_correction_bias", "expert_bias", "moe_statics.e_score_correction_bias")


def module_parameters(config):
    """Parameters, and the corrections of routers that are buffers."""
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    model.tie_weights()
    total = sum(
        each.numel()
        for name, each in model.named_parameters()
        if not any(other in name for other in OTHER_NETWORKS)
    )
    corrections = sum(
        each.numel() for name, each in model.named_buffers() if name.endswith(CORRECTIONS)
    )
    return total, corrections


def read_by_plan(program, config, folder):
    path = pathlib.Path(folder) / "config.json"
    text = config.to_dict()
    path.write_text(json.dumps(text, default=str))
    ran = subprocess.run(
        [program, "models", str(path), "--json", "--no-config"], capture_output=True, text=True
    )
    if ran.returncode == 0:
        return json.loads(ran.stdout), None
    if ran.returncode != 2:
        raise SystemExit(f"{program} ended with {ran.returncode}: {ran.stderr}")
    return None, " ".join(ran.stderr.split())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--plan", default="build/release/cli/plan")
    parser.add_argument("--only", default="")
    parser.add_argument("-v", "--verbose", action="store_true", help="list refused families, too")
    arguments = parser.parse_args()
    only = set(filter(None, arguments.only.split(",")))

    equal, different, refused, not_made = [], [], [], []
    with tempfile.TemporaryDirectory() as folder:
        for family, names in sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.items()):
            if only and family not in only:
                continue
            try:
                config = transformers.AutoConfig.for_model(family)
                config.architectures = [names if isinstance(names, str) else names[0]]
            except Exception as error:  # a family without defaults of its own
                not_made.append((family, repr(error)[:120]))
                continue
            answer, reason = read_by_plan(arguments.plan, config, folder)
            if answer is None:
                refused.append((family, reason))
                continue
            try:  # of a model of several networks, its language model
                total, corrections = module_parameters(config.get_text_config())
            except Exception as error:
                not_made.append((family, repr(error)[:120]))
                continue
            ours = answer["parameters"]
            total -= NOT_COUNTED.get(family, lambda _: 0)(config)
            if ours in (total, total + corrections):
                equal.append(family)
            else:
                different.append((family, f"plan has {ours:,}, the module {total:,}"
                                  f" (+ {corrections:,}): {ours - total:+,}"))
    print(f"transformers {transformers.__version__}: {len(equal)} families equal, "
          f"{len(different)} differ, {len(refused)} refused, {len(not_made)} not made")
    for title, rows in (("differ", different), ("not made", not_made)):
        for family, text in rows:
            print(f"{title}: {family}: {text}")
    if arguments.verbose:
        print("equal:", ", ".join(equal))
        for family, reason in refused:
            print(f"refused: {family}: {reason}")
    sys.exit(1 if different else 0)


if __name__ == "__main__":
    main()
