"""The error classes of ops: what `numerics` of an entry can be, and what each makes the conformance
suite judge. conformance/docs/error_classes.md explains them, with formulas and sources.

A formula over elements or of a reduction decides its class wherever it leaves no choice; then the
entry has no `numerics`. Any other entry names its class, and check() refuses one that contradicts
what the entry says.
"""

from dataclasses import dataclass

import compute
import formulas
import primitives


@dataclass(frozen=True)
class ErrorClass:
    bound: str                     # Where B comes from: a value of the suite's BoundRule.
    checks_zero: bool = False      # -0 and 0 are different results.
    checks_bias: bool = False      # Right results err to both sides alike.


CLASSES = {
    "E0": ErrorClass("kExact", checks_zero=True),
    "E1": ErrorClass("kExact", checks_zero=True, checks_bias=True),
    "E1d": ErrorClass("kPrimitive", checks_zero=True),
    "E2": ErrorClass("kPrimitive"),
    "E2c": ErrorClass("kFunction"),
    "P": ErrorClass("kPropagated"),
    "X": ErrorClass("kPropagated"),
    "R1": ErrorClass("kSum", checks_bias=True),
    "R2": ErrorClass("kProduct", checks_bias=True),
    "R3": ErrorClass("kChosen", checks_zero=True),
    "R4": ErrorClass("kSoftmax"),
    "R4L": ErrorClass("kLogSoftmax"),
    "R5": ErrorClass("kNorm"),
    "R6": ErrorClass("kAttention"),
}
# Primitives that round nothing.
EXACT = {"input", "number", "neg", "abs", "max", "min", "lt", "le", "eq", "ne", "signbit", "isnan",
         "isinf", "isfinite", "both", "either", "differ", "select", "floor", "ceil", "trunc",
         "round", "bit_not", "bit_and", "bit_or", "bit_xor", "shift_left", "shift_right", "fmod"}
ROUNDED_ONCE = {"add", "sub", "mul", "modulo"}
# Primitives whose result at exact arguments has a bound of its own, and their class.
BOUNDED = {"div": "E1d", "sqrt": "E1d", "exp": "E2", "log": "E2", "tanh": "E2", "erfinv": "E2",
           "pow": "E2", "atan2": "E2", "hypot": "E2", **dict.fromkeys(primitives.FUNCTIONS, "E2")}
COMBINED = {"add": "R1", "mul": "R2", "max": "R3", "min": "R3"}
# What stands against primitives that round in a formula which combines in this way.
OF_EXACT = {"max": "the largest result is exact", "min": "the smallest result is exact",
            "mul": "the bound of a product is that of exact factors"}
SEVERAL_STEPS = ("E2c", "P")  # What a formula leaves open: a function, or a gradient.
# Only a formula can have one of these classes.
OF_PRIMITIVES = ("E1d", "E2")
# Ops of these classes round at most once.
WITHOUT_ERROR = ("E0", "E1", "R3")
INTEGERS = ("i32", "i64")     # In these, ops of every class are exact.


def _is_exact(node):
    return all(part.kind in EXACT and (part.kind != "number" or
                                       compute.is_representable(part.value))
               for part in node.walk())


def of_formula(formula):
    """Returns the class of a compute.Compute, or None if it takes several steps that round."""
    root = formula.result
    if _is_exact(root):
        return "E0"
    if root.kind in ROUNDED_ONCE and all(_is_exact(a) for a in root.args):
        return "E1"
    is_of_inputs = all(a.is_given and _is_exact(a) for a in root.args)
    return BOUNDED.get(root.kind) if is_of_inputs else None


def of_reduction(op):
    """Returns the class of an op with `reduce`."""
    made = op.reduction
    rounding = sorted(made.kinds - EXACT)
    if made.combine in OF_EXACT and rounding:
        raise op.error(f"reduce: {OF_EXACT[made.combine]}, and {', '.join(rounding)} is not",
                       "reduce")
    return "E0" if made.counts else COMBINED[made.combine]


def _has_dtype(value, op, made, dtypes):
    """Whether the spec alone says that this value of a decomposition has one of `dtypes`. `made`
    has the values of earlier names."""
    if isinstance(value, formulas.View):
        return _has_dtype(value.tensor, op, made, dtypes)
    if isinstance(value, formulas.If):
        return all(_has_dtype(v, op, made, dtypes) for v in (value.then, value.other))
    if isinstance(value, formulas.Ref):
        if value.name in made:
            return _has_dtype(made[value.name], op, made, dtypes)
        return op.arg(value.name).dtype in dtypes
    if not isinstance(value, formulas.Call):
        return False
    if value.dtype is not None:
        return value.dtype.text in dtypes
    out = next(a for a in value.op.args if a.is_out)
    rule = out.dtype or out.default_dtype
    if rule.startswith("like("):
        return _has_dtype(value.args.get(rule[5:-1]), op, made, dtypes)
    return rule in dtypes


def _check_decomposition(op):
    """Refuses a class without errors if the ops that `op` consists of have some."""
    if not op.decomposition or op.numerics not in WITHOUT_ERROR:
        return
    made = {statement.name: statement.value for statement in op.decomposition.statements}
    for call in op.decomposition.call_nodes():
        called = call.op
        if called.numerics not in WITHOUT_ERROR and not _has_dtype(call, op, made, INTEGERS):
            raise op.error(f"numerics: class {op.numerics} says that the result is exact, and its "
                           f"decomposition calls {called.name}, which is of class "
                           f"{called.numerics}", "numerics")


def _check_formula(op, decided, key):
    if decided is None and op.numerics not in SEVERAL_STEPS:
        said = f"not {op.numerics}" if op.numerics else "and the entry has to say which"
        raise op.error(f"numerics: a formula of several steps is of class "
                       f"{' or '.join(SEVERAL_STEPS)}, {said}", "numerics")
    if decided and op.numerics:
        what = "contradicts" if op.numerics != decided else "repeats"
        raise op.error(f"numerics: {op.numerics} {what} `{key}`, from which the class {decided} "
                       "follows: leave it out", "numerics")


def resolve(op):
    """Gives `op`, whose formulas are parsed, the class that its formula decides. Refuses a class
    that contradicts what the entry says, or says it twice."""
    if op.formula or op.reduction:
        decided = of_formula(op.formula) if op.formula else of_reduction(op)
        _check_formula(op, decided, "compute" if op.formula else "reduce")
        op.numerics = decided or op.numerics
    elif not op.numerics:
        raise op.error("numerics: an op without `compute` and `reduce` names its class", "numerics")
    elif op.numerics in OF_PRIMITIVES:
        raise op.error(f"numerics: class {op.numerics} is for an op whose `compute` is one "
                       "primitive, and this op has no `compute`", "numerics")


def check(op):
    """Checks what resolve() cannot: it needs the classes of all ops."""
    _check_decomposition(op)
