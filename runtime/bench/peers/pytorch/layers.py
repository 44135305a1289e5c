"""The layers of models that are no family of their own: experts, recurrent cells and codes."""

import torch
import torch.nn.functional as F

from pytorch.cases import SQUARE, case, i, over, x

STEP = 1.5 / 127


def add():
    experts()
    cells()
    codes()


def experts():
    case("moe_route f32 4096x64, 8",
         over(lambda: (x((4096, 64)),), lambda a: torch.topk(torch.softmax(a, 1), 8, 1)[0]))
    case("moe_permute bf16 4096x1024, 2 of 8",
         over(lambda: (x(SQUARE, 0, "bf16"), i((4096, 2), 8)),
              lambda a, chosen: a.index_select(
                  0, torch.argsort(chosen.view(-1), stable=True) // 2)))
    case("moe_unpermute f32 4096x1024, 2",
         over(lambda: (i((4096, 2), 8192), x((8192, 1024)), x((4096, 2), 1)),
              lambda places, a, w: F.embedding_bag(places, a, mode="sum", per_sample_weights=w)))


def gates(shape, s, order):
    """Returns a weight whose gates lie in the order of PyTorch; that of the cases is ONNX's."""
    parts = x(shape, s).chunk(len(order))
    return torch.cat([parts[n] for n in order])


def cells():
    state, width = (64, 512), 512

    def lstm():
        weights = [gates((4 * width, *more), s, (0, 2, 3, 1)) for s, more in
                   ((3, (width,)), (4, (width,)), (5, ()))]
        none = torch.zeros(4 * width)
        return x(state), (x(state, 1), x(state, 2)), *weights, none

    def gru():
        return x(state), x(state, 1), *(gates((3 * width, *more), s, (1, 0, 2)) for s, more in
                                        ((3, (width,)), (4, (width,)), (5, ()), (6, ())))
    case("lstm_cell f32 64x512", over(lstm, lambda *tensors: torch.lstm_cell(*tensors)[0]))
    case("gru_cell f32 64x512", over(gru, torch.gru_cell))


def codes():
    def coded():
        scale, zero = torch.full((4096,), STEP), torch.zeros(4096, dtype=torch.int64)
        return torch.quantize_per_channel(x(SQUARE), scale, zero, 0, torch.qint8)
    # This is faster than quantize_per_channel().
    case("quantize f32 to i8 4096x1024, per row",
         over(lambda: (x(SQUARE), torch.full((4096, 1), STEP)),
              lambda a, s: (a / s).round_().clamp_(-128, 127).to(torch.int8)))
    case("dequantize i8 to f32 4096x1024, per row", over(lambda: (coded(),), torch.dequantize))
    case("fake_quantize f32 4096x1024",
         over(lambda: (x(SQUARE),),
              lambda a: torch.fake_quantize_per_tensor_affine(a, 0.01, 0, -128, 127)))
    case("fake_quantize f32 4096x1024, per row",
         over(lambda: (x(SQUARE), torch.full((4096,), 0.01), torch.zeros(4096, dtype=torch.int32)),
              lambda a, s, z: torch.fake_quantize_per_channel_affine(a, s, z, 0, -128, 127)))
