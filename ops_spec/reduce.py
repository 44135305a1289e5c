"""The formula of a reduction: `reduce` of an entry, parsed and checked.

    shift:    max                  optional: a value of the same elements, which map and finish use
    map:      "exp(x - shift)"     of each element x; the element itself if it is not given
    combine:  add                  how two results become one, in any order: add, mul, max or min
    finish:   "shift + log(total)" of what was combined; that itself if it is not given

`map` and `finish` are formulas over elements (compute.py). `finish` also knows `count`, the number
of elements. The `shift` is the largest element, or 0 if the largest is infinite or does not exist:
then the difference of an element and the shift is never larger than 0, unless the element is
infinite.

A `map` may be a condition, such as "x != 0". It counts as 1 where it holds, and as 0 elsewhere, so
that `add` gives the number of elements for which it holds, in i64; `max` says whether it holds for
any element, and `min` whether it holds for all of them, in bool. Such a formula has neither `shift`
nor `finish`.

A reduction over no axes combines one element. If that gives the element itself, the result is a
copy of x in each bit.
"""

import decimal
from dataclasses import dataclass

import compute
import expressions
from primitives import CONDITION, CONTEXT, NUMBER, PRIMITIVES

# The result of no elements.
COMBINES = {"add": decimal.Decimal(0), "mul": decimal.Decimal(1),
            "max": decimal.Decimal("-Infinity"), "min": decimal.Decimal("Infinity")}
# How conditions become one result: of the number of elements, and of those for which they hold.
COUNTED = {"add": lambda holding, count: holding, "max": lambda holding, count: holding > 0,
           "min": lambda holding, count: holding == count}
# The dtype of what conditions become.
COUNTED_DTYPES = {"add": "i64", "max": "bool", "min": "bool"}
ELEMENT, SHIFT, TOTAL, COUNT = "x", "shift", "total", "count"
_SAMPLES = ("-3", "0.5", "7")  # Elements that a copy must leave as they are.


@dataclass
class Reduction:
    """The formula of an op that reduces axes."""

    combine: str
    map: compute.Compute = None      # None stands for the element itself.
    finish: compute.Compute = None   # None stands for what was combined.
    has_shift: bool = False

    @property
    def counts(self):
        """Whether the map is a condition."""
        return self.map is not None and self.map.result.type == CONDITION

    @property
    def copies_one(self):
        """Whether the reduction of one element is that element."""
        return self.map is None and all(
            self.evaluate([float(x)]) == decimal.Decimal(x) for x in _SAMPLES)

    @property
    def kinds(self):
        """Returns the primitives of map and finish."""
        return {n.kind for f in (self.map, self.finish) if f for n in f.result.walk()}

    def evaluate(self, elements):
        """Returns the value for a list of floats with 60 digits: a Decimal."""
        with decimal.localcontext(CONTEXT):
            xs = [decimal.Decimal(x) for x in elements]
            known = {SHIFT: self._shift(xs)}
            terms = [self._value(self.map, known | {ELEMENT: x}) for x in xs] if self.map else xs
            if self.counts:
                return decimal.Decimal(int(COUNTED[self.combine](sum(terms), len(terms))))
            total = COMBINES[self.combine]
            for term in terms:
                total = PRIMITIVES[self.combine].evaluate(total, term)
            known |= {TOTAL: total, COUNT: decimal.Decimal(len(xs))}
            return self._value(self.finish, known) if self.finish else total

    @staticmethod
    def _shift(xs):
        largest = COMBINES["max"]
        for x in xs:
            largest = PRIMITIVES["max"].evaluate(largest, x)
        return decimal.Decimal(0) if largest.is_infinite() else largest

    @staticmethod
    def _value(formula, known):
        return compute.evaluate(formula.result, known)


def _check_op(op):
    first = op.inputs[0] if len(op.inputs) == 1 else None
    if first is None or first.name != ELEMENT or len(op.outputs) != 1 or \
            [(a.name, a.kind) for a in op.attributes] != [("axes", "i64[]"), ("keepdims", "i32")]:
        raise expressions.ExpressionError(
            f"an op that reduces takes a tensor '{ELEMENT}', axes and keepdims, and gives one "
            "output")
    if op.outputs[0].shape != f"reduced({ELEMENT}.shape, axes, keepdims)":
        raise expressions.ExpressionError(
            f"{op.outputs[0].name} needs the shape reduced({ELEMENT}.shape, axes, keepdims)")


def _formula(entry, key, own, optional, has_integers):
    """Returns the Compute of a key of `reduce`, over `own` and those of `optional` that it
    names."""
    if key not in entry:
        return None
    made = compute.parse_formula(entry[key], [own], has_integers, optional)
    if made.result.type != NUMBER and key != "map":
        raise expressions.ExpressionError(f"{key} is a condition, and a number is needed")
    if made.result.kind == "input" and made.result.name == own:
        raise expressions.ExpressionError(f"{key} is '{own}' itself: leave it out")
    return made


def _check_condition(made, out):
    """Checks what a map that is a condition allows. `out` is the output of the op."""
    if not made.counts:
        if out.dtype == "bool":
            raise expressions.ExpressionError(f"the result is a number, and {out.name} is bool")
        return
    if made.combine not in COUNTED:
        raise expressions.ExpressionError(
            f"map is a condition, which {' or '.join(COUNTED)} combines, and not {made.combine}")
    if made.has_shift or made.finish:
        raise expressions.ExpressionError("map is a condition: it has neither shift nor finish")
    dtype = COUNTED_DTYPES[made.combine]
    if out.dtype != dtype:
        raise expressions.ExpressionError(
            f"map is a condition, from which {made.combine} makes {dtype}, and {out.name} is "
            f"{out.dtype}")


def parse_reduce(op):
    """Returns the Reduction of `op`, or None if it has none. Raises ExpressionError."""
    if not op.reduce:
        return None
    _check_op(op)
    entry, has_shift = op.reduce, "shift" in op.reduce
    has_integers = not {"f16", "bf16", "f32", "f64"}.issuperset(op.inputs[0].dtypes)
    shift = [SHIFT] if has_shift else []
    made = Reduction(entry["combine"], _formula(entry, "map", ELEMENT, shift, has_integers),
                     _formula(entry, "finish", TOTAL, [COUNT, *shift], has_integers), has_shift)
    if has_shift and has_integers:
        raise expressions.ExpressionError("a shift is for floats alone")
    if has_shift and not (made.map and SHIFT in made.map.inputs):
        raise expressions.ExpressionError("map does not use the shift: leave it out")
    _check_condition(made, op.outputs[0])
    return made
