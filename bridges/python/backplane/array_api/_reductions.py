"""Statistics, and functions that look for elements."""

import builtins

from backplane import _core, ops
from backplane.array_api import _dtypes as dtypes
from backplane.array_api import _elementwise as elementwise
from backplane.array_api import _unsigned as unsigned


def axes_of(x, axis):
    """Returns a list of axes from 0 on; None means all of them."""
    if axis is None:
        return list(range(x.ndim))
    axes = [axis] if hasattr(axis, "__index__") else list(axis)
    for one in axes:
        if not -builtins.max(x.ndim, 1) <= one < builtins.max(x.ndim, 1):
            raise IndexError(f"axis is {one}, and the array has {x.ndim} axes")
    return [a % builtins.max(x.ndim, 1) for a in axes]


def _reduced(op, x, axis, keepdims, **given):
    """An array without axes counts as one of a single axis."""
    axes = axes_of(x, axis)
    if not axes:
        return _of_nothing(op, x, **given)
    return op(x, axes=axes, keepdims=keepdims, **given)


def _of_nothing(op, x, **given):
    """A reduction of no axes keeps each element apart."""
    return op(x.unsqueeze(x.ndim), axes=[x.ndim], keepdims=False, **given)


def _sum_dtype(x, dtype):
    if dtype is not None:
        return _core.dtype(dtype)
    if x.dtype == dtypes.bool or x.dtype in dtypes.SIGNED:
        return dtypes.int64
    return dtypes.uint64 if x.dtype in dtypes.UNSIGNED else x.dtype


def _total(op, x, dtype, run):
    """Sums and products of integers wrap in i64, whose low bits are those of every other dtype."""
    wanted = _sum_dtype(x, dtype)
    if dtypes.is_float(wanted):
        return run(op, x.to(wanted), dtype=wanted)
    counted = unsigned.to_signed(x).to(dtypes.int64)
    return unsigned.from_signed(run(op, counted, dtype=dtypes.int64), wanted)


def sum(x, /, *, axis=None, dtype=None, keepdims=False):
    """The sum over axes. Integers are summed in 64 bits."""
    return _total(ops.sum, x, dtype, lambda op, v, **k: _reduced(op, v, axis, keepdims, **k))


def prod(x, /, *, axis=None, dtype=None, keepdims=False):
    """The product over axes. Integers are multiplied in 64 bits."""
    return _total(ops.prod, x, dtype, lambda op, v, **k: _reduced(op, v, axis, keepdims, **k))


def mean(x, /, *, axis=None, keepdims=False):
    """The mean over axes."""
    return _reduced(ops.mean, x, axis, keepdims)


def var(x, /, *, axis=None, correction=0.0, keepdims=False):
    """The variance over axes: the divisor is the number of elements less `correction`."""
    count = 1
    for a in axes_of(x, axis):
        count *= x.shape[a] if x.ndim else 1
    result = _reduced(ops.var, x, axis, keepdims, correction=0)
    if correction == 0:
        return result
    divisor = count - correction
    if divisor <= 0:
        return ops.mul(result, float("nan"))
    return ops.mul(result, count / divisor)


def std(x, /, *, axis=None, correction=0.0, keepdims=False):
    """The square root of var()."""
    return ops.sqrt(var(x, axis=axis, correction=correction, keepdims=keepdims))


def max(x, /, *, axis=None, keepdims=False):
    """The largest element along axes."""
    ordered = _reduced(ops.amax, unsigned.to_ordered(x), axis, keepdims)
    return unsigned.from_ordered(ordered, x.dtype)


def min(x, /, *, axis=None, keepdims=False):
    """The smallest element along axes."""
    ordered = _reduced(ops.amin, unsigned.to_ordered(x), axis, keepdims)
    return unsigned.from_ordered(ordered, x.dtype)


def _cumulative(op, x, axis, dtype, include_initial, initial):
    if axis is None and x.ndim != 1:
        raise ValueError(f"axis is None, and the array has {x.ndim} axes; name the axis")
    axis = axes_of(x, 0 if axis is None else axis)[0]
    result = _total(op, x, dtype, lambda o, v, **k: o(v, axis=axis, **k))
    if not include_initial:
        return result
    shape = list(result.shape)
    shape[axis] = 1
    first = ops.fill(initial, shape=shape, dtype=result.dtype, device=x.device)
    return ops.cat([first, result], axis=axis)


