"""The formula of an element-wise op: `compute` of an entry, parsed and checked.

The text has lines `name = expression` and a last expression, in a subset of Python that is read
with `ast`. Names are the op's tensors and earlier lines, numbers are written out, and the operators
and functions are the primitives (primitives.py). The result is a tree of Nodes, in which equal
parts are one part.

A condition depends on inputs and numbers only, so that every precision takes the same branch.
"""

import ast
import decimal
import fractions
from dataclasses import dataclass, field

import expressions
from primitives import CONDITION, CONTEXT, NUMBER, PRIMITIVES

OPERATORS = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div"}
COMPARISONS = {ast.Lt: ("lt", False), ast.Gt: ("lt", True), ast.LtE: ("le", False),
               ast.GtE: ("le", True), ast.Eq: ("eq", False),
               ast.NotEq: ("ne", False)}  # Whether the sides change places.
JOINED = {ast.And: "both", ast.Or: "either"}
# Written as operators.
WITHOUT_NAME = {"neg", "add", "sub", "mul", "div", "lt", "le", "eq", "ne", "both", "either"}
# Functions that are exact of inputs and numbers alone.
OF_GIVEN = ("signbit", "isnan", "isinf", "isfinite")
WIDEST_SIGNIFICAND = 24  # The bits of the compute type of f32 and narrower dtypes.
refuse = expressions.refuse


@dataclass(frozen=True)
class Node:
    """An input, a number, or a primitive with its arguments. Equal parts are equal objects."""

    kind: str                      # "input", "number" or a key of PRIMITIVES.
    args: tuple = ()
    name: str = ""                 # The name of an input.
    value: fractions.Fraction = None  # The value of a number.

    @property
    def type(self):
        return PRIMITIVES[self.kind].gives if self.kind in PRIMITIVES else NUMBER

    @property
    def is_given(self):
        """Whether the node is an input or a number, with any sign. An input is exact in every
        precision, and a number is if is_representable() says so."""
        return not self.args or (self.kind in ("neg", "abs") and self.args[0].is_given)

    def walk(self, seen=None):
        """Yields all parts, each once and after its arguments."""
        seen = set() if seen is None else seen
        if self in seen:
            return
        seen.add(self)
        for arg in self.args:
            yield from arg.walk(seen)
        yield self


@dataclass
class Compute:
    """The formula of an op."""

    result: Node
    # The names of lines by their Nodes, for the emitters.
    names: dict = field(default_factory=dict)

    @property
    def inputs(self):
        return [n.name for n in self.result.walk() if n.kind == "input"]

    def evaluate(self, **inputs):
        """Returns the value at floats with 60 digits: a Decimal, or a bool of a condition."""
        return evaluate(self.result, inputs)


def evaluate(node, inputs):
    values = {}
    with decimal.localcontext(CONTEXT):
        for part in node.walk():
            if part.kind == "input":
                values[part] = decimal.Decimal(inputs[part.name])
            elif part.kind == "number":
                values[part] = decimal.Decimal(part.value.numerator) / part.value.denominator
            else:
                values[part] = PRIMITIVES[part.kind].evaluate(*(values[a] for a in part.args))
    return values[node]


def written(formula, write, declare):
    """Returns `formula` in some language: the lines that give names to parts, and the text of the
    result. write(part, args) returns the text of a part from the texts of its arguments.
    declare(name, part, text) returns a line. A part has a name if it stands in several places, or
    on a line of its own."""
    parts = list(formula.result.walk())
    uses = [arg for part in parts for arg in part.args]
    texts, lines = {}, []
    for part in parts:
        text = write(part, [texts[a] for a in part.args])
        is_shared = bool(part.args) and (uses.count(part) > 1 or part in formula.names)
        if is_shared and part is not formula.result:
            name = formula.names.get(part, f"part_{len(lines)}")
            lines.append(declare(name, part, text))
            text = name
        texts[part] = text
    return lines, texts[formula.result]


def number(value):
    return Node("number", value=fractions.Fraction(value))


