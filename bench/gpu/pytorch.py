#!/usr/bin/env python3
"""Trains a model of measure.py in PyTorch on one GPU: bf16 with fp32 master weights (autocast),
scaled_dot_product_attention, fused AdamW, torch.compile.

pytorch.py MODEL SEQUENCE SAMPLES MICROBATCH STEPS
    prints one JSON object: median step time after three warm-up steps, tokens per second, versions.
    Without arguments it prints the models that it knows.
"""

import json
import statistics
import sys

# Layers, hidden size, heads, KV heads, MLP width, vocabulary (padded to 128), Llama-like.
SHAPES = {
    "gpt2": (12, 768, 12, 12, 3072, 50304, False),
    "gpt2-xl": (48, 1600, 25, 25, 6400, 50304, False),
    "llama3.2-1b": (16, 2048, 32, 8, 8192, 128256, True),
    "llama2-7b": (32, 4096, 32, 32, 11008, 32000, True),
    "llama2-7b-8-layers": (8, 4096, 32, 32, 11008, 32000, True),
}
TIED = {"gpt2", "gpt2-xl", "llama3.2-1b"}


def main():
    if len(sys.argv) == 1:
        return print(*SHAPES)
    if len(sys.argv) != 6 or sys.argv[1] not in SHAPES:
        sys.exit(__doc__)
    try:
        import torch
    except ImportError:
        sys.exit("pytorch.py: this Python has no torch")
    if not torch.cuda.is_available():
        sys.exit("pytorch.py: torch sees no GPU")
    from torch import nn
    from torch.nn import functional

    name = sys.argv[1]
    sequence, samples, microbatch, steps = map(int, sys.argv[2:])
    layers, hidden, heads, kv_heads, ffn, words, llama = SHAPES[name]
    width = hidden // heads

    def norm():
        return nn.RMSNorm(hidden) if llama else nn.LayerNorm(hidden)

    def linear(into, out):
        return nn.Linear(into, out, bias=not llama)

    angles = torch.outer(torch.arange(sequence, device="cuda"),
                         10000.0 ** (-torch.arange(0, width, 2, device="cuda") / width))
    cos, sin = angles.cos(), angles.sin()

    def rotated(x):
        a, b = x.float().chunk(2, dim=-1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1).to(x.dtype)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = norm(), norm()
            self.qkv = linear(hidden, (heads + 2 * kv_heads) * width)
            self.out = linear(hidden, hidden)
            self.up, self.down = linear(hidden, (2 if llama else 1) * ffn), linear(ffn, hidden)

        def forward(self, x):
            rows = self.qkv(self.norm1(x)).view(x.shape[0], sequence, heads + 2 * kv_heads, width)
            q, k, v = rows.transpose(1, 2).split((heads, kv_heads, kv_heads), dim=1)
            if llama:
                q, k = rotated(q), rotated(k)
            if kv_heads != heads:
                k, v = (t.repeat_interleave(heads // kv_heads, dim=1) for t in (k, v))
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(x.shape))
            inner = self.up(self.norm2(x))
            if llama:
                gate, up = inner.chunk(2, dim=-1)
                return x + self.down(functional.silu(gate) * up)
            return x + self.down(functional.gelu(inner, approximate="tanh"))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(words, hidden)
            self.positions = None if llama else nn.Embedding(sequence, hidden)
            self.blocks = nn.ModuleList(Block() for _ in range(layers))
            self.norm = norm()
            self.head = nn.Linear(hidden, words, bias=False)
            if name in TIED:
                self.head.weight = self.words.weight

        def forward(self, tokens, targets):
            x = self.words(tokens)
            if self.positions is not None:
                x = x + self.positions.weight
            for block in self.blocks:
                x = block(x)
            logits = self.head(self.norm(x))
            return functional.cross_entropy(logits.float().view(-1, words), targets.view(-1))

    torch.manual_seed(1)
    with torch.device("cuda"):
        model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), fused=True)
    compiled = torch.compile(model)
    passes = max(1, samples // microbatch)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    times = []
    for _ in range(steps):
        begin.record()
        for _ in range(passes):
            tokens = torch.randint(words, (microbatch, sequence + 1), device="cuda")
            with torch.autocast("cuda", torch.bfloat16):
                loss = compiled(tokens[:, :-1], tokens[:, 1:].contiguous()) / passes
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / 1e3)
    seconds = statistics.median(times[3:])
    print(json.dumps({"step_seconds": seconds,
                      "tokens_per_second": passes * microbatch * sequence / seconds,
                      "microbatch": microbatch, "torch": torch.__version__,
                      "cuda": torch.version.cuda, "gpu": torch.cuda.get_device_name()}))
    return None


if __name__ == "__main__":
    main()
