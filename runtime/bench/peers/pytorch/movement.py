import torch
import torch.nn.functional as F

from pytorch.cases import DTYPES, ODD, SQUARE, case, i, over, x


def add():
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
    casts()
    shifts()
    scatters()
    searches()


def casts():
    for source, target in (("f32", "f16"), ("bf16", "f32"), ("f16", "f32"), ("f32", "i32"),
                           ("f32", "f64")):
        case(f"cast {source} to {target} 4194304",
             over(lambda source=source: (x(1 << 22, 0, source),),
                  lambda a, target=target: a.to(DTYPES[target])))
    case("cast i64 to f32 1000003", over(lambda: (i(ODD, 1000),), torch.Tensor.float))
    case("cast u8 to f32 4194304", over(lambda: (i(1 << 22, 256, 0, "u8"),), torch.Tensor.float))


def shifts():
    case("pad f32 32x64x56x56, 1 on each side",
         over(lambda: (x((32, 64, 56, 56)),), lambda a: F.pad(a, (1, 1, 1, 1))))
    case("pad f32 4096x1000, 12 on each side",
         over(lambda: (x((4096, 1000)),), lambda a: F.pad(a, (12, 12))))
    case("pad f32 16x64x2048, reflected 3",
         over(lambda: (x((16, 64, 2048)),), lambda a: F.pad(a, (3, 3), mode="reflect")))
    for axis in (0, 1):
        case(f"flip f32 4096x1024, axis {axis}",
             over(lambda: (x(SQUARE),), lambda a, axis=axis: torch.flip(a, (axis,))))
    case("roll f32 4096x1024 by 333, axis 1",
         over(lambda: (x(SQUARE),), lambda a: torch.roll(a, 333, 1)))
    case("tile f32 1024x512 8 times, axis 1",
         over(lambda: (x((1024, 512)),), lambda a: a.repeat(1, 8)))
    case("tril f32 16x512x512", over(lambda: (x((16, 512, 512)),), torch.tril))
    case("copy f32 4096x1 expanded to 4096x1024",
         over(lambda: (x((4096, 1)).expand(SQUARE),), torch.Tensor.contiguous))
    case("cat bf16 2 of 2048x513, axis 1",
         over(lambda: ([x((2048, 513), s, "bf16") for s in range(2)],),
              lambda xs: torch.cat(xs, 1)))
    case("masked_fill f32 4x12x512x512, mask 512x512",
         over(lambda: (x((4, 12, 512, 512)), x((512, 512), 1) < 0),
              lambda a, mask: a.masked_fill(mask, -1e4)))


def scatters():
    case("scatter f32 4096x1024, axis 1",
         over(lambda: (x(SQUARE), i(SQUARE, 1024), x(SQUARE, 1)),
              lambda a, j, v: a.scatter(1, j, v)))

    def rows():
        return x((4096, 64)), i(65536, 4096), x((65536, 64), 1)
    case("scatter_reduce sum f32 65536x64 into 4096x64, axis 0",
         over(lambda: (x((4096, 64)), i((65536, 1), 4096).expand(65536, 64), x((65536, 64), 1)),
              lambda a, j, v: a.scatter_add(0, j, v)))
    case("index_add f32 65536x64 into 4096x64", over(rows, lambda a, j, v: a.index_add(0, j, v)))
    case("index_put f32 4096x1024, 1024 rows",
         over(lambda: (x(SQUARE), i(1024, 4096), x((1024, 1024), 1)),
              lambda a, j, v: a.index_copy(0, j, v)))
    case("index_put f32 4096x64, 65536 rows added",
         over(rows, lambda a, j, v: a.index_put((j,), v, accumulate=True)))
    case("kv_cache_append bf16 64x8x128 into 8x1024x8x128",
         over(lambda: (x((8192, 8, 128), 0, "bf16"), i(64, 8192), x((64, 8, 128), 1, "bf16")),
              lambda cache, j, v: cache.index_copy_(0, j, v)))
    case("one_hot i64 8192 of 1000", over(lambda: (i(8192, 1000),), lambda j: F.one_hot(j, 1000)))


def searches():
    n = 1 << 22
    case("masked_select f32 4194304, a quarter",
         over(lambda: (x(n), x(n, 1) < 0), torch.masked_select))
    case("nonzero bool 1024x1024, a quarter",
         over(lambda: (x((1024, 1024)) < 0,), torch.nonzero))
    case("searchsorted f32 1000003 in 4096",
         over(lambda: (x(4096, 1).sort()[0], x(ODD)), torch.searchsorted))
