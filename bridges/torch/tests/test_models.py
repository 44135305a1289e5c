"""ResNet-18 and a small GPT train as on PyTorch's CPU, and nothing falls back to it."""

import os

import gpt
import pytest
import resnet18
import torch
from torch import nn

import torch_backplane

STEPS = int(os.environ.get("BACKPLANE_TORCH_STEPS", "6"))

# Rounding differs, and each step carries the difference on: it grows with the steps.
BOUNDS = {"resnet18": 2e-3, "gpt": 2e-4}


@pytest.mark.parametrize("name", ["resnet18", "gpt"])
def test_trains_as_on_the_cpu(name):
    train = {"resnet18": resnet18.train, "gpt": gpt.train}[name]
    expected, _ = train("cpu", STEPS)
    torch_backplane.reset_fallbacks()
    losses, _ = train("bp", STEPS)
    assert torch_backplane.fallbacks() == {}
    torch.testing.assert_close(torch.tensor(losses), torch.tensor(expected), rtol=BOUNDS[name],
                               atol=BOUNDS[name])


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
