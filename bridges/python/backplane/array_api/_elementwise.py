"""Element-wise functions. Most are one operator of the library; the tables say which."""

from backplane import _core, ops
from backplane._errors import InvalidArgument, Unsupported
from backplane.array_api import _dtypes as dtypes
from backplane.array_api import _unsigned as unsigned

_BITS = {dtypes.float32: dtypes.int32, dtypes.float64: dtypes.int64}

# The functions of one float.
_FLOAT_UNARY = {
    "acos": "acos", "acosh": "acosh", "asin": "asin", "asinh": "asinh", "atan": "atan",
    "atanh": "atanh", "cos": "cos", "cosh": "cosh", "exp": "exp", "expm1": "expm1", "log": "log",
    "log1p": "log1p", "log2": "log2", "log10": "log10", "reciprocal": "reciprocal", "sin": "sin",
    "sinh": "sinh", "sqrt": "sqrt", "tan": "tan", "tanh": "tanh",
}
_ROUNDING = ("ceil", "floor", "round", "trunc")
_TESTS = {"isfinite": True, "isinf": False, "isnan": False}  # With the answer for integers.

# The functions of two, with what they do for unsigned integers that operators only move.
_BINARY = {
    "add": ("add", unsigned.wrapping),
    "subtract": ("sub", unsigned.wrapping),
    "multiply": ("mul", unsigned.wrapping),
    "divide": ("div", None),
    "atan2": ("atan2", None),
    "hypot": ("hypot", None),
    "maximum": ("maximum", unsigned.choosing),
    "minimum": ("minimum", unsigned.choosing),
    "equal": ("eq", unsigned.comparing),
    "not_equal": ("ne", unsigned.comparing),
    "less": ("lt", unsigned.comparing),
    "less_equal": ("le", unsigned.comparing),
    "greater": ("gt", unsigned.comparing),
    "greater_equal": ("ge", unsigned.comparing),
    "bitwise_and": ("bitwise_and", unsigned.wrapping),
    "bitwise_or": ("bitwise_or", unsigned.wrapping),
    "bitwise_xor": ("bitwise_xor", unsigned.wrapping),
    "bitwise_left_shift": ("shift_left", unsigned.wrapping),
    "bitwise_right_shift": ("shift_right", lambda _, a, b: unsigned.shifted_right(a, b)),
    "floor_divide": ("floor_divide", lambda _, a, b: unsigned.divided(a, b, False)),
    "logical_and": ("logical_and", None),
    "logical_or": ("logical_or", None),
    "logical_xor": ("logical_xor", None),
}


def _documented(function, name, op):
    function.__name__ = function.__qualname__ = name
    function.__module__ = "backplane.array_api"
    function.__doc__ = f"{ops.describe(op)['doc']} This is the function `{name}` of the standard."
    return function


def _unary_function(name, op_name):
    op = ops.get(op_name)

    def function(x, /):
        return op(x)
    return _documented(function, name, op_name)


def _rounding_function(name):
    op = ops.get(name)

    def function(x, /):
        return x.clone() if dtypes.is_integer(x.dtype) else op(x)
    return _documented(function, name, name)


def _test_function(name, answer):
    op = ops.get(name)

    def function(x, /):
        if dtypes.is_integer(x.dtype):
            return ops.fill(answer, shape=x.shape, dtype=dtypes.bool, device=x.device)
        return op(x)
    return _documented(function, name, name)


def _binary_function(name, op_name, for_unsigned):
    op = ops.get(op_name)

    def function(x1, x2, /):
        try:
            return op(x1, x2)
        except (InvalidArgument, Unsupported):
            if for_unsigned is None or not unsigned.is_moved(x1, x2):
                raise
            return for_unsigned(op, x1, x2)
    return _documented(function, name, op_name)


for _name, _op in _FLOAT_UNARY.items():
    globals()[_name] = _unary_function(_name, _op)
