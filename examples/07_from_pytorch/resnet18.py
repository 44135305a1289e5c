"""Trains ResNet-18 on pictures that it makes itself, on any device of PyTorch.

    python resnet18.py                             on the CPU of PyTorch
    python resnet18.py --device bp --plugin cpu    on a device of Backplane

The model and the training are plain PyTorch. A device of Backplane needs two lines: the import of
torch_backplane with load(), and .to("bp").
"""

import argparse
import time

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    """Two 3x3 convolutions, and the input added to their result."""

    def __init__(self, channels_in, channels, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)
        self.shortcut = nn.Identity()
        if stride != 1 or channels_in != channels:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels_in, channels, 1, stride, bias=False), nn.BatchNorm2d(channels)
            )

    def forward(self, x):
        y = functional.relu(self.norm1(self.conv1(x)))
        return functional.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


class ResNet18(nn.Module):
    """He, Zhang, Ren, Sun 2015, table 1: 18 layers."""

    def __init__(self, classes=10):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            nn.MaxPool2d(3, stride=2, padding=1),
        )
        blocks, channels_in = [], 64
        for channels, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
            blocks += [Block(channels_in, channels, stride), Block(channels, channels, 1)]
            channels_in = channels
        self.blocks = nn.Sequential(*blocks)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classes = nn.Linear(512, classes)

    def forward(self, x):
        return self.classes(self.pool(self.blocks(self.stem(x))).flatten(1))


def make_data(count, size, classes=10, seed=0):
    """Noise with a pattern of its own for each class."""
    generator = torch.Generator().manual_seed(seed)
    patterns = torch.randn(classes, 3, size, size, generator=generator)
    labels = torch.randint(classes, (count,), generator=generator)
    pictures = patterns[labels] * 0.5 + torch.randn(count, 3, size, size, generator=generator)
    return pictures, labels


def train(device, steps, batch=8, size=64, learning_rate=0.01):
    """Gives the losses of all steps, and the seconds that each step took."""
    torch.manual_seed(0)
    model = ResNet18().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate, momentum=0.9)
    pictures, labels = make_data(4 * batch, size)
    losses, seconds = [], []
    for step in range(steps):
        begin = time.perf_counter()
        part = slice(step % 4 * batch, (step % 4 + 1) * batch)
        x, y = pictures[part].to(device), labels[part].to(device)
        loss = functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
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
