"""Writes adapters.csv beside this script: losses of four steps that train LoRA adapters on a small
GPT-2, the adapters' gradients in the first step, and the adapters after the last one. Model by
transformers, adapters by PEFT (LoraModel), optimizer torch.optim.AdamW, all in float64; also what a
PEFT folder of such adapters holds (adapters_peft.csv: names and shapes). Weights, tokens and
learning rates are those of adapters_golden_test.cpp. Needs: pip install torch transformers peft.
Run: python3 make_adapters_golden.py"""
import csv
import math
import pathlib

import torch
import torch.nn.functional as F
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict
from transformers import GPT2Config, GPT2LMHeadModel

torch.set_default_dtype(torch.float64)
MASK = (1 << 64) - 1
LAYERS, HIDDEN, HEADS, VOCAB, POSITIONS, FFN = 2, 16, 4, 50, 16, 64
SAMPLES, SEQUENCE, STEPS, RANK, ALPHA = 8, 8, 4, 3, 7.5
PEAK, WARMUP, TOTAL = 1e-2, 2, 10


def splitmix(state):
    """First number of tests/support/numbers.hpp."""
    z = (state + 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def weight(name, *shape):
    """As test_weight of tests/runtime/model/chunk_run.hpp, by our names of parameters."""
    seed = 0xCBF29CE484222325
    for c in name.encode():
        seed = ((seed ^ c) * 0x100000001B3) & MASK
    unit = [(splitmix(seed + i & MASK) >> 11) * 2.0**-53 for i in range(math.prod(shape))]
    one = 1 if name.endswith("norm.weight") else 0
    return torch.tensor([one + 0.25 * (-1 + 2 * u) for u in unit]).reshape(shape)


def rows_of(at, parts, *shape):
    return torch.cat([weight(at + part, *shape) for part in parts])


def our_weights():
    """By transformers' names; its matrices are [in, out]."""
    h = HIDDEN
    w = {"wte.weight": weight("embedding.word.weight", VOCAB, h),
         "wpe.weight": weight("embedding.position.weight", POSITIONS, h),
         "ln_f.weight": weight("final_norm.weight", h), "ln_f.bias": weight("final_norm.bias", h)}
    for l in range(LAYERS):
        ours, theirs = f"layers.{l}.", f"h.{l}."
        for norm, name in (("attention.norm", "ln_1"), ("mlp.norm", "ln_2")):
            for part in (".weight", ".bias"):
                w[theirs + name + part] = weight(ours + norm + part, h)
        heads = [f"attention.{part}" for part in "qkv"]
        w[theirs + "attn.c_attn.weight"] = rows_of(ours, [p + ".weight" for p in heads], h, h).T
        w[theirs + "attn.c_attn.bias"] = rows_of(ours, [p + ".bias" for p in heads], h)
        for name, ours_of, out, wide in (("attn.c_proj", "attention.output", h, h),
                                         ("mlp.c_fc", "mlp.up", FFN, h),
                                         ("mlp.c_proj", "mlp.down", h, FFN)):
            w[theirs + name + ".weight"] = weight(ours + ours_of + ".weight", out, wide).T
            w[theirs + name + ".bias"] = weight(ours + ours_of + ".bias", out)
    return {"transformer." + name: value.contiguous() for name, value in w.items()}


def adapters_of(model):
    """Our names, the parameter, and the rows of it that ours are."""
    for l in range(LAYERS):
        h, ours = model.base_model.model.transformer.h[l], f"layers.{l}."
        for module, a, bs in ((h.attn.c_attn, "attention.qkv", ["attention." + p for p in "qkv"]),
                              (h.attn.c_proj, "attention.output", ["attention.output"]),
                              (h.mlp.c_fc, "mlp.fc1", ["mlp.up"]),
                              (h.mlp.c_proj, "mlp.down", ["mlp.down"])):
            of_a, of_b = module.lora_A.default.weight, module.lora_B.default.weight
            yield ours + a + ".lora_A.weight", of_a, slice(None)
            rows = of_b.shape[0] // len(bs)
            for i, b in enumerate(bs):
                yield ours + b + ".lora_B.weight", of_b, slice(i * rows, (i + 1) * rows)


def rate(step):
    if step < WARMUP:
        return PEAK * (step + 1) / WARMUP
    done = (step - WARMUP) / max(1, TOTAL - WARMUP)
    return 0.1 * PEAK + 0.5 * (PEAK - 0.1 * PEAK) * (1 + math.cos(math.pi * done))


def sample(number):
    return [splitmix(1 * 1000003 + number * (SEQUENCE + 1) + i) % VOCAB for i in range(SEQUENCE + 1)]


base = GPT2LMHeadModel(GPT2Config(
    vocab_size=VOCAB, n_positions=POSITIONS, n_embd=HIDDEN, n_layer=LAYERS, n_head=HEADS,
    n_inner=FFN, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, attn_implementation="eager"))
missing = base.load_state_dict(our_weights(), strict=False)
assert not missing.unexpected_keys and set(missing.missing_keys) <= {"lm_head.weight"}, missing
model = get_peft_model(base, LoraConfig(
    r=RANK, lora_alpha=ALPHA, lora_dropout=0, fan_in_fan_out=True, task_type="CAUSAL_LM",
    target_modules=["attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"]))
with torch.no_grad():
    for name, parameter, rows in adapters_of(model):
        parameter[rows] = weight(name, *parameter[rows].shape)
trained = [p for p in model.parameters() if p.requires_grad]
optimizer = torch.optim.AdamW(trained, lr=PEAK, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)

out = []


def add(kind, values):
    for name, value in values:
        flat = value.flatten()
        for i in sorted({0, flat.numel() // 3, flat.numel() - 1}):
            out.append([kind, name, i, repr(flat[i].item())])
        out.append([kind, name, "norm", repr(flat.norm().item())])


for step in range(STEPS):
    batch = torch.tensor([sample(step * SAMPLES + s) for s in range(SAMPLES)])
    loss = F.cross_entropy(model(batch[:, :-1]).logits.flatten(0, 1), batch[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    if step == 0:
        add("gradient", [(name, p.grad[rows]) for name, p, rows in adapters_of(model)])
    for group in optimizer.param_groups:
        group["lr"] = rate(step)
    optimizer.step()
    out.append(["loss", step, 0, repr(loss.item())])
add("weight", [(name, p.detach()[rows]) for name, p, rows in adapters_of(model)])


def write(name, header, rows):
    with open(pathlib.Path(__file__).with_name(name), "w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([header, *rows])


write("adapters.csv", ["kind", "tensor", "index", "value"], out)
state = get_peft_model_state_dict(model)
write("adapters_peft.csv", ["tensor", "rows", "columns"],
      sorted([name, *value.shape] for name, value in state.items()))
