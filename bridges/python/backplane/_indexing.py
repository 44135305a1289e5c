"""Indices of tensors: x[1, ..., ::-1], x[mask], x[rows, columns], and assignments to them.

Integers, slices and None give views, but for slices with a negative step. Masks and arrays of
integers give copies. A mask waits for the number of its true elements.
"""

from backplane import _core, ops

_I64 = _core.dtype("i64")


def _is_mask(item):
    return isinstance(item, bool) or isinstance(item, _core.Tensor) and item.dtype.name == "bool"


def _is_array(item):
    return isinstance(item, (_core.Tensor, list)) or isinstance(item, bool)


def _used_axes(item):
    if item is None or item is Ellipsis:
        return 0
    if isinstance(item, bool):
        return 0
    return item.ndim if _is_mask(item) else 1


def _full_key(key, x):
    """Returns a list of items that name every axis once, with Ellipsis written out."""
    key = list(key) if isinstance(key, tuple) else [key]
    from backplane._exchange import asarray
    key = [asarray(k, device=x.device) if _is_foreign(k) else k for k in key]
    used = sum(_used_axes(item) for item in key)
    if used > x.ndim:
        raise IndexError(f"an index names {used} axes; the tensor has the shape {x.shape}")
    places = [i for i, item in enumerate(key) if item is Ellipsis]
    if len(places) > 1:
        raise IndexError("an index has '...' twice; allowed: once")
    rest = [slice(None)] * (x.ndim - used)
    at = places[0] if places else len(key)
    return key[:at] + rest + key[at + len(places):]


def _is_foreign(item):
    return isinstance(item, list) or not isinstance(item, _core.Tensor) and (
        hasattr(item, "__dlpack__"))


def _index_of(item, extent, axis):
    try:
        index = item.__index__()
    except (AttributeError, TypeError):
        raise IndexError(f"an index is {type(item).__name__}; allowed: integers, slices, '...', "
                         "None, masks and arrays of integers") from None
    if not -extent <= index < extent:
        raise IndexError(f"index {index} of axis {axis} is out of range; its extent is {extent}")
    return index % extent


def _sliced(x, axis, item):
    """Returns the part of one axis, and whether it has to be turned round."""
    start, stop, step = item.indices(x.shape[axis])
    count = len(range(start, stop, step))
    if step > 0:
        return x.slice(axis, start, max(stop, start), step) if count else x.slice(axis, 0, 0), False
    last = start + (count - 1) * step
    return x.slice(axis, last, start + 1, -step) if count else x.slice(axis, 0, 0), count > 1


def _basic(x, key):
    """Applies integers, slices and None. Arrays keep their axis, or axes for a mask.

    Returns the view, the axes that have to be turned round, and the arrays by their axis."""
    axis, turned, arrays = 0, [], []
    for item in key:
        if item is None:
            x = x.unsqueeze(axis)
            axis += 1
        elif _is_array(item) and not _is_plain_integer(item):
            arrays.append((axis, item))
            axis += _used_axes(item)
        elif isinstance(item, slice):
            x, is_turned = _sliced(x, axis, item)
            turned += [axis] if is_turned else []
            axis += 1
        else:
            x = x.select(axis, _index_of(item, x.shape[axis], axis))
    return x, turned, arrays


def _is_plain_integer(item):
    return isinstance(item, _core.Tensor) and item.ndim == 0 and item.dtype.name[0] in "iu"


def _flipped(x, axes):
    for axis in axes:
        x = ops.flip(x, axis=axis)
    return x


def getitem(x, key):
    """The elements that an index names."""
    if type(key) is int:
        return x.select(0, _index_of(key, x.shape[0], 0)) if x.ndim else _no_axes(x, key)
    view, turned, arrays = _basic(x, _full_key(key, x))
    view = _flipped(view, turned)
    return _take(view, arrays) if arrays else view


def _no_axes(x, key):
    raise IndexError(f"an index is {key}, and the tensor has no axes")


# ---- Arrays --------------------------------------------------------------------------------------


