"""Ops that a plugin describes at run time: acme.chip of examples/05_vendor_op."""

import os

import pytest

import backplane as bp
from backplane import ops

CHIP = os.environ.get("BACKPLANE_TEST_CHIP")


@pytest.fixture(scope="module")
def chip():
    if not CHIP:
        pytest.skip("BACKPLANE_TEST_CHIP names no plugin with ops of a vendor")
    if "acme.chip" not in [p["name"] for p in bp.plugins()]:
        bp.load(CHIP)
    return bp.Device("acme.chip")


def test_the_ops_are_functions_once_the_plugin_is_loaded(chip):
    assert "acme.saturating_add" in ops.names()
    assert set(dir(ops.acme)) >= {"saturating_add", "swiglu_linear"}
    assert ops.get("acme.saturating_add").__doc__
    with pytest.raises(bp.NotFound, match="acme.other"):
        ops.acme.other


def test_kernels_of_the_vendor_run_them(chip):
    a, b = (bp.asarray(v, dtype="u8", device=chip) for v in ([250, 100], [10, 100]))
    before = chip.counts()["native"]
    assert ops.acme.saturating_add(a, b).tolist() == [255, 200]
    assert chip.counts()["native"] > before


def test_other_devices_run_the_decomposition(chip, device):
    a, b = (bp.asarray(v, dtype="u8") for v in ([250, 100], [10, 100]))
    before = device.counts()["decomposed"]
    assert ops.acme.saturating_add(a, b).tolist() == [255, 200]
    assert device.counts()["decomposed"] > before


def test_a_gradient_that_the_vendor_describes(chip):
    described = ops.describe("acme.swiglu_linear")
    x, gate, up = (bp.full(shape, value) for shape, value in
                   (([2, 3], 0.5), ([4, 3], 0.25), ([4, 3], 1.5)))
    for leaf in (x, gate, up):
        leaf.requires_grad = True
    y = ops.acme.swiglu_linear(x, gate, up)
    if described["backward"] is None or described["backward"].startswith("none"):
        assert not y.requires_grad
        return
    ops.sum(y).backward()
    a, b = 3 * 0.5 * 0.25, 3 * 0.5 * 1.5
    sigmoid = 1 / (1 + 2.718281828459045 ** -a)
    slope_a = b * (sigmoid + a * sigmoid * (1 - sigmoid))
    assert gate.grad.tolist()[0] == pytest.approx([2 * slope_a * 0.5] * 3, rel=1e-4)
    assert up.grad.tolist()[0] == pytest.approx([2 * a * sigmoid * 0.5] * 3, rel=1e-4)


def test_bad_calls_of_them_are_refused(chip):
    a = bp.asarray([1, 2], dtype="u8", device=chip)
    with pytest.raises(bp.InvalidArgument, match="acme.saturating_add"):
        ops.acme.saturating_add(a, bp.asarray([1.0, 2.0], device=chip))
    with pytest.raises(TypeError, match="b is missing"):
        ops.acme.saturating_add(a)
