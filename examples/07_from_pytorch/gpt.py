"""Trains a small GPT on a text that it makes itself, on any device of PyTorch.

    python gpt.py                             on the CPU of PyTorch
    python gpt.py --device bp --plugin cpu    on a device of Backplane

The model and the training are plain PyTorch. A device of Backplane needs two lines: the import of
torch_backplane with load(), and .to("bp").
"""

import argparse
import time

import torch
from torch import nn
from torch.nn import functional

VOCABULARY = 256


class Layer(nn.Module):
    """Attention to what came before, then two linear layers; each behind a norm."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def attend(self, x):
        batch, tokens, width = x.shape
        q, k, v = (
            part.view(batch, tokens, self.heads, -1).transpose(1, 2)
            for part in self.qkv(x).chunk(3, dim=-1)
        )
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, tokens, width))

    def forward(self, x):
        x = x + self.attend(self.norm1(x))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    """A decoder of `depth` layers. The input is (batch, tokens), the result one row per token."""

    def __init__(self, width=128, depth=4, heads=4, tokens=64):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.places = nn.Embedding(tokens, width)
        self.layers = nn.Sequential(*[Layer(width, heads) for _ in range(depth)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, text):
        places = torch.arange(text.shape[1], device=text.device)
        x = self.layers(self.tokens(text) + self.places(places))
        return self.head(self.norm(x))


def make_text(length, seed=0):
    """A text in which each token depends on the two before it."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randint(4, (length,), generator=generator).tolist()
    text = [1, 2]
    for step in noise:
        text.append((3 * text[-1] + 5 * text[-2] + step) % VOCABULARY)
    return torch.tensor(text)


def train(device, steps, batch=8, tokens=64, learning_rate=1e-3):
    """Gives the losses of all steps, and the seconds that each step took."""
    torch.manual_seed(0)
    model = GPT(tokens=tokens).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate)
    text = make_text(steps * batch * tokens + 1)
    losses, seconds = [], []
    for step in range(steps):
        begin = time.perf_counter()
        part = text[step * batch * tokens : (step + 1) * batch * tokens + 1]
        x = part[:-1].view(batch, tokens).to(device)
        y = part[1:].to(device)
        loss = functional.cross_entropy(model(x).flatten(0, 1), y)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        seconds.append(time.perf_counter() - begin)
    return losses, seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--plugin", help="the plugin of Backplane to load: a name or a path")
    parser.add_argument("--steps", type=int, default=100)
    options = parser.parse_args()
    if options.plugin:
        import torch_backplane

        print("loaded", *torch_backplane.load(options.plugin))
    losses, seconds = train(options.device, options.steps)
    for step in range(0, options.steps, max(options.steps // 10, 1)):
        print(f"step {step:4d}  loss {losses[step]:.6f}")
    median = 1000 * sorted(seconds)[len(seconds) // 2]
    print(f"last loss {losses[-1]:.6f}; {median:.1f} ms per step")
    if options.plugin:
        print("computed by PyTorch's CPU:", torch_backplane.fallbacks() or "nothing")


if __name__ == "__main__":
    main()
