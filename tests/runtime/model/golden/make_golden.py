"""Writes the .csv files beside this script: loss and gradients of the models of
test_models.hpp by PyTorch's automatic differentiation, in float64, with its own layers; with their
usual constants and with those of chunk_golden_test.cpp. Needs: pip install torch. Run: python3
make_golden.py"""
import csv
import math
import pathlib

import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
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
    return torch.tensor([one + 0.25 * (-1 + 2 * u) for u in unit]).reshape(shape).requires_grad_()


def words(seed):
    """[microbatch][sample][position]; rows of a microbatch are ordered [position][sample]."""
    count = MICROBATCHES * SEQUENCE * SAMPLES
    flat = [splitmix(seed * 1000003 + i) % VOCAB for i in range(count)]
    return torch.tensor(flat).reshape(MICROBATCHES, SEQUENCE, SAMPLES).transpose(1, 2)


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


def gated(to, width):
    return {to + "gate.weight": (width, HIDDEN), to + "up.weight": (width, HIDDEN),
            to + "down.weight": (HIDDEN, width)}


def mixture(at, experts, width, shared=0, correction=False, gate=False):
    """Of a layer with experts: the router, the experts, shared ones."""
    w = {at + "moe.router.weight": (experts, HIDDEN)}
    for e in range(experts):
        w |= gated(at + f"moe.experts.{e}.", width)
    if shared:
        w |= gated(at + "moe.shared.", shared)
    if correction:
        w |= {at + "moe.router.bias": (experts,)}
    if gate:
        w |= {at + "moe.shared_gate.weight": (1, HIDDEN)}
    return w