class _Arrays:
    """Arrays of integers, and masks as such arrays, with the axes that they index."""

    def __init__(self, x, arrays):
        self.axes, self.indices = [], []
        for axis, item in arrays:
            for offset, index in enumerate(_integers(item, x, axis)):
                self.axes.append(axis + offset)
                self.indices.append(index)
        from backplane.array_api import broadcast_shapes
        try:
            self.shape = list(broadcast_shapes(*(i.shape for i in self.indices)))
        except ValueError as error:
            raise IndexError(str(error)) from None
        kept = [a for a in range(x.ndim) if a not in self.axes]
        # Arrays that stand side by side have their axes there, others in front.
        side_by_side = self.axes == list(range(self.axes[0], self.axes[0] + len(self.axes)))
        self.front = self.axes[0] if side_by_side else 0
        self.order = self.axes + kept
        self.extents = [x.shape[a] for a in self.axes]
        self.rest = [x.shape[a] for a in kept]

    def flat(self, device):
        """Returns the indices into the indexed axes as one."""
        place = None
        for index, extent in zip(self.indices, self.extents):
            index = ops.where(ops.lt(index, 0), ops.add(index, extent), index)
            place = index if place is None else ops.add(ops.mul(place, extent), index)
        return place.expand(self.shape).reshape([-1])

    def rows(self, x):
        """Returns x with the indexed axes as its first one, and the others as the second."""
        return x.permute(self.order).reshape([_size(self.extents), _size(self.rest)])


def _size(shape):
    size = 1
    for extent in shape:
        size *= extent
    return size


def _integers(item, x, axis):
    from backplane.array_api import _reductions
    if isinstance(item, bool):
        raise IndexError("a mask is a bool of Python; allowed: a tensor of bool")
    if not _is_mask(item):
        if item.dtype.name[0] not in "iu":
            raise IndexError(f"an index is an array of {item.dtype.name}; allowed: integers, bool")
        return [item.to(_I64)]
    extents = x.shape[axis:axis + item.ndim]
    if not all(n in (m, 0) for m, n in zip(extents, item.shape)):
        raise IndexError(f"a mask has the shape {item.shape}; allowed: "
                         f"{extents}, that of the axes that it stands for")
    rows = _reductions.nonzero_rows(item)
    return [rows.select(1, a).contiguous() for a in range(item.ndim)]


def _take(x, arrays):
    if len(arrays) == 1 and _is_mask(arrays[0][1]) and arrays[0][1].ndim == 0:
        return _take_scalar_mask(x, *arrays[0])
    a = _Arrays(x, arrays)
    taken = ops.index_select(a.rows(x), a.flat(x.device), axis=0)
    taken = taken.reshape(a.shape + a.rest)
    count = len(a.shape)
    order = list(range(count, count + a.front)) + list(range(count)) + list(
        range(count + a.front, taken.ndim))
    return taken.permute(order).contiguous()


def _take_scalar_mask(x, axis, mask):
    is_true = mask if isinstance(mask, bool) else bool(mask.item())
    return x.unsqueeze(axis).slice(axis, 0, 1 if is_true else 0).clone()


# ---- Assignments ---------------------------------------------------------------------------------


def setitem(x, key, value):
    """Writes to the elements that an index names."""
    from backplane._exchange import asarray
    view, turned, arrays = _basic(x, _full_key(key, x))
    if not isinstance(value, _core.Tensor):
        value = asarray(value, device=x.device) if not _is_python_number(value) else asarray(
            value, dtype=x.dtype, device=x.device)
    if arrays:
        return _put(view, turned, arrays, value)
    _copy(view, _flipped(value.expand(list(view.shape)), turned) if turned else value)


def _is_python_number(value):
    return isinstance(value, (bool, int, float))


def _copy(view, value):
    if value.ndim > view.ndim and _size(value.shape[:value.ndim - view.ndim]) == 1:
        value = value.reshape(value.shape[value.ndim - view.ndim:])
    view.copy_(value)


def _put(view, turned, arrays, value):
    """Writes to rows of a copy, and copies that back."""
    if len(arrays) == 1 and _is_mask(arrays[0][1]) and arrays[0][1].ndim == 0:
        mask = arrays[0][1]
        if mask if isinstance(mask, bool) else bool(mask.item()):
            _copy(view, value)
        return
    source = _flipped(view, turned)
    a = _Arrays(source, arrays)
    rows, places = a.rows(source), a.flat(view.device)
    target = a.rest[:a.front] + a.shape + a.rest[a.front:]
    count = len(a.shape)
    order = list(range(a.front, a.front + count)) + list(range(a.front)) + list(
        range(a.front + count, len(target)))
    given = value.to(view.dtype).expand(target).permute(order)
    given = given.reshape([places.size, rows.shape[1]])
    if places.size == 0 or rows.shape[1] == 0:
        return
    written = ops.scatter(rows, places.unsqueeze(1).expand(list(given.shape)), given, axis=0)
    back = [0] * len(a.order)
    for i, axis in enumerate(a.order):
        back[axis] = i
    result = written.reshape(a.extents + a.rest).permute(back)
    view.copy_(_flipped(result, turned))
