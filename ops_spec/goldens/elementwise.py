#!/usr/bin/env python3
"""Writes elementwise.txt, values of the element-wise ops from their definitions, with mpmath.

    pip install mpmath && python3 ops_spec/goldens/elementwise.py

The program knows nothing of `compute`. The formulas are checked against what it writes, so each op
is written here a second time, from its mathematical definition. A line is the op, its inputs in
the order of the op's arguments, and the result as a sum of two doubles.
"""

import math
import pathlib
import random

import mpmath
from mpmath import mpf

mpmath.mp.prec = 400
HERE = pathlib.Path(__file__).resolve().parent
INF, NAN = math.inf, math.nan

SMALLEST = [5e-324, 2.0**-1022, 2.0**-149, 2.0**-126, 1e-30, 1e-8, 2.0**-24]
ORDINARY = [0.1, 0.5, 1 - 2.0**-53, 1 - 2.0**-24, 1.0, 1 + 2.0**-52, 1 + 2.0**-23, 1.5, 2.0, math.e,
            math.pi, 4.0, 10.0]
LARGE = [87.25, 88.75, 104.0, 708.5, 709.75, 745.0, 746.5, 1e10, 3.4e38, 1.7976931348623157e308]
EDGES = [0.0, *SMALLEST, *ORDINARY, *LARGE, INF]
BOTH_SIGNS = [*EDGES, *(-x for x in EDGES), NAN]
PAIRS = [0.0, -0.0, 5e-324, 1.0, -1.0, 1.5, -3.0, 1e10, 1.7976931348623157e308, INF, -INF, NAN]


def spread(count, low, high, seed):
    """Returns magnitudes of both signs whose exponents of 2 lie between low and high."""
    draw = random.Random(seed)
    return [draw.choice((1, -1)) * 2.0**draw.uniform(low, high) for _ in range(count)]


def sigmoid(x):
    return 1 / (1 + mpmath.exp(-x))


def mish(x):
    return x * mpmath.tanh(mpmath.log1p(mpmath.exp(x)))


def mish_slope(x):
    soft = mpmath.tanh(mpmath.log1p(mpmath.exp(x)))
    return soft + x * sigmoid(x) * (1 - soft * soft)


def erfinv(x):
    if abs(x) >= 1:
        return math.copysign(INF, x) if abs(x) == 1 else NAN
    return x if x == 0 else mpmath.erfinv(mpf(x))


def lerp(a, b, weight):
    """Returns lerp of finite floats whose difference does not overflow."""
    result = mpf(a) + mpf(weight) * (mpf(b) - mpf(a))
    return result if result != 0 else 0.0


def log(x):
    return mpf("-inf") if x == 0 else mpf("nan") if x < 0 else mpmath.log(x)


def sqrt(x):
    return mpf("nan") if x < 0 else mpmath.sqrt(x)


def quotient(a, b):
    """Returns the quotient of two floats by the rules of IEEE 754."""
    if b != 0 and math.isfinite(b):
        return mpf(a) / mpf(b)
    if math.isnan(a) or math.isnan(b) or (b == 0 and a == 0) or (math.isinf(a) and math.isinf(b)):
        return NAN
    sign = math.copysign(1, a) * math.copysign(1, b)
    return sign * (INF if b == 0 else 0.0)


def extreme(a, b, choose):
    return NAN if math.isnan(a) or math.isnan(b) else choose(a, b)


