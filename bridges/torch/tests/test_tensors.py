"""Tensors on bp: copies, views, storage, serialisation, random numbers, memory."""

import copy
import io

import pytest
import torch

import torch_backplane

DTYPES = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16,
          torch.bfloat16, torch.float32, torch.float64, torch.complex64]


def values(shape, dtype=torch.float32):
    return (torch.rand(shape) * 20 - 5).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_copies_there_and_back(dtype):
    x = values((3, 4, 5), dtype)
    assert x.to("bp").cpu().equal(x)
    assert x.transpose(0, 2).to("bp").cpu().equal(x.transpose(0, 2))
    assert x.to("bp")[:, 1:, ::2].cpu().equal(x[:, 1:, ::2])


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64, torch.int32, torch.bool], ids=str)
def test_copies_that_convert(dtype):
    x = values((4, 6))
    assert x.to("bp").to(dtype).cpu().equal(x.to(dtype))
    assert x.to("bp", dtype).cpu().equal(x.to(dtype))
    assert x.to("bp").to("cpu", dtype).equal(x.to(dtype))
    host = torch.empty(6, 4, dtype=dtype).t()
    assert host.copy_(x.to("bp")).equal(x.to(dtype))


def test_copies_of_many_axes():
    x = values((2, 1, 2, 1, 2, 1, 2, 1, 2, 3))
    assert x.to("bp").cpu().equal(x)
    assert x.to("bp").permute(*reversed(range(10))).cpu().equal(x.permute(*reversed(range(10))))


def test_copies_that_do_not_block():
    try:
        x = values((1000,)).pin_memory()
    except NotImplementedError as error:
        pytest.skip(f"the device pins no memory: {str(error).splitlines()[0]}")
    assert x.is_pinned()
    y = x.to("bp", non_blocking=True)
    back = torch.empty_like(x).pin_memory()
    back.copy_(y * 2, non_blocking=True)
    torch.bp.synchronize()
    assert back.equal(x * 2)
    pageable = values((1000,))
    z = pageable.to("bp", non_blocking=True)
    expected = pageable.clone()
    pageable.zero_()
    assert z.cpu().equal(expected)


def test_views_share_memory():
    x = torch.arange(24.0).reshape(2, 3, 4)
    y = x.to("bp")
    for view in (lambda t: t[:, 1:], lambda t: t.permute(2, 0, 1), lambda t: t.view(6, 4),
                 lambda t: t.unfold(2, 2, 2), lambda t: t.diagonal(0, 1, 2),
                 lambda t: t.as_strided((2, 2), (3, 5), 1), lambda t: t.select(1, 2)):
        assert view(y).cpu().equal(view(x))
        view(y).mul_(2)
        view(x).mul_(2)
        assert y.cpu().equal(x)
    assert y[0].data_ptr() == y.data_ptr()


def test_storage_is_set_and_resized():
    x = torch.arange(6.0).to("bp")
    y = torch.empty(0, device="bp").set_(x.untyped_storage(), 1, (2, 2), (2, 1))
    assert y.tolist() == [[1, 2], [3, 4]]
    x.resize_(8)
    assert x[:6].tolist() == list(range(6))
    x.untyped_storage().resize_(8)
    assert x.untyped_storage().nbytes() == 8
    assert torch.empty(0, device="bp").set_().numel() == 0


def test_saves_and_loads():
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4)).to("bp")
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "x": torch.arange(3, device="bp")}, file)
    for location in (None, "cpu", "bp:0"):
        file.seek(0)
        loaded = torch.load(file, map_location=location)
        assert loaded["x"].device.type == ("cpu" if location == "cpu" else "bp")
        assert loaded["x"].tolist() == [0, 1, 2]
        assert loaded["model"]["0.weight"].cpu().equal(model[0].weight.detach().cpu())
    assert copy.deepcopy(model)[0].weight.cpu().equal(model[0].weight.cpu())


def test_type_and_methods():
    x = torch.ones(2).bp()
    assert x.is_bp and x.device == torch.device("bp:0") and not torch.ones(2).is_bp
    assert torch.nn.Linear(2, 2).bp().weight.is_bp
    assert "bp:0" in repr(x)
    assert x.numpy(force=True).tolist() == [1, 1]


