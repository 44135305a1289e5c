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


def whole(choose):
    """Returns a function that makes floats whole, and keeps the sign of zeros."""
    def call(x):
        return math.copysign(float(choose(x)), x) if math.isfinite(x) else x
    return call


def fraction(x):
    return NAN if math.isinf(x) else mpf(x) - mpf(math.trunc(x))


def part_of_six(x):
    """Returns min(max(x + 3, 0), 6) / 6 of a float."""
    return mpf(min(max(mpf(x) + 3, mpf(0)), mpf(6))) / 6


def other_than_nan(a, b, choose):
    return b if math.isnan(a) else a if math.isnan(b) else choose(a, b)


def shifted(a, b):
    """Returns a * 2^b of i64, which wraps."""
    value = int(a) << int(b) if 0 <= b < 64 else 0
    return float((value + 2**63) % 2**64 - 2**63)


FRACTIONS = [sign * x for x in (0.25, 0.75, 2.5, 3.5, 3.75, 4.25, 1e15 + 0.5, 2.0**52 - 0.5)
             for sign in (1, -1)]
SIXES = [sign * x for x in (2.5, 2.9375, 3.0, 3.0625, 5.0, 5.9375, 6.0, 6.0625, 7.0)
         for sign in (1, -1)]
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
    "sign": (lambda x: x if x == 0 else math.copysign(1.0, x), BOTH_SIGNS),
    "square": (lambda x: x * x, BOTH_SIGNS + spread(40, -400, 400, 18)),
    "rsqrt": (lambda x: math.copysign(INF, x) if x == 0 else 1 / sqrt(mpf(x)),
              BOTH_SIGNS + [abs(x) for x in spread(40, -800, 800, 19)]),
    "reciprocal": (lambda x: quotient(1.0, x), BOTH_SIGNS + spread(40, -1000, 1000, 20)),
    "floor": (whole(math.floor), BOTH_SIGNS + FRACTIONS),
    "ceil": (whole(math.ceil), BOTH_SIGNS + FRACTIONS),
    "trunc": (whole(math.trunc), BOTH_SIGNS + FRACTIONS),
    "round": (whole(round), BOTH_SIGNS + FRACTIONS),
    "frac": (fraction, BOTH_SIGNS + FRACTIONS),
    "relu6": (lambda x: min(max(x, 0.0), 6.0), BOTH_SIGNS + SIXES),
    "softsign": (lambda x: mpf(x) / (1 + abs(mpf(x))),
                 [x for x in BOTH_SIGNS if not math.isinf(x)] + spread(40, -30, 30, 21)),
    "hardsigmoid": (part_of_six, BOTH_SIGNS + SIXES),
    "hardswish": (lambda x: mpf(x) * part_of_six(x), [x for x in BOTH_SIGNS if x != -INF] + SIXES),
    "logical_not": (lambda x: float(x == 0), BOTH_SIGNS),
    "isnan": (lambda x: float(math.isnan(x)), BOTH_SIGNS),
    "isinf": (lambda x: float(math.isinf(x)), BOTH_SIGNS),
    "isfinite": (lambda x: float(math.isfinite(x)), BOTH_SIGNS),
    "bitwise_not": (lambda x: float(~int(x)), [float(x) for x in range(-25, 25)]),
}
def real(function, low=-INF, high=INF):
    """Returns a function of floats, which is NaN outside of an interval, and keeps the sign of a
    zero where it is 0 there."""
    def call(x):
        if not low <= x <= high:
            return NAN
        value = function(mpf(x))
        return x if value == 0 and x == 0 else value
    return call


def pole(function, at):
    """Returns a function that is infinite at -at and at."""
    return lambda x: mpf(math.copysign(INF, x)) if abs(x) == at else function(x)


def angle_function(function):
    return lambda x: mpf("nan") if mpmath.isinf(x) else function(x)


