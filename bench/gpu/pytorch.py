#!/usr/bin/env python3
"""Trains a model of measure.py in PyTorch on one GPU, with Echelon's types: bf16 products and
residuals with fp32 master weights, gradients and moments (autocast), scaled_dot_product_attention
(cuDNN's if it takes the shape), fused AdamW, torch.compile.

pytorch.py MODEL SEQUENCE SAMPLES MICROBATCH STEPS [--cpu]
    prints one JSON object: median step time after three warm-up steps, tokens per second, the first
    and the last loss, the peak of PyTorch's allocations, versions. While the GPU's memory is too
    small the microbatch is halved. Models of many layers are compiled block by block: in one piece
    they take minutes. --cpu: without a GPU, to try it.
    Without arguments it prints the models that it knows.
"""

import gc
import json
import statistics
import sys
import time

WARM_UP = 3
MOST_IN_ONE_PIECE = 16  # layers
# Layers, hidden size, heads, KV heads, MLP width, vocabulary (padded to 128), Llama-like.
SHAPES = {
    "gpt2": (12, 768, 12, 12, 3072, 50304, False),
    "gpt2-xl": (48, 1600, 25, 25, 6400, 50304, False),
    "llama3.2-1b": (16, 2048, 32, 8, 8192, 128256, True),
    "llama2-7b": (32, 4096, 32, 32, 11008, 32000, True),
    "llama2-7b-8-layers": (8, 4096, 32, 32, 11008, 32000, True),
    "tiny-gpt2": (2, 128, 2, 2, 512, 256, False),
    "tiny-llama": (17, 128, 2, 1, 256, 256, True),
}
TIED = {"gpt2", "gpt2-xl", "llama3.2-1b", "tiny-gpt2"}


def build(torch, name, sequence, device):
    """The model: a module of (tokens, targets) whose value is the loss."""
    nn, functional = torch.nn, torch.nn.functional
    layers, hidden, heads, kv_heads, ffn, words, llama = SHAPES[name]
    width = hidden // heads

    def norm():
        return nn.RMSNorm(hidden) if llama else nn.LayerNorm(hidden)

    def linear(into, out):
        return nn.Linear(into, out, bias=not llama)

    angles = torch.outer(torch.arange(sequence, device=device),
                         10000.0 ** (-torch.arange(0, width, 2, device=device) / width))
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
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True,
                                                        enable_gqa=kv_heads != heads)
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
            for weight in self.parameters():
                if weight.dim() == 2:
                    nn.init.normal_(weight, std=0.02)
            if name in TIED:
                self.head.weight = self.words.weight

        def loss(self, x, targets):
            logits = self.head(self.norm(x))
            return functional.cross_entropy(logits.float().view(-1, words), targets.view(-1))

        def forward(self, tokens, targets):
            x = self.words(tokens)
            if self.positions is not None:
                x = x + self.positions.weight
            x = x.to(torch.bfloat16)
            for block in self.blocks:
                x = block(x)
            return self.loss(x, targets)

    with torch.device(device):
        model = Model()
    if layers <= MOST_IN_ONE_PIECE:
        model.compile()
    else:
        for block in model.blocks:  # compiled once: they differ in their weights alone
            block.compile()
        model.loss = torch.compile(model.loss)
    return model


def train(torch, name, sequence, samples, microbatch, steps, device):
    """What main() prints."""
    torch.manual_seed(1)
    model = build(torch, name, sequence, device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), fused=True)
    words = SHAPES[name][5]
    passes = max(1, samples // microbatch)
    on_gpu = device == "cuda"
    ends, losses = [], []
    for _ in range(steps):
        total = torch.zeros((), device=device)
        for _ in range(passes):
            tokens = torch.randint(words, (microbatch, sequence + 1), device=device)
            with torch.autocast(device, torch.bfloat16):
                loss = model(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()) / passes
            loss.backward()
            total += loss.detach()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(total)
        # Awaited at the end only: the host enqueues steps ahead of the GPU.
        ends.append(torch.cuda.Event(enable_timing=True) if on_gpu else time.monotonic())
        if on_gpu:
            ends[-1].record()
    if on_gpu:
        torch.cuda.synchronize()
    times = [before.elapsed_time(after) / 1e3 if on_gpu else after - before
             for before, after in zip(ends, ends[1:])]
    seconds = statistics.median(times[WARM_UP - 1:])
    return {"step_seconds": seconds, "tokens_per_second": passes * microbatch * sequence / seconds,
            "microbatch": microbatch, "losses": [losses[0].item(), losses[-1].item()],
            "peak_memory_bytes": torch.cuda.max_memory_allocated() if on_gpu else None,
            "compiled": "whole" if SHAPES[name][0] <= MOST_IN_ONE_PIECE else "block by block",
            "torch": torch.__version__, "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version() if on_gpu else None,
            "gpu": torch.cuda.get_device_name() if on_gpu else "none"}


def main():
    arguments = [each for each in sys.argv[1:] if each != "--cpu"]
    device = "cpu" if "--cpu" in sys.argv else "cuda"
    if not arguments:
        return print(*SHAPES)
    if len(arguments) != 5 or arguments[0] not in SHAPES:
        sys.exit(__doc__)
    try:
        import torch
        from torch.nn.attention import SDPBackend, sdpa_kernel
    except ImportError:
        sys.exit("pytorch.py: this Python has no torch 2.6 or newer")
    if device == "cuda" and not torch.cuda.is_available():
        sys.exit("pytorch.py: torch sees no GPU")
    name = arguments[0]
    sequence, samples, microbatch, steps = map(int, arguments[1:])
    if steps <= WARM_UP:
        sys.exit(f"pytorch.py: found {steps} steps, expected more than {WARM_UP} (the warm-up)")
    kernels = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION,
               SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
    while True:
        try:
            with sdpa_kernel(kernels, set_priority=True):
                made = train(torch, name, sequence, samples, microbatch, steps, device)
            print(json.dumps(made))
            return None
        except torch.OutOfMemoryError:
            if microbatch == 1:
                raise
        microbatch //= 2
        print(f"pytorch.py: out of memory; microbatch {microbatch}", file=sys.stderr)
        torch.compiler.reset()
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


if __name__ == "__main__":
    main()
