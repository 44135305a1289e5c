"""Results lie in memory as those of PyTorch's CPU."""

import itertools

import pytest
import torch

SHAPE = (2, 3, 4, 5)


def formats(shape=SHAPE):
    """Tensors of one shape, or that are broadcast to it, in different orders of their axes."""
    x = torch.rand(shape).add(0.5)
    wide = torch.rand([*shape[:-1], 2 * shape[-1]]).add(0.5)
    yield "contiguous", x
    yield "channels_last", x.contiguous(memory_format=torch.channels_last)
    yield "permuted", torch.rand([shape[2], shape[0], shape[3], shape[1]]).permute(1, 3, 0, 2)
    yield "sliced", wide[..., ::2]
    yield "sliced channels_last", wide.contiguous(memory_format=torch.channels_last)[..., ::2]
    yield "row", torch.rand(shape[-1]).add(0.5)
    yield "bias", torch.rand(1, shape[1], 1, 1).add(0.5)
    yield "bias channels_last", torch.rand(1, shape[1], 1, 1).to(memory_format=torch.channels_last)
    yield "column", torch.rand(shape[2], 1, shape[0], 1).transpose(0, 2)
    yield "number", torch.tensor(0.5)


UNARY = {
    "exp": torch.exp, "gelu": torch.nn.functional.gelu, "relu": torch.relu, "+1": lambda x: x + 1,
    "2-": lambda x: 2 - x, "pow": lambda x: x**2, ">": lambda x: x > 0.7, "neg": torch.neg,
    "elu": torch.nn.functional.elu, "clamp": lambda x: x.clamp(0.6, 0.9), "half": torch.Tensor.half,
    "clone": torch.clone, "zeros_like": torch.zeros_like, "int": lambda x: x.int() + 1.5,
    "where": lambda x: torch.where(x > 0.7, x, 0), "dropout": lambda x: torch.dropout(x, 0.5, True),
    "softmax": lambda x: x.softmax(-1),
    "cumsum": lambda x: x.cumsum(0),
}
BINARY = {
    "add": torch.add, "sub": lambda a, b: torch.sub(a, b, alpha=2), "mul": torch.mul,
    "div": torch.div, "maximum": torch.maximum, "eq": torch.eq, "pow": torch.pow,
    "where": lambda a, b: torch.where(a > 0.7, a, b), "atan2": torch.atan2,
    "lerp": lambda a, b: torch.lerp(a, b, 0.5), "rsub": lambda a, b: torch.rsub(a, b),
    "addcmul": lambda a, b: torch.addcmul(a, b, b), "add int": lambda a, b: a.int() + b,
    "addcdiv": lambda a, b: torch.addcdiv(a, a, b), "remainder": torch.remainder,
    "copysign": torch.copysign, "logaddexp": torch.logaddexp,
}


def compare(operator, *inputs):
    expected = operator(*inputs)
    found = operator(*(x.to("bp") for x in inputs))
    assert found.stride() == expected.stride(), (found.stride(), expected.stride())
    return expected, found


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("shape", [SHAPE, (2, 1, 4, 5)])
def test_unary(name, shape):
    problems = []
    for kind, x in formats(shape):
        if kind == "bias channels_last":  # The places of axes of length 1 are not PyTorch's.
            continue
        try:
            compare(UNARY[name], x)
        except AssertionError as error:
            problems.append(f"{kind}: {error}")
    assert not problems, problems


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("shape", [SHAPE, (2, 1, 4, 5)])
def test_binary(name, shape):
    problems = []
    for (of_a, a), (of_b, b) in itertools.product(formats(shape), repeat=2):
        try:
            expected, found = compare(BINARY[name], a, b)
            if (of_a, of_b) == ("channels_last", "permuted"):
                torch.testing.assert_close(found.cpu(), expected)
        except AssertionError as error:
            problems.append(f"{of_a} and {of_b}: {error}")
    assert not problems, problems


def test_ternary():
    operators = {"addcmul": torch.addcmul, "where": lambda a, b, c: torch.where(a > 0.7, b, c),
                 "lerp": torch.lerp, "clamp": torch.clamp}
    problems = []
    for name, operator in operators.items():
        for kinds in itertools.product(formats(), repeat=3):
            if "bias channels_last" in [kind for kind, _ in kinds]:
                continue
            try:
                compare(operator, *(x for _, x in kinds))
            except AssertionError as error:
                problems.append(f"{name}, {[kind for kind, _ in kinds]}: {error}")
    assert not problems, (len(problems), problems[:20])


def test_a_result_that_out_takes():
    x = torch.rand(SHAPE).contiguous(memory_format=torch.channels_last)
    for operator in (torch.add, torch.eq):
        out = torch.empty(0, device="bp", dtype=operator(x, x).dtype)
        operator(x.to("bp"), x.to("bp"), out=out)
        assert out.stride() == x.stride()


def test_cat():
    problems = []
    for (of_a, a), (of_b, b) in itertools.product(list(formats())[:5], repeat=2):
        for axis in range(4):
            try:
                expected, found = compare(lambda a, b, axis=axis: torch.cat([a, b], axis), a, b)
                torch.testing.assert_close(found.cpu(), expected)
            except AssertionError as error:
                problems.append(f"{of_a} and {of_b}, {axis}: {error}")
    assert not problems, problems
    x = torch.rand(SHAPE).contiguous(memory_format=torch.channels_last)
    out = torch.empty(0, device="bp")
    torch.cat([x.to("bp"), x.to("bp")], out=out)
    assert out.stride() == torch.cat([x, x]).stride()
