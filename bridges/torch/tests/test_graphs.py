"""Captured graphs, and exchange with other libraries through DLPack."""

import numpy
import pytest
import torch

import torch_backplane


def can_capture():
    graph = torch.bp.Graph()
    try:
        graph.capture_begin()
    except NotImplementedError:
        return False
    graph.abandon()
    return True


@pytest.mark.parametrize("program", [False, True])
def test_a_graph_is_replayed_with_new_input(program):
    if not can_capture():
        pytest.skip("the device records no graphs")
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 2))
    own = torch.nn.Sequential(*[layer for layer in model]).to("bp")
    x = torch.rand(4, 8).to("bp")
    with torch.no_grad():
        own(x)
        graph = torch.bp.Graph()
        with torch.bp.graph(graph, program=program):
            y = own(x)
        assert graph.info()["node_count"] >= 3
        for _ in range(3):
            fresh = torch.rand(4, 8)
            x.copy_(fresh)
            graph.replay()
            torch.testing.assert_close(y, own(fresh.to("bp")))
    assert torch_backplane.fallbacks() == {}


def test_what_cannot_be_captured_is_refused():
    if not can_capture():
        pytest.skip("the device records no graphs")
    x = torch.ones(3, device="bp")
    with pytest.raises(RuntimeError, match="cannot be captured"), torch.bp.graph(torch.bp.Graph()):
        torch.rand(3, device="bp")
    with pytest.raises(RuntimeError), torch.bp.graph(torch.bp.Graph()):
        x.cpu()
    with pytest.raises(RuntimeError, match="nothing was captured"):
        torch.bp.Graph().replay()
    assert (x + 1).tolist() == [2, 2, 2]


def taken_from_host(source):
    try:
        return torch_backplane.from_dlpack(source)
    except (RuntimeError, NotImplementedError) as error:
        pytest.skip(f"the device takes no memory of the host: {str(error).splitlines()[0]}")


def test_dlpack_shares_memory():
    source = numpy.arange(6, dtype=numpy.float32).reshape(2, 3)
    x = taken_from_host(source)
    x.mul_(2)
    torch.bp.synchronize()
    assert source.tolist() == [[0, 2, 4], [6, 8, 10]]

    assert numpy.from_dlpack(x[:, 1:]).tolist() == [[2, 4], [8, 10]]
    assert torch.from_dlpack(x).device.type == "cpu"
    assert numpy.from_dlpack(torch.ones(2)).tolist() == [1, 1]
    for options in ({}, {"max_version": (1, 0)}):  # Before and since DLPack 1.
        assert torch_backplane.from_dlpack(x.__dlpack__(**options)).tolist() == x.tolist()
    copied = torch_backplane.from_dlpack(x.__dlpack__(copy=True))
    copied.zero_()
    assert x.sum().item() == 30


def test_dlpack_copies_what_nobody_may_write_to():
    source = numpy.arange(3, dtype=numpy.float32)
    source.setflags(write=False)
    x = taken_from_host(source)
    x.add_(1)
    torch.bp.synchronize()
    assert x.tolist() == [1, 2, 3] and source.tolist() == [0, 1, 2]


def test_dlpack_refuses_what_it_is_not():
    with pytest.raises(RuntimeError, match="not on bp"):
        torch_backplane.to_dlpack(torch.ones(1))
    with pytest.raises(ValueError, match="no capsule"):
        torch_backplane.from_dlpack(object())
    x = torch.ones(2, device="bp", requires_grad=True)
    with pytest.raises(BufferError, match="require gradient"):
        x.__dlpack__()
    capsule = torch_backplane.to_dlpack(x)
    torch_backplane.from_dlpack(capsule)
    with pytest.raises(ValueError, match="taken already"):
        torch_backplane.from_dlpack(capsule)
    with pytest.raises(BufferError, match="device of type 99"):
        x.detach().__dlpack__(dl_device=(99, 0))
    backwards = numpy.arange(3, dtype=numpy.float32)[::-1]
    with pytest.raises((RuntimeError, NotImplementedError)):
        torch_backplane.from_dlpack(backwards)
    assert backwards.tolist() == [2, 1, 0]
