"""Runs the cases in eager PyTorch. peers.py talks to this process: torch_peer.py THREADS"""

import sys

import numpy
import torch
import torch.nn.functional as F

from protocol import index_values, input_values, serve

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16, "f64": torch.float64}
SQUARE = (4096, 1024)
CASES = {}


def x(shape, s=0, dtype="f32"):
    shape = (shape,) if isinstance(shape, int) else shape
    return torch.from_numpy(input_values(numpy, shape, s)).to(DTYPES[dtype])


def i(shape, n, s=0):
    return torch.from_numpy(index_values(numpy, shape, n, s))


def case(name, setup):
    """Adds a case. `setup` makes the inputs and returns the op over them."""
    def prepare():
        op, result = setup(), []

        def run():
            result[:] = [op()]

        def mean_abs():
            return result[0].detach().double().abs().mean().item()
        return run, mean_abs
    CASES[name] = prepare


def over(make, op):
    """Adds a case whose inputs are the tensors that `make` returns."""
    def setup():
        tensors = make()
        return lambda: op(*tensors)
    return setup


def elementwise():
    n = 1 << 22
    for name, size in (("16777216", 1 << 24), ("1000003", 1000003), ("64", 64)):
        case(f"add f32 {name}", over(lambda size=size: (x(size), x(size, 1)), torch.add))
    case("add bf16 4194304", over(lambda: (x(n, 0, "bf16"), x(n, 1, "bf16")), torch.add))
    case("add f32 4096x1024 + 1024", over(lambda: (x(SQUARE), x(1024, 1)), torch.add))
    case("mul f32 4096x1024 * 4096x1", over(lambda: (x(SQUARE), x((4096, 1), 1)), torch.mul))
    case("gelu f32 16777216", over(lambda: (x(1 << 24),), F.gelu))
    case("gelu f16 4194304", over(lambda: (x(n, 0, "f16"),), F.gelu))
    case("gelu backward f32 4194304",
         over(lambda: (x(n, 1), x(n)), torch.ops.aten.gelu_backward.default))
    case("silu bf16 4194304", over(lambda: (x(n, 0, "bf16"),), F.silu))
    for name, op in (("exp", torch.exp), ("tanh", torch.tanh), ("relu", torch.relu)):
        case(f"{name} f32 4194304", over(lambda: (x(n),), op))


def movement():
    case("copy f32 transposed 4096x1024", over(lambda: (x(SQUARE).t(),), torch.Tensor.contiguous))
    case("copy bf16 transposed 4096x1024",
         over(lambda: (x(SQUARE, 0, "bf16").t(),), torch.Tensor.contiguous))
    case("copy f32 8x512x12x64 to heads",
         over(lambda: (x((8, 512, 12, 64)).permute(0, 2, 1, 3),), torch.Tensor.contiguous))
    case("copy f32 every second column",
         over(lambda: (x((2048, 2048))[:, ::2],), torch.Tensor.contiguous))
    case("cast f32 to bf16 4194304", over(lambda: (x(1 << 22),), torch.Tensor.bfloat16))
    case("cat f32 8 of 1024x128, axis 1",
         over(lambda: ([x((1024, 128), s) for s in range(8)],), lambda xs: torch.cat(xs, 1)))
    case("cat f32 4 of 1000x333, axis 0",
         over(lambda: ([x((1000, 333), s) for s in range(4)],), lambda xs: torch.cat(xs, 0)))
    case("gather f32 4096x1024, axis 1",
         over(lambda: (x(SQUARE), i(SQUARE, 1024)), lambda a, b: torch.gather(a, 1, b)))
    case("index_select f32 4096x1024, 2048 rows",
         over(lambda: (x(SQUARE), i((2048,), 4096)), lambda a, b: torch.index_select(a, 0, b)))
    case("embedding f32 32000x512, 8192",
         over(lambda: (i((8192,), 32000), x((32000, 512))), F.embedding))
    case("embedding backward f32 8000x512, 8192",
         over(lambda: (x((8192, 512)), i((8192,), 8000)),
              lambda g, j: torch.ops.aten.embedding_dense_backward(g, j, 8000, -1, False)))
    case("where f32 4096x1024",
         over(lambda: (x(SQUARE, 2) < 0, x(SQUARE), x(SQUARE, 1)), torch.where))


