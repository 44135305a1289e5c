#!/usr/bin/env python3
"""Writes reduction.txt, values of the reductions from their definitions, with mpmath.

    pip install mpmath && python3 ops_spec/goldens/reduction.py

The program knows nothing of `reduce`. The formulas are checked against what it writes, so each op
is written here a second time, from its mathematical definition. A line is the op, the result as a
sum of two doubles, and the elements that are reduced to it: any number of them.
"""

import math
import pathlib

import mpmath
from mpmath import mpf

from elementwise import INF, LARGE, NAN, SMALLEST, split, spread

mpmath.mp.prec = 400
HERE = pathlib.Path(__file__).resolve().parent
LARGEST = 1.7976931348623157e308

SINGLE = [[sign * x] for x in (0.0, *SMALLEST, 0.1, 1.0, 1.5, 88.75, 746.5, 1e10, LARGEST, INF)
          for sign in (1, -1)]
# Infinities stand among other elements. NaN wins over all of them.
INFINITE = [[INF, INF], [-INF, -INF], [-INF] * 5, [INF, 1.0], [1.0, INF], [-INF, 1.0],
            [1.0, -INF, 2.5], [-INF, -3.0, -INF], [INF, -1e300], [-INF, 1e300], [-INF, -1e300]]
OPPOSITE = [[INF, -INF], [-INF, 1.0, INF]]
NO_NUMBER = [[NAN], [NAN, 1.0], [1.0, NAN], [INF, NAN], [NAN, -INF], [1.0, NAN, -2.0]]
ORDINARY = [[1.0, 2.0], [2.0, 1.0], [3.0, -3.0], [0.5] * 2, [0.1] * 10, [-2.5] * 7,
            [1.0, 1.0, -1.0], [1e10, 1.0, -1e10], [0.25, 1e-8, -0.25], [5e-324] * 3,
            [2.0**-1022, -5e-324],
            [-7.0, -8.5, -30.0], [4.0, 4.0, 1.0, 4.0], [1.0, 2.0**-53, 2.0**-53],
            *(spread(count, -4, 4, seed) for count in (2, 3, 5, 8, 17) for seed in (count, 100)),
            *(spread(count, -30, 9.5, 50 + count) for count in (2, 6, 40))]
# The elements lie where exponentials end, and far beyond.
FAR = [[sign * x + step for step in steps] for x in LARGE[:7] for sign in (1, -1)
       for steps in ((0.0, 0.5), (0.0, -1.0, -40.0))]
FARTHEST = [[1e10, 1e10], [-1e10, -1e10, -1e10], [LARGEST, 0.0], [-LARGEST, 0.0]]
SAME = [[LARGEST] * 2, [-LARGEST] * 3]  # Their sum overflows.
APART = [[1e300, -1e300], [-1e300, 1e300, 1e300]]  # A plain sum would lose their digits.
# Zeros stand among other elements.
ZEROS = [[0.0, 0.0], [-0.0, 0.0, -0.0], [1.0, 0.0], [0.0, -1.0], [5e-324, 0.0], [0.0, NAN],
         [NAN, 5e-324], [2.0, 0.0, 1.0, 0.0, -3.0], [1.0, 1.0, 2.0], [INF, 0.0], [0.0, -INF, 2.0],
         [-1.0, -1.0], [1.0] * 7, [0.0] * 9]
# Their product is ordinary, and products of some of them are not.
BALANCED = [[1e200, 1e200, 1e-200, 1e-200], [1e-200, 1e-200, 1e200, 1e200], [LARGEST, 2.0, 0.25],
            [5e-324, 0.5, 1e300], [-1e250, 1e250, -1e-250, -1e-250]]


def total(xs):
    return mpmath.fsum(map(mpf, xs))


def mean(xs):
    return total(xs) / len(xs) if xs else mpf("nan")


def amax(xs):
    return mpf("nan") if any(map(math.isnan, xs)) else mpf(max(xs))


def amin(xs):
    return mpf("nan") if any(map(math.isnan, xs)) else mpf(min(xs))


def prod(xs):
    return mpmath.fprod(map(mpf, xs))


def differ_from_zero(xs):
    """NaN differs from 0 as well."""
    return [x != 0 for x in xs]


def count_nonzero(xs):
    return mpf(sum(differ_from_zero(xs)))


def any_nonzero(xs):
    return mpf(int(any(differ_from_zero(xs))))


def all_nonzero(xs):
    return mpf(int(all(differ_from_zero(xs))))


def logsumexp(xs):
    """Returns log(exp(x_1) + ... + exp(x_n)). mpmath has no largest exponent, so nothing
    overflows."""
    if any(map(math.isnan, xs)):
        return mpf("nan")
    if INF in xs:
        return mpf("inf")
    finite = [mpf(x) for x in xs if x != -INF]
    with mpmath.workprec(2600):  # The logarithm of 1 + 2^-1074 has all digits of a double.
        return mpmath.log(mpmath.fsum(map(mpmath.exp, finite))) if finite else mpf("-inf")


ADDED = [[], *SINGLE, *INFINITE, *OPPOSITE, *NO_NUMBER, *ORDINARY, *FAR, *FARTHEST]
OPS = {
    "sum": (total, ADDED + SAME),
    "mean": (mean, ADDED),
    "amax": (amax, ADDED[1:] + SAME + APART),
    "logsumexp": (logsumexp, ADDED + SAME + APART),
    "amin": (amin, ADDED[1:] + SAME + APART),
    "prod": (prod, ADDED + SAME + APART + ZEROS + BALANCED),
    "any": (any_nonzero, ADDED + ZEROS),
    "all": (all_nonzero, ADDED + ZEROS),
    "count_nonzero": (count_nonzero, ADDED + ZEROS),
}


def lines():
    for op, (function, rows) in OPS.items():
        for elements in rows:
            yield " ".join([op, *map(repr, (*split(function(elements)), *map(float, elements)))])


if __name__ == "__main__":
    head = "# Written by reduction.py with mpmath. Do not edit: an op, its result, the elements.\n"
    (HERE / "reduction.txt").write_text(head + "\n".join(lines()) + "\n", encoding="utf-8")
