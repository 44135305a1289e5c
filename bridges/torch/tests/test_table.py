"""The table: every row and every composed operator is one of PyTorch's, and is bound."""

import pytest
import torch
from torch.nn import functional

import torch_backplane


def test_every_row_binds():
    assert torch_backplane._C.unbound_rows() == []


# PyTorch has a formula for the gradient of each of these, though it could take it apart as well.
TAKEN_APART = {
    "aten::_fused_rms_norm": lambda x: functional.rms_norm(x, (3,)),
    "aten::mish_backward": functional.mish,
    "aten::silu_backward": functional.silu,
}


def test_no_other_operator_that_autograd_takes_apart_is_mapped():
    """A kernel for such an operator would have no gradient."""
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    found = {name for name in torch_backplane.registered()
             if has(name, "CompositeImplicitAutograd")}
    assert found == set(TAKEN_APART)


@pytest.mark.parametrize("name", TAKEN_APART)
def test_gradients_of_gradients(name):
    def second(device):
        x = torch.tensor([1.0, 2.0, -3.0]).to(device).requires_grad_()
        (first,) = torch.autograd.grad(TAKEN_APART[name](x).sum(), x, create_graph=True)
        return torch.autograd.grad(first.square().sum(), x)[0].cpu()
    torch.testing.assert_close(second("bp"), second("cpu"))


def test_writing_forms_follow_from_the_functional_ones():
    names = set(torch_backplane.registered())
    for name in ("add.Tensor", "add_.Tensor", "add.out", "masked_fill_.Scalar", "topk.values",
                 "scatter_add_", "cumsum.out", "native_layer_norm.out", "index_put_impl_"):
        prefix = "aten::_" if name.startswith("index_put") else "aten::"
        assert prefix + name in names