HALVES = [sign * x for x in (0.25, 0.75, 0.9, 0.999) for sign in (1, -1)]
WIDE = BOTH_SIGNS + spread(60, -60, 9, 22)
UNIT = BOTH_SIGNS + HALVES + spread(40, -60, 0, 23)
UNARY |= {
    "exp2": (lambda x: mpmath.power(2, mpf(x)), WIDE + HALVES + [1023.5, 1024.0, -1074.0, -1080.0]),
    "expm1": (real(lambda x: x + x * x / 2 if abs(x) < mpf(2)**-300 else mpmath.expm1(x)),
              WIDE + HALVES),
    "log2": (lambda x: log(mpf(x)) / mpmath.log(2), WIDE + HALVES),
    "log10": (lambda x: log(mpf(x)) / mpmath.log(10), WIDE + HALVES),
    "log1p": (lambda x: x if x == 0 else mpf("-inf") if x == -1 else
              real(mpmath.log1p, -1)(x), WIDE + HALVES),
    "sin": (real(angle_function(mpmath.sin)), WIDE + HALVES),
    "cos": (real(angle_function(mpmath.cos)), WIDE + HALVES),
    "tan": (real(angle_function(mpmath.tan)), WIDE + HALVES),
    "asin": (real(mpmath.asin, -1, 1), UNIT),
    "acos": (lambda x: 0.0 if x == 1 else mpmath.acos(mpf(x)) if abs(x) <= 1 else NAN, UNIT),
    "atan": (real(mpmath.atan), WIDE + HALVES),
    "sinh": (real(mpmath.sinh), WIDE + HALVES),
    "cosh": (real(mpmath.cosh), WIDE + HALVES),
    "asinh": (real(lambda x: x if mpmath.isinf(x) else mpmath.asinh(x)), WIDE + HALVES),
    "acosh": (lambda x: 0.0 if x == 1 else real(mpmath.acosh, 1)(x),
              WIDE + [1 + abs(x) for x in spread(20, -50, 3, 24)]),
    "atanh": (real(pole(mpmath.atanh, 1), -1, 1), UNIT),
    "erf": (real(mpmath.erf), WIDE + HALVES),
    "erfc": (lambda x: mpf(0 if x > 0 else 2) if abs(x) > 1e6 else mpmath.erfc(mpf(x)),
             WIDE + HALVES + [5.5, 20.0, 26.0]),
    "log_sigmoid": (lambda x: mpf("-inf") if x == -INF else mpmath.log(sigmoid(mpf(x))) if x < 40
                    else -mpmath.log1p(mpmath.exp(-mpf(x))), WIDE + HALVES),
    "softplus": (lambda x: mpf(INF) if x == INF else mpf(x) + mpmath.log1p(mpmath.exp(-mpf(x)))
                 if x > 0 else mpmath.log1p(mpmath.exp(mpf(x))), WIDE + HALVES),
    # The digits are those of the entry; the paper has more.
    "selu": (lambda x: mpf("1.0507009873554805") * mpf(x) if x > 0 else
             mpf("1.7580993408473768") * mpmath.expm1(mpf(x)), WIDE + HALVES),
}
CONDITIONS = ("logical_not", "isnan", "isinf", "isfinite")
INTEGERS = [(float(a), float(b)) for a in (-2**40 - 5, -77, -2, -1, 0, 1, 6, 77, 2**40 + 5)
            for b in (-300, -1, 0, 1, 2, 5, 12, 63, 64, 300)]
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
    "ne": (lambda a, b: float(a != b), COMBINED),
    "le": (lambda a, b: float(a <= b), COMBINED),
    "gt": (lambda a, b: float(a > b), COMBINED),
    "ge": (lambda a, b: float(a >= b), COMBINED),
    "logical_and": (lambda a, b: float(a != 0 and b != 0), COMBINED),
    "logical_or": (lambda a, b: float(a != 0 or b != 0), COMBINED),
    "logical_xor": (lambda a, b: float((a != 0) != (b != 0)), COMBINED),
    "fmax": (lambda a, b: other_than_nan(a, b, max), COMBINED),
    "fmin": (lambda a, b: other_than_nan(a, b, min), COMBINED),
    "leaky_relu": (lambda x, slope: mpf(x) * mpf(slope) if x < 0 else x,
                   [(x, s) for x, s in COMBINED if math.isfinite(s) and s != 0]),
    "bitwise_and": (lambda a, b: float(int(a) & int(b)), INTEGERS),
    "bitwise_or": (lambda a, b: float(int(a) | int(b)), INTEGERS),
    "bitwise_xor": (lambda a, b: float(int(a) ^ int(b)), INTEGERS),
    "shift_left": (shifted, [(a, b) for a, b in INTEGERS if not 12 < b < 64]),
    "shift_right": (lambda a, b: float(math.floor(mpf(a) / mpf(2)**(b if 0 <= b < 64 else 64))),
                    INTEGERS),
}
NOT_ZERO = [(a, b) for a, b in COMBINED if all(math.isfinite(x) and x != 0 for x in (a, b))]
PIECES = [(x, a) for x in (-INF, -20.0, -2.0, -0.3, -1e-9, -0.0, 0.0, 1e-9, 0.4, 3.0, INF)
          for a in (1.0, 0.25, 3.0, 1.5)]
