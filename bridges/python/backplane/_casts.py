"""Conversions of u16, u32 and u64, which the op `copy` moves and does not convert.

They are composed of conversions of signed integers on the same bits: u16 is computed in i32, u32 in
i64, and u64 on the bits of an i64.
"""

from backplane import _core, ops

_DTYPES = {n: _core.dtype(n) for n in ("bool", "i16", "i32", "i64", "u16", "u32", "u64", "f64")}
_SAME_BITS = {"u16": "i16", "u32": "i32", "u64": "i64"}
_WIDER = {"u16": "i32", "u32": "i64", "u64": "i64"}
_TOP = 2.0**63


def is_moved(dtype):
    """Returns whether operators only move elements of the dtype."""
    return dtype.name in _SAME_BITS


def bits(x, name):
    """Returns the bits of the elements as another dtype."""
    return _core.reinterpret(x.contiguous(), _DTYPES[name])


def to_signed(x):
    """Returns the values in i32 or i64; of u64 the bits."""
    name = x.dtype.name
    signed = bits(x, _SAME_BITS[name])
    if name == "u64":
        return signed
    return ops.bitwise_and(signed.to(_DTYPES[_WIDER[name]]), 2**x.dtype.bits - 1)


def from_signed(x, dtype):
    """Returns the low bits of integers as u16, u32 or u64."""
    narrow = x.to(_DTYPES[_SAME_BITS[dtype.name]])
    return bits(narrow, dtype.name)


def _float_of_u64(x, dtype):
    """Halves what has the top bit, with the last bit kept for the rounding."""
    wide = bits(x, "i64")
    half = ops.bitwise_or(ops.bitwise_and(ops.shift_right(wide, 1), 2**63 - 1),
                          ops.bitwise_and(wide, 1))
    return ops.where(ops.lt(wide, 0), ops.mul(half.to(dtype), 2), wide.to(dtype))


def _u64_of_float(x):
    wide = x.to(_DTYPES["f64"])
    is_large = ops.ge(wide, _TOP)
    inside = ops.where(is_large, ops.sub(wide, _TOP), wide).to(_DTYPES["i64"])
    top = ops.shift_left(is_large.to(_DTYPES["i64"]), 63)
    return bits(ops.bitwise_xor(inside, top), "u64")


def cast(x, dtype):
    """Returns x as dtype, where one of the two is u16, u32 or u64."""
    if x.dtype == dtype:
        return x
    is_float = dtype.name[0] in "fb" and dtype.name != "bool"
    if is_moved(x.dtype):
        if x.dtype.name == "u64" and is_float:
            return _float_of_u64(x, dtype)
        signed = to_signed(x)
        return from_signed(signed, dtype) if is_moved(dtype) else signed.to(dtype)
    if x.dtype.name[0] in "fb" and x.dtype.name != "bool":
        if dtype.name == "u64":
            return _u64_of_float(x)
        return from_signed(x.to(_DTYPES["i64"]), dtype)
    return from_signed(x, dtype)


def text(x):
    """Returns the text of a tensor of such a dtype."""
    shown = x.tolist() if x.size <= 1000 else x.flatten().slice(0, 0, 6).tolist() + ["..."]
    return f"{shown}  {x.dtype.name} {x.shape} on {x.device}"
