import torch
import torch.nn.functional as F

from pytorch.cases import ODD, case, over, positive, update, x


def add():
    random()
    optimizers()
    lists()


def random():
    n = 1 << 22
    case("dropout f32 4194304", over(lambda: (x(n),), lambda a: F.dropout(a, 0.5)))
    case("uniform f32 4194304", lambda: lambda: torch.rand(n))
    case("normal f32 4194304", lambda: lambda: torch.randn(n))
    case("normal bf16 1000003", lambda: lambda: torch.randn(ODD, dtype=torch.bfloat16))
    case("randint i64 4194304", lambda: lambda: torch.randint(1000, (n,)))
    case("bernoulli f32 4194304", over(lambda: (torch.full((n,), 0.3),), torch.bernoulli))
    case("dropout bf16 4194304", over(lambda: (x(n, 0, "bf16"),), lambda a: F.dropout(a, 0.5)))
    case("randperm i64 1000003", lambda: lambda: torch.randperm(ODD))
    case("multinomial f32 64x32000, 256 draws",
         over(lambda: (positive((64, 32000)),),
              lambda w: torch.multinomial(w, 256, replacement=True)))


def tensors(count, size, s=0):
    return [x(size, s + number) for number in range(count)]


def step_of(make, count, size):
    """Returns a setup of a fused step over `count` parameters of `size` elements."""
    def setup():
        parameters = [torch.nn.Parameter(p) for p in tensors(count, size)]
        for parameter, grad in zip(parameters, tensors(count, size, count)):
            parameter.grad = grad
        return make(parameters).step
    return setup


def optimizers():
    optim = torch.optim
    for count, size in ((8, 524288), (256, 4096)):
        update(f"adamw f32 {count} of {size}",
               step_of(lambda p: optim.AdamW(p, lr=1e-3, fused=True), count, size))
    update("adam f32 8 of 524288",
           step_of(lambda p: optim.Adam(p, lr=1e-3, fused=True), 8, 524288))
    update("sgd with momentum f32 8 of 524288",
           step_of(lambda p: optim.SGD(p, lr=1e-3, momentum=0.9, fused=True), 8, 524288))
    update("lion f32 8 of 524288", lion)


def lion():
    """PyTorch has no Lion, so this is one over lists of tensors."""
    p, g, m = tensors(8, 524288), tensors(8, 524288, 8), [torch.zeros(524288) for _ in range(8)]

    def step():
        direction = torch._foreach_lerp(m, g, 0.1)
        torch._foreach_sign_(direction)
        torch._foreach_mul_(p, 1 - 1e-4 * 0.01)
        torch._foreach_add_(p, direction, alpha=-1e-4)
        torch._foreach_lerp_(m, g, 0.01)
    return step


def lists():
    def scale(count, size):
        def setup():
            xs = tensors(count, size)
            return lambda: torch._foreach_mul_(xs, -1.0)
        return setup
    for count, size in ((8, 524288), (256, 4096)):
        update(f"foreach_scale f32 {count} of {size}", scale(count, size))
    update("scale_and_check_finite f32 8 of 524288", scale_and_check_finite)
    case("grad_norm f32 8 of 524288",
         over(lambda: (tensors(8, 524288, 8),), torch.nn.utils.get_total_norm))
    update("clip_grad_norm f32 8 of 524288", clip_grad_norm)


def scale_and_check_finite():
    xs, found, factor = tensors(8, 524288), torch.zeros(()), torch.tensor(-1.0)
    return lambda: torch._amp_foreach_non_finite_check_and_unscale_(xs, found, factor)


def clip_grad_norm():
    parameters = [torch.nn.Parameter(p) for p in tensors(8, 524288)]
    for parameter, grad in zip(parameters, tensors(8, 524288, 8)):
        parameter.grad = grad
    return lambda: torch.nn.utils.clip_grad_norm_(parameters, 1.0, foreach=True)