POINTS = list(zip(spread(60, -8, 8, 25), spread(60, -8, 8, 26)))


def power(a, b):
    value = mpmath.power(mpf(a), mpf(b))
    return NAN if isinstance(value, mpmath.mpc) else value


def rest(a, b):
    return math.fmod(a, b) if math.isfinite(a) and b != 0 and not math.isnan(b) else NAN


def rest_down(a, b):
    found = rest(a, b)
    is_other = found != 0 and (found < 0) != (b < 0)
    return mpf(found) + mpf(b) if is_other else found


BINARY |= {
    "pow": (power, [(abs(a), b) for a, b in POINTS] + [(a, float(n)) for a in (-1.5, 2.0, -0.25)
                                                       for n in range(-3, 4)]),
    "atan2": (lambda a, b: mpmath.atan2(mpf(a), mpf(b)), POINTS),
    "hypot": (lambda a, b: mpmath.sqrt(mpf(a)**2 + mpf(b)**2),
              [p for p in NOT_ZERO if max(map(abs, p)) < 1e300] + POINTS),
    "fmod": (rest, COMBINED + POINTS),
    "remainder": (rest_down, [(a, b) for a, b in COMBINED if not math.isinf(b)] + POINTS),
    "floor_divide": (lambda a, b: mpmath.floor(mpf(a) / mpf(b)),
                     [(a, b) for a, b in NOT_ZERO + POINTS if 1e-300 < abs(a / b) < 1e300]),
    "elu": (lambda x, alpha: x if x > 0 else mpf(alpha) * mpmath.expm1(mpf(x)), PIECES),
    "celu": (lambda x, alpha: x if x > 0 else mpf(alpha) * mpmath.expm1(mpf(x) / mpf(alpha)),
             PIECES),
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
    "relu6_backward": (lambda g, y: 0.0 if y <= 0 or y >= 6 else g,
                       COMBINED + [(1.5, x) for x in SIXES]),
    "hardsigmoid_backward": (lambda g, x: mpf(g) / 6 if -3 < x < 3 else 0.0,
                             [(g, x) for g in (1.5, -2.0, 1e-5) for x in SIXES]),
    "hardswish_backward": (
        lambda g, x: mpf(g) * (mpf(x) / 3 + mpf(0.5)) if -3 < x < 3 else 0.0 if x <= -3 else g,
        [(g, x) for g in (1.5, -2.0, 1e-5) for x in SIXES] + SLOPES),
}
GATES = [(gate, up) for (_, gate), up in zip(WIDE_SLOPES, spread(80, -10, 10, 27))]
GATE_GRADIENTS = [(g, gate, up) for (g, gate), up in zip(WIDE_SLOPES, spread(80, -10, 10, 28))]


