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


_TWO, _COMPARED = (NUMBER, NUMBER), ((NUMBER, NUMBER), CONDITION)

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
    "signbit": Primitive((NUMBER,), CONDITION, lambda x: x.is_signed(),
                         "whether the sign is -, also of -0; of NaN it is open"),
    "select": Primitive((CONDITION, NUMBER, NUMBER), NUMBER, lambda c, a, b: a if c else b,
                        "a where the condition holds, else b", True),
    "sqrt": Primitive((NUMBER,), NUMBER, CONTEXT.sqrt,
                      "the square root, correctly rounded"),
    "exp": Primitive((NUMBER,), NUMBER, CONTEXT.exp, "the exponential"),
    "log": Primitive((NUMBER,), NUMBER, CONTEXT.ln, "the natural logarithm"),
    "tanh": Primitive((NUMBER,), NUMBER, _tanh, "the hyperbolic tangent"),
    "erfinv": Primitive((NUMBER,), NUMBER, _erfinv,
                        "the inverse of erf; infinite at -1 and 1, NaN beyond"),
}


def check_rows(rows, language):
    """Fails unless the rows of a language are exactly those of the closed set."""
    missing, unknown = PRIMITIVES.keys() - rows.keys(), rows.keys() - PRIMITIVES.keys()
    if missing or unknown:
        sys.exit(f"{language}: no row for {sorted(missing)}; not in the set: {sorted(unknown)}")
