"""Functions that make arrays."""

import math

from backplane import _core, ops
from backplane._devices import as_device
from backplane._exchange import asarray, from_dlpack  # noqa: F401: names of the standard.
from backplane.array_api import _dtypes as dtypes


def _shape(shape):
    return [int(shape)] if hasattr(shape, "__index__") else [int(n) for n in shape]


def _dtype(dtype, default):
    return default if dtype is None else _core.dtype(dtype)


def empty(shape, *, dtype=None, device=None):
    """An array whose elements are undefined."""
    return _core.empty(_shape(shape), _dtype(dtype, dtypes.float32), as_device(device))


def full(shape, fill_value, *, dtype=None, device=None):
    """An array whose elements are all `fill_value`."""
    if isinstance(fill_value, _core.Tensor):
        made = fill_value if device is None else fill_value.to(as_device(device))
        return made.to(_dtype(dtype, made.dtype)).expand(_shape(shape)).clone()
    dtype = _dtype(dtype, dtypes.default_dtype_of(fill_value))
    return ops.fill(fill_value, shape=_shape(shape), dtype=dtype, device=as_device(device))


def zeros(shape, *, dtype=None, device=None):
    """An array of zeros."""
    return full(shape, 0, dtype=_dtype(dtype, dtypes.float32), device=device)


def ones(shape, *, dtype=None, device=None):
    """An array of ones."""
    return full(shape, 1, dtype=_dtype(dtype, dtypes.float32), device=device)


def empty_like(x, /, *, dtype=None, device=None):
    """An array of the shape of x, whose elements are undefined."""
    return empty(x.shape, dtype=_dtype(dtype, x.dtype), device=device or x.device)


def full_like(x, /, fill_value, *, dtype=None, device=None):
    """An array of the shape of x, whose elements are all `fill_value`."""
    return full(x.shape, fill_value, dtype=_dtype(dtype, x.dtype), device=device or x.device)


def zeros_like(x, /, *, dtype=None, device=None):
    """An array of zeros of the shape of x."""
    return full_like(x, 0, dtype=dtype, device=device)


def ones_like(x, /, *, dtype=None, device=None):
    """An array of ones of the shape of x."""
    return full_like(x, 1, dtype=dtype, device=device)


def arange(start, /, stop=None, step=1, *, dtype=None, device=None):
    """start, start + step, ... below stop; from 0 below start if stop is not given."""
    if stop is None:
        start, stop = 0, start
    if step == 0:
        raise ValueError("arange: step is 0; allowed: other numbers")
    is_whole = all(hasattr(v, "__index__") for v in (start, stop, step))
    dtype = _dtype(dtype, dtypes.int64 if is_whole else dtypes.float32)
    count = max(0, -((start - stop) // step) if is_whole else math.ceil((stop - start) / step))
    made = dtypes.int64 if dtype in dtypes.MOVED else dtype
    if is_whole and dtype == dtypes.uint64:
        start, step = (v - 2**64 if v >= 2**63 else v for v in (start, step))
    # Only the caller's own numbers are rounded: floats count in f64 there.
    counted = ops.arange(start=start, step=step, shape=[count], dtype=made,
                         device=as_device(device))
    return counted.to(dtype)


def linspace(start, stop, /, num, *, dtype=None, device=None, endpoint=True):
    """`num` numbers at equal distances from start to stop, which endpoint=False leaves out."""
    dtype, device = _dtype(dtype, dtypes.float32), as_device(device)
    gaps = num - 1 if endpoint else num
    step = (float(stop) - float(start)) / gaps if gaps > 0 else 0.0
    if not math.isfinite(step):  # The distance is no float, so half of it is taken twice.
        halves = arange(num, dtype=dtypes.float64, device=device)
        share = ops.div(halves, float(max(gaps, 1)))
        made = ops.add(ops.mul(ops.add(ops.neg(share), 1.0), float(start)),
                       ops.mul(share, float(stop)))
    else:
        made = ops.arange(start=float(start), step=step, shape=[num], dtype=dtypes.float64,
                          device=device)
    if endpoint and num > 1:
        made[num - 1] = stop
    return made.to(dtype)


def eye(n_rows, n_cols=None, /, *, k=0, dtype=None, device=None):
    """Ones on the diagonal that begins k columns right of the first one, and zeros elsewhere."""
    device, n_cols = as_device(device), n_rows if n_cols is None else n_cols
    rows = arange(n_rows, device=device).unsqueeze(1)
    columns = arange(n_cols, device=device).unsqueeze(0)
    k = max(-n_rows, min(k, n_cols))  # Beyond these there is no diagonal.
    return ops.eq(ops.add(rows, k), columns).to(_dtype(dtype, dtypes.float32))


def tril(x, /, *, k=0):
    """The elements on and below diagonal k, and zeros elsewhere."""
    return ops.tril(x, diagonal=k)


def triu(x, /, *, k=0):
    """The elements on and above diagonal k, and zeros elsewhere."""
    return ops.triu(x, diagonal=k)


def meshgrid(*arrays, indexing="xy"):
    """Arrays of the coordinates of a grid, which the given axes span."""
    if indexing not in ("xy", "ij"):
        raise ValueError(f"meshgrid: indexing is '{indexing}'; allowed: 'xy', 'ij'")
    order = list(range(len(arrays)))
    if indexing == "xy" and len(arrays) > 1:
        order[0], order[1] = 1, 0
    shape = [0] * len(arrays)
    for i, x in enumerate(arrays):
        shape[order[i]] = x.size
    result = []
    for i, x in enumerate(arrays):
        line = [1] * len(arrays)
        line[order[i]] = x.size
        result.append(x.reshape(line).expand(shape).clone())
    return result


NAMES = ("arange", "asarray", "empty", "empty_like", "eye", "from_dlpack", "full", "full_like",
         "linspace", "meshgrid", "ones", "ones_like", "tril", "triu", "zeros", "zeros_like")