def normal(x):
    """Returns the distribution function and the density of the standard normal distribution, with
    the digits of the root of 1/2 and of the density at 0 that the entries have."""
    return (mpmath.erfc(-mpf(x) * mpf("0.7071067811865476")) / 2,
            mpmath.exp(-mpf(x)**2 / 2) * mpf("0.3989422804014327"))


def gelu_slope(x):
    distribution, density = normal(x)
    return distribution + mpf(x) * density


BINARY |= {
    "swiglu": (lambda gate, up: mpf(gate) * sigmoid(mpf(gate)) * mpf(up), GATES),
    "geglu": (lambda gate, up: mpf(gate) * normal(gate)[0] * mpf(up), GATES),
}
WEIGHTS = [0.0, 1.0, 0.5, 0.25, -3.0, 7.5]
TRIPLES = [(c, a, b) for (a, b), c in zip(ORDINARY_PAIRS, spread(60, -3, 5, 23)) if b != 0]
TERNARY = {
    "lerp": (lerp, [(a, b, weight) for (a, b), weight in
                    zip(ORDINARY_PAIRS, WEIGHTS * 10)] +
             [(a, b, abs(w)) for (a, b), w in zip(ORDINARY_PAIRS, spread(60, -12, 2, 17))] +
             # At the ends of lerp the other end is so large that the difference forgets this one.
             [(1.0, 1e-80, 1.0), (1e-80, 1.0, 0.0)]),
    "leaky_relu_backward": (lambda g, x, slope: g if x > 0 else mpf(g) * mpf(slope),
                            [(g, x, s) for g in (1.5, -2.0) for s in (0.25, -3.0)
                             for x in (-INF, -2.0, -0.5, -5e-324, -0.0, 0.0, 5e-324, 0.5, 2.0, INF,
                                       NAN)]),
    "elu_backward": (lambda g, x, alpha: g if x > 0 else mpf(g) * mpf(alpha) * mpmath.exp(mpf(x)),
                     [(g, x, alpha) for g in (1.5, -2.0) for x, alpha in PIECES]),
    "swiglu_backward": (
        lambda g, gate, up: mpf(g) * mpf(up) * sigmoid(mpf(gate)) * (
            1 + mpf(gate) * sigmoid(-mpf(gate))), GATE_GRADIENTS),
    "geglu_backward": (lambda g, gate, up: mpf(g) * mpf(up) * gelu_slope(gate), GATE_GRADIENTS),
    "clamp": (lambda x, low, high: extreme(extreme(x, low, max), high, min),
              [(x, low, high) for x in (-INF, -2.0, 0.5, 1.5, 7.0, INF, NAN)
               for low in (-1.0, 1.0, 2.0, NAN) for high in (1.5, 3.0)]),
    "addcmul": (lambda a, b, c: mpf(a) + mpf(b) * mpf(c), TRIPLES),
    "addcdiv": (lambda a, b, c: mpf(a) + mpf(b) / mpf(c), TRIPLES),
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
            arithmetic = op in ("add", "sub", "mul", "square")
            if arithmetic:
                function = exact(function)
            if op in BINARY and (arithmetic or op == "div"):
                inputs = inputs + ORDINARY_PAIRS
            for args in inputs:
                args = args if isinstance(args, tuple) else (args,)
                if op in UNARY and op not in CONDITIONS and math.isnan(args[0]):
                    result = (NAN, 0.0)
                else:
                    result = split(function(*args))
                yield " ".join([op, *(repr(float(a)) for a in (*args, *result))])


if __name__ == "__main__":
    head = "# Written by elementwise.py with mpmath. Do not edit: an op, its inputs, its result.\n"
    (HERE / "elementwise.txt").write_text(head + "\n".join(lines()) + "\n", encoding="utf-8")
