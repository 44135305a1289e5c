"""Sorting, and sets of the elements of an array."""

import collections

from backplane import ops
from backplane.array_api import _dtypes as dtypes
from backplane.array_api import _unsigned as unsigned


def sort(x, /, *, axis=-1, descending=False, stable=True):
    """The elements in order along an axis. NaN is larger than every number."""
    ordered = ops.sort(unsigned.to_ordered(x), axis=axis, is_descending=descending)
    return unsigned.from_ordered(ordered, x.dtype)


def argsort(x, /, *, axis=-1, descending=False, stable=True):
    """Where the elements in order along an axis are."""
    return ops.sort(unsigned.to_ordered(x), axis=axis, is_descending=descending, indices=True)[1]


AllResult = collections.namedtuple("AllResult", "values indices inverse_indices counts")
CountsResult = collections.namedtuple("CountsResult", "values counts")
InverseResult = collections.namedtuple("InverseResult", "values inverse_indices")


def _groups(x):
    """Returns the elements in order, where they were, and where a new value begins. NaN differs
    from NaN, and -0 equals 0."""
    flat = x.reshape([-1])
    ordered, places = ops.sort(unsigned.to_ordered(flat), axis=0, indices=True)
    if flat.size == 0:
        return flat, places, ops.fill(False, shape=[0], dtype=dtypes.bool, device=x.device)
    differs = ops.ne(ordered.slice(0, 1, flat.size), ordered.slice(0, 0, -1))
    first = ops.fill(True, shape=[1], dtype=dtypes.bool, device=x.device)
    return unsigned.from_ordered(ordered, x.dtype), places, ops.cat([first, differs], axis=0)


def unique_all(x, /):
    """The values in order, where each is first, which value each element has, and the counts."""
    values, places, begins = _groups(x)
    count = values.size
    if count == 0:
        none = places.slice(0, 0, 0)
        return AllResult(values, none, none.reshape(x.shape), none)
    picked = _picked(begins)
    numbers = ops.sub(ops.cumsum(begins.to(dtypes.int64), axis=0), 1)
    inverse = ops.scatter(ops.fill(0, shape=[count], dtype=dtypes.int64, device=x.device), places,
                          numbers, axis=0)
    end = ops.fill(count, shape=[1], dtype=dtypes.int64, device=x.device)
    ends = ops.cat([picked.slice(0, 1, picked.size), end], axis=0)
    return AllResult(ops.index_select(values, picked, axis=0),
                     ops.index_select(places, picked, axis=0), inverse.reshape(x.shape),
                     ops.sub(ends, picked))


def _picked(begins):
    """Returns where a mask of one axis is true. It waits for the count."""
    indices, count = ops.nonzero(begins, count=True)
    return indices.slice(0, 0, int(count.item())).select(1, 0).contiguous()


def unique_counts(x, /):
    """The values in order, and how often each occurs."""
    found = unique_all(x)
    return CountsResult(found.values, found.counts)


def unique_inverse(x, /):
    """The values in order, and which value each element has."""
    found = unique_all(x)
    return InverseResult(found.values, found.inverse_indices)


def unique_values(x, /):
    """The values in order."""
    values, _, begins = _groups(x)
    return ops.index_select(values, _picked(begins), axis=0) if values.size else values


NAMES = ("argsort", "sort", "unique_all", "unique_counts", "unique_inverse", "unique_values")
