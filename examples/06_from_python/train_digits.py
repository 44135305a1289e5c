#!/usr/bin/env python3
"""Trains a small convolutional network on handwritten digits, from Python, on any device.

usage: train_digits.py [--device NAME] [--plugin FILE] [--epochs N] [--seed N] [--out FILE]

It trains on 1,437 of the digits in ../data/digits.csv, and tests with the other 360. Then it saves
the weights as safetensors, loads them again, and checks that the answers are the same. The last
lines are the accuracy, and how the ops were served: by kernels of the device, by decompositions, or
on the host.
"""

import argparse
import csv
import math
import pathlib
import random
import sys

import backplane as bp
from backplane import array_api as xp
from backplane import ops

DATA = pathlib.Path(__file__).parent.parent / "data" / "digits.csv"
SHAPES = {
    "conv1.weight": (16, 1, 3, 3), "conv1.bias": (16,),
    "conv2.weight": (32, 16, 3, 3), "conv2.bias": (32,),
    "hidden.weight": (64, 512), "hidden.bias": (64,),
    "out.weight": (10, 64), "out.bias": (10,),
}


def read_digits(path, seed):
    """Returns the rows for training and those for testing: (pixels from 0 to 1, label)."""
    with open(path, newline="", encoding="ascii") as file:
        rows = [[int(cell) for cell in row] for row in list(csv.reader(file))[1:]]
    random.Random(seed).shuffle(rows)
    digits = [([ink / 16 for ink in row[:-1]], row[-1]) for row in rows]
    return digits[360:], digits[:360]


def tensors_of(rows):
    images = bp.asarray([pixels for pixels, _ in rows], dtype="f32")
    return images.reshape(len(rows), 1, 8, 8), bp.asarray([label for _, label in rows])


def new_weights(device):
    """Returns random weights, which are smaller the more inputs a unit has."""
    weights = {}
    for name, shape in SHAPES.items():
        if name.endswith("bias"):
            weights[name] = xp.zeros(shape)
        else:
            scale = (2 / math.prod(shape[1:])) ** 0.5
            weights[name] = ops.normal(mean=0.0, std=scale, shape=shape,
                                       **device.draw(math.prod(shape)))
        weights[name].requires_grad = True
    return weights


def answers(w, x):
    """Maps images (n, 1, 8, 8) to 10 numbers each, of which the largest is the answer."""
    x = ops.relu(ops.convolution(x, w["conv1.weight"], w["conv1.bias"], padding=1))
    x = ops.relu(ops.convolution(x, w["conv2.weight"], w["conv2.bias"], padding=1))
    x = ops.max_pool(x, kernel_size=2).flatten(1)
    x = ops.linear(x, w["hidden.weight"], w["hidden.bias"], activation="relu")
    return ops.linear(x, w["out.weight"], w["out.bias"])


class AdamW:
    """The optimiser is one op, which updates all weights in place."""

    def __init__(self, weights, rate):
        self.weights, self.rate, self.step_number = list(weights), rate, 0
        self.averages = [xp.zeros_like(w) for w in self.weights]
        self.squares = [xp.zeros_like(w) for w in self.weights]

    def step(self):
        self.step_number += 1
        with bp.no_grad():
            ops.adamw_step(self.weights, [w.grad for w in self.weights], self.averages,
                           self.squares, lr=self.rate, step=self.step_number, beta1=0.9,
                           beta2=0.999, eps=1e-8, weight_decay=0.01)
        for weight in self.weights:
            weight.grad = None


def train(weights, rows, epochs, seed):
    optimiser = AdamW(weights.values(), rate=2e-3)
    order = random.Random(seed)
    for epoch in range(1, epochs + 1):
        order.shuffle(rows)
        total = 0.0
        for begin in range(0, len(rows), 64):
            images, labels = tensors_of(rows[begin:begin + 64])
            loss = ops.cross_entropy(answers(weights, images), labels)
            loss.backward()
            optimiser.step()
            total += loss.item() * len(labels)
        print(f"epoch {epoch}: loss {total / len(rows):.4f}")


def accuracy(weights, rows):
    images, labels = tensors_of(rows)
    with bp.no_grad():
        found = xp.argmax(answers(weights, images), axis=1)
        return xp.sum(found == labels).item() / len(rows)


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", help="such as npu:0 (default: the first of class host)")
    parser.add_argument("--plugin", help="the file of a plugin to load first")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", default="digits.safetensors", help="where the weights go")
    return parser.parse_args()


def main():
    options = parse()
    if options.plugin:
        loaded = bp.load(options.plugin)
        bp.set_default_device(options.device or loaded["devices"][0])
    elif options.device:
        bp.set_default_device(options.device)
    device = bp.default_device()
    bp.manual_seed(options.seed)
    training, testing = read_digits(DATA, options.seed)
    weights = new_weights(device)
    print(f"training on {device} ({device.description})")
    train(weights, training, options.epochs, options.seed)

    before = accuracy(weights, testing)
    bp.safetensors.save(options.out, {name: w.detach() for name, w in weights.items()})
    after = accuracy(bp.safetensors.load(options.out), testing)
    if after != before:
        sys.exit(f"the saved weights have the accuracy {after}, and had {before}")
    print(f"accuracy: {100 * before:.1f} %")
    print(device.report())


if __name__ == "__main__":
    main()
