"""PyTorch's own samples of the mapped operators agree with the CPU. opinfo.py shows them."""

import os

import opinfo
import torch

# The share that must be right. What is wrong, and why, is listed in the README of the bridge.
REQUIRED = 0.95
SAMPLES = int(os.environ.get("BACKPLANE_TORCH_SAMPLES", "6"))
DTYPES = [torch.float32, torch.bfloat16, torch.int64, torch.bool]


def test_samples_agree_with_the_cpu(capsys):
    results = opinfo.run(opinfo.mapped_ops(), DTYPES, SAMPLES)
    with capsys.disabled():
        print()
        opinfo.report(results)
    assert len(results) > 1000
    assert sum(sample.is_right for sample in results) >= REQUIRED * len(results)
    unasked = [sample for sample in results if "AcceleratorError" in sample.problem]
    assert unasked == []
