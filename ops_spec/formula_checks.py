"""The parts that the tests of formulas share: goldens, and the mistakes that goldens must
notice."""

import decimal
import pathlib

import compute
from primitives import CONTEXT

GOLDENS = pathlib.Path(__file__).resolve().parent / "goldens"
# The bounds allow for the rounding of a golden to two doubles, one of which may be subnormal.
RELATIVE, ABSOLUTE = decimal.Decimal(2)**-100, decimal.Decimal(2)**-1074
LARGEST = decimal.Decimal(1.7976931348623157e308)


def read_goldens(name, parts):
    """Returns {op: [(inputs, the result as a Decimal)]} of a file. parts(numbers) divides the
    numbers of a line into its inputs and the two of its result."""
    found = {}
    for line in (GOLDENS / name).read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            continue
        op, *words = line.split()
        inputs, (high, low) = parts([float(word) for word in words])
        with decimal.localcontext(CONTEXT):
            total = decimal.Decimal(high) + decimal.Decimal(low) if low else decimal.Decimal(high)
        found.setdefault(op, []).append((inputs, total))
    return found


def fits(got, wanted):
    """Returns whether a value agrees with a golden. The suite checks the sign of a zero."""
    if isinstance(got, bool):
        return wanted == int(got)
    with decimal.localcontext(CONTEXT):
        if abs(got) > LARGEST:
            got = decimal.Decimal("Infinity").copy_sign(got)
        if got.is_nan() or wanted.is_nan() or got.is_infinite() or wanted.is_infinite():
            return got.is_nan() and wanted.is_nan() or got == wanted
        return abs(got - wanted) <= abs(wanted) * RELATIVE + ABSOLUTE


# ---- Mutations -----------------------------------------------------------------------------------

# Each primitive with those it may be mistaken for, which take the same arguments.
MISTAKEN = {"add": ("sub", "mul"), "sub": ("add",), "mul": ("add", "div"), "div": ("mul",),
            "ratio": ("mul",), "max": ("min",), "min": ("max",), "lt": ("eq",), "le": ("lt",),
            "eq": ("le",), "exp": ("tanh",), "log": ("sqrt",), "sqrt": ("exp",), "tanh": ("exp",),
            "erfinv": ("tanh",), "ne": ("eq",), "isnan": ("isinf", "isfinite"),
            "isinf": ("isnan",), "isfinite": ("isnan",), "both": ("either", "differ"),
            "either": ("both", "differ"), "differ": ("both", "either"),
            "floor": ("trunc", "round"), "ceil": ("trunc", "round"), "trunc": ("floor", "ceil"),
            "round": ("floor", "ceil", "trunc"), "bit_and": ("bit_or", "bit_xor"),
            "bit_or": ("bit_and", "bit_xor"), "bit_xor": ("bit_and", "bit_or"),
            "bit_not": ("neg",), "shift_left": ("shift_right",), "shift_right": ("shift_left",),
            "exp2": ("exp", "expm1"), "expm1": ("exp", "sinh"), "log2": ("log", "log10"),
            "log10": ("log", "log2"), "log1p": ("log", "asinh"), "sin": ("cos", "tan"),
            "cos": ("sin",), "tan": ("sin", "tanh"), "asin": ("acos", "atan"), "acos": ("asin",),
            "atan": ("asin", "tanh"), "sinh": ("cosh", "asinh"), "cosh": ("sinh",),
            "asinh": ("sinh", "acosh"), "acosh": ("asinh",), "atanh": ("tanh",),
            "erf": ("erfc", "tanh"), "erfc": ("erf",), "pow": ("hypot",), "atan2": ("hypot",),
            "hypot": ("atan2",), "fmod": ("modulo",), "modulo": ("fmod",),
            "floor_quotient": ("div", "modulo")}
ORDERED = ("sub", "div", "ratio", "lt", "le", "shift_left", "shift_right", "pow", "atan2",
           "fmod", "modulo", "floor_quotient")  # Primitives whose two sides differ.


def mistakes(node):
    """Yields what could stand in place of `node` by one mistake: (what was done, Node)."""
    if node.kind == "number":
        for change in (1, -1, node.value / 1024 or 1):
            yield f"{node.value} by {change}", compute.number(node.value + change)
    for other in MISTAKEN.get(node.kind, ()):
        yield f"{node.kind} as {other}", compute.Node(other, node.args)
    if node.kind in ORDERED:
        yield f"{node.kind} the other way", compute.Node(node.kind, node.args[::-1])
    if node.kind == "signbit":
        yield "the sign the other way", compute.Node("signbit", (
            compute.Node("neg", node.args),))
    if node.kind in ("neg", "abs"):
        yield f"no {node.kind}", node.args[0]
    if node.kind == "select":
        condition, yes, no = node.args
        yield "the first branch alone", yes
        yield "the second branch alone", no
        yield "branches the other way", compute.Node("select", (condition, no, yes))
    if node.kind == "fma":
        a, b, c = node.args
        yield "a product without its sum", compute.Node("mul", (a, b))
        yield "a sum without its factor", compute.Node("add", (a, c))


def mutations(result):
    """Yields the formula with one mistake in one of its parts, wherever this part stands."""
    for part in result.walk():
        for what, other in mistakes(part):
            yield f"{what} in {part.kind}", replaced(result, part, other)


def replaced(node, part, other):
    if node == part:
        return other
    args = tuple(replaced(a, part, other) for a in node.args)
    return node if args == node.args else compute.Node(node.kind, args)
