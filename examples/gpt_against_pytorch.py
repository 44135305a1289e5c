#!/usr/bin/env python3
"""Compares 04_train_gpt with the same model in PyTorch, run by hand with a Python that has torch:

  gpt_against_pytorch.py curve build/release/bin/04_train_gpt    # the losses, step by step
  gpt_against_pytorch.py speed build/release/bin/04_train_gpt    # tokens per second, in turn

Both start from the same weights and see the same windows of the text. PyTorch computes q, k and v
by one product, as its users do; 04_train_gpt computes them by three.
"""
import argparse
import json
import math
import os
import pathlib
import re
import statistics
import struct
import subprocess
import tempfile
import time

import numpy
import torch
from torch.nn import functional

TEXT = pathlib.Path(__file__).resolve().parent / "data" / "pride_and_prejudice.txt"
MASK = (1 << 64) - 1


def load_safetensors(path):
    data = pathlib.Path(path).read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    types = {"F32": numpy.float32, "I64": numpy.int64}
    result = {}
    for name, entry in header.items():
        begin, end = (8 + size + offset for offset in entry["data_offsets"])
        values = numpy.frombuffer(data[begin:end], types[entry["dtype"]]).reshape(entry["shape"])
        result[name] = torch.from_numpy(values.copy())
    return result