def reductions():
    case("sum f32 16777216", over(lambda: (x(1 << 24),), torch.sum))
    for axis in (0, 1):
        case(f"sum f32 4096x1024, axis {axis}",
             over(lambda: (x(SQUARE),), lambda a, axis=axis: a.sum(axis)))
    case("mean f32 64x128x512, axis 1", over(lambda: (x((64, 128, 512)),), lambda a: a.mean(1)))
    case("sum f32 4096x1024 transposed, axis 1",
         over(lambda: (x((1024, 4096)).t(),), lambda a: a.sum(1)))
    for axis in (0, 1):
        case(f"logsumexp f32 4096x1024, axis {axis}",
             over(lambda: (x(SQUARE),), lambda a, axis=axis: torch.logsumexp(a, axis)))
    case("amax f32 4096x1024, axis 0", over(lambda: (x(SQUARE),), lambda a: a.amax(0)))
    case("argmax f32 4096x1024, axis 1", over(lambda: (x(SQUARE),), lambda a: a.argmax(1)))
    case("sort f32 1000x1000",
         over(lambda: (x((1000, 1000)),), lambda a: torch.sort(a, dim=1, stable=True)[0]))
    case("sort f32 1000003", over(lambda: (x(1000003),), lambda a: torch.sort(a, stable=True)[0]))
    case("topk f32 4096x1024, 10", over(lambda: (x(SQUARE),), lambda a: torch.topk(a, 10, 1)[0]))


def norms():
    for dtype in ("f32", "bf16"):
        case(f"softmax {dtype} 4096x1024",
             over(lambda dtype=dtype: (x(SQUARE, 0, dtype),), lambda a: torch.softmax(a, 1)))
        case(f"layer_norm {dtype} 4096x1024",
             over(lambda dtype=dtype: (x(SQUARE, 0, dtype), x(1024, 1, dtype), x(1024, 2, dtype)),
                  lambda a, g, b: F.layer_norm(a, (1024,), g, b)))
    case("softmax f32 1023x999", over(lambda: (x((1023, 999)),), lambda a: torch.softmax(a, 1)))
    case("softmax f32 4096x1024, axis 0", over(lambda: (x(SQUARE),), lambda a: torch.softmax(a, 0)))
    case("softmax backward f32 4096x1024",
         over(lambda: (x(SQUARE, 1), torch.softmax(x(SQUARE), 1)),
              lambda g, y: torch.ops.aten._softmax_backward_data(g, y, 1, torch.float32)))
    case("log_softmax f32 4096x1024", over(lambda: (x(SQUARE),), lambda a: F.log_softmax(a, 1)))
    case("layer_norm backward f32 4096x1024", layer_norm_backward)
    case("rms_norm f32 4096x1024",
         over(lambda: (x(SQUARE), x(1024, 1)), lambda a, g: F.rms_norm(a, (1024,), g, 1e-5)))
    wide = (4096, 1000)
    case("cross_entropy f32 4096x1000",
         over(lambda: (x(wide), i((4096,), 1000)), F.cross_entropy))
    case("cross_entropy backward f32 4096x1000", cross_entropy_backward)


def layer_norm_backward():
    a, gamma, grad = x(SQUARE), x(1024, 1), x(SQUARE, 3)
    _, mean, rstd = torch.ops.aten.native_layer_norm(a, (1024,), gamma, None, 1e-5)
    beta = torch.zeros(1024)
    return lambda: torch.ops.aten.native_layer_norm_backward(
        grad, a, (1024,), mean, rstd, gamma, beta, (True, True, True))[0]


def cross_entropy_backward():
    a, target = x((4096, 1000)), i((4096,), 1000)
    y = F.log_softmax(a, 1)
    total, one = torch.tensor(4096.0), torch.tensor(1.0)

    def run():
        grad = torch.ops.aten.nll_loss_backward(one, y, target, None, 1, -100, total)
        return torch.ops.aten._log_softmax_backward_data(grad, y, 1, torch.float32)
    return run


def product(name, a, b, dtype="f32"):
    case(name, over(lambda: (x(a, 0, dtype), x(b, 1, dtype)), torch.matmul))


def products():
    square = (1024, 1024)
    product("matmul f32 1024^3", square, square)
    case("matmul f32 1024^3, b transposed",
         over(lambda: (x(square), x(square, 1).t()), torch.matmul))
    case("matmul f32 256x1024x1024, a transposed",
         over(lambda: (x((1024, 256)).t(), x(square, 1)), torch.matmul))
    product("matmul f32 1023x1025x1021", (1023, 1025), (1025, 1021))
    product("matmul f32 128^3", (128, 128), (128, 128))
    product("matmul f32 8x4096x4096", (8, 4096), (4096, 4096))
    product("matmul f32 4096x4096x1", (4096, 4096), (4096, 1))
    product("matmul f32 1x4096x4096", (1, 4096), (4096, 4096))
    product("matmul bf16 4096x4096x1", (4096, 4096), (4096, 1), "bf16")
    product("matmul f32 64 of 128x64x128", (64, 128, 64), (64, 64, 128))
    product("matmul bf16 1024^3", square, square, "bf16")
    product("matmul f16 1024^3", square, square, "f16")
    product("matmul f64 512^3", (512, 512), (512, 512), "f64")
    for rows, size in ((4, 1024), (8, 4096), (64, 1024)):
        product(f"matmul f32 {rows}x{size}x{size}, b constant", (rows, size), (size, size))
    case("linear gelu f32 1024x256x1024",
         over(lambda: (x((1024, 256)), x((1024, 256), 1), x(1024, 2)),
              lambda a, w, b: F.gelu(F.linear(a, w, b))))


