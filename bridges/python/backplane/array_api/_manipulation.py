"""Functions that move elements, and products of matrices."""

import functools

from backplane import ops
from backplane.array_api import _dtypes as dtypes
from backplane.array_api import _elementwise as elementwise
from backplane.array_api import _reductions as reductions
from backplane.array_api import _unsigned as unsigned


def _axis(x, axis, more=0):
    """Returns an axis from 0 on, of an array with `more` axes more."""
    rank = x.ndim + more
    if not -rank <= axis < rank:
        raise IndexError(f"axis is {axis}; allowed: {-rank} <= axis < {rank}")
    return axis % rank


def broadcast_shapes(*shapes):
    """The shape to which all shapes broadcast."""
    result = []
    for shape in shapes:
        result = [1] * (len(shape) - len(result)) + result
        for back in range(1, len(shape) + 1):
            extent = shape[-back]
            if extent != 1 and result[-back] not in (1, extent):
                raise ValueError(f"the shapes {shapes} do not broadcast; allowed: extents that, "
                                 "from the last one, are equal or 1")
            result[-back] = extent if result[-back] == 1 else result[-back]
    return tuple(result)


def broadcast_to(x, /, shape):
    """The array in a larger shape, without a copy: do not write to the result."""
    return x.expand(list(shape))


def broadcast_arrays(*arrays):
    """The arrays in one shape, without copies: do not write to the results."""
    shape = broadcast_shapes(*(x.shape for x in arrays))
    return [broadcast_to(x, shape) for x in arrays]


def concat(arrays, /, *, axis=0):
    """The arrays behind each other along an axis. None: each as one axis."""
    arrays = list(arrays)
    if axis is None:
        arrays, axis = [x.reshape([-1]) for x in arrays], 0
    dtype = dtypes.result_type(*arrays)
    return ops.cat([x.to(dtype) for x in arrays], axis=axis)


def stack(arrays, /, *, axis=0):
    """The arrays along a new axis."""
    arrays = list(arrays)
    axis = _axis(arrays[0], axis, 1)
    return concat([x.unsqueeze(axis) for x in arrays], axis=axis)


def unstack(x, /, *, axis=0):
    """The parts of an array along an axis, without the axis."""
    axis = _axis(x, axis)
    return tuple(x.select(axis, i) for i in range(x.shape[axis]))


def expand_dims(x, /, axis):
    """The array with a new axis of extent 1, without a copy."""
    return x.unsqueeze(_axis(x, axis, 1))


def squeeze(x, /, axis):
    """The array without the named axes, whose extents are 1."""
    axes = [axis] if hasattr(axis, "__index__") else list(axis)
    axes = sorted((_axis(x, a) for a in axes), reverse=True)
    for a in axes:
        if x.shape[a] != 1:
            raise ValueError(f"squeeze: axis {a} has the extent {x.shape[a]}; allowed: 1")
    return functools.reduce(lambda t, a: t.squeeze(a), axes, x)


def flip(x, /, *, axis=None):
    """The array in reverse order along axes."""
    axes = reductions.axes_of(x, axis)
    return functools.reduce(lambda t, a: ops.flip(t, axis=a), axes, x.clone())


def moveaxis(x, source, destination, /):
    """The array with axes at other places, without a copy."""
    sources = [_axis(x, a) for a in reductions.axes_of(x, source)]
    places = [_axis(x, a) for a in reductions.axes_of(x, destination)]
    order = [a for a in range(x.ndim) if a not in sources]
    for place, a in sorted(zip(places, sources)):
        order.insert(place, a)
    return x.permute(order)


def permute_dims(x, /, axes):
    """The array with its axes in another order, without a copy."""
    return x.permute(list(axes))


def reshape(x, /, shape, *, copy=None):
    """The array in another shape; without a copy where strides allow it, unless copy=True."""
    if copy is False:
        return x.view(list(shape))
    return x.clone().view(list(shape)) if copy else x.reshape(list(shape))


def roll(x, /, shift, *, axis=None):
    """The array moved along axes; what leaves at one end comes back at the other."""
    if axis is None:
        return roll(x.reshape([-1]), shift, axis=0).reshape(x.shape) if x.size else x.clone()
    axes = reductions.axes_of(x, axis)
    shifts = [shift] * len(axes) if hasattr(shift, "__index__") else list(shift)
    moves = zip(axes, shifts)
    return functools.reduce(lambda t, m: ops.roll(t, shift=m[1], axis=m[0]), moves, x.clone())


def tile(x, repetitions, /):
    """The array repeated along its axes, and along new ones in front."""
    counts = list(repetitions)
    counts = [1] * (x.ndim - len(counts)) + counts
    x = x.reshape([1] * (len(counts) - x.ndim) + list(x.shape))
    return functools.reduce(lambda t, p: _tiled(t, *p), enumerate(counts), x.clone())


def _tiled(x, axis, count):
    if count == 0:
        return x.slice(axis, 0, 0).clone()
    return x if count == 1 else ops.tile(x, count=count, axis=axis)


