import torch
import torch.nn.functional as F

from pytorch.cases import ODD, SQUARE, backward, case, i, over, positive, x


def add():
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
    functions()
    arithmetic()
    comparisons_and_ternaries()
    strided()
    gradients_and_gates()


def functions():
    n = 1 << 22
    for name, op in (("erf", torch.erf), ("sin", torch.sin), ("log1p", torch.log1p),
                     ("sigmoid", torch.sigmoid), ("mish", F.mish), ("softplus", F.softplus),
                     ("hardswish", F.hardswish)):
        case(f"{name} f32 4194304", over(lambda: (x(n),), op))
    case("floor f32 1000003", over(lambda: (x(ODD),), torch.floor))
    for name, op in (("exp", torch.exp), ("tanh", torch.tanh)):
        case(f"{name} f64 1048576", over(lambda: (x(1 << 20, 0, "f64"),), op))
    case("sigmoid bf16 4194304", over(lambda: (x(n, 0, "bf16"),), torch.sigmoid))
    case("exp bf16 4194304", over(lambda: (x(n, 0, "bf16"),), torch.exp))
    case("hardswish f16 4194304", over(lambda: (x(n, 0, "f16"),), F.hardswish))
    case("abs f16 1000003", over(lambda: (x(ODD, 0, "f16"),), torch.abs))


def arithmetic():
    def pair(name, op, dtype, size):
        case(f"{name} {dtype} {size}", over(lambda: (x(size, 0, dtype), x(size, 1, dtype)), op))

    def division(name, op, size):
        case(f"{name} f32 {size}", over(lambda: (x(size), positive(size, 1)), op))

    def integers(name, op, dtype, size, high):
        case(f"{name} {dtype} {size}",
             over(lambda: (i(size, size, 0, dtype), i(size, high, 1, dtype) + 1), op))
    n = 1 << 22
    pair("mul", torch.mul, "bf16", ODD)
    pair("sub", torch.sub, "f16", n)
    pair("maximum", torch.maximum, "f32", ODD)
    pair("atan2", torch.atan2, "f32", 1 << 20)
    pair("add", torch.add, "f64", 1 << 20)
    division("div", torch.div, n)
    division("fmod", torch.fmod, 1 << 20)
    division("remainder", torch.remainder, 1 << 20)
    case("pow f32 1048576", over(lambda: (positive(1 << 20), x(1 << 20, 1)), torch.pow))
    integers("add", torch.add, "i32", n, 1000)
    integers("mul", torch.mul, "i64", ODD, 1000)
    integers("remainder", torch.remainder, "i64", ODD, 1000)
    integers("floor_divide", torch.floor_divide, "i32", ODD, 1000)
    integers("bitwise_xor", torch.bitwise_xor, "i32", n, 1000)
    integers("shift_left", torch.bitwise_left_shift, "i64", ODD, 20)


def comparisons_and_ternaries():
    n = 1 << 22
    case("lt f32 into bool 4194304", over(lambda: (x(n), x(n, 1)), torch.lt))
    case("eq i64 into bool 1000003", over(lambda: (i(ODD, 7), i(ODD, 5)), torch.eq))
    case("logical_and bool 16777216",
         over(lambda: (x(1 << 24) < 0.2, x(1 << 24, 1) < 0.7), torch.logical_and))
    case("clamp f32 4194304", over(lambda: (x(n),), lambda a: torch.clamp(a, 0.1, 0.9)))
    case("lerp f32 4194304", over(lambda: (x(n), x(n, 1)), lambda a, b: torch.lerp(a, b, 0.3)))
    case("lerp bf16 1000003", over(lambda: (x(ODD, 0, "bf16"), x(ODD, 1, "bf16")),
                                   lambda a, b: torch.lerp(a, b, 0.3)))
    case("addcmul f32 1000003", over(lambda: (x(ODD), x(ODD, 1), x(ODD, 2)), torch.addcmul))
    case("mul f32 4194304 by a number", over(lambda: (x(n),), lambda a: a * 0.3))


def strided():
    case("add f32 1000003x3 + 3", over(lambda: (x((ODD, 3)), x(3, 1)), torch.add))
    case("add f32 1023x1025 + transposed",
         over(lambda: (x((1023, 1025)), x((1025, 1023), 1).t()), torch.add))
    case("mul f32 every second column",
         over(lambda: (x((2048, 2048))[:, ::2], x((2048, 1024), 1)), torch.mul))
    case("mul bf16 4096x1024 * 4096x1",
         over(lambda: (x(SQUARE, 0, "bf16"), x((4096, 1), 1, "bf16")), torch.mul))


def gradients_and_gates():
    n, wide = 1 << 22, (1024, 5504)
    case("silu backward bf16 4194304", over(lambda: (x(n, 1, "bf16"), x(n, 0, "bf16")),
                                            torch.ops.aten.silu_backward.default))
    case("sigmoid backward f32 4194304", over(lambda: (x(n, 1), torch.sigmoid(x(n))),
                                              torch.ops.aten.sigmoid_backward.default))
    case("swiglu bf16 1024x5504", over(lambda: (x(wide, 0, "bf16"), x(wide, 1, "bf16")),
                                       lambda gate, up: F.silu(gate) * up))
    case("geglu f32 1024x5504",
         over(lambda: (x(wide), x(wide, 1)), lambda gate, up: F.gelu(gate) * up))
    backward("swiglu backward f32 1024x5504", lambda: (x(wide), x(wide, 1)),
             lambda gate, up: F.silu(gate) * up)
