import torch
import torch.nn.functional as F

from pytorch.cases import SQUARE, backward, case, i, over, x


def add():
    wide = (4096, 1000)
    case("cross_entropy f32 4096x1000",
         over(lambda: (x(wide), i((4096,), 1000)), F.cross_entropy))
    case("cross_entropy backward f32 4096x1000", cross_entropy_backward)
    dense()
    classes()


def dense():
    """Means and their gradients for the first tensor."""
    for name, op, make in (
            ("mse_loss", F.mse_loss, lambda: (x(SQUARE), x(SQUARE, 1))),
            ("smooth_l1_loss", F.smooth_l1_loss, lambda: (x(SQUARE), x(SQUARE, 1))),
            ("bce_with_logits_loss", F.binary_cross_entropy_with_logits,
             lambda: (x(SQUARE), torch.sigmoid(x(SQUARE, 1)))),
            ("kl_div_loss", F.kl_div,
             lambda: (F.log_softmax(x(SQUARE), 1), torch.softmax(x(SQUARE, 1), 1)))):
        case(f"{name} f32 4096x1024", over(make, op))
        loss_backward(f"{name} backward f32 4096x1024", make, op)


def loss_backward(name, make, op):
    inputs = []

    def first():
        inputs[:] = make()
        return (inputs[0],)
    backward(name, first, lambda a: op(a, inputs[1]))


def classes():
    wide = (4096, 1000)

    def chosen():
        return F.log_softmax(x(wide), 1), i(4096, 1000)
    case("nll_loss f32 4096x1000", over(chosen, F.nll_loss))
    loss_backward("nll_loss backward f32 4096x1000", chosen, F.nll_loss)

    def bf16():
        return x(wide, 0, "bf16"), i(4096, 1000)
    case("cross_entropy bf16 4096x1000", over(bf16, F.cross_entropy))
    loss_backward("cross_entropy backward bf16 4096x1000", bf16, F.cross_entropy)
    case("cross_entropy f32 512x32000, smoothing 0.1",
         over(lambda: (x((512, 32000)), i(512, 32000)),
              lambda a, t: F.cross_entropy(a, t, label_smoothing=0.1)))



def cross_entropy_backward():
    a, target = x((4096, 1000)), i((4096,), 1000)
    y = F.log_softmax(a, 1)
    total, one = torch.tensor(4096.0), torch.tensor(1.0)

    def run():
        grad = torch.ops.aten.nll_loss_backward(one, y, target, None, 1, -100, total)
        return torch.ops.aten._log_softmax_backward_data(grad, y, 1, torch.float32)
    return run
