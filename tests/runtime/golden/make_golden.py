"""Writes gpt.csv and llama.csv beside this script: loss and gradients of the two models of
chunk_run.hpp by JAX's automatic differentiation, in float64, from the usual formulas of GPT-2 and
Llama in plain numpy style. Needs: pip install jax. Run: python3 make_golden.py"""
import csv
import math
import pathlib

import jax
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_enable_x64", True)
MASK = (1 << 64) - 1
LAYERS, HIDDEN, HEADS, VOCAB = 3, 16, 4, 29
SAMPLES, SEQUENCE, MICROBATCHES = 2, 8, 2


def splitmix(state):
    """First number of tests/support/numbers.hpp."""
    z = (state + 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def fnv(name):
    state = 0xCBF29CE484222325
    for c in name.encode():
        state = ((state ^ c) * 0x100000001B3) & MASK
    return state


def weight(name, *shape):
    seed = fnv(name)
    unit = [(splitmix(seed + i & MASK) >> 11) * 2.0**-53 for i in range(math.prod(shape))]
    one = 1 if name.endswith("norm.weight") else 0
    return jnp.array([one + 0.25 * (-1 + 2 * u) for u in unit]).reshape(shape)


def words(seed):
    """[microbatch][sample][position]; rows of a microbatch are ordered [position][sample]."""
    count = MICROBATCHES * SEQUENCE * SAMPLES
    flat = [splitmix(seed * 1000003 + i) % VOCAB for i in range(count)]
    return np.array(flat).reshape(MICROBATCHES, SEQUENCE, SAMPLES).transpose(0, 2, 1)


def gpt_weights():
    h, f = HIDDEN, 24
    w = {"embedding.word.weight": (VOCAB, h), "embedding.position.weight": (11, h),
         "final_norm.weight": (h,), "final_norm.bias": (h,)}
    for l in range(LAYERS):
        at = f"layers.{l}."
        for norm in ("attention", "mlp"):
            w |= {at + norm + ".norm.weight": (h,), at + norm + ".norm.bias": (h,)}
        for part in ("q", "k", "v", "output"):
            w |= {at + f"attention.{part}.weight": (h, h), at + f"attention.{part}.bias": (h,)}
        w |= {at + "mlp.up.weight": (f, h), at + "mlp.up.bias": (f,),
              at + "mlp.down.weight": (h, f), at + "mlp.down.bias": (h,)}
    return {name: weight(name, *shape) for name, shape in w.items()}


def llama_weights():
    h, f, q, kv = HIDDEN, 20, 24, 12
    w = {"embedding.word.weight": (VOCAB, h), "head.weight": (VOCAB, h), "final_norm.weight": (h,)}
    for l in range(LAYERS):
        at = f"layers.{l}."
        w |= {at + "attention.norm.weight": (h,), at + "mlp.norm.weight": (h,),
              at + "attention.q.weight": (q, h), at + "attention.k.weight": (kv, h),
              at + "attention.v.weight": (kv, h), at + "attention.output.weight": (h, q),
              at + "mlp.gate.weight": (f, h), at + "mlp.up.weight": (f, h),
              at + "mlp.down.weight": (h, f)}
    return {name: weight(name, *shape) for name, shape in w.items()}


def layer_norm(x, gain, bias):
    return (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5) * gain + bias


def rms_norm(x, gain):
    return x / jnp.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * gain


def heads_of(x, heads):
    return x.reshape(x.shape[0], x.shape[1], heads, -1).transpose(0, 2, 1, 3)


def attention(q, k, v):
    scores = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    scores = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -jnp.inf)
    mixed = jax.nn.softmax(scores, axis=-1) @ v
    return mixed.transpose(0, 2, 1, 3).reshape(mixed.shape[0], mixed.shape[2], -1)


def rope(x):
    """HuggingFace's rotate_half."""
    d = x.shape[-1]
    frequency = 10000.0 ** (-jnp.arange(0, d, 2) / d)
    angle = jnp.arange(x.shape[-2])[:, None] * frequency[None, :]
    angle = jnp.concatenate([angle, angle], -1)
    half = jnp.concatenate([-x[..., d // 2:], x[..., :d // 2]], -1)
    return x * jnp.cos(angle) + half * jnp.sin(angle)


def gpt(w, tokens):
    linear = lambda x, name: x @ w[name + ".weight"].T + w[name + ".bias"]
    norm = lambda x, name: layer_norm(x, w[name + ".weight"], w[name + ".bias"])
    x = w["embedding.word.weight"][tokens] + w["embedding.position.weight"][:tokens.shape[1]]
    for l in range(LAYERS):
        at = f"layers.{l}."
        n = norm(x, at + "attention.norm")
        q, k, v = (heads_of(linear(n, at + f"attention.{part}"), HEADS) for part in "qkv")
        x = x + linear(attention(q, k, v), at + "attention.output")
        n = linear(norm(x, at + "mlp.norm"), at + "mlp.up")
        x = x + linear(jax.nn.gelu(n, approximate=True), at + "mlp.down")
    return norm(x, "final_norm") @ w["embedding.word.weight"].T


def llama(w, tokens):
    linear = lambda x, name: x @ w[name + ".weight"].T
    norm = lambda x, name: rms_norm(x, w[name + ".weight"])
    x = w["embedding.word.weight"][tokens]
    for l in range(LAYERS):
        at = f"layers.{l}."
        n = norm(x, at + "attention.norm")
        q = rope(heads_of(linear(n, at + "attention.q"), HEADS))
        k = rope(heads_of(linear(n, at + "attention.k"), 2)).repeat(2, axis=1)
        v = heads_of(linear(n, at + "attention.v"), 2).repeat(2, axis=1)
        x = x + linear(attention(q, k, v), at + "attention.output")
        n = norm(x, at + "mlp.norm")
        x = x + linear(jax.nn.silu(linear(n, at + "mlp.gate")) * linear(n, at + "mlp.up"),
                       at + "mlp.down")
    return linear(norm(x, "final_norm"), "head")


def write(name, model, weights):
    tokens, targets = words(1), words(2)

    def loss(w):
        logits = jnp.stack([model(w, batch) for batch in tokens])
        picked = jnp.take_along_axis(logits, jnp.array(targets)[..., None], -1)[..., 0]
        return (jax.nn.logsumexp(logits, axis=-1) - picked).mean()

    value, gradients = jax.value_and_grad(loss)(weights)
    with open(pathlib.Path(__file__).with_name(name), "w", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(["tensor", "index", "value"])
        out.writerow(["loss", 0, repr(float(value))])
        for tensor, g in sorted(gradients.items()):
            flat = np.asarray(g).ravel()
            for i in sorted({0, flat.size // 3, flat.size - 1}):
                out.writerow([tensor, i, repr(float(flat[i]))])
            out.writerow([tensor + " norm", 0, repr(float(np.sqrt((flat * flat).sum())))])


write("gpt.csv", gpt, gpt_weights())
write("llama.csv", llama, llama_weights())
