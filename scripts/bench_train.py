"""Trains a GPT-2 in PyTorch on this machine's processors, as bench_train.sh asks.

bench_train.py LAYERS HIDDEN HEADS SEQUENCE BATCH STEPS THREADS
    prints the milliseconds of each step after the first, and those of all threads on processors.
bench_train.py --llmc FOLDER
    writes what llm.c's train_gpt2 reads: weights of 124M and tokens, both random.

The model is GPT-2's: learned positions, GELU in its tanh form, tied embeddings, a vocabulary of
50257 padded to 50304; gradients clipped at 1, AdamW. Attention is
torch.nn.functional.scaled_dot_product_attention, the optimizer the fused one.
"""

import array
import os
import random
import sys
import time


def write_llmc(folder):
    """Formats: llm.c's gpt2_build_from_checkpoint (version 3) and dataloader_init (version 1)."""
    layers, hidden, heads, words, padded, positions = 12, 768, 12, 50257, 50304, 1024
    numbers = random.Random(1)
    some = array.array("f", (numbers.gauss(0, 0.02) for _ in range(1 << 16)))
    header = [20240326, 3, positions, words, layers, heads, hidden, padded]
    per_layer = 12 * hidden * hidden + 13 * hidden
    count = (padded + positions) * hidden + layers * per_layer + 2 * hidden
    with open(os.path.join(folder, "gpt2_124M.bin"), "wb") as file:
        array.array("i", header + [0] * (256 - len(header))).tofile(file)
        while count > 0:
            some[: min(count, len(some))].tofile(file)
            count -= len(some)
    data = os.path.join(folder, "dev/data/tinyshakespeare")
    os.makedirs(data, exist_ok=True)
    for part in ("train", "val"):
        tokens = array.array("H", (numbers.randrange(words) for _ in range(1 << 16)))
        with open(os.path.join(data, f"tiny_shakespeare_{part}.bin"), "wb") as file:
            array.array("i", [20240520, 1, len(tokens)] + [0] * 253).tofile(file)
            tokens.tofile(file)


def train(layers, hidden, heads, sequence, batch, steps, threads):
    import torch
    from torch import nn
    from torch.nn import functional

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
            self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
            self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

        def forward(self, x):
            shape = (batch, sequence, heads, hidden // heads)
            q, k, v = (part.view(shape).transpose(1, 2)
                       for part in self.qkv(self.norm1(x)).split(hidden, dim=2))
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(batch, sequence, hidden))
            return x + self.down(functional.gelu(self.up(self.norm2(x)), approximate="tanh"))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.word, self.position = nn.Embedding(50304, hidden), nn.Embedding(1024, hidden)
            self.blocks = nn.ModuleList(Block() for _ in range(layers))
            self.norm = nn.LayerNorm(hidden)
            for embedding in (self.word, self.position):
                nn.init.normal_(embedding.weight, std=0.02)

        def forward(self, tokens, targets):
            x = self.word(tokens) + self.position(torch.arange(sequence))
            for block in self.blocks:
                x = block(x)
            logits = self.norm(x) @ self.word.weight.t()
            return functional.cross_entropy(logits.view(-1, 50304), targets.view(-1))

    torch.set_num_threads(threads)
    torch.manual_seed(1)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1, fused=True)
    for step in range(steps):
        tokens = torch.randint(50257, (batch, sequence + 1))
        start, used = time.perf_counter(), time.process_time()
        optimizer.zero_grad(set_to_none=True)
        model(tokens[:, :-1], tokens[:, 1:].reshape(-1)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step > 0:
            took, used = time.perf_counter() - start, time.process_time() - used
            print(f"step_ms {took * 1e3:.0f}\nstep_ms_processor {used * 1e3:.0f}", flush=True)


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "--llmc":
        write_llmc(sys.argv[2])
    elif len(sys.argv) == 8:
        train(*map(int, sys.argv[1:]))
    else:
        sys.exit(__doc__)
