import torch

from pytorch.cases import backward, case, over, x

CONVOLUTION = (torch.nn.functional.conv1d, torch.nn.functional.conv2d, torch.nn.functional.conv3d)


def convolution(name, a, w, stride=1, padding=0, groups=1, dilation=1, dtype="f32",
                has_gradients=False):
    """Adds a convolution, or its gradients too."""
    name, rank = f"convolution {dtype} {name}", len(a) - 2
    op = CONVOLUTION[rank - 1]
    case(name, over(lambda: (x(a, 0, dtype), x(w, 1, dtype)),
                    lambda v, k: op(v, k, None, stride, padding, dilation, groups)))
    if not has_gradients:
        return
    extents = [(n + 2 * padding - dilation * (k - 1) - 1) // stride + 1
               for n, k in zip(a[2:], w[2:])]
    y = (a[0], w[0], *extents)

    def gradient(part):
        mask = [part == n for n in range(3)]
        each = [[value] * rank for value in (stride, padding, dilation)]
        return lambda g, v, k: torch.ops.aten.convolution_backward(
            g, v, k, None, *each, False, [0] * rank, groups, mask)[part]
    case(f"{name}, for x",
         over(lambda: (x(y, 0, dtype), x(a, 2, dtype), x(w, 1, dtype)), gradient(0)))
    case(f"{name}, for weight",
         over(lambda: (x(y, 0, dtype), x(a, 1, dtype), x(w, 2, dtype)), gradient(1)))


def add():
    images()
    other_ranks()
    transposed()


def images():
    first, middle = (8, 3, 224, 224), (8, 64, 56, 56)
    convolution("8x3x224x224, 64 of 7x7, stride 2", first, (64, 3, 7, 7), 2, 3)
    convolution("8x64x56x56, 64 of 3x3", middle, (64, 64, 3, 3), 1, 1)
    convolution("8x256x56x56, 64 of 1x1", (8, 256, 56, 56), (64, 256, 1, 1))
    convolution("8x128x28x28, 128 of 3x3", (8, 128, 28, 28), (128, 128, 3, 3), 1, 1,
                has_gradients=True)
    convolution("8x512x7x7, 512 of 3x3", (8, 512, 7, 7), (512, 512, 3, 3), 1, 1)
    convolution("8x3x224x224, 64 of 7x7, stride 2, weight constant", first, (64, 3, 7, 7), 2, 3)
    convolution("1x128x28x28, 128 of 3x3, weight constant", (1, 128, 28, 28), (128, 128, 3, 3), 1,
                1)
    convolution("1x512x7x7, 512 of 3x3, weight constant", (1, 512, 7, 7), (512, 512, 3, 3), 1, 1)
    convolution("8x256x56x56, 512 of 1x1, stride 2", (8, 256, 56, 56), (512, 256, 1, 1), 2)
    convolution("1x64x57x61, 64 of 3x3", (1, 64, 57, 61), (64, 64, 3, 3), 1, 1)
    convolution("8x64x56x56, 64 of 3x3, dilation 2", middle, (64, 64, 3, 3), 1, 2, 1, 2)
    convolution("8x256x28x28, 256 of 3x3, 32 groups", (8, 256, 28, 28), (256, 8, 3, 3), 1, 1, 32)
    convolution("8x144x56x56, 144 of 3x3, depthwise", (8, 144, 56, 56), (144, 1, 3, 3), 1, 1, 144,
                has_gradients=True)
    convolution("8x64x56x56, 64 of 3x3", middle, (64, 64, 3, 3), 1, 1, dtype="bf16",
                has_gradients=True)


def other_ranks():
    convolution("8x256x1024, 256 of 3", (8, 256, 1024), (256, 256, 3), 1, 1, has_gradients=True)
    convolution("1x512x3000, 512 of 3, stride 2", (1, 512, 3000), (512, 512, 3), 2, 1)
    convolution("2x16x16x56x56, 32 of 3x3x3", (2, 16, 16, 56, 56), (32, 16, 3, 3, 3), 1, 1)


def transposed():
    text = "f32 8x128x14x14, 64 of 4x4, stride 2"

    def tensors():
        return x((8, 128, 14, 14)), x((128, 64, 4, 4), 1)

    def op(a, w):
        return torch.nn.functional.conv_transpose2d(a, w, None, 2, 1)
    case(f"convolution_transpose {text}", over(tensors, op))
    backward(f"convolution_transpose backward {text}", tensors, op)
