"""Backplane in Python: every device of every backend, through one library.

    import backplane as bp
    bp.load("libacme_npu.so")                   # or by manifest: bp.Device("npu")
    x = bp.asarray([[1.0, 2.0], [3.0, 4.0]], device="npu:0")
    y = bp.ops.softmax(x, axis=-1)
    y.numpy()

`backplane.ops` has every operator, `backplane.array_api` the Python array API standard, and
`backplane.safetensors` files of weights.
"""

from backplane._errors import (  # noqa: F401
    Aborted, AlreadyExists, DataFailure, DeviceLost, Error, Incompatible, InternalError,
    InvalidArgument, NotFound, OutOfMemory, StreamFailed, Timeout, Unsupported)

try:
    from backplane import _core
except ImportError as error:
    from backplane import _missing
    raise _missing.explain(error) from error

from backplane import _lifetime
from backplane._core import (  # noqa: F401
    Device, DType, Event, Stream, Tensor, abi_version, clear_failure, devices, dtype, grad,
    is_grad_enabled, manifests, manual_seed, plugins, synchronize)
from backplane._devices import (  # noqa: F401
    add_entry_points, default_device, load, set_default_device, use_device)

add_entry_points()

from backplane import array_api, ops, safetensors  # noqa: E402, F401
from backplane._autograd import enable_grad, no_grad  # noqa: E402, F401
from backplane._exchange import asarray, from_dlpack  # noqa: E402, F401
from backplane._operators import add_methods  # noqa: E402

add_methods(Tensor)
_lifetime.register()
del add_methods

empty, full, zeros, ones, arange = (
    array_api.empty, array_api.full, array_api.zeros, array_api.ones, array_api.arange)