for _name in _ROUNDING:
    globals()[_name] = _rounding_function(_name)
for _name, _answer in _TESTS.items():
    globals()[_name] = _test_function(_name, _answer)
for _name, (_op, _unsigned) in _BINARY.items():
    globals()[_name] = _binary_function(_name, _op, _unsigned)


def remainder(x1, x2, /):
    """The rest of x1 / x2 with the sign of x2, also where it is 0."""
    if unsigned.is_moved(x1, x2):
        return unsigned.divided(x1, x2, True)
    rest = ops.remainder(x1, x2)
    if not dtypes.is_float(rest.dtype):
        return rest
    if not isinstance(x2, _core.Tensor):
        zero = -0.0 if x2 < 0 else 0.0
    else:
        below = ops.fill(-0.0, shape=(), dtype=rest.dtype, device=rest.device)
        zero = ops.where(ops.lt(x2, 0), below, 0.0)
    return ops.where(ops.eq(rest, 0), zero, rest)


def abs(x, /):
    """The absolute value of each element."""
    return x.clone() if x.dtype in dtypes.UNSIGNED else ops.abs(x)


def positive(x, /):
    """A copy of the array."""
    return x.clone()


def negative(x, /):
    """The negative of each element. Integers wrap."""
    if x.dtype in dtypes.MOVED:
        return unsigned.from_signed(ops.neg(unsigned.to_signed(x)), x.dtype)
    return ops.neg(x)


def sign(x, /):
    """-1, 0 or 1 for each element; NaN for NaN."""
    if x.dtype in dtypes.UNSIGNED:
        return not_equal(x, 0).to(x.dtype)
    if not dtypes.is_float(x.dtype):
        return ops.sign(x)
    return ops.where(ops.isnan(x), x, ops.add(ops.sign(x), 0.0))  # -0 + 0 is 0.


def square(x, /):
    """The square of each element. Integers wrap."""
    return multiply(x, x)


def logical_not(x, /):
    """Whether each element is false."""
    return ops.logical_not(x)


def bitwise_invert(x, /):
    """Each element with all of its bits turned over."""
    if x.dtype == dtypes.bool:
        return ops.logical_not(x)
    if x.dtype in dtypes.MOVED:
        return unsigned.from_signed(ops.bitwise_not(unsigned.to_signed(x)), x.dtype)
    return ops.bitwise_not(x)


def conj(x, /):
    """The conjugate of each element: the array itself, as it is not complex."""
    return x.clone()


def real(x, /):
    """The real part of each element: the array itself, as it is not complex."""
    return x.clone()


def imag(x, /):
    """The imaginary part of each element, which is 0, as the array is not complex."""
    return ops.fill(0, shape=x.shape, dtype=x.dtype, device=x.device)


def clip(x, /, min=None, max=None):
    """Each element, or the nearest of the two bounds where it lies outside of them."""
    bounds = [b for b in (min, max) if b is not None]
    dtype = x.dtype
    for bound in bounds:
        if isinstance(bound, _core.Tensor):
            dtype = dtypes.promote(dtype, bound.dtype)
    result = x.to(dtype)
    if min is not None:
        result = maximum(result, _bound(min, dtype, x.device))
    if max is not None:
        result = minimum(result, _bound(max, dtype, x.device))
    return result if bounds else x.clone()


def _bound(value, dtype, device):
    """A bound beyond the integers of the dtype is the nearest of them."""
    if isinstance(value, _core.Tensor) or dtypes.is_float(dtype):
        return value
    info = dtypes.iinfo(dtype)
    limited = info.min if value < info.min else info.max if value > info.max else value
    return ops.fill(int(limited), shape=(), dtype=dtype, device=device)


# ---- Powers --------------------------------------------------------------------------------------


