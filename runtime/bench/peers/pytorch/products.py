import torch
import torch.nn.functional as F

from pytorch.cases import backward, case, i, over, x


def product(name, a, b, dtype="f32"):
    case(name, over(lambda: (x(a, 0, dtype), x(b, 1, dtype)), torch.matmul))


def add():
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
    narrow()
    batched()
    fused()
    grouped()


def narrow():
    square = (4096, 4096)
    for dtype in ("bf16", "f16"):
        for rows in (1, 8):
            product(f"matmul {dtype} {rows}x4096x4096", (rows, 4096), square, dtype)
    product("matmul f64 1x2048x2048", (1, 2048), (2048, 2048), "f64")
    product("matmul f32 4096x16x4096", (4096, 16), (16, 4096))
    product("matmul f32 16x65536x16", (16, 65536), (65536, 16))
    product("matmul f32 100003x3x3", (100003, 3), (3, 3))
    product("matmul bf16 1023x1025x1021", (1023, 1025), (1025, 1021), "bf16")
    case("matmul bf16 1x4096x4096, b transposed",
         over(lambda: (x((1, 4096), 0, "bf16"), x(square, 1, "bf16").t()), torch.matmul))


def batched():
    product("matmul f32 512 of 32x32x32", (512, 32, 32), (512, 32, 32))
    product("matmul f32 4096 of 4x4x4", (4096, 4, 4), (4096, 4, 4))
    product("matmul bf16 64 of 128x64x128", (64, 128, 64), (64, 64, 128), "bf16")
    case("matmul f32 32 of 512x64x512, b transposed",
         over(lambda: (x((32, 512, 64)), x((32, 512, 64), 1).mT), torch.matmul))


def fused():
    square = (1024, 1024)
    case("matmul f32 1024^3 + addend",
         over(lambda: (x(square, 2), x(square), x(square, 1)), torch.addmm))
    case("matmul i8 1024^3 into i32",
         over(lambda: (i(square, 100, 0, "i8"), i(square, 90, 1, "i8")), torch._int_mm))
    case("linear bf16 128x4096x4096",
         over(lambda: (x((128, 4096), 0, "bf16"), x((4096, 4096), 1, "bf16"), x(4096, 2, "bf16")),
              F.linear))
    backward("linear backward f32 1024x256x1024",
             lambda: (x((1024, 256)), x((1024, 256), 1), x(1024, 2)), F.linear)


def grouped():
    for dtype in ("f32", "bf16"):
        case(f"grouped_matmul {dtype} 8 groups of 1024x512x512",
             over(lambda dtype=dtype: (x((1024, 512), 0, dtype), x((8, 512, 512), 1, dtype),
                                       torch.tensor((16, 320, 384, 400, 656, 784, 960, 1024),
                                                    dtype=torch.int32)),
                  lambda a, b, ends: F.grouped_mm(a, b, offs=ends)))