class _Parser:
    def __init__(self, inputs, has_integers, has_floats, optional):
        self.scope = {name: Node("input", name=name) for name in [*inputs, *optional]}
        self.inputs, self.names = list(inputs), {}
        self.has_integers, self.has_floats = has_integers, has_floats

    def parse(self, text):
        *lines, last = expressions.parse(text, "exec").body or [None]
        for line in lines:
            self.line(line)
        if not isinstance(last, ast.Expr):
            raise expressions.ExpressionError("the last line is an expression, the result")
        result = self.node(last.value)
        used = {n.name for n in result.walk() if n.kind == "input"}
        for name in self.inputs:
            if name not in used:
                raise expressions.ExpressionError(f"the result does not depend on '{name}'")
        for node, name in self.names.items():
            if node not in set(result.walk()):
                raise expressions.ExpressionError(f"the result does not depend on '{name}'")
        return Compute(result, self.names)

    def line(self, line):
        if not isinstance(line, ast.Assign) or len(line.targets) != 1 or \
                not isinstance(line.targets[0], ast.Name):
            refuse(line, "a line is 'name = expression'")
        name = line.targets[0].id
        if name in self.scope:
            refuse(line, f"'{name}' has a value already")
        if name in PRIMITIVES:
            refuse(line, f"'{name}' is a function")
        node = self.node(line.value)
        self.scope[name] = node
        self.names.setdefault(node, name)

    def node(self, tree):
        if isinstance(tree, ast.Name):
            if tree.id not in self.scope:
                refuse(tree, f"no such name here; there are {', '.join(sorted(self.scope))}")
            return self.scope[tree.id]
        if isinstance(tree, ast.Constant):
            return self.number(tree)
        if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.USub):
            operand = self.node(tree.operand)
            return number(-operand.value) if operand.kind == "number" else \
                self.apply(tree, "neg", [operand])
        if isinstance(tree, ast.BinOp) and type(tree.op) in OPERATORS:
            return self.apply(tree, OPERATORS[type(tree.op)],
                              [self.node(tree.left), self.node(tree.right)])
        if isinstance(tree, ast.Compare):
            return self.comparison(tree)
        if isinstance(tree, ast.BoolOp):
            joined = self.node(tree.values[0])
            for value in tree.values[1:]:
                joined = self.apply(tree, JOINED[type(tree.op)], [joined, self.node(value)])
            return joined
        if isinstance(tree, ast.Call):
            return self.call(tree)
        return refuse(tree, "formulas have nothing like this")

    def number(self, tree):
        if isinstance(tree.value, bool) or not isinstance(tree.value, (int, float)):
            refuse(tree, "is not a number")
        if self.has_integers and not isinstance(tree.value, int):
            refuse(tree, "is no integer, and the op takes integers")
        # The digits as written count, not the nearest double.
        return number(repr(tree.value))

    def comparison(self, tree):
        if len(tree.ops) != 1 or type(tree.ops[0]) not in COMPARISONS:
            refuse(tree, "a condition is one comparison: < <= == != >= or >")
        kind, is_swapped = COMPARISONS[type(tree.ops[0])]
        sides = [self.node(tree.left), self.node(tree.comparators[0])]
        for side in sides:
            if not side.is_given:
                refuse(tree, "a condition compares inputs and numbers, which are exact")
            if side.kind == "number" and not is_representable(side.value):
                refuse(tree, "a number of a condition is one of f32")
        return self.apply(tree, kind, sides[::-1] if is_swapped else sides)

    def call(self, tree):
        name = tree.func.id if isinstance(tree.func, ast.Name) else ""
        known = sorted(PRIMITIVES.keys() - WITHOUT_NAME)
        if name not in known or tree.keywords:
            refuse(tree, f"no such function; there are {', '.join(known)}")
        return self.apply(tree, name, [self.node(a) for a in tree.args])

    def apply(self, tree, kind, args):
        primitive = PRIMITIVES[kind]
        if kind in OF_GIVEN and not args[0].is_given:
            refuse(tree, f"{kind} of an input or a number alone is exact")
        if len(args) != len(primitive.takes):
            refuse(tree, f"{kind} takes {len(primitive.takes)} arguments")
        for arg, wanted in zip(args, primitive.takes):
            if arg.type != wanted:
                refuse(tree, f"{kind} takes a {wanted} where a {arg.type} stands")
        if self.has_integers and not primitive.for_integers:
            refuse(tree, f"the op takes integers, and {kind} is for floats alone")
        if self.has_floats and not primitive.for_floats:
            refuse(tree, f"the op takes floats, and {kind} is for integers alone")
        return Node(kind, tuple(args))


def parse_formula(text, inputs, has_integers, optional=(), has_floats=True):
    """Returns the Compute of a text over `inputs`, all of which the text must use. It may also use
    `optional`. Raises ExpressionError."""
    return _Parser(inputs, has_integers, has_floats, optional).parse(text)


def is_representable(value):
    """Returns whether a Fraction is a number of f32 of usual size."""
    return value == 0 or (value.denominator & (value.denominator - 1) == 0 and
                          value.numerator.bit_length() <= WIDEST_SIGNIFICAND)


def parse_compute(op):
    """Returns the Compute of `op`, or None if it has none. Raises ExpressionError."""
    if not op.compute:
        return None
    if len(op.outputs) != 1 or op.attributes or op.scalars or \
            any(a.is_list or a.is_optional or a.is_inout for a in op.args):
        raise expressions.ExpressionError(
            "only an op of tensors and operands with one output and no attribute is element-wise")
    first, out = op.inputs[0], op.outputs[0]
    for arg in op.args:
        if arg is not first and arg.shape != f"{first.name}.shape":
            raise expressions.ExpressionError(f"{arg.name} needs the shape {first.name}.shape")
        if arg is not first and arg is not out and arg.dtype != f"like({first.name})":
            raise expressions.ExpressionError(f"{arg.name} needs the dtype like({first.name})")
    floats = {"f16", "bf16", "f32", "f64"}
    made = parse_formula(op.compute, [a.name for a in op.inputs],
                         not floats.issuperset(first.dtypes),
                         has_floats=not floats.isdisjoint(first.dtypes))
    wanted = CONDITION if out.dtype == "bool" else NUMBER
    if made.result.type != wanted:
        raise expressions.ExpressionError(
            f"the result is a {made.result.type}, and {out.name} is {out.dtype}")
    if wanted == NUMBER and out.dtype != f"like({first.name})":
        raise expressions.ExpressionError(f"{out.name} needs the dtype like({first.name})")
    return made