def llama_weights(head_norms=False, experts=0, expert_width=0, every=1, shared=0, gate=False,
                  biases=False, first=0, correction=False, head_dim=6):
    h, f, q, kv = HIDDEN, 20, 4 * head_dim, 2 * head_dim
    w = {"embedding.word.weight": (VOCAB, h), "head.weight": (VOCAB, h), "final_norm.weight": (h,)}
    for l in range(LAYERS):
        at = f"layers.{l}."
        w |= {at + "attention.norm.weight": (h,), at + "mlp.norm.weight": (h,),
              at + "attention.q.weight": (q, h), at + "attention.k.weight": (kv, h),
              at + "attention.v.weight": (kv, h), at + "attention.output.weight": (h, q)}
        if experts and l >= first and (l - first) % every == 0:
            w |= mixture(at, experts, expert_width, shared, correction, gate)
        else:
            w |= gated(at + "mlp.", f)
        if biases:
            w |= {at + "attention.q.bias": (q,), at + "attention.k.bias": (kv,),
                  at + "attention.v.bias": (kv,)}
        if head_norms:
            w |= {at + f"attention.{part}_norm.weight": (q // HEADS,) for part in "qk"}
    return {name: weight(name, *shape) for name, shape in w.items()}


def latent_weights(q_rank=0, experts=0, expert_width=0, shared=0, correction=False):
    """Of DeepSeek's layers: heads of 5 + 4 numbers for queries and keys and of 6 for values."""
    h, f, o, v, kv_rank = HIDDEN, 20, HEADS * 9, HEADS * 6, 9
    w = {"embedding.word.weight": (VOCAB, h), "head.weight": (VOCAB, h), "final_norm.weight": (h,)}
    for l in range(LAYERS):
        at = f"layers.{l}.attention."
        w |= {at + "norm.weight": (h,), at + "kv_down.weight": (kv_rank + 4, h),
              at + "kv_latent_norm.weight": (kv_rank,),
              at + "kv_up.weight": (HEADS * (5 + 6), kv_rank), at + "output.weight": (h, v)}
        if q_rank:
            w |= {at + "q_down.weight": (q_rank, h), at + "q_latent_norm.weight": (q_rank,),
                  at + "q_up.weight": (o, q_rank)}
        else:
            w |= {at + "q.weight": (o, h)}
        at = f"layers.{l}."
        w |= {at + "mlp.norm.weight": (h,)}
        if experts and l > 0:
            w |= mixture(at, experts, expert_width, shared, correction)
        else:
            w |= gated(at + "mlp.", f)
    return {name: weight(name, *shape) for name, shape in w.items()}


def adapters(w, rank, targets=("qkv", "output", "fc1", "down")):
    """LoRA on frozen weights: queries, keys and values share an A, as do gate and up."""
    a_of = {"q": "qkv", "k": "qkv", "v": "qkv", "gate": "fc1", "up": "fc1"}
    of_heads = ("qkv", "output")
    out = {name: value.detach() for name, value in w.items()}
    for name, value in w.items():
        block, _, part = name.removesuffix(".weight").rpartition(".")
        a = a_of.get(part, part)
        if value.dim() != 2 or "layers" not in name or a not in targets:
            continue
        assert block.endswith("attention" if a in of_heads else "mlp"), name
        at = f"{block}.{a}.lora_A.weight"
        out[at] = weight(at, rank, value.shape[1])
        at = f"{block}.{part}.lora_B.weight"
        out[at] = weight(at, value.shape[0], rank)
    return out


ADAPTER_SCALE = 2.5


def product(w, x, name):
    """With the adapter that the matrix has, if it has one."""
    y = F.linear(x, w[name + ".weight"], w.get(name + ".bias"))
    if name + ".lora_B.weight" not in w:
        return y
    block, _, part = name.rpartition(".")
    a = {"q": "qkv", "k": "qkv", "v": "qkv", "gate": "fc1", "up": "fc1"}.get(part, part)
    narrow = F.linear(x, w[f"{block}.{a}.lora_A.weight"])
    return y + ADAPTER_SCALE * F.linear(narrow, w[name + ".lora_B.weight"])


def heads_of(x, heads):
    return x.reshape(x.shape[0], x.shape[1], heads, -1).transpose(1, 2)


def attention(q, k, v, scale=None):
    mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)
    return mixed.transpose(1, 2).reshape(mixed.shape[0], mixed.shape[2], -1)


def plain(theta):
    return lambda d: (theta ** (-torch.arange(0, d, 2).double() / d), 1.0)


def linear_scaling(theta, factor):
    return lambda d: (plain(theta)(d)[0] / factor, 1.0)


def llama3_scaling(theta, factor, low, high, original):
    """By wavelengths, as transformers 5 writes it (_compute_llama3_parameters)."""
    def frequencies(d):
        f = plain(theta)(d)[0]
        wavelength = 2 * math.pi / f
        smooth = (original / wavelength - low) / (high - low)
        between = (1 - smooth) * f / factor + smooth * f
        return torch.where(wavelength < original / high, f,
                           torch.where(wavelength > original / low, f / factor, between)), 1.0
    return frequencies


def yarn_scaling(theta, factor, original, fast, slow, truncate, attention):
    """_compute_yarn_parameters of transformers 5, with its attention factor given."""
    def pair(turns, d):
        return d * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(theta))

    def frequencies(d):
        low, high = pair(fast, d), pair(slow, d)
        if truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, d - 1)
        ramp = torch.clamp((torch.arange(d // 2).double() - low) / (high - low), 0, 1)
        f = plain(theta)(d)[0]
        return f / factor * ramp + f * (1 - ramp), attention
    return frequencies


def rope(x, frequencies):
    """HuggingFace's rotate_half."""
    d = x.shape[-1]
    frequency, scale = frequencies(d)
    angle = torch.arange(x.shape[-2]).double()[:, None] * frequency[None, :]
    angle = torch.cat([angle, angle], -1)
    half = torch.cat([-x[..., d // 2:], x[..., :d // 2]], -1)
    return x * (scale * torch.cos(angle)) + half * (scale * torch.sin(angle))


def rope_of_part(x, frequencies, part):
    """Of the first part of a head, as Glm4MoeAttention does."""
    d = int(x.shape[-1] * part)
    return torch.cat([rope(x[..., :d], frequencies), x[..., d:]], -1)


def gpt(w, tokens, eps=1e-5):
    linear = lambda x, name: product(w, x, name)
    norm = lambda x, name: F.layer_norm(x, (HIDDEN,), w[name + ".weight"], w[name + ".bias"], eps)
    x = w["embedding.word.weight"][tokens] + w["embedding.position.weight"][:tokens.shape[1]]
    for l in range(LAYERS):
        at = f"layers.{l}."
        n = norm(x, at + "attention.norm")
        q, k, v = (heads_of(linear(n, at + f"attention.{part}"), HEADS) for part in "qkv")
        x = x + linear(attention(q, k, v), at + "attention.output")
        n = linear(norm(x, at + "mlp.norm"), at + "mlp.up")
        x = x + linear(F.gelu(n, approximate="tanh"), at + "mlp.down")
    return norm(x, "final_norm") @ w["embedding.word.weight"].T


def shared_experts_of(w, at, n):
    """As Qwen2MoeSparseMoeBlock's; without a gate as DeepseekV3MoE's."""
    part = lambda name: w[at + f"moe.shared.{name}.weight"].T
    y = (F.silu(n @ part("gate")) * (n @ part("up"))) @ part("down")
    gate = at + "moe.shared_gate.weight"
    return torch.sigmoid(n @ w[gate].T) * y if gate in w else y


def within_groups(scores, groups, group_choices, best):
    """Scores of all but the best groups are masked: by the sum of their `best` largest, as
    DeepseekV3TopkRouter (2) and DeepseekV2TopkRouter (1) of transformers choose groups."""
    parts = scores.unflatten(-1, (groups, -1))
    of_groups = parts.topk(best, dim=-1)[0].sum(dim=-1)
    index = torch.topk(of_groups, group_choices, dim=-1)[1]
    mask = torch.zeros_like(of_groups).scatter(-1, index, 1)
    return parts.masked_fill(~mask.bool().unsqueeze(-1), float("-inf")).flatten(-2)


def experts_of(w, at, n, choices, normalized, scaling, score, groups, group_choices):
    """As MixtralSparseMoeBlock and Qwen3MoeSparseMoeBlock of transformers compute it; scaling as
    DeepseekV2Moe's routed_scaling_factor; sigmoids as DeepseekV3TopkRouter's."""
    logits = n @ w[at + "moe.router.weight"].T
    by_sigmoid = score == "sigmoid"
    scores = logits.sigmoid() if by_sigmoid else F.softmax(logits, dim=-1)
    bias = at + "moe.router.bias"
    decisive = scores + w[bias] if bias in w else scores
    if groups > 1:
        decisive = within_groups(decisive, groups, group_choices, 2 if by_sigmoid else 1)
    chosen = torch.topk(decisive, choices, dim=-1)[1]
    weights = scores.gather(-1, chosen)
    if normalized:
        weights = weights / (weights.sum(dim=-1, keepdim=True) + (1e-20 if by_sigmoid else 0))
    shared = at + "moe.shared.up.weight" in w
    out = shared_experts_of(w, at, n) if shared else torch.zeros_like(n)
    for e in range(w[at + "moe.router.weight"].shape[0]):
        part = lambda name: w[at + f"moe.experts.{e}.{name}.weight"].T
        y = (F.silu(n @ part("gate")) * (n @ part("up"))) @ part("down")
        out = out + y * (weights * (chosen == e)).sum(dim=-1, keepdim=True) * scaling
    return out


def rope_of_neighbours(x, frequencies):
    """As modeling_deepseek_v2.py: pairs are complex numbers, which are turned."""
    frequency, scale = frequencies(x.shape[-1])
    angle = torch.arange(x.shape[-2]).double()[:, None] * frequency[None, :]
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2).contiguous())
    return torch.view_as_real(pairs * torch.polar(torch.full_like(angle, scale), angle)).flatten(-2)


def latent_attention(w, at, n, frequencies, score_factor):
    """As DeepseekV3Attention of transformers computes it; norms of latents have its default."""
    linear = lambda x, name: F.linear(x, w[at + name + ".weight"])
    norm = lambda x, name: F.rms_norm(x, (x.shape[-1],), w[at + name + ".weight"], 1e-6)
    if at + "q.weight" in w:
        q = linear(n, "q")
    else:
        q = linear(norm(linear(n, "q_down"), "q_latent_norm"), "q_up")
    q_pass, q_rotated = torch.split(heads_of(q, HEADS), [5, 4], dim=-1)
    latent, k_rotated = torch.split(linear(n, "kv_down"), [9, 4], dim=-1)
    k_pass, v = torch.split(heads_of(linear(norm(latent, "kv_latent_norm"), "kv_up"), HEADS),
                            [5, 6], dim=-1)
    k_rotated = rope_of_neighbours(k_rotated[:, None], frequencies).expand(-1, HEADS, -1, -1)
    q = torch.cat((q_pass, rope_of_neighbours(q_rotated, frequencies)), dim=-1)
    mixed = attention(q, torch.cat((k_pass, k_rotated), dim=-1), v, 9 ** -0.5 * score_factor)
    return linear(mixed, "output")


def llama(w, tokens, eps=1e-5, frequencies=plain(10000.0), choices=0, normalized=True, scaling=1,
          score="softmax", groups=1, group_choices=1, rotated=1.0, score_factor=1):
    linear = lambda x, name: product(w, x, name)
    norm = lambda x, name: F.rms_norm(x, (x.shape[-1],), w[name + ".weight"], eps)

    def head_norm(x, name):  # of Qwen 3's heads, before the rotation
        return norm(x, name) if name + ".weight" in w else x

    def heads_attention(n, at):
        q = head_norm(heads_of(linear(n, at + "attention.q"), HEADS), at + "attention.q_norm")
        k = head_norm(heads_of(linear(n, at + "attention.k"), 2), at + "attention.k_norm")
        q, k = rope_of_part(q, frequencies, rotated), rope_of_part(k, frequencies, rotated)
        k = k.repeat_interleave(2, dim=1)
        v = heads_of(linear(n, at + "attention.v"), 2).repeat_interleave(2, dim=1)
        return linear(attention(q, k, v), at + "attention.output")
    x = w["embedding.word.weight"][tokens]
    for l in range(LAYERS):
        at = f"layers.{l}."
        n = norm(x, at + "attention.norm")
        if at + "attention.kv_down.weight" in w:
            x = x + latent_attention(w, at + "attention.", n, frequencies, score_factor)
        else:
            x = x + heads_attention(n, at)
        n = norm(x, at + "mlp.norm")
        if at + "moe.router.weight" in w:
            x = x + experts_of(w, at, n, choices, normalized, scaling, score, groups,
                               group_choices)
            continue
        x = x + linear(F.silu(linear(n, at + "mlp.gate")) * linear(n, at + "mlp.up"),
                       at + "mlp.down")
    return linear(norm(x, "final_norm"), "head")


def write(name, model, weights, **constants):
    tokens, targets = words(1), words(2)

    logits = torch.stack([model(weights, batch, **constants) for batch in tokens])
    loss = F.cross_entropy(logits.flatten(0, -2), targets.flatten())
    loss.backward()
    with open(pathlib.Path(__file__).with_name(name), "w", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(["tensor", "index", "value"])
        out.writerow(["loss", 0, repr(loss.item())])
        for tensor, w in sorted(weights.items()):
            if not w.requires_grad:
                continue
            flat = (torch.zeros_like(w) if w.grad is None else w.grad).flatten()
            for i in sorted({0, flat.numel() // 3, flat.numel() - 1}):
                out.writerow([tensor, i, repr(flat[i].item())])
            out.writerow([tensor + " norm", 0, repr(flat.norm().item())])


write("gpt.csv", gpt, gpt_weights())
write("llama.csv", llama, llama_weights())
write("llama_head_norms.csv", llama, llama_weights(head_norms=True), eps=1e-6)
write("mixtral.csv", llama, llama_weights(experts=5, expert_width=12), choices=2)
write("qwen3_moe.csv", llama, llama_weights(head_norms=True, experts=8, expert_width=8, every=2),
      choices=3, normalized=False, scaling=1.5)
write("qwen2_moe.csv", llama, llama_weights(experts=6, expert_width=8, shared=20, gate=True,
                                             biases=True), choices=2, normalized=False)
deepseek = dict(experts=8, expert_width=8, shared=8, first=1)
write("deepseek_experts.csv", llama, llama_weights(**deepseek, correction=True), choices=3,
      scaling=2.5, score="sigmoid", groups=4, group_choices=2)
write("deepseek_v2_experts.csv", llama, llama_weights(**deepseek), choices=3, normalized=False,
      scaling=16, groups=4, group_choices=2)
write("glm4_moe.csv", llama, llama_weights(**deepseek, correction=True, head_norms=True,
                                           biases=True, head_dim=8),
      choices=3, normalized=False, score="sigmoid", rotated=0.5)
write("latent.csv", llama, latent_weights(q_rank=11))
write("latent_direct.csv", llama, latent_weights(experts=5, expert_width=12), choices=2,
      normalized=False, frequencies=yarn_scaling(500.0, 4.0, 64, 4.0, 0.5, True, 1.25),
      score_factor=(0.1 * 0.7 * math.log(4.0) + 1) ** 2)
write("gpt_epsilon.csv", gpt, gpt_weights(), eps=1e-3)
for name, eps, frequencies in (
        ("theta", 1e-6, plain(500000.0)),
        ("linear", 1e-6, linear_scaling(10000.0, 4.0)),
        ("llama3", 1e-5, llama3_scaling(500.0, 8.0, 1.0, 4.0, 64)),
        ("yarn", 1e-5, yarn_scaling(500.0, 4.0, 64, 4.0, 0.5, True, 1.25)),
        ("yarn_real", 1e-5, yarn_scaling(500.0, 4.0, 64, 4.0, 0.5, False, 1.25))):
    write(f"llama_{name}.csv", llama, llama_weights(), eps=eps, frequencies=frequencies)
write("deepseek_v3.csv", llama, latent_weights(q_rank=11, experts=8, expert_width=8, shared=8,
                                               correction=True),
      choices=3, scaling=2.5, score="sigmoid", groups=4, group_choices=2)
write("gpt_adapters.csv", gpt, adapters(gpt_weights(), 3))
write("llama_adapters.csv", llama, adapters(llama_weights(), 5))
write("llama_some_adapters.csv", llama,
      adapters(llama_weights(head_norms=True, biases=True), 2, targets=("qkv", "down")))
