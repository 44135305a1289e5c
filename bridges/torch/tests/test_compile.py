"""torch.compile(backend="backplane") computes what the operators one by one do."""

import subprocess
import sys

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
    torch._dynamo.reset()
    compiler.reset_compiled()


@pytest.fixture(params=["graph", "program"])
def kind(request):
    if request.param == "graph" and not can_capture():
        pytest.skip("the device records no graphs")
    return request.param


@pytest.fixture
def wrap(kind):
    """Compiles a model as a graph of the device, or as a program of its compiler."""
    options = {"program": kind == "program"}
    return lambda model: torch.compile(model, backend=compiler.backend, options=options)


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


def test_trains_as_without_it(wrap, kind):
    expected = train(lambda model: model)
    losses = train(wrap)
    assert losses == pytest.approx(expected, rel=1e-6)
    # Forward and backward of all steps; a graph is captured in the second one.
    assert compiler.compiled()["replayed"] == (10 if kind == "program" else 8)
    assert torch_backplane.fallbacks() == {}


def test_a_program_changes_its_parameters_in_place():
    model = nn.BatchNorm1d(4).to("bp")
    call = torch.compile(model, backend=compiler.backend, options={"program": True})
    expected = nn.BatchNorm1d(4)
    for i in range(3):
        x = torch.arange(12.0).view(3, 4) * (i + 1)
        torch.testing.assert_close(call(x.to("bp")).cpu(), expected(x))
    torch.testing.assert_close(model.running_mean.cpu(), expected.running_mean)
    torch.testing.assert_close(model.running_var.cpu(), expected.running_var)
    assert model.num_batches_tracked.item() == 3
    assert compiler.compiled() == {"replayed": 3}


def test_what_the_cpu_computes_is_named(wrap):
    call = wrap(lambda x: torch.linalg.det(x) + 1)
    x = torch.eye(3, device="bp")
    with torch.no_grad():
        values = [call(x).item() for _ in range(3)]
    assert values == [2.0] * 3
    reasons = " ".join(compiler.compiled())
    assert "cannot be captured, since PyTorch's CPU computes it" in reasons, reasons
    assert "linalg_det" in reasons, reasons


# A device that runs compiled programs alone, in a process of its own.
WITHOUT_KERNELS = """
import sys
import torch, torch_backplane
from torch import nn
from torch_backplane import compile as compiler

try:
    torch_backplane.load("sim", {"kernels": "no"})
except RuntimeError as error:
    sys.exit(f"no plugin sim: {error}")
torch_backplane.set_fallback("count")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 1))
own = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 1))
own.load_state_dict(model.state_dict())
own = own.to("bp")
call = torch.compile(lambda x: own(x).square().mean(), backend=compiler.backend)
x = torch.rand(5, 4)
for _ in range(3):
    call(x.to("bp")).backward()
    model(x).square().mean().backward()
for a, b in zip(own.parameters(), model.parameters()):
    torch.testing.assert_close(a.grad.cpu(), b.grad)
print(compiler.compiled())
"""


def test_a_device_without_kernels_trains_by_programs():
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_KERNELS], capture_output=True, text=True, timeout=300
    )
    if "no plugin sim" in done.stderr:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "{'replayed': 6}"


def test_an_unknown_option_is_named():
    call = torch.compile(lambda x: x + 1, backend=compiler.backend, options={"programs": True})
    with pytest.raises(Exception, match="has no option programs; allowed: program"):
        call(torch.ones(2, device="bp"))


def test_two_forwards_before_their_gradients(wrap):
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 1)).to("bp")
    call = wrap(model)
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


def test_results_outlive_later_calls(wrap):
    call = wrap(lambda x: (x + 1, x))
    with torch.no_grad():
        kept = [call(torch.full((3,), float(i), device="bp")) for i in range(4)]
    assert [pair[0].tolist() for pair in kept] == [[i + 1.0] * 3 for i in range(4)]


def test_parameters_that_move_are_captured_again(wrap):
    model = nn.Linear(2, 2).to("bp")
    call = wrap(model)
    x = torch.ones(1, 2, device="bp")
    with torch.no_grad():
        for _ in range(3):
            call(x)
        model.weight.data = torch.zeros(2, 2, device="bp")
        torch.testing.assert_close(call(x), model.bias.expand(1, 2))
        model.weight.add_(1)
        torch.testing.assert_close(call(x), model(x))


def test_what_is_around_random_numbers_is_captured(wrap):
    torch.manual_seed(0)
    first, last = nn.Linear(4, 8).to("bp"), nn.Linear(8, 2).to("bp")
    call = wrap(lambda x: last(functional.gelu(functional.dropout(functional.gelu(first(x)), 0.5))))
    x = torch.rand(3, 4, device="bp")
    for _ in range(3):
        torch.bp.manual_seed(7)
        y = call(x)
        y.square().sum().backward()
        own = [p.grad.clone() for p in (*first.parameters(), *last.parameters())]
        for p in (*first.parameters(), *last.parameters()):
            p.grad = None
        torch.bp.manual_seed(7)
        hidden = functional.gelu(functional.dropout(functional.gelu(first(x)), 0.5))
        torch.testing.assert_close(y, last(hidden))
        last(hidden).square().sum().backward()
        for a, p in zip(own, (*first.parameters(), *last.parameters())):
            torch.testing.assert_close(a, p.grad)
            p.grad = None
    counts = compiler.compiled()
    assert counts["replayed"] > 3, counts
    assert any("random" in reason for reason in counts)


def test_the_gradient_of_attention_has_the_mask_of_its_call(wrap):
    q = torch.rand(1, 2, 8, 4, device="bp", requires_grad=True)
    call = wrap(lambda q: functional.scaled_dot_product_attention(q, q, q, dropout_p=0.5))
    for seed in range(4):
        torch.bp.manual_seed(seed)
        own, = torch.autograd.grad(call(q).square().sum(), q)
        torch.bp.manual_seed(seed)
        y = functional.scaled_dot_product_attention(q, q, q, dropout_p=0.5)
        expected, = torch.autograd.grad(y.square().sum(), q)
        torch.testing.assert_close(own, expected)


def test_random_numbers_are_not_captured(wrap):
    call = wrap(lambda x: functional.dropout(x, 0.5))
    x = torch.ones(64, device="bp")
    draws = [call(x).tolist() for _ in range(4)]
    assert len({tuple(draw) for draw in draws}) == 4
    assert any("random" in reason for reason in compiler.compiled())