def test_random_numbers_follow_from_the_seed():
    def draw():
        return [torch.rand(5, device="bp"), torch.randn(5, device="bp"),
                torch.randint(100, (5,), device="bp"), torch.randperm(9, device="bp"),
                torch.nn.functional.dropout(torch.ones(64, device="bp"))]
    torch.manual_seed(7)
    first = [t.cpu() for t in draw()]
    state = torch.bp.get_rng_state()
    later = [t.cpu() for t in draw()]
    torch.manual_seed(7)
    assert all(a.equal(b.cpu()) for a, b in zip(first, draw()))
    torch.bp.set_rng_state(state)
    assert all(a.equal(b.cpu()) for a, b in zip(later, draw()))
    assert not first[0].equal(later[0])
    own = torch.Generator("bp").manual_seed(3)
    a = torch.rand(4, device="bp", generator=own)
    assert a.cpu().equal(torch.rand(4, device="bp", generator=own.manual_seed(3)).cpu())
    assert torch.bp.initial_seed() == 7
    with pytest.raises(RuntimeError, match="16 bytes"):
        torch.bp.set_rng_state(torch.zeros(3, dtype=torch.uint8))


def test_random_numbers_are_distributed_as_they_should_be():
    n = 100_000
    u = torch.rand(n, device="bp").cpu()
    assert 0 <= u.min() and u.max() < 1 and abs(u.mean() - 0.5) < 0.01
    z = torch.randn(n, device="bp").cpu()
    assert abs(z.mean()) < 0.02 and abs(z.std() - 1) < 0.02
    e = torch.empty(n, device="bp").exponential_(2).cpu()
    assert (e >= 0).all() and abs(e.mean() - 0.5) < 0.02
    b = torch.empty(n, device="bp").bernoulli_(0.3).cpu()
    assert abs(b.mean() - 0.3) < 0.02 and set(b.unique().tolist()) == {0, 1}
    x = torch.ones(n, device="bp", requires_grad=True)
    y = torch.nn.functional.dropout(x, 0.25)
    y.sum().backward()
    assert x.grad.cpu().equal(y.detach().cpu())
    assert torch_backplane.fallbacks() == {}
    draws = torch.multinomial(torch.tensor([1.0, 0, 3], device="bp"), n, replacement=True).cpu()
    assert abs((draws == 2).float().mean() - 0.75) < 0.02 and not (draws == 1).any()
    assert sorted(torch.multinomial(torch.ones(9, device="bp"), 9).tolist()) == list(range(9))


def test_memory_is_counted():
    torch.bp.empty_cache()
    before = torch.bp.memory_allocated()
    x = torch.empty(1 << 20, dtype=torch.uint8, device="bp")
    assert torch.bp.memory_allocated() - before == 1 << 20
    assert torch.bp.max_memory_allocated() >= torch.bp.memory_allocated()
    assert torch.bp.memory_reserved() >= torch.bp.memory_allocated()
    del x
    assert torch.bp.memory_allocated() == before
    assert "caches" in torch.bp.memory_snapshot()


def test_out_of_one_tensor_into_another_that_overlaps():
    x = torch.arange(6.0, device="bp")
    x[1:].add_(x[:-1])
    assert x.tolist() == [0, 1, 3, 5, 7, 9]
    with pytest.raises(RuntimeError, match="single memory location"):
        torch.ones(1, device="bp").expand(3).add_(1)
    y = torch.rand(3, 3, device="bp")
    expected = y.cpu() @ y.cpu()
    torch.testing.assert_close(torch.mm(y, y, out=y).cpu(), expected)


def test_results_of_other_shapes_and_dtypes():
    x = torch.rand(3, 4, device="bp")
    assert torch.exp(x, out=torch.empty(0, device="bp")).shape == (3, 4)
    out = torch.empty(4, 3, dtype=torch.double, device="bp").t()
    assert torch.add(x, 1, out=out).cpu().equal((x.cpu() + 1).double())
    with pytest.raises(RuntimeError, match="can't be cast"):
        torch.add(x, 1, out=torch.empty(3, 4, dtype=torch.long, device="bp"))
    with pytest.raises(RuntimeError, match="broadcast"):
        torch.ones(1, device="bp").add_(x)


def test_autocast():
    x, w = torch.rand(4, 8, device="bp"), torch.rand(8, 4, device="bp", requires_grad=True)
    if torch.bfloat16 not in torch.bp.get_amp_supported_dtype():
        pytest.skip("the device has no bf16")
    with torch.autocast("bp", dtype=torch.bfloat16):
        y = x @ w
        assert y.dtype == torch.bfloat16
        assert torch.softmax(y, 1).dtype == torch.float32
    y.float().sum().backward()
    assert w.grad.dtype == torch.float32
