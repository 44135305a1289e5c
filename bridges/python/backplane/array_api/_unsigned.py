"""Arithmetic of u16, u32 and u64, which no operator computes in.

u16 and u32 are computed in a wider signed dtype, which holds all of their values. u64 is computed
on the same bits as i64: sums, differences and products are equal bit for bit. For comparisons, the
highest bit is turned over, so that i64 has the order of u64.
"""

from backplane import _casts, _core, ops
from backplane._exchange import asarray
from backplane.array_api import _dtypes as dtypes

_TOP_BIT = -(2**63)


def is_moved(*values):
    """Returns whether a tensor has a dtype that operators only move."""
    return any(isinstance(v, _core.Tensor) and v.dtype in dtypes.MOVED for v in values)


def to_signed(x):
    """Returns the value, or for u64 the bits, in a signed dtype."""
    return _casts.to_signed(x) if x.dtype in dtypes.MOVED else x


def from_signed(x, dtype):
    """Returns the low bits of a signed tensor as `dtype`."""
    return x.to(dtype)


def to_ordered(x):
    """Returns a tensor of a dtype that operators compare, in the same order."""
    signed = to_signed(x)
    return ops.bitwise_xor(signed, _TOP_BIT) if x.dtype == dtypes.uint64 else signed


def from_ordered(x, dtype):
    return (ops.bitwise_xor(x, _TOP_BIT) if dtype == dtypes.uint64 else x).to(dtype)


def pair(x1, x2):
    """Returns both operands as tensors of their common dtype."""
    dtype = dtypes.result_type(x1, x2)
    device = (x1 if isinstance(x1, _core.Tensor) else x2).device
    made = [x if isinstance(x, _core.Tensor) else asarray(x, dtype=dtype, device=device)
            for x in (x1, x2)]
    return made[0].to(dtype), made[1].to(dtype), dtype


def wrapping(op, x1, x2):
    """Runs an op whose low bits depend on low bits alone, such as a product."""
    a, b, dtype = pair(x1, x2)
    return from_signed(op(to_signed(a), to_signed(b)), dtype)


def choosing(op, x1, x2):
    """Runs an op whose result is one of its operands by their order, such as a maximum."""
    a, b, dtype = pair(x1, x2)
    return from_ordered(op(to_ordered(a), to_ordered(b)), dtype)


def comparing(op, x1, x2):
    a, b, _ = pair(x1, x2)
    return op(to_ordered(a), to_ordered(b))


def _divide_u64(a, b):
    """Returns quotient and rest of u64 values, which lie in i64.

    For b below 2^63 half of a is divided, and the doubled quotient is at most 1 too small. For a
    larger b the quotient is 0 or 1.
    """
    at_least = lambda p, q: ops.ge(ops.bitwise_xor(p, _TOP_BIT), ops.bitwise_xor(q, _TOP_BIT))
    half = ops.bitwise_and(ops.shift_right(a, 1), 2**63 - 1)
    guess = ops.shift_left(ops.floor_divide(half, ops.where(ops.lt(b, 0), 1, b)), 1)
    guess = ops.where(ops.lt(b, 0), 0, guess)
    rest = ops.sub(a, ops.mul(guess, b))
    is_short = at_least(rest, b).to(dtypes.int64)
    return ops.add(guess, is_short), ops.sub(rest, ops.mul(is_short, b))


def divided(x1, x2, wants_rest):
    a, b, dtype = pair(x1, x2)
    if dtype != dtypes.uint64:
        op = ops.remainder if wants_rest else ops.floor_divide
        return from_signed(op(to_signed(a), to_signed(b)), dtype)
    return from_signed(_divide_u64(to_signed(a), to_signed(b))[wants_rest], dtype)


def shifted_right(x1, x2):
    """Shifts in zeros, also for u64."""
    a, b, dtype = pair(x1, x2)
    x, n = to_signed(a), to_signed(b)
    if dtype != dtypes.uint64:
        return from_signed(ops.shift_right(x, n), dtype)
    # The first place is shifted alone, and cleared: what is left is not below 0.
    once = ops.bitwise_and(ops.shift_right(x, 1), 2**63 - 1)
    moved = ops.shift_right(once, ops.sub(n, 1))
    return from_signed(ops.where(ops.eq(n, 0), x, moved), dtype)
