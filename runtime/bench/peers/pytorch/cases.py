"""Has what the families of cases in eager PyTorch share. Each family adds to CASES."""

import numpy
import torch

from protocol import index_values, input_values

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16, "f64": torch.float64,
          "i8": torch.int8, "u8": torch.uint8, "i32": torch.int32, "i64": torch.int64}
SQUARE, ODD = (4096, 1024), 1000003
CASES = {}


def x(shape, s=0, dtype="f32"):
    shape = (shape,) if isinstance(shape, int) else shape
    return torch.from_numpy(input_values(numpy, shape, s)).to(DTYPES[dtype])


def positive(shape, s=0, dtype="f32"):
    """Returns numbers from 0.5 to 2.5."""
    return (x(shape, s) + 1).to(DTYPES[dtype])


def near_one(shape):
    """Returns numbers from 0.995 to 1.015, whose products stay near 1."""
    return x(shape) * 0.01 + 1


def i(shape, n, s=0, dtype="i64"):
    shape = (shape,) if isinstance(shape, int) else shape
    return torch.from_numpy(index_values(numpy, shape, n, s)).to(DTYPES[dtype])


def mean_abs_of(result):
    return result.detach().double().abs().mean().item()


def case(name, setup):
    """Adds a case. `setup` makes the inputs and returns the op over them."""
    def prepare():
        op, result = setup(), []

        def run():
            result[:] = [op()]
        return run, lambda: mean_abs_of(result[0])
    CASES[name] = prepare


def over(make, op):
    """Returns a setup whose inputs are the tensors that `make` returns."""
    def setup():
        tensors = make()
        return lambda: op(*tensors)
    return setup


def backward(name, make, op):
    """Adds a gradient through the graph for the tensors that `make` returns. The gradient of the
    result is input 7, or 1 if the result has no axes, and that of the first tensor is compared."""
    def setup():
        leaves = [tensor.requires_grad_() for tensor in make()]
        with torch.enable_grad():
            y = op(*leaves)
        grad = x(tuple(y.shape), 7).to(y.dtype) if y.ndim else None
        return lambda: torch.autograd.grad(y, leaves, grad, retain_graph=True)[0]
    case(name, setup)


def update(name, setup):
    """Adds an update in place. Its result depends on how often it ran, so it is not compared."""
    CASES[name] = lambda: (setup(), lambda: float("nan"))
