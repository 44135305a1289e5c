"""The parts that the emitters of reductions share: which ops have a formula (reduce.py), and facts
about each of them. emit_reductions.py writes the part of the kernels,
conformance/emit_reductions.py the oracles."""

import elementwise
import spec
from signatures import pascal


def load():
    """Returns the ops with a formula, in the order of the spec."""
    return [op for op in spec.load() if op.reduction]


def formulas(op):
    """Returns [(the name of the function, the names of its parameters, the Compute)] of map and
    finish."""
    parts = [("map", ("x", "shift"), op.reduction.map),
             ("finish", ("total", "count", "shift"), op.reduction.finish)]
    return [part for part in parts if part[2]]


def facts(op):
    """Returns what a formula says besides its functions: {name of a constant: whether it holds}. A
    formula whose map is a condition counts, and says nothing of how numbers are combined: any() and
    all() ask the count."""
    made = op.reduction
    numbers = None if made.counts else made.combine
    counted = made.combine if made.counts else None
    return {"kAdds": numbers == "add", "kMultiplies": numbers == "mul",
            "kIsSmallest": numbers == "min", "kIsLargest": numbers == "max",
            "kCounts": made.counts, "kIsAny": counted == "max", "kIsAll": counted == "min",
            "kHasShift": made.has_shift, "kHasMap": made.map is not None,
            "kHasFinish": made.finish is not None, "kCopiesOne": made.copies_one,
            "kIsLong": bool(elementwise.LONG & made.kinds)}


def formula_name(op):
    return f"{pascal(op.c_name)}Formula"


def dtypes(op):
    """Returns the rows of a kernel's dtypes: the dtypes of x, or pairs of x and y if both may be
    chosen."""
    if op.reduction.counts:
        return "kAnyDtypes"
    is_pair = op.outputs[0].is_free
    return "kSumPairs" if is_pair else elementwise.pick(
        op, "kFloatDtypes", "kNumberDtypes", "", "")