def cumulative_sum(x, /, *, axis=None, dtype=None, include_initial=False):
    """The sums of the first 1, 2, ... elements; from 0 elements on with include_initial."""
    return _cumulative(ops.cumsum, x, axis, dtype, include_initial, 0)


def cumulative_prod(x, /, *, axis=None, dtype=None, include_initial=False):
    """The products of the first 1, 2, ... elements; from 0 elements on with include_initial."""
    return _cumulative(ops.cumprod, x, axis, dtype, include_initial, 1)


# ---- Searching -----------------------------------------------------------------------------------


def _place(op, x, axis, keepdims):
    ordered = unsigned.to_ordered(x)
    if axis is not None:
        return op(ordered, axis=axes_of(x, axis)[0], keepdims=keepdims)
    found = op(ordered.reshape([-1]), axis=0, keepdims=False)
    return found.reshape([1] * x.ndim) if keepdims else found


def argmax(x, /, *, axis=None, keepdims=False):
    """Where the largest element is: the first of equal ones."""
    return _place(ops.argmax, x, axis, keepdims)


def argmin(x, /, *, axis=None, keepdims=False):
    """Where the smallest element is: the first of equal ones."""
    return _place(ops.argmin, x, axis, keepdims)


def _differs(x):
    return x if x.dtype == dtypes.bool else elementwise.not_equal(x, 0)


def count_nonzero(x, /, *, axis=None, keepdims=False):
    """How many elements differ from 0, along axes."""
    return _reduced(ops.count_nonzero, _differs(x), axis, keepdims)


def nonzero_rows(x):
    """Returns the places of the elements that differ from 0, a row for each. It waits for their
    count."""
    indices, count = ops.nonzero(_differs(x), count=True)
    return indices.slice(0, 0, int(count.item()))


def nonzero(x, /):
    """The places of the elements that differ from 0: an array of indices for each axis."""
    if x.ndim == 0:
        raise ValueError("nonzero: the array has no axes; allowed: at least one")
    rows = nonzero_rows(x)
    return tuple(rows.select(1, axis).contiguous() for axis in range(x.ndim))


def where(condition, x1, x2, /):
    """x1 where the condition holds, else x2."""
    return ops.where(condition, x1, x2)


def searchsorted(x1, x2, /, *, side="left", sorter=None):
    """Where elements of x2 have to be put so that x1, which is sorted, stays so."""
    if sorter is not None:
        x1 = ops.index_select(x1, sorter.to(dtypes.int64), axis=0)
    dtype = dtypes.result_type(x1, x2)
    a, b = (unsigned.to_ordered(x.to(dtype)) for x in (x1, x2))
    if a.dtype.bits < 32 and dtypes.is_integer(a.dtype):
        a, b = a.to(dtypes.int32), b.to(dtypes.int32)
    return ops.searchsorted(a, b.reshape([-1]), side=side).reshape(x2.shape)


def all(x, /, *, axis=None, keepdims=False):
    """Whether every element differs from 0, along axes."""
    return _reduced(ops.all, _differs(x), axis, keepdims)


def any(x, /, *, axis=None, keepdims=False):
    """Whether an element differs from 0, along axes."""
    return _reduced(ops.any, _differs(x), axis, keepdims)


def diff(x, /, *, axis=-1, n=1, prepend=None, append=None):
    """The differences of neighbours along an axis, n times."""
    parts = [part for part in (prepend, x, append) if part is not None]
    axis = axes_of(x, axis)[0]
    if len(parts) > 1:
        dtype = dtypes.result_type(*parts)
        x = ops.cat([part.to(dtype) for part in parts], axis=axis)
    for _ in range(n):
        later, earlier = x.slice(axis, 1, x.shape[axis]), x.slice(axis, 0, -1)
        x = (elementwise.not_equal if x.dtype == dtypes.bool else elementwise.subtract)(
            later, earlier)
    return x


NAMES = ("all", "any", "argmax", "argmin", "count_nonzero", "cumulative_prod", "cumulative_sum",
         "diff", "max", "mean", "min", "nonzero", "prod", "searchsorted", "std", "sum", "var",
         "where")
