"""Runs the cases of device_cases.cpp in eager PyTorch on its CUDA device. compare.py talks to it.

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


def i(shape, n):
    """Returns the indices below n that every peer works on."""
    count = 1
    for extent in shape:
        count *= extent
    return (7919 * torch.arange(count, device="cuda", dtype=torch.int64) % n).reshape(shape)


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


def linear():
    def setup(rows):
        return x((rows, 4096), 0, "bf16"), x((4096, 4096), 1, "bf16"), x((4096,), 2, "bf16")

    for rows in (1, 16):
        case(f"linear bf16 {rows}x4096x4096", lambda rows=rows: (F.linear, *setup(rows)))
    case("linear gelu bf16 8192x4096x4096",
         lambda: (lambda a, w, b: F.gelu(F.linear(a, w, b)), *setup(8192)))


def elementwise():
    case("gelu bf16 33554432", lambda: (F.gelu, x((1 << 25,), 0, "bf16")))
    case("embedding bf16 32768x1024",
         lambda: (F.embedding, i((32768,), 32000), x((32000, 1024), 0, "bf16")))


def attention():
    shape = (1, 32, 4096, 128)

    def forward(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    def backward():
        inputs = tuple(x(shape, s, "bf16").requires_grad_() for s in range(3))
        grad = x(shape, 3, "bf16")
        with torch.enable_grad():
            y = forward(*inputs)
        return (lambda: torch.autograd.grad(y, inputs, grad, retain_graph=True)[0],)
    for name in ("attention bf16 32x4096x128, causal", "attention cudnn bf16 32x4096x128, causal"):
        case(name, lambda: (forward, *(x(shape, s, "bf16") for s in range(3))))
    case("attention backward bf16 32x4096x128, causal", backward)


def layer_norm_backward():
    a, gamma, grad = x((8192, 4096)), x((4096,), 1), x((8192, 4096), 3)
    _, mean, rstd = torch.ops.aten.native_layer_norm(a, (4096,), gamma, None, 1e-5)
    beta = torch.zeros_like(gamma)
    return (lambda: torch.ops.aten.native_layer_norm_backward(
        grad, a, (4096,), mean, rstd, gamma, beta, (True, True, True))[0],)


def norms_and_losses():
    case("rms_norm bf16 8192x4096",
         lambda: (lambda a, g: F.rms_norm(a, (4096,), g, 1e-5), x((8192, 4096), 0, "bf16"),
                  x((4096,), 1, "bf16")))
    case("layer_norm backward f32 8192x4096", layer_norm_backward)
    case("softmax f32 8x1048576", lambda: (lambda a: torch.softmax(a, 1), x((8, 1 << 20))))
    case("cross_entropy bf16 8192x32000",
         lambda: (F.cross_entropy, x((8192, 32000), 0, "bf16"), i((8192,), 32000)))


def reductions_and_order():
    big, rows = (1 << 26,), (16384, 4096)
    case("sum f32 67108864", lambda: (torch.sum, x(big)))
    case("sum f32 16384x4096, axis 0", lambda: (lambda a: torch.sum(a, 0), x(rows)))
    case("transpose f32 16384x4096", lambda: (lambda a: a.t().contiguous(), x(rows)))
    case("sort f32 16777216", lambda: (lambda a: torch.sort(a)[0], x((1 << 24,))))
    case("topk f32 64x32000, 50", lambda: (lambda a: torch.topk(a, 50)[0], x((64, 32000))))


def embedding_backward():
    tokens, grad = i((32768,), 32000), x((32768, 1024))
    tokens[::2] = 0
    return (lambda: torch.ops.aten.embedding_dense_backward(grad, tokens, 32000, -1, False),)


def adamw():
    parameters = [torch.nn.Parameter(x((1 << 22,), s)) for s in range(8)]
    for s, parameter in enumerate(parameters):
        parameter.grad = x((1 << 22,), s + 8)
    optimizer = torch.optim.AdamW(parameters, lr=1e-3, fused=True)

    def run():
        optimizer.step()
        return parameters[0]
    return (run,)


def indices_and_updates():
    case("embedding backward f32 32768x1024, half padding", embedding_backward)
    case("dropout bf16 33554432", lambda: (lambda a: F.dropout(a, 0.5), x((1 << 25,), 0, "bf16")))
    case("adamw f32 8 of 4194304", adamw)


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
    linear()
    attention()
    elementwise()
    norms_and_losses()
    reductions_and_order()
    indices_and_updates()
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