def convolutions():
    rows = (
        ("8x3x224x224, 64 of 7x7, stride 2", (8, 3, 224, 224), (64, 3, 7, 7), 2, 3),
        ("8x64x56x56, 64 of 3x3", (8, 64, 56, 56), (64, 64, 3, 3), 1, 1),
        ("8x256x56x56, 64 of 1x1", (8, 256, 56, 56), (64, 256, 1, 1), 1, 0),
        ("8x128x28x28, 128 of 3x3", (8, 128, 28, 28), (128, 128, 3, 3), 1, 1),
        ("8x512x7x7, 512 of 3x3", (8, 512, 7, 7), (512, 512, 3, 3), 1, 1),
        ("8x3x224x224, 64 of 7x7, stride 2, weight constant",
         (8, 3, 224, 224), (64, 3, 7, 7), 2, 3),
        ("1x128x28x28, 128 of 3x3, weight constant", (1, 128, 28, 28), (128, 128, 3, 3), 1, 1),
        ("1x512x7x7, 512 of 3x3, weight constant", (1, 512, 7, 7), (512, 512, 3, 3), 1, 1),
    )
    for name, a, w, stride, padding in rows:
        case(f"convolution f32 {name}",
             over(lambda a=a, w=w: (x(a), x(w, 1)),
                  lambda a, w, s=stride, p=padding: F.conv2d(a, w, None, s, p)))
    a, w = (8, 128, 28, 28), (128, 128, 3, 3)
    name = "convolution f32 8x128x28x28, 128 of 3x3"
    case(f"{name}, for x", over(lambda: (x(a), x(w, 1)), lambda g, k: torch.nn.grad.conv2d_input(
        a, k, g, padding=1)))
    case(f"{name}, for weight",
         over(lambda: (x(a), x(a, 1)), lambda g, v: torch.nn.grad.conv2d_weight(
             v, w, g, padding=1)))
    case("max_pool f32 8x64x112x112, 3x3, stride 2",
         over(lambda: (x((8, 64, 112, 112)),), lambda a: F.max_pool2d(a, 3, 2, 1)))
    case("avg_pool f32 8x64x56x56, 2x2",
         over(lambda: (x((8, 64, 56, 56)),), lambda a: F.avg_pool2d(a, 2)))


def attention():
    shape = (1, 8, 1024, 64)

    def qkv(dtype):
        return tuple(x(shape, s, dtype) for s in range(3))

    def forward(causal):
        return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    case("attention f32 8x1024x64, causal", over(lambda: qkv("f32"), forward(True)))
    case("attention f32 8x1024x64", over(lambda: qkv("f32"), forward(False)))
    case("attention bf16 8x1024x64, causal", over(lambda: qkv("bf16"), forward(True)))
    case("attention backward f32 8x1024x64, causal", attention_backward)
    case("attention f32 8x2048x64, causal", lambda: windowed_attention(0))
    case("attention f32 8x2048x64, causal, window of 256", lambda: windowed_attention(256))
    case("rope f32 8x12x512x64", rope)


def windowed_attention(window):
    """Attention in which a query sees the `window` keys up to its own, or all of those for 0."""
    q, k, v = (x((1, 8, 2048, 64), s) for s in range(3))
    if window == 0:
        return lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True)
    i = torch.arange(2048)
    mask = (i[None, :] <= i[:, None]) & (i[None, :] > i[:, None] - window)
    return lambda: F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def attention_backward():
    shape = (1, 8, 1024, 64)
    q, k, v = (x(shape, s).requires_grad_() for s in range(3))
    grad = x(shape, 3)
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return lambda: torch.autograd.grad(y, (q, k, v), grad, retain_graph=True)[0]


def rope():
    a, cos, sin = x((8, 12, 512, 64)), x((512, 32), 1), x((512, 32), 2)

    def run():
        low, high = a[..., :32], a[..., 32:]
        return torch.cat((low * cos - high * sin, high * cos + low * sin), -1)
    return run


def random_and_optimizers():
    case("dropout f32 4194304", over(lambda: (x(1 << 22),), lambda a: F.dropout(a, 0.5)))
    CASES["adamw f32 8 of 524288"] = adamw


def adamw():
    parameters = [torch.nn.Parameter(x(524288, s)) for s in range(8)]
    for s, parameter in enumerate(parameters):
        parameter.grad = x(524288, s + 8)
    return torch.optim.AdamW(parameters, lr=1e-3, fused=True).step, lambda: float("nan")


if __name__ == "__main__":
    torch.set_num_threads(int(sys.argv[1]))
    for family in (elementwise, movement, reductions, norms, products, convolutions, attention,
                   random_and_optimizers):
        family()
    with torch.no_grad():
        grad_cases = {"attention backward f32 8x1024x64, causal"}
        for name in grad_cases:
            prepare = CASES[name]
            CASES[name] = lambda prepare=prepare: torch.enable_grad()(prepare)()
        serve(CASES)
