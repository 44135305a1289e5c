"""Views, parts of storages, and what PyTorch asks before it reads or writes memory."""

import pytest
import torch


def bp(*args, **kwargs):
    return torch.tensor(*args, **kwargs, device="bp")


class TestComplex:
    x = torch.complex(torch.arange(6.0), torch.arange(6.0) - 3)

    def test_parts_are_views(self):
        y = self.x.to("bp")
        torch.view_as_real(y)[2, 1] = 9
        assert y[2].item() == 2 + 9j
        y.imag.zero_()
        assert torch.equal(y.cpu(), self.x.real + 0j)

    def test_conjugates_are_resolved_by_copies(self):
        y = self.x.to("bp")
        assert y.conj().is_conj() and y.conj().imag.is_neg()
        assert torch.equal(y.conj().cpu(), self.x.conj())
        assert torch.equal(y.conj().imag.cpu(), -self.x.imag)
        assert y.conj()[0].item() == 3j
        into = torch.empty_like(y).conj()
        into.copy_(y)
        assert torch.equal(into.cpu(), self.x)

    def test_a_number_joins_tensors_of_other_dtypes(self):
        assert (bp([1, 2]) + 1j).cpu().tolist() == [1 + 1j, 2 + 1j]
        assert torch.add(bp([1.0]), bp([2.0]), alpha=2).item() == 5
        with pytest.raises(RuntimeError, match="alpha must not be a floating point"):
            torch.add(bp([1]), bp([2]), alpha=1.5)


class TestMemory:
    def test_a_part_of_a_storage_is_read_where_it_lies(self):
        storage = bp([1, 2, 3, 4], dtype=torch.uint8).untyped_storage()
        part = torch.tensor([], dtype=torch.uint8, device="bp").set_(storage[1:3])
        assert part.tolist() == [2, 3]
        with pytest.raises(RuntimeError, match="cannot be resized"):
            part.resize_(5)

    def test_elements_in_one_place_are_not_written(self):
        with pytest.raises(RuntimeError, match="single memory location"):
            bp([0.0]).expand(3).copy_(bp([1.0, 2.0, 3.0]))
        assert bp([0.0]).expand(3).fill_(2).tolist() == [2, 2, 2]

    def test_new_memory_is_filled_on_demand(self):
        torch.use_deterministic_algorithms(True)
        try:
            assert torch.empty(8, device="bp").isnan().all()
            grown = torch.zeros(2, dtype=torch.int8, device="bp").resize_(4)
            assert grown.tolist() == [0, 0, 127, 127]
        finally:
            torch.use_deterministic_algorithms(False)

    def test_one_tensor_over_the_same_memory_is_known(self):
        x = bp([1.0, 2.0])
        assert x.is_set_to(x.view(2)) and not x.is_set_to(x.clone())

    def test_a_view_that_bp_lacks_is_refused(self):
        with pytest.raises((NotImplementedError, RuntimeError)):
            torch.ones(2, 2, device="bp").to_sparse()


class TestIndices:
    x = torch.arange(12.0, device="bp").view(3, 4)

    def test_of_wrong_shapes_and_dtypes_are_refused_at_once(self):
        with pytest.raises(IndexError, match="shape mismatch"):
            self.x[[0, 1], [0, 1, 2]]
        with pytest.raises(IndexError, match="dimension with size 0"):
            torch.empty(0, 2, device="bp")[[0]]
        with pytest.raises(IndexError, match="tensors used as indices"):
            self.x[bp([0.5])]
        with pytest.raises(RuntimeError, match="shape mismatch"):
            self.x.clone()[bp([0, 1])] = bp([1.0, 2.0, 3.0])
        with pytest.raises(RuntimeError, match="dtypes match"):
            self.x.clone().index_put_((bp([0]),), bp([1]))

    def test_above_those_of_int64_are_numbers(self):
        most = 2**64 - 1
        assert torch.full((2,), most, dtype=torch.uint64, device="bp").eq(most).all()


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW])
def test_fused_steps_take_the_scale_out(kind):
    def trained(device, **options):
        torch.manual_seed(0)
        weight = torch.nn.Parameter(torch.ones(4).to(device))
        scaler = torch.amp.GradScaler(device, init_scale=128.0)
        optimizer = kind([weight], lr=0.1, **options)
        for step in range(4):
            optimizer.zero_grad()
            scaler.scale((weight * float("inf" if step == 2 else step + 1)).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
        return weight.detach().cpu(), scaler.get_scale()

    ours, scale = trained("bp", fused=True)
    theirs, expected = trained("cpu", foreach=False)
    torch.testing.assert_close(ours, theirs)
    assert scale == expected == 64.0
