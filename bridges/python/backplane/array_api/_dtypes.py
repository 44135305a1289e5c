"""Dtypes of the standard, their limits, and which dtype holds the values of two."""

import dataclasses
import functools

from backplane import _core

bool = _core.dtype("bool")
int8, int16, int32, int64 = (_core.dtype(f"i{bits}") for bits in (8, 16, 32, 64))
uint8, uint16, uint32, uint64 = (_core.dtype(f"u{bits}") for bits in (8, 16, 32, 64))
float32, float64 = _core.dtype("f32"), _core.dtype("f64")

DTYPES = {"bool": bool, "int8": int8, "int16": int16, "int32": int32, "int64": int64,
          "uint8": uint8, "uint16": uint16, "uint32": uint32, "uint64": uint64,
          "float32": float32, "float64": float64}

SIGNED = (int8, int16, int32, int64)
UNSIGNED = (uint8, uint16, uint32, uint64)
# The dtypes that operators do not compute in, but only move.
MOVED = (uint16, uint32, uint64)


def is_float(dtype):
    return dtype.name[0] in "fb" and dtype != bool


def is_integer(dtype):
    return dtype.name[0] in "iu"


def default_dtype_of(value):
    """Returns the dtype of a number of Python that stands alone."""
    if value is True or value is False:
        return bool
    return int64 if hasattr(value, "__index__") else float32


@functools.lru_cache(maxsize=None)
def _promote(a, b):
    if a == b or b == bool:
        return a
    if a == bool:
        return b
    if is_float(a) != is_float(b):
        return a if is_float(a) else b
    if is_float(a):
        return _core.dtype("f32") if {a.name, b.name} == {"f16", "bf16"} else max(
            a, b, key=lambda d: d.bits)
    if a.name[0] == b.name[0]:
        return max(a, b, key=lambda d: d.bits)
    signed, unsigned = (a, b) if a.name[0] == "i" else (b, a)
    if unsigned.bits == 64:
        return None
    return signed if signed.bits > unsigned.bits else _core.dtype(f"i{2 * unsigned.bits}")


def promote(a, b):
    result = _promote(a, b)
    if result is None:
        raise TypeError(f"no dtype holds the values of {a.name} and {b.name}; cast one of them")
    return result


def _weak(dtype, value):
    """Returns the dtype of a tensor beside a number of Python."""
    if not isinstance(value, type(True)) and hasattr(value, "__index__"):
        return int64 if dtype == bool else dtype
    if isinstance(value, type(True)):
        return dtype
    return dtype if is_float(dtype) else float32


def _is_number(value):
    return isinstance(value, (int, float)) or (
        not isinstance(value, (_core.Tensor, _core.DType)) and hasattr(value, "__float__"))


def result_type(*arrays_and_dtypes):
    """The dtype that holds the values of all arrays and dtypes. Numbers of Python follow them."""
    dtypes = [v.dtype if isinstance(v, _core.Tensor) else _core.dtype(v)
              for v in arrays_and_dtypes if not _is_number(v)]
    if not dtypes:
        raise ValueError("result_type: numbers alone have no dtype; give an array or a dtype")
    result = functools.reduce(promote, dtypes)
    for value in arrays_and_dtypes:
        if _is_number(value):
            result = _weak(result, value)
    return result


def can_cast(from_, to, /):
    """Whether every value of a dtype, or of the dtype of an array, fits the dtype `to`."""
    dtype = from_.dtype if isinstance(from_, _core.Tensor) else _core.dtype(from_)
    to = _core.dtype(to)
    if is_float(to) != is_float(dtype) and dtype != bool:
        return False
    return _promote(dtype, to) == to


def astype(x, dtype, /, *, copy=True, device=None):
    """The array as another dtype. With copy=False it is the array itself where nothing changes."""
    result = x.to(_core.dtype(dtype))
    if device is not None:
        result = result.to(device if isinstance(device, _core.Device) else _core.Device(device))
    return result.clone() if copy and result is x or copy and _is_same(result, x) else result


def _is_same(a, b):
    return a.dtype == b.dtype and a.device == b.device


_KINDS = {
    "bool": (bool,),
    "signed integer": SIGNED,
    "unsigned integer": UNSIGNED,
    "integral": SIGNED + UNSIGNED,
    "real floating": (float32, float64, _core.dtype("f16"), _core.dtype("bf16")),
    "complex floating": (),
}
_KINDS["numeric"] = _KINDS["integral"] + _KINDS["real floating"]


def isdtype(dtype, kind):
    """Whether a dtype is of a kind, such as 'integral', is a dtype, or is one of a tuple."""
    if isinstance(kind, tuple):
        return any(isdtype(dtype, k) for k in kind)
    if isinstance(kind, str):
        if kind not in _KINDS:
            raise ValueError(f"isdtype: kind is '{kind}'; allowed: {', '.join(_KINDS)}")
        return dtype in _KINDS[kind]
    return dtype == kind


@dataclasses.dataclass(frozen=True)
class finfo_object:
    """The limits of a dtype of floats."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: object


@dataclasses.dataclass(frozen=True)
class iinfo_object:
    """The limits of a dtype of integers."""

    bits: int
    max: int
    min: int
    dtype: object


# Bits of the mantissa behind the point, and the largest exponent.
_FLOATS = {"f64": (52, 1023), "f32": (23, 127), "f16": (10, 15), "bf16": (7, 127)}


def finfo(type, /):
    """The limits of a dtype of floats, or of the dtype of an array."""
    dtype = type.dtype if isinstance(type, _core.Tensor) else _core.dtype(type)
    if dtype.name not in _FLOATS:
        raise TypeError(f"finfo: {dtype.name} is no dtype of floats; allowed: "
                        f"{', '.join(_FLOATS)}")
    mantissa, exponent = _FLOATS[dtype.name]
    largest = (2.0 - 2.0**-mantissa) * 2.0**exponent
    return finfo_object(dtype.bits, 2.0**-mantissa, largest, -largest, 2.0 ** (1 - exponent), dtype)


def iinfo(type, /):
    """The limits of a dtype of integers, or of the dtype of an array."""
    dtype = type.dtype if isinstance(type, _core.Tensor) else _core.dtype(type)
    if not is_integer(dtype):
        raise TypeError(f"iinfo: {dtype.name} is no dtype of integers")
    if dtype.name[0] == "u":
        return iinfo_object(dtype.bits, 2**dtype.bits - 1, 0, dtype)
    return iinfo_object(dtype.bits, 2 ** (dtype.bits - 1) - 1, -(2 ** (dtype.bits - 1)), dtype)
