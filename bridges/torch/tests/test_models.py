"""ResNet-18 and a small GPT train as on PyTorch's CPU, and nothing falls back to it."""

import os

import gpt
import pytest
import resnet18
import torch
from torch import nn
from torch.nn import functional

import torch_backplane

STEPS = int(os.environ.get("BACKPLANE_TORCH_STEPS", "6"))


def losses_from_the_same_weights(make, batch_of, steps, learning_rate):
    """Trains on the CPU; before each step bp gets the weights and buffers of the CPU."""
    torch.manual_seed(0)
    models = {"cpu": make(), "bp": make().to("bp")}
    optimizer = torch.optim.SGD(models["cpu"].parameters(), lr=learning_rate, momentum=0.9)
    losses = {"cpu": [], "bp": []}
    gradients = {}
    for step in range(steps):
        models["bp"].load_state_dict(models["cpu"].state_dict())
        for device, model in models.items():
            x, y = (tensor.to(device) for tensor in batch_of(step))
            loss = functional.cross_entropy(model(x).flatten(0, -2), y)
            model.zero_grad()
            loss.backward()
            losses[device].append(loss.item())
            gradients[device] = torch.cat([p.grad.flatten().cpu() for p in model.parameters()])
        optimizer.step()
    return torch.tensor(losses["cpu"]), torch.tensor(losses["bp"]), gradients


def test_resnet18_has_the_losses_of_the_cpu():
    """A relu decides by the sign of its input, so a difference in rounding can become a large one
    in the gradient of a few weights. Two trainings therefore part after a few steps, on the CPU
    alone as well, and each step is compared from the weights of the CPU."""
    pictures, labels = resnet18.make_data(32, 64)

    def batch_of(step):
        part = slice(step % 4 * 8, (step % 4 + 1) * 8)
        return pictures[part], labels[part]

    expected, losses, gradients = losses_from_the_same_weights(
        resnet18.ResNet18, batch_of, STEPS, 0.01)
    torch.testing.assert_close(losses, expected, rtol=2e-5, atol=2e-6)
    distance = (gradients["bp"] - gradients["cpu"]).norm() / gradients["cpu"].norm()
    assert distance < 2e-2
    assert torch_backplane.fallbacks() == {}


def test_gpt_trains_as_on_the_cpu():
    expected, _ = gpt.train("cpu", STEPS)
    torch_backplane.reset_fallbacks()
    losses, _ = gpt.train("bp", STEPS)
    assert torch_backplane.fallbacks() == {}
    torch.testing.assert_close(torch.tensor(losses), torch.tensor(expected), rtol=1e-4, atol=1e-4)


def test_resnet18_learns():
    losses, _ = resnet18.train("bp", max(STEPS, 12))
    assert losses[-1] < losses[0] / 2
    assert torch_backplane.fallbacks() == {}


@pytest.mark.parametrize("heads", [2, 4])
@pytest.mark.parametrize("is_causal", [False, True])
def test_attention_with_and_without_the_op(heads, is_causal):
    """A device without the op has attention by other operators, with the same gradients."""
    q = torch.rand(2, 4, 5, 8)
    k, v = torch.rand(2, heads, 7, 8), torch.rand(2, heads, 7, 8)

    def run(device):
        own = [t.detach().to(device, copy=True).requires_grad_() for t in (q, k, v)]
        y = functional.scaled_dot_product_attention(*own, is_causal=is_causal,
                                                    enable_gqa=heads != 4)
        y.square().sum().backward()
        return [t.detach().cpu() for t in (y, *(t.grad for t in own))]
    expected = run("cpu")
    for is_without in (False, True):
        torch_backplane._C.set_without_attention(is_without)
        try:
            for own, wanted in zip(run("bp"), expected):
                torch.testing.assert_close(own, wanted, rtol=1e-4, atol=1e-5)
        finally:
            torch_backplane._C.set_without_attention(False)


OPTIMIZERS = {
    "sgd": lambda p, **kw: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=1e-3, **kw),
    "adam": lambda p, **kw: torch.optim.Adam(p, lr=1e-2, **kw),
    "adamw": lambda p, **kw: torch.optim.AdamW(p, lr=1e-2, **kw),
}


@pytest.mark.parametrize("kind", [{"fused": True}, {"foreach": True}, {"foreach": False}], ids=str)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_step_as_on_the_cpu(name, kind):
    def run(device):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 1)).to(device)
        x = torch.rand(32, 8).to(device)
        optimizer = OPTIMIZERS[name](model.parameters(), **kind)
        for _ in range(5):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
        return [p.detach().cpu() for p in model.parameters()]
    for own, expected in zip(run("bp"), run("cpu")):
        torch.testing.assert_close(own, expected, rtol=1e-4, atol=1e-5)
    assert torch_backplane.fallbacks() == {}


def test_scaler_of_mixed_precision():
    scaler = torch.amp.GradScaler("bp", init_scale=1024.0)
    w = torch.ones(4, device="bp", requires_grad=True)
    optimizer = torch.optim.SGD([w], lr=0.1)
    scaler.scale(w.sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    torch.testing.assert_close(w.detach().cpu(), torch.full((4,), 0.9))
    w.grad = torch.full((4,), torch.inf, device="bp")
    scaler.scale(w.sum() * 0).backward()
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 512.0
    torch.testing.assert_close(w.detach().cpu(), torch.full((4,), 0.9))
