"""Runs the cases of worker.cpp in eager PyTorch on its CUDA device. compare.py talks to it.

usage: torch_peer.py
"""

import statistics
import sys
import time

import torch
import torch.nn.functional as F

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
GROUP_SECONDS = 4e-3  # The time of a group of calls that are waited for together, as in worker.cpp.
CASES = {}


def x(shape, s=0, dtype="f32"):
    """Returns the numbers that every peer works on, made on the device."""
    count = 1
    for extent in shape:
        count *= extent
    i = torch.arange(count, device="cuda", dtype=torch.int64)
    values = ((7919 * i + 104729 * s) % 2003 - 501).to(torch.float32) / 1001
    return values.reshape(shape).to(DTYPES[dtype])


def case(name, setup, allows_tf32=False):
    CASES[name] = (setup, allows_tf32)


def memory_bound():
    big, rows = (1 << 26,), (16384, 4096)
    case("copy f32 67108864", lambda: (lambda a: a.clone(), x(big)))
    for t in ("f32", "bf16"):
        case(f"add {t} 67108864", lambda t=t: (torch.add, x(big, 0, t), x(big, 1, t)))
        case(f"softmax {t} 16384x4096",
             lambda t=t: (lambda a: torch.softmax(a, 1), x(rows, 0, t)))
        case(f"layer_norm {t} 16384x4096",
             lambda t=t: (lambda a, g, b: F.layer_norm(a, (4096,), g, b), x(rows, 0, t),
                          x((4096,), 1, t), x((4096,), 2, t)))


def compute_bound():
    for name, t, n in (("f32", "f32", 4096), ("tf32", "f32", 4096), ("bf16", "bf16", 8192),
                       ("f16", "f16", 8192)):
        case(f"matmul {name} {n}^3",
             lambda t=t, n=n: (torch.matmul, x((n, n), 0, t), x((n, n), 1, t)), name == "tf32")
    for t in ("f32", "bf16"):
        case(f"convolution {t} 32x64x56x56, 64 of 3x3",
             lambda t=t: (lambda a, w: F.conv2d(a, w, None, 1, 1), x((32, 64, 56, 56), 0, t),
                          x((64, 64, 3, 3), 1, t)))


class Peer:
    def __init__(self):
        self.op, self.inputs, self.result = None, (), None

    def seconds_of(self, calls):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            self.result = self.op(*self.inputs)
        torch.cuda.synchronize()
        return (time.perf_counter() - start) / calls

    def prepare(self, name):
        self.op, self.inputs, self.result = None, (), None
        setup, allows_tf32 = CASES[name]
        torch.backends.cuda.matmul.allow_tf32 = allows_tf32
        torch.backends.cudnn.allow_tf32 = allows_tf32
        torch.backends.cudnn.benchmark = True
        self.op, *self.inputs = setup()
        self.seconds_of(3)
        return "ok"

    def run(self, milliseconds):
        begin = time.perf_counter()
        once = max(self.seconds_of(8), 1e-7)
        group = int(min(max(GROUP_SECONDS / once, 1), 2e4))
        samples = []
        while len(samples) < 3 or time.perf_counter() - begin < milliseconds * 1e-3:
            samples.append(self.seconds_of(group))
        return f"{statistics.median(samples):.9g}"

    def answer(self, line):
        verb, _, argument = line.strip().partition(" ")
        if verb == "list":
            return "".join(f"{name}\t0\t0\n" for name in CASES)
        if verb == "name":
            return f"{torch.cuda.get_device_name(0)}\t{torch.__version__}"
        if verb == "prepare":
            return self.prepare(argument)
        if verb == "check":
            return f"{self.result.double().abs().mean().item():.9g}"
        if verb == "run":
            return self.run(float(argument))
        return f"error\tunknown verb '{verb}'"


def main():
    if not torch.cuda.is_available():
        print("torch_peer: PyTorch sees no CUDA device", file=sys.stderr)
        return 1
    memory_bound()
    compute_bound()
    case("eager add f32 64", lambda: (torch.add, x((64,)), x((64,), 1)))
    peer = Peer()
    with torch.no_grad():
        for line in sys.stdin:
            try:
                answer = peer.answer(line)
            except Exception as error:  # A peer that cannot run a case reports it and goes on.
                answer = f"error\t{type(error).__name__}: {str(error).partition(chr(10))[0][:200]}"
            print(answer, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