# Each op on floats. Its value is an mpf, or a float where a zero has a sign to keep.
UNARY = {
    "neg": (lambda x: -x, BOTH_SIGNS),
    "abs": (abs, BOTH_SIGNS),
    "relu": (lambda x: x if x > 0 or math.isnan(x) else 0.0, BOTH_SIGNS),
    "exp": (lambda x: mpmath.exp(mpf(x)), BOTH_SIGNS + spread(40, -30, 9.5, 1)),
    "log": (lambda x: log(mpf(x)), BOTH_SIGNS + [abs(x) for x in spread(40, -1000, 1000, 2)] +
            [1 + x for x in spread(20, -50, -2, 3)]),
    "sqrt": (lambda x: x if x == 0 else sqrt(mpf(x)),
             BOTH_SIGNS + [abs(x) for x in spread(40, -1000, 1000, 4)]),
    "tanh": (lambda x: x if x == 0 else mpmath.tanh(mpf(x)), BOTH_SIGNS + spread(60, -60, 5.5, 5)),
    "sigmoid": (lambda x: sigmoid(mpf(x)), BOTH_SIGNS + spread(60, -60, 9.5, 6)),
    # The goldens leave out an x of -inf, where the formula is NaN and its limit 0.
    "silu": (lambda x: mpf(x) * sigmoid(mpf(x)),
             [x for x in BOTH_SIGNS if x != -INF] + spread(60, -60, 9.5, 7)),
    "mish": (lambda x: mish(mpf(x)),
             [x for x in BOTH_SIGNS if x != -INF] + spread(60, -60, 9.5, 8)),
    "erfinv": (erfinv, BOTH_SIGNS + spread(60, -60, 0, 9) +
               [sign * (1 - 2.0**-n) for n in range(2, 54, 3) for sign in (1, -1)]),
}
COMBINED = [(a, b) for a in PAIRS for b in PAIRS]
BINARY = {
    "add": (lambda a, b: a + b, COMBINED),
    "sub": (lambda a, b: a - b, COMBINED),
    "mul": (lambda a, b: a * b, COMBINED),
    "div": (quotient, COMBINED),
    "maximum": (lambda a, b: extreme(a, b, max), COMBINED),
    "minimum": (lambda a, b: extreme(a, b, min), COMBINED),
    "eq": (lambda a, b: float(a == b), COMBINED),
    "lt": (lambda a, b: float(a < b), COMBINED),
}
ORDINARY_PAIRS = list(zip(spread(60, -20, 20, 11), spread(60, -20, 20, 12)))


def exact(function):
    """Returns a function with the exact result of arithmetic on finite floats, else the result of
    the floats."""
    def call(*args):
        if all(math.isfinite(a) for a in args):
            result = function(*map(mpf, args))
            if result != 0:
                return result
        return function(*args)
    return call


SLOPES = list(zip(spread(50, -10, 10, 13), spread(50, -20, 0, 14)))
WIDE_SLOPES = list(zip(spread(80, -10, 10, 15), spread(80, -20, 6, 16)))
GRADIENTS = {
    "relu_backward": (lambda g, y: 0.0 if y <= 0 else g, COMBINED),
    "tanh_backward": (lambda g, y: mpf(g) * (1 - mpf(y)**2), SLOPES),
    "sigmoid_backward": (lambda g, y: mpf(g) * mpf(y) * (1 - mpf(y)),
                         [(g, abs(y)) for g, y in SLOPES]),
    "silu_backward": (lambda g, x: mpf(g) * (sigmoid(mpf(x)) + mpf(x) * sigmoid(mpf(x)) *
                                             sigmoid(-mpf(x))), WIDE_SLOPES),
    "mish_backward": (lambda g, x: mpf(g) * mish_slope(mpf(x)), WIDE_SLOPES),
}
WEIGHTS = [0.0, 1.0, 0.5, 0.25, -3.0, 7.5]
TERNARY = {
    "lerp": (lerp, [(a, b, weight) for (a, b), weight in
                    zip(ORDINARY_PAIRS, WEIGHTS * 10)] +
             [(a, b, abs(w)) for (a, b), w in zip(ORDINARY_PAIRS, spread(60, -12, 2, 17))] +
             # At the ends of lerp the other end is so large that the difference forgets this one.
             [(1.0, 1e-80, 1.0), (1e-80, 1.0, 0.0)]),
}


def split(value):
    """Returns the nearest double and the rest. A float stands for itself."""
    if not isinstance(value, mpf):
        return float(value), 0.0
    high = float(value)
    low = 0.0 if not math.isfinite(high) or mpmath.isinf(value) else float(value - mpf(high))
    return high, low


def lines():
    for table in (UNARY, BINARY, GRADIENTS, TERNARY):
        for op, (function, inputs) in table.items():
            arithmetic = op in ("add", "sub", "mul")
            if arithmetic:
                function = exact(function)
            if arithmetic or op == "div":
                inputs = inputs + ORDINARY_PAIRS
            for args in inputs:
                args = args if isinstance(args, tuple) else (args,)
                if op in UNARY and math.isnan(args[0]):
                    result = (NAN, 0.0)
                else:
                    result = split(function(*args))
                yield " ".join([op, *(repr(float(a)) for a in (*args, *result))])


if __name__ == "__main__":
    head = "# Written by elementwise.py with mpmath. Do not edit: an op, its inputs, its result.\n"
    (HERE / "elementwise.txt").write_text(head + "\n".join(lines()) + "\n", encoding="utf-8")