def repeat(x, repeats, /, *, axis=None):
    """Each element repeated along an axis, where it stands."""
    if axis is None:
        x, axis = x.reshape([-1]), 0
    axis = _axis(x, axis)
    extent = x.shape[axis]
    if hasattr(repeats, "shape"):
        counts = repeats.to(dtypes.int64).expand([extent])
        ends = ops.cumsum(counts, axis=0) if extent else counts
        total = int(ends.select(0, extent - 1).item()) if extent else 0
        places = ops.arange(start=0, step=1, shape=[total], dtype=dtypes.int64, device=x.device)
        return ops.index_select(x, ops.searchsorted(ends, places, side="right"), axis=axis)
    grown = x.unsqueeze(axis + 1)
    shape = list(grown.shape)
    shape[axis + 1] = int(repeats)
    total = extent * int(repeats)
    return grown.expand(shape).reshape([*x.shape[:axis], total, *x.shape[axis + 1:]])


# ---- Taking --------------------------------------------------------------------------------------


def _from_front(indices, extent):
    """Returns indices of i64, those below 0 counted from the end."""
    indices = unsigned.to_signed(indices).to(dtypes.int64)
    return ops.where(ops.lt(indices, 0), ops.add(indices, extent), indices)


def take(x, indices, /, *, axis=None):
    """The elements at indices along an axis."""
    axis = _axis(x, 0 if axis is None and x.ndim == 1 else axis)
    flat = ops.index_select(x, _from_front(indices, x.shape[axis]).reshape([-1]), axis=axis)
    return flat.reshape([*x.shape[:axis], *indices.shape, *x.shape[axis + 1:]])


def take_along_axis(x, indices, /, *, axis=-1):
    """The elements at indices along an axis, with indices of their own for each line."""
    axis = _axis(x, axis)
    indices = _from_front(indices, x.shape[axis])
    lines = broadcast_shapes(*([n if a != axis else 1 for a, n in enumerate(t.shape)]
                               for t in (x, indices)))
    shapes = [[t.shape[axis] if a == axis else n for a, n in enumerate(lines)]
              for t in (x, indices)]
    return ops.gather(x.expand(shapes[0]), indices.expand(shapes[1]), axis=axis)


# ---- Matrices ------------------------------------------------------------------------------------


def matrix_transpose(x, /):
    """The array with its last two axes swapped, without a copy."""
    if x.ndim < 2:
        raise ValueError(f"matrix_transpose: the array has {x.ndim} axes; allowed: from 2 on")
    return x.transpose(-2, -1)


def _product(a, b):
    """Multiplies the last two axes. Integers wrap in their dtype."""
    dtype = dtypes.result_type(a, b)
    lead = broadcast_shapes(a.shape[:-2], b.shape[:-2])
    signed = [unsigned.to_signed(x.to(dtype)).expand([*lead, *x.shape[-2:]]) for x in (a, b)]
    return unsigned.from_signed(ops.matmul(*signed), dtype)


def matmul(x1, x2, /):
    """The product of matrices, or of a matrix and a vector."""
    if x1.ndim == 0 or x2.ndim == 0:
        raise ValueError("matmul: an array has no axes; allowed: at least one")
    a = x1.unsqueeze(0) if x1.ndim == 1 else x1
    b = x2.unsqueeze(1) if x2.ndim == 1 else x2
    if a.shape[-1] != b.shape[-2]:
        raise ValueError(f"matmul: the shapes are {x1.shape} and {x2.shape}; allowed: a second one "
                         f"with {a.shape[-1]} rows")
    result = _product(a, b)
    if x1.ndim == 1:
        result = result.squeeze(-2)
    return result.squeeze(-1) if x2.ndim == 1 else result


def tensordot(x1, x2, /, *, axes=2):
    """The sum of products over pairs of axes: so many last and first ones, or two lists."""
    if hasattr(axes, "__index__"):
        count = int(axes)
        first, second = list(range(x1.ndim - count, x1.ndim)), list(range(count))
    else:
        first, second = ([_axis(x, a) for a in given] for x, given in zip((x1, x2), axes))
    kept = [[a for a in range(x.ndim) if a not in used] for x, used in ((x1, first), (x2, second))]
    rows = [x1.shape[a] for a in kept[0]]
    columns = [x2.shape[a] for a in kept[1]]
    inner = [x1.shape[a] for a in first]
    if inner != [x2.shape[a] for a in second]:
        raise ValueError(f"tensordot: the axes {first} of {x1.shape} and {second} of {x2.shape} "
                         "differ; allowed: equal extents")
    size = lambda shape: functools.reduce(lambda p, n: p * n, shape, 1)
    a = x1.permute(kept[0] + first).reshape([size(rows), size(inner)])
    b = x2.permute(second + kept[1]).reshape([size(inner), size(columns)])
    return _product(a, b).reshape(rows + columns)


def vecdot(x1, x2, /, *, axis=-1):
    """The sum of products along an axis."""
    dtype = dtypes.result_type(x1, x2)
    a, b = (x.permute([i for i in range(x.ndim) if i != axis % x.ndim] + [axis % x.ndim]).to(dtype)
            for x in (x1, x2))
    if a.shape[-1] != b.shape[-1]:
        raise ValueError(f"vecdot: axis {axis} has the extents {a.shape[-1]} and {b.shape[-1]}; "
                         "allowed: equal ones")
    products = elementwise.multiply(a, b)
    return reductions.sum(products, axis=-1, dtype=dtype)


NAMES = ("broadcast_arrays", "broadcast_shapes", "broadcast_to", "concat", "expand_dims", "flip",
         "matmul", "matrix_transpose", "moveaxis", "permute_dims", "repeat", "reshape", "roll",
         "squeeze", "stack", "take", "take_along_axis", "tensordot", "tile", "unstack", "vecdot")
