"""The ops that take windows or positions of images."""

import torch
import torch.nn.functional as F

from pytorch.cases import case, over, x

LARGE, IMAGE, HALF = (8, 64, 112, 112), (8, 64, 56, 56), (8, 64, 28, 28)


def add():
    pools()
    adaptive_pools()
    windows()
    interpolation()


def pools():
    for dtype in ("f32", "bf16"):
        case(f"max_pool {dtype} 8x64x112x112, 3x3, stride 2",
             over(lambda dtype=dtype: (x(LARGE, 0, dtype),), lambda a: F.max_pool2d(a, 3, 2, 1)))
    case("avg_pool f32 8x64x56x56, 2x2", over(lambda: (x(IMAGE),), lambda a: F.avg_pool2d(a, 2)))
    case("avg_pool f32 8x64x56x56, 3x3, stride 1",
         over(lambda: (x(IMAGE),), lambda a: F.avg_pool2d(a, 3, 1, 1)))
    case("max_pool f32 16x64x2049, 2",
         over(lambda: (x((16, 64, 2049)),), lambda a: F.max_pool1d(a, 2)))
    case("max_pool backward f32 8x64x112x112, 3x3, stride 2",
         over(lambda: (x(IMAGE, 1), x(LARGE),
                       F.max_pool2d(x(LARGE), 3, 2, 1, return_indices=True)[1]),
              lambda g, a, places: torch.ops.aten.max_pool2d_with_indices_backward(
                  g, a, (3, 3), (2, 2), (1, 1), (1, 1), False, places)))
    case("avg_pool backward f32 8x64x56x56, 2x2",
         over(lambda: (x(HALF), x(IMAGE)), lambda g, a: torch.ops.aten.avg_pool2d_backward(
             g, a, (2, 2), (2, 2), (0, 0), False, True, None)))


def adaptive_pools():
    case("adaptive_avg_pool f32 8x2048x7x7 to 1x1",
         over(lambda: (x((8, 2048, 7, 7)),), lambda a: F.adaptive_avg_pool2d(a, 1)))
    case("adaptive_avg_pool f32 8x64x56x56 to 7x7",
         over(lambda: (x(IMAGE),), lambda a: F.adaptive_avg_pool2d(a, 7)))
    case("adaptive_avg_pool backward f32 8x64x56x56 to 7x7",
         over(lambda: (x((8, 64, 7, 7)), x(IMAGE)),
              torch.ops.aten._adaptive_avg_pool2d_backward.default))
    case("adaptive_max_pool f32 8x64x56x56 to 7x7",
         over(lambda: (x(IMAGE),), lambda a: F.adaptive_max_pool2d(a, 7)))


def windows():
    case("unfold f32 8x64x56x56, 3x3", over(lambda: (x(IMAGE),), lambda a: F.unfold(a, 3, 1, 1)))
    case("fold f32 8x64x56x56, 3x3",
         over(lambda: (x((8, 576, 3136)),), lambda a: F.fold(a, 56, 3, 1, 1)))


def interpolation():
    text = "f32 8x64x28x28 to 56x56"
    for mode, more in (("nearest", ()), ("bilinear", (False,))):
        case(f"interpolate {mode} {text}",
             over(lambda: (x(HALF),), lambda a, mode=mode: F.interpolate(a, (56, 56), mode=mode)))
        gradient = getattr(torch.ops.aten, f"upsample_{mode}2d_backward")
        case(f"interpolate {mode} backward {text}",
             over(lambda: (x(IMAGE),), lambda g, gradient=gradient, more=more: gradient(
                 g, (56, 56), HALF, *more)))
    case("interpolate bilinear f32 8x3x333x500 to 224x224",
         over(lambda: (x((8, 3, 333, 500)),),
              lambda a: F.interpolate(a, (224, 224), mode="bilinear")))
