"""The primitives of `compute`: a closed set, with what each takes, gives and is in Python.

Each language writes a primitive once: emit_highway.py, emit_cuda.py and emit_glsl.py for kernels,
emit_elementwise.py in the number types of the conformance suite, and the functions below with 60
digits, for tests. If a language lacks a row, the build fails. The functions of Highway are as
accurate as math-inl.hpp says, and conformance/numerics (Bounded) has the error that any backend
may have.
"""

import decimal
import sys
from dataclasses import dataclass
from typing import Callable

import functions

NUMBER, CONDITION = "number", "condition"

# The rules of IEEE 754: an invalid operation is NaN, and a division by zero is infinite.
CONTEXT = decimal.Context(prec=60, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN, traps=[])
_ONE = decimal.Decimal(1)
_PI = decimal.Decimal("3.14159265358979323846264338327950288419716939937510582097494459230781640628"
                      "6208998628034825342117067982148086513282306647")


@dataclass(frozen=True)
class Primitive:
    takes: tuple                   # The type of each argument.
    gives: str
    evaluate: Callable             # Works on Decimals in CONTEXT, and on bools for conditions.
    says: str                      # A text for people.
    for_integers: bool = False     # Whether it exists for integers too, where it wraps.
    for_floats: bool = True        # Whether it exists for floats.


def _tanh(x):
    if not x.is_finite() or abs(x) > 100:
        return x if x.is_nan() else _ONE.copy_sign(x)
    if abs(x) < decimal.Decimal("1e-8"):
        square = x * x
        return x * (1 - square * (1 - square * 2 / 5) / 3)
    power = CONTEXT.exp(x + x)
    return (power - 1) / (power + 1)


def _erf(x):
    """Computes erf(x) for x >= 0 by the series 2 / sqrt(pi) * exp(-x^2) * sum 2^n x^(2n + 1) / (2n
    + 1)!!."""
    term = total = x
    n = 0
    while term > total * decimal.Decimal("1e-65"):
        term = term * (x * x * 2) / (2 * n + 3)
        total += term
        n += 1
    return 2 / _PI.sqrt() * CONTEXT.exp(-x * x) * total


def _erfinv(x):
    """Computes erfinv by Newton's method, which begins left of the result and so comes nearer from
    there."""
    if x.is_nan() or abs(x) > 1:
        return decimal.Decimal("NaN")
    if abs(x) == 1 or abs(x) < decimal.Decimal("1e-40"):
        return decimal.Decimal("Infinity").copy_sign(x) if abs(x) == 1 else x * _PI.sqrt() / 2
    y, step = abs(x) * _PI.sqrt() / 2, _ONE
    # Near 1 only the difference from 1 has digits that count, so more than 60 digits are carried.
    with decimal.localcontext(decimal.Context(prec=120, traps=[])) as wide:
        while step > y * decimal.Decimal("1e-58"):
            step = (abs(x) - _erf(y)) * wide.exp(y * y) * _PI.sqrt() / 2
            y += step
    return y.copy_sign(x)


def _extreme(choose):
    return lambda a, b: a if a.is_nan() else b if b.is_nan() else choose(a, b)


def _whole(rounding):
    return lambda x: x.to_integral_value(rounding=rounding)


def _bits(choose):
    """Returns a function of whole numbers as one of Decimals."""
    return lambda *args: decimal.Decimal(choose(*map(int, args)))


_TWO, _COMPARED = (NUMBER, NUMBER), ((NUMBER, NUMBER), CONDITION)
_OF_ONE, _OF_CONDITIONS = ((NUMBER,), CONDITION), ((CONDITION, CONDITION), CONDITION)

# Functions of one number, with the names that they have in C, and a text for each.
FUNCTIONS = {
    "exp2": "2^x",
    "expm1": "exp(x) - 1 without cancellation",
    "log2": "the logarithm to base 2",
    "log10": "the logarithm to base 10",
    "log1p": "log(1 + x) without cancellation",
    "sin": "the sine",
    "cos": "the cosine",
    "tan": "the tangent",
    "asin": "the inverse of the sine",
    "acos": "the inverse of the cosine",
    "atan": "the inverse of the tangent",
    "sinh": "the hyperbolic sine",
    "cosh": "the hyperbolic cosine",
    "asinh": "the inverse of sinh",
    "acosh": "the inverse of cosh",
    "atanh": "the inverse of tanh",
    "erf": "the error function",
    "erfc": "1 - erf(x) without cancellation",
}

