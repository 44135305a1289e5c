"""Measures bp beside PyTorch's CPU, in one run: the cost of a call, and training steps.

    python bench.py PLUGIN [--steps 20] [--threads 2]

The cost of a call is that of 4 floats from Python, the least of 7 rounds of 5,000 calls, on one
thread. A step is the median over all steps of the examples in 07_from_pytorch. The devices take
turns, so that a machine that is busy for a while is so for both.
"""

import argparse
import pathlib
import statistics
import sys
import time

import torch

import torch_backplane

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "examples" / "07_from_pytorch"))
import gpt  # noqa: E402
import resnet18  # noqa: E402

ROUNDS, CALLS = 7, 5000


def calls_of(device):
    """What is measured, on tensors of 4 floats of a device."""
    a, b, out = (torch.rand(4, device=device) for _ in range(3))
    square = torch.rand(4, 4, device=device)
    return {
        "add": lambda: a + b,
        "add into out=": lambda: torch.add(a, b, out=out),
        "add a number": lambda: a + 1.0,
        "mul_ in place": lambda: a.mul_(b),
        "relu": lambda: torch.relu(a),
        "sum": lambda: a.sum(),
        "mm 4x4": lambda: square @ square,
        "view": lambda: a.view(2, 2),
        "empty": lambda: torch.empty(4, device=device),
    }


def time_calls():
    """{name: {device: nanoseconds of one call}}."""
    made = {device: calls_of(device) for device in ("cpu", "bp")}
    best = {name: dict.fromkeys(made, float("inf")) for name in made["cpu"]}
    with torch.no_grad():
        for _ in range(ROUNDS):
            for name, times in best.items():
                for device in made:
                    call = made[device][name]
                    begin = time.perf_counter_ns()
                    for _ in range(CALLS):
                        call()
                    took = (time.perf_counter_ns() - begin) / CALLS
                    times[device] = min(times[device], took)
    return best


def time_steps(train, steps):
    """The medians of the steps in seconds, and the largest difference of the losses."""
    seconds, losses = {}, {}
    for device in ("cpu", "bp"):
        losses[device], times = train(device, steps)
        seconds[device] = statistics.median(times)
    return seconds, max(abs(a - b) for a, b in zip(losses["cpu"], losses["bp"]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("plugin")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch_backplane.load(options.plugin)
    torch_backplane.set_fallback("count")
    torch.set_num_threads(1)
    print(f"{'call of 4 floats':18s} {'CPU ns':>8s} {'bp ns':>8s}")
    for name, times in time_calls().items():
        print(f"{name:18s} {times['cpu']:8.0f} {times['bp']:8.0f}")
    torch.set_num_threads(options.threads)
    print(f"{'step':18s} {'CPU ms':>8s} {'bp ms':>8s}  largest difference of a loss")
    for name, train in (("ResNet-18", resnet18.train), ("GPT", gpt.train)):
        seconds, difference = time_steps(train, options.steps)
        own, cpu = 1000 * seconds["bp"], 1000 * seconds["cpu"]
        print(f"{name:18s} {cpu:8.1f} {own:8.1f}  {difference:.1e}")
    print("computed by PyTorch's CPU:", torch_backplane.fallbacks() or "nothing")


if __name__ == "__main__":
    main()
