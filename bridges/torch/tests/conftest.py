"""The plugin that the tests drive: BACKPLANE_TORCH_PLUGIN, a name or a path; else "cpu"."""

import os
import pathlib
import sys

import pytest
import torch

import torch_backplane

PLUGIN = os.environ.get("BACKPLANE_TORCH_PLUGIN", "cpu")
EXAMPLES = pathlib.Path(__file__).parents[3] / "examples" / "07_from_pytorch"

sys.path.insert(0, str(pathlib.Path(__file__).parent))
sys.path.insert(0, str(EXAMPLES))


def pytest_configure():
    torch.set_num_threads(2)
    torch_backplane.load(PLUGIN)
    torch_backplane.set_fallback("count")


def pytest_report_header():
    return f"backplane plugin: {torch.bp.get_device_properties(0)}"


@pytest.fixture(autouse=True)
def fresh_fallbacks():
    """Each test counts its own fallbacks."""
    torch_backplane.reset_fallbacks()
    torch.manual_seed(0)
