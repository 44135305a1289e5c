import torch
import torch.nn.functional as F

from pytorch.cases import SQUARE, backward, case, over, positive, x


def add():
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
    more_softmax()
    row_norms()
    channel_norms()


def more_softmax():
    case("softmax f16 4x12x512x512",
         over(lambda: (x((4, 12, 512, 512), 0, "f16"),), lambda a: torch.softmax(a, 3)))
    case("softmax bf16 32x128256",
         over(lambda: (x((32, 128256), 0, "bf16"),), lambda a: torch.softmax(a, 1)))
    case("softmax f32 100000x10", over(lambda: (x((100000, 10)),), lambda a: torch.softmax(a, 1)))
    case("softmax backward bf16 4096x1024",
         over(lambda: (x(SQUARE, 1, "bf16"), torch.softmax(x(SQUARE, 0, "bf16"), 1)),
              lambda g, y: torch.ops.aten._softmax_backward_data(g, y, 1, torch.bfloat16)))
    case("log_softmax backward f32 4096x1024",
         over(lambda: (x(SQUARE, 1), F.log_softmax(x(SQUARE), 1)),
              lambda g, y: torch.ops.aten._log_softmax_backward_data(g, y, 1, torch.float32)))


def row_norms():
    case("layer_norm f32 1x4096", over(lambda: (x((1, 4096)), x(4096, 1), x(4096, 2)),
                                       lambda a, g, b: F.layer_norm(a, (4096,), g, b)))
    for rows, width in (SQUARE, (1, 4096)):
        case(f"rms_norm bf16 {rows}x{width}",
             over(lambda rows=rows, width=width: (x((rows, width), 0, "bf16"), x(width, 1, "bf16")),
                  lambda a, g: F.rms_norm(a, g.shape, g, 1e-5)))
    backward("layer_norm backward bf16 4096x1024",
             lambda: (x(SQUARE, 0, "bf16"), x(1024, 1, "bf16"), x(1024, 2, "bf16")),
             lambda a, g, b: F.layer_norm(a, (1024,), g, b))
    backward("rms_norm backward f32 4096x1024", lambda: (x(SQUARE), x(1024, 1)),
             lambda a, g: F.rms_norm(a, (1024,), g, 1e-5))


def channel_norms():
    image = (8, 64, 56, 56)

    def tensors():
        return x(image), x(64, 1), x(64, 2)
    for name, groups, op in (
            ("group_norm", ", 32 groups", lambda a, g, b: F.group_norm(a, 32, g, b)),
            ("batch_norm_training", "", lambda a, g, b: F.batch_norm(a, None, None, g, b, True)),
            ("instance_norm", "", lambda a, g, b: F.instance_norm(a, None, None, g, b))):
        case(f"{name} f32 8x64x56x56{groups}", over(tensors, op))
        backward(f"{name} backward f32 8x64x56x56{groups}", tensors, op)
    case("group_norm bf16 8x320x32x32, 32 groups",
         over(lambda: (x((8, 320, 32, 32), 0, "bf16"), x(320, 1, "bf16"), x(320, 2, "bf16")),
              lambda a, g, b: F.group_norm(a, 32, g, b)))
    case("batch_norm_inference f32 8x64x56x56",
         over(lambda: (x(image), x(64, 1), positive(64, 2), x(64, 3), x(64, 4)), F.batch_norm))



def layer_norm_backward():
    a, gamma, grad = x(SQUARE), x(1024, 1), x(SQUARE, 3)
    _, mean, rstd = torch.ops.aten.native_layer_norm(a, (1024,), gamma, None, 1e-5)
    beta = torch.zeros(1024)
    return lambda: torch.ops.aten.native_layer_norm_backward(
        grad, a, (1024,), mean, rstd, gamma, beta, (True, True, True))[0]
