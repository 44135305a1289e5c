import torch

from pytorch.cases import ODD, SQUARE, case, i, near_one, over, x


def add():
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
    sums()
    other_reductions()
    scans()
    orders()


def sums():
    case("sum bf16 4096x1024, axis 1", over(lambda: (x(SQUARE, 0, "bf16"),), lambda a: a.sum(1)))
    case("mean f16 4096x1024, axis 0", over(lambda: (x(SQUARE, 0, "f16"),), lambda a: a.mean(0)))
    case("sum f32 1000003x3, axis 1", over(lambda: (x((ODD, 3)),), lambda a: a.sum(1)))
    case("sum f32 8x64x56x56, axes 0, 2 and 3",
         over(lambda: (x((8, 64, 56, 56)),), lambda a: a.sum((0, 2, 3))))
    case("sum i64 1000003", over(lambda: (i(ODD, 1000),), torch.sum))


def other_reductions():
    n = 1 << 22
    case("prod f32 4096x1024, axis 1", over(lambda: (near_one(SQUARE),), lambda a: a.prod(1)))
    case("any bool 4096x1024, axis 1", over(lambda: (x(SQUARE) < -0.499,), lambda a: a.any(1)))
    case("count_nonzero f32 4194304", over(lambda: (x(n).relu(),), torch.count_nonzero))
    case("amax bf16 4096x1024, axis 1", over(lambda: (x(SQUARE, 0, "bf16"),), lambda a: a.amax(1)))
    case("amin f32 4194304", over(lambda: (x(n),), torch.amin))
    case("argmin f32 4096x1024, axis 0", over(lambda: (x(SQUARE),), lambda a: a.argmin(0)))
    for axis in (0, 1):
        case(f"var f32 4096x1024, axis {axis}",
             over(lambda: (x(SQUARE),), lambda a, axis=axis: torch.var(a, axis)))
        case(f"norm f32 4096x1024, axis {axis}",
             over(lambda: (x(SQUARE),), lambda a, axis=axis: torch.linalg.vector_norm(a, 2, axis)))


def scans():
    for axis in (0, 1):
        case(f"cumsum f32 4096x1024, axis {axis}",
             over(lambda: (x(SQUARE),), lambda a, axis=axis: a.cumsum(axis)))
    case("cumsum f32 1000003", over(lambda: (x(ODD),), lambda a: a.cumsum(0)))
    case("cumsum i64 1000003", over(lambda: (i(ODD, 1000),), lambda a: a.cumsum(0)))
    case("cumsum bf16 4096x1024, axis 1",
         over(lambda: (x(SQUARE, 0, "bf16"),), lambda a: a.cumsum(1)))
    case("cumprod f32 4096x1024, axis 1", over(lambda: (near_one(SQUARE),), lambda a: a.cumprod(1)))
    case("logcumsumexp f32 4096x1024, axis 1",
         over(lambda: (x(SQUARE),), lambda a: a.logcumsumexp(1)))
    case("cummax f32 4096x1024, axis 1", over(lambda: (x(SQUARE),), lambda a: a.cummax(1)[0]))


def orders():
    case("sort i64 1000003", over(lambda: (i(ODD, ODD),), lambda a: torch.sort(a, stable=True)[0]))
    case("sort f32 64x32000, descending",
         over(lambda: (x((64, 32000)),),
              lambda a: torch.sort(a, dim=1, descending=True, stable=True)[0]))
    case("topk f32 1x128256, 50",
         over(lambda: (x((1, 128256)),), lambda a: torch.topk(a, 50, 1)[0]))
