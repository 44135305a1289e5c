"""torch.compile(backend="backplane") computes what the operators one by one do."""

import gpt
import pytest
import torch
from test_graphs import can_capture
from torch import nn
from torch.nn import functional

import torch_backplane
from torch_backplane import compile as compiler

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def fresh_counts():
    if not can_capture():
        pytest.skip("the device records no graphs")
    torch._dynamo.reset()
    compiler.reset_compiled()


def train(wrap, steps=5):
    torch.manual_seed(0)
    model = gpt.GPT(width=32, depth=2, tokens=16).to("bp")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    text = gpt.make_text(steps * 64 + 1)
    call, losses = wrap(model), []
    for step in range(steps):
        part = text[step * 64 : (step + 1) * 64 + 1]
        y = call(part[:-1].view(4, 16).to("bp")).flatten(0, 1)
        loss = functional.cross_entropy(y, part[1:].to("bp"))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_trains_as_without_it():
    expected = train(lambda model: model)
    losses = train(lambda model: torch.compile(model, backend=compiler.backend))
    assert losses == pytest.approx(expected, rel=1e-6)
    counts = compiler.compiled()
    assert counts["replayed"] == 8  # Forward and backward of all steps but the first.
    assert torch_backplane.fallbacks() == {}


def test_two_forwards_before_their_gradients():
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 1)).to("bp")
    call = torch.compile(model, backend=compiler.backend)
    x = torch.rand(3, 5, 4, device="bp")
    for _ in range(3):
        model.zero_grad()
        first, second = call(x[0]).sum(), call(x[1]).sum()
        (first + 2 * second).backward()
        own = [p.grad.clone() for p in model.parameters()]
        model.zero_grad()
        (model(x[0]).sum() + 2 * model(x[1]).sum()).backward()
        for a, p in zip(own, model.parameters()):
            torch.testing.assert_close(a, p.grad)
    assert compiler.compiled()["replayed"] > 0


def test_results_outlive_later_calls():
    call = torch.compile(lambda x: (x + 1, x), backend=compiler.backend)
    with torch.no_grad():
        kept = [call(torch.full((3,), float(i), device="bp")) for i in range(4)]
    assert [pair[0].tolist() for pair in kept] == [[i + 1.0] * 3 for i in range(4)]


def test_parameters_that_move_are_captured_again():
    model = nn.Linear(2, 2).to("bp")
    call = torch.compile(model, backend=compiler.backend)
    x = torch.ones(1, 2, device="bp")
    with torch.no_grad():
        for _ in range(3):
            call(x)
        model.weight.data = torch.zeros(2, 2, device="bp")
        torch.testing.assert_close(call(x), model.bias.expand(1, 2))
        model.weight.add_(1)
        torch.testing.assert_close(call(x), model(x))


def test_random_numbers_are_not_captured():
    call = torch.compile(lambda x: functional.dropout(x, 0.5), backend=compiler.backend)
    x = torch.ones(64, device="bp")
    draws = [call(x).tolist() for _ in range(4)]
    assert len({tuple(draw) for draw in draws}) == 4
    assert any("random" in reason for reason in compiler.compiled())