def _integer_pow(x1, x2):
    """Squares and multiplies: one product for each bit of the largest exponent."""
    base, exponent, dtype = unsigned.pair(x1, x2)
    base, exponent, _ = unsigned.to_signed(base), unsigned.to_signed(exponent), dtype
    shape = ops.add(base, exponent).shape
    power = ops.fill(1, shape=shape, dtype=base.dtype, device=base.device)
    steps = 0 if exponent.size == 0 else _bit_length(exponent, dtype)
    for _ in range(steps):
        is_odd = ops.ne(ops.bitwise_and(exponent, 1), 0)
        power = ops.where(is_odd, ops.mul(power, base), power)
        base, exponent = ops.mul(base, base), ops.shift_right(exponent, 1)
    return unsigned.from_signed(power, dtype)


def _bit_length(exponent, dtype):
    flat = exponent.flatten()
    lowest, largest = (int(op(flat, axes=0).item()) for op in (ops.amin, ops.amax))
    if dtype == dtypes.uint64 and lowest < 0:
        return 64
    if lowest < 0:
        raise ValueError(f"pow: an exponent is {lowest}; allowed: integers from 0 on, or floats")
    return largest.bit_length()


def pow(x1, x2, /):
    """x1 to the power of x2."""
    if dtypes.is_integer(dtypes.result_type(x1, x2)):
        return _integer_pow(x1, x2)
    return ops.pow(x1, x2)


def logaddexp(x1, x2, /):
    """log(exp(x1) + exp(x2)), without an overflow."""
    largest = ops.maximum(x1, x2)
    rest = ops.log1p(ops.exp(ops.neg(ops.abs(ops.sub(x1, x2)))))
    return ops.where(ops.eq(x1, x2), ops.add(largest, 0.6931471805599453), ops.add(largest, rest))


# ---- Bits of floats ------------------------------------------------------------------------------


def _bits(x):
    if x.dtype not in _BITS:
        raise TypeError(f"the dtype is {x.dtype.name}; allowed: f32 and f64")
    return _core.reinterpret(x.detach().contiguous(), _BITS[x.dtype])


def signbit(x, /):
    """Whether the sign bit of each element is set, also of -0 and NaN."""
    return ops.lt(_bits(x), 0)


def _float_pair(x1, x2):
    a, b, dtype = unsigned.pair(x1, x2)
    shape = ops.add(a, b).shape
    return a.expand(shape), b.expand(shape), dtype


def copysign(x1, x2, /):
    """The magnitude of x1 with the sign of x2."""
    a, b, dtype = _float_pair(x1, x2)
    lowest = -(2 ** (dtype.bits - 1))
    bits = ops.bitwise_or(ops.bitwise_and(_bits(a), ~lowest), ops.bitwise_and(_bits(b), lowest))
    return _core.reinterpret(bits, dtype)


def nextafter(x1, x2, /):
    """The next float behind x1 in the direction of x2."""
    a, b, dtype = _float_pair(x1, x2)
    lowest = -(2 ** (dtype.bits - 1))
    bits = _bits(a)
    # The magnitude grows by 1 in the direction away from 0.
    is_outward = ops.eq(ops.gt(b, a), ops.ge(bits, 0))
    moved = ops.add(bits, ops.sub(ops.mul(is_outward.to(bits.dtype), 2), 1))
    smallest = ops.bitwise_or(ops.bitwise_and(_bits(b), lowest), 1)
    moved = ops.where(ops.eq(a, 0), smallest, moved)
    result = ops.where(ops.eq(a, b), b, _core.reinterpret(moved, dtype))
    return ops.where(ops.logical_or(ops.isnan(a), ops.isnan(b)), ops.add(a, b), result)


NAMES = (*_FLOAT_UNARY, *_ROUNDING, *_TESTS, *_BINARY, "remainder", "abs", "positive", "negative",
         "sign", "square", "logical_not", "bitwise_invert", "conj", "real", "imag", "clip", "pow",
         "logaddexp", "signbit", "copysign", "nextafter")
