"""Functions of the library mpmath (Debian: python3-mpmath) as functions of Decimals, for the tests
of formulas. Results at zeros, infinities and NaN are those of C. Nothing else needs the library, so
it is imported by the first call.
"""

import decimal
import math

_BITS = 400  # Of what mpmath computes, many more than a test compares.
_NAN = decimal.Decimal("NaN")


def _of_one(mp):
    """Returns the functions of one number that mpmath has under another name, or not at all."""
    return {
        "exp2": lambda x: mp.power(2, x),
        "log2": lambda x: -mp.inf if x == 0 else mp.log(x) / mp.log(2),
        "log10": lambda x: -mp.inf if x == 0 else mp.log(x) / mp.log(10),
        "log1p": lambda x: -mp.inf if x == -1 else mp.log1p(x),
        "atanh": lambda x: x * mp.inf if abs(x) == 1 else mp.atanh(x),
        # mpmath does not know when the result has no more digits.
        "erfc": lambda x: mp.mpf(0 if x > 0 else 2) if abs(x) > 1e6 else mp.erfc(x),
        # Subnormal arguments need more bits than mpmath takes by itself.
        "expm1": lambda x: x + x * x / 2 if abs(x) < mp.mpf(2)**-200 else mp.expm1(x),
    }


def _to_decimal(value):
    sign, man, exp, _ = value._mpf_  # pylint: disable=protected-access
    if not man:
        return decimal.Decimal(float(value))  # 0, infinite or NaN.
    return decimal.Decimal(-int(man) if sign else int(man)) * decimal.Decimal(2)**exp


def of_one(name):
    """Returns the function `name` of one Decimal."""
    def call(x):
        import mpmath  # pylint: disable=import-outside-toplevel

        if x.is_nan():
            return x
        with mpmath.workprec(_BITS):
            function = _of_one(mpmath).get(name) or getattr(mpmath, name)
            value = function(mpmath.mpf(str(x) if x.is_finite() else float(x)))
            if isinstance(value, mpmath.mpc):
                return _NAN
            if value == 0:
                return decimal.Decimal(0).copy_sign(x if name not in ("acosh", "acos") else 0)
            return _to_decimal(value)
    return call


def hypot(a, b):
    """Returns the root of a^2 + b^2."""
    if a.is_infinite() or b.is_infinite():
        return decimal.Decimal("Infinity")
    return (a * a + b * b).sqrt()


def atan2(y, x):
    """Returns the angle of the point (x, y) of finite coordinates."""
    import mpmath  # pylint: disable=import-outside-toplevel

    if y.is_nan() or x.is_nan():
        return _NAN
    if y == 0 and not x.is_signed():
        return y
    with mpmath.workprec(_BITS):
        angle = abs(mpmath.atan2(mpmath.mpf(float(y.copy_abs())), mpmath.mpf(float(x))))
        return _to_decimal(angle if x != 0 or y != 0 else mpmath.pi + 0).copy_sign(y)


def pow(a, b):  # pylint: disable=redefined-builtin
    """Returns a to the power b."""
    import mpmath  # pylint: disable=import-outside-toplevel

    low, high = float(a), float(b)
    is_odd = math.isfinite(high) and math.fmod(high, 2) in (1, -1)
    if low == 0 and high < 0:
        return decimal.Decimal("Infinity").copy_sign(a if is_odd else 0)
    if not (math.isfinite(low) and math.isfinite(high)) or low == 0:
        return decimal.Decimal(math.pow(low, high))
    with mpmath.workprec(_BITS):
        value = mpmath.power(mpmath.mpf(low), mpmath.mpf(high))
        return _NAN if isinstance(value, mpmath.mpc) else _to_decimal(value + 0)


def fmod(a, b):
    """Returns a minus b times the quotient without its fraction, with the sign of a."""
    if a.is_nan() or b.is_nan() or a.is_infinite() or b == 0:
        return _NAN
    return decimal.Decimal(math.fmod(float(a), float(b)))


def modulo(a, b):
    """Returns a minus b times the quotient rounded down, with the sign of b unless it is 0."""
    rest = fmod(a, b)
    return rest if rest.is_nan() or rest == 0 or rest.is_signed() == b.is_signed() else rest + b


def floor_quotient(a, b):
    """Returns a / b, rounded down."""
    if a.is_finite() and b.is_finite() and b != 0:
        with decimal.localcontext(decimal.Context(prec=1000)):
            return (a / b).to_integral_value(rounding=decimal.ROUND_FLOOR)
    return (a / b).to_integral_value(rounding=decimal.ROUND_FLOOR)