PRIMITIVES = {
    "neg": Primitive((NUMBER,), NUMBER, lambda x: x.copy_negate(), "-x", True),
    "abs": Primitive((NUMBER,), NUMBER, lambda x: x.copy_abs(), "the magnitude", True),
    "add": Primitive(_TWO, NUMBER, lambda a, b: a + b, "a + b", True),
    "sub": Primitive(_TWO, NUMBER, lambda a, b: a - b, "a - b", True),
    "mul": Primitive(_TWO, NUMBER, lambda a, b: a * b, "a * b", True),
    "div": Primitive(_TWO, NUMBER, lambda a, b: a / b, "a / b, correctly rounded"),
    "ratio": Primitive(_TWO, NUMBER, lambda a, b: a / b,
                       "a / b but for the last bits, for normal b and 1 / b"),
    "fma": Primitive((NUMBER,) * 3, NUMBER, lambda a, b, c: a * b + c,
                     "a * b + c, rounded once or twice"),
    "max": Primitive(_TWO, NUMBER, _extreme(max),
                     "the larger; NaN where either is NaN, and either of two zeros", True),
    "min": Primitive(_TWO, NUMBER, _extreme(min),
                     "the smaller; NaN where either is NaN, and either of two zeros", True),
    "lt": Primitive(*_COMPARED, lambda a, b: a < b, "a < b", True),
    "le": Primitive(*_COMPARED, lambda a, b: a <= b, "a <= b", True),
    "eq": Primitive(*_COMPARED, lambda a, b: a == b, "a == b", True),
    "ne": Primitive(*_COMPARED, lambda a, b: a != b, "a != b; true where either is NaN", True),
    "isnan": Primitive(*_OF_ONE, lambda x: x.is_nan(), "whether x is NaN", True),
    "isinf": Primitive(*_OF_ONE, lambda x: x.is_infinite(), "whether x is infinite", True),
    "isfinite": Primitive(*_OF_ONE, lambda x: x.is_finite(), "whether x is a number and finite",
                          True),
    "both": Primitive(*_OF_CONDITIONS, lambda a, b: a and b, "whether a and b hold", True),
    "either": Primitive(*_OF_CONDITIONS, lambda a, b: a or b, "whether a or b or both hold", True),
    "differ": Primitive(*_OF_CONDITIONS, lambda a, b: a != b, "whether one of a and b holds",
                        True),
    "signbit": Primitive((NUMBER,), CONDITION, lambda x: x.is_signed(),
                         "whether the sign is -, also of -0; of NaN it is open"),
    "select": Primitive((CONDITION, NUMBER, NUMBER), NUMBER, lambda c, a, b: a if c else b,
                        "a where the condition holds, else b", True),
    "floor": Primitive((NUMBER,), NUMBER, _whole(decimal.ROUND_FLOOR),
                       "the next whole number below"),
    "ceil": Primitive((NUMBER,), NUMBER, _whole(decimal.ROUND_CEILING),
                      "the next whole number above"),
    "trunc": Primitive((NUMBER,), NUMBER, _whole(decimal.ROUND_DOWN),
                       "the next whole number towards 0"),
    "round": Primitive((NUMBER,), NUMBER, _whole(decimal.ROUND_HALF_EVEN),
                       "the nearest whole number, the even one of two"),
    "bit_not": Primitive((NUMBER,), NUMBER, _bits(lambda x: ~x), "all bits of x turned", True,
                         False),
    "bit_and": Primitive(_TWO, NUMBER, _bits(lambda a, b: a & b), "the bits of both", True, False),
    "bit_or": Primitive(_TWO, NUMBER, _bits(lambda a, b: a | b), "the bits of either", True,
                        False),
    "bit_xor": Primitive(_TWO, NUMBER, _bits(lambda a, b: a ^ b), "the bits of one of both", True,
                         False),
    "shift_left": Primitive(_TWO, NUMBER, _bits(lambda a, b: a << b if 0 <= b < 64 else 0),
                            "a * 2^b, which wraps; 0 if the type has not more than b bits, or b is "
                            "below 0", True, False),
    "shift_right": Primitive(_TWO, NUMBER, _bits(lambda a, b: a >> (b if 0 <= b < 64 else 63)),
                             "a / 2^b rounded down; 0 or -1, as a is, if the type has not more "
                             "than b bits, or b is below 0", True, False),
    "sqrt": Primitive((NUMBER,), NUMBER, CONTEXT.sqrt,
                      "the square root, correctly rounded"),
    "exp": Primitive((NUMBER,), NUMBER, CONTEXT.exp, "the exponential"),
    "log": Primitive((NUMBER,), NUMBER, CONTEXT.ln, "the natural logarithm"),
    "tanh": Primitive((NUMBER,), NUMBER, _tanh, "the hyperbolic tangent"),
    "erfinv": Primitive((NUMBER,), NUMBER, _erfinv,
                        "the inverse of erf; infinite at -1 and 1, NaN beyond"),
    **{name: Primitive((NUMBER,), NUMBER, functions.of_one(name), text)
       for name, text in FUNCTIONS.items()},
    "pow": Primitive(_TWO, NUMBER, functions.pow, "a to the power b"),
    "atan2": Primitive(_TWO, NUMBER, functions.atan2, "the angle of the point (b, a)"),
    "hypot": Primitive(_TWO, NUMBER, functions.hypot, "the root of a^2 + b^2 without overflow"),
    "fmod": Primitive(_TWO, NUMBER, functions.fmod,
                      "the rest of a / b with the sign of a, exact; of integers 0 where b is 0",
                      True),
    "modulo": Primitive(_TWO, NUMBER, functions.modulo,
                        "the rest of a / b with the sign of b, of fmod and a sum that is rounded; "
                        "of integers 0 where b is 0", True),
    "floor_quotient": Primitive(_TWO, NUMBER, functions.floor_quotient,
                                "the rounded quotient a / b, rounded down; of integers 0 where b "
                                "is 0", True),
}


def check_rows(rows, language):
    """Fails unless the rows of a language are exactly those of the closed set."""
    missing, unknown = PRIMITIVES.keys() - rows.keys(), rows.keys() - PRIMITIVES.keys()
    if missing or unknown:
        sys.exit(f"{language}: no row for {sorted(missing)}; not in the set: {sorted(unknown)}")