def hashed(seed, index):
    """Returns number `index` of the sequence of `seed`, as 04_train_gpt does."""
    z = (seed * 0xD1B54A32D192ED03 + (index + 1) * 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


class Windows:
    def __init__(self, options):
        text = TEXT.read_bytes()
        places = {byte: place for place, byte in enumerate(sorted(set(text)))}
        tokens = torch.tensor([places[byte] for byte in text])
        self.tokens = tokens[:len(tokens) * 9 // 10]
        self.options = options

    def batch(self, step):
        o = self.options
        starts = [hashed(o.seed, step * o.batch + row) % (len(self.tokens) - o.context)
                  for row in range(o.batch)]
        rows = torch.stack([self.tokens[s:s + o.context + 1] for s in starts])
        return rows[:, :-1], rows[:, 1:].reshape(-1)


class Block(torch.nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.attention_norm = torch.nn.LayerNorm(width)
        self.qkv = torch.nn.Linear(width, 3 * width)
        self.out = torch.nn.Linear(width, width)
        self.hidden_norm = torch.nn.LayerNorm(width)
        self.up = torch.nn.Linear(width, 4 * width)
        self.down = torch.nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2)
                   for part in self.qkv(self.attention_norm(x)).split(width, dim=2))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(functional.gelu(self.up(self.hidden_norm(x))))


class Gpt(torch.nn.Module):
    def __init__(self, vocabulary, o):
        super().__init__()
        self.token = torch.nn.Embedding(vocabulary, o.width)
        self.position = torch.nn.Embedding(o.context, o.width)
        self.blocks = torch.nn.ModuleList(Block(o.width, o.heads) for _ in range(o.layers))
        self.norm = torch.nn.LayerNorm(o.width)
        self.head = torch.nn.Linear(o.width, vocabulary, bias=False)

    def forward(self, tokens):
        x = self.token(tokens) + self.position(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def torch_names(weights):
    """Returns the weights of 04_train_gpt under the names of Gpt above."""
    weights = {n.removeprefix("model."): t for n, t in weights.items() if n.startswith("model.")}
    result = {}
    for name, tensor in weights.items():
        match = re.fullmatch(r"(blocks\.\d+\.)attention\.(query|out)\.(\w+)", name)
        if match and match[2] == "query":
            parts = [weights[name.replace("query", part)] for part in ("query", "key", "value")]
            result[f"{match[1]}qkv.{match[3]}"] = torch.cat(parts)
        elif match:
            result[f"{match[1]}out.{match[3]}"] = tensor
        elif ".key." not in name and ".value." not in name:
            result[name] = tensor
    return result


class Trainer:
    def __init__(self, options, weights):
        self.options, self.windows = options, Windows(options)
        names = torch_names(weights)
        self.model = Gpt(names["token.weight"].shape[0], options)
        self.model.load_state_dict(names)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=options.lr,
                                           weight_decay=0.1, fused=options.fused_adamw)
        self.done = 0

    def rate(self, step):
        o = self.options
        if step < o.warmup:
            return o.lr * step / o.warmup
        part = (step - o.warmup) / (o.steps - o.warmup) if step < o.steps else 1
        return o.lr / 10 + (o.lr - o.lr / 10) * 0.5 * (1 + math.cos(math.pi * part))

    def step(self):
        self.done += 1
        inputs, targets = self.windows.batch(self.done)
        self.optimizer.zero_grad()
        loss = functional.cross_entropy(self.model(inputs).flatten(0, 1), targets)
        loss.backward()
        self.optimizer.param_groups[0]["lr"] = self.rate(self.done)
        self.optimizer.step()
        return loss.item()


def command(o, *more):
    names = ("seed", "layers", "width", "heads", "context", "batch", "lr", "warmup")
    return [o.program, *(f"{part}" for n in names for part in (f"--{n}", getattr(o, n))),
            "--sample", "0", "--eval-batches", "1", "--eval-every", "1000000", *map(str, more)]


def run(o, threads, *more):
    # The cpu backend uses the processors that it may run on.
    processors = sorted(os.sched_getaffinity(0))[:threads]
    result = subprocess.run([str(word) for word in command(o, *more)], check=True,
                            preexec_fn=lambda: os.sched_setaffinity(0, processors),
                            capture_output=True, text=True)
    return result.stdout


def initial_weights(o, folder):
    run(o, 2, "--steps", 0, "--checkpoint", f"{folder}/initial.safetensors")
    return load_safetensors(f"{folder}/initial.safetensors")


def curve(o, folder):
    weights = initial_weights(o, folder)
    run(o, o.threads[-1], "--steps", o.steps, "--log", f"{folder}/log.csv")
    lines = pathlib.Path(folder, "log.csv").read_text(encoding="utf-8").splitlines()[1:]
    ours = [float(line.split(",")[1]) for line in lines]
    torch.set_num_threads(o.threads[-1])
    trainer = Trainer(o, weights)
    worst = 0
    for step, loss in enumerate(ours, 1):
        theirs = trainer.step()
        worst = max(worst, abs(loss - theirs) / theirs)
        if step in (1, 2, 5) or step % 20 == 0:
            print(f"step {step:4}: ours {loss:.6f}, PyTorch {theirs:.6f}, largest relative "
                  f"difference so far {worst:.2e}", flush=True)
    print(f"{len(ours)} steps: largest relative difference {worst:.2e}; allowed: {o.bound:.0e}")
    return worst <= o.bound


def their_rate(trainer, o, steps):
    start = time.perf_counter()
    for _ in range(steps):
        trainer.step()
    return steps * o.batch * o.context / (time.perf_counter() - start)


def speed(o, folder):
    weights = initial_weights(o, folder)
    for threads in o.threads:
        torch.set_num_threads(threads)
        trainer = Trainer(o, weights)
        their_rate(trainer, o, 2)
        ours, theirs = [], []
        for _ in range(o.rounds):
            text = run(o, threads, "--steps", o.round_steps)
            ours.append(float(re.search(r"trained at (\d+) tokens/s", text)[1]))
            theirs.append(their_rate(trainer, o, o.round_steps))
        ratio = statistics.median(a / b for a, b in zip(ours, theirs))
        print(f"{threads} threads: ours {statistics.median(ours):.0f} tokens/s, PyTorch "
              f"{statistics.median(theirs):.0f} tokens/s, median of ratios {ratio:.2f}", flush=True)
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("curve", "speed"))
    parser.add_argument("program", help="the path of 04_train_gpt")
    for name, value in (("seed", 1), ("layers", 4), ("width", 256), ("heads", 4), ("context", 128),
                        ("batch", 8), ("steps", 200), ("warmup", 20), ("rounds", 5),
                        ("round-steps", 10)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--bound", type=float, default=1e-4, help="relative, of each loss")
    parser.add_argument("--threads", type=lambda text: [int(t) for t in text.split(",")],
                        default=[1, 2])
    parser.add_argument("--fused-adamw", action="store_true", help="PyTorch's fused optimizer")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        good = {"curve": curve, "speed": speed}[options.what](options, folder)
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
