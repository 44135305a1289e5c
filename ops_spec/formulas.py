"""Formulas of the spec, which compute tensors: decompositions and gradients.

A formula is a list of Assign whose values are Ref, ScalarRef, Value, Call, View and If. Emitters
walk these values; they never see Python's own trees. A formula is explicit: it casts with copy, and
broadcasts with expand. A number may stand only where an op takes an inline scalar.
"""

import ast
from dataclasses import dataclass, field

from expressions import (
    ATTRIBUTE_TYPES, ExpressionError, Value, lookup, parse, parse_value, refuse, scope_of)

VIEWS = {  # name: {parameter: type}, after the tensor.
    "reshape": {"shape": "dims"}, "permute": {"axes": "dims"}, "expand": {"shape": "dims"},
    "slice": {"axis": "int", "start": "int", "stop": "int"}, "transpose": {},
}


@dataclass
class Ref:
    """A tensor: an argument, the gradient of an output (grad_NAME), or an earlier name."""

    name: str


@dataclass
class ScalarRef:
    """An argument of kind scalar|tensor, passed on as it is."""

    name: str


@dataclass
class Call:
    """A call of another op. It stands for that op's first output."""

    op: object                     # spec.Op
    args: dict                     # Tensor, operand or scalar|tensor by name: Ref, Value, ...
    attrs: dict  # Attribute by name: Value. It is complete: no default is implied.
    dtype: object = None           # Value of type dtype, for an output whose dtype can be chosen.
    shape: object = None           # Value of type dims, for an output whose shape is given.


@dataclass
class View:
    """Another view of a tensor. reshape copies if strides cannot express it."""

    kind: str                      # A key of VIEWS.
    tensor: object
    params: dict                   # Value by name.


@dataclass
class If:
    """A choice of two values. Only the chosen branch is computed."""

    condition: Value
    then: object
    other: object


@dataclass
class Assign:
    name: str
    value: object                  # A tensor, or a Value of type int, number or dims.


@dataclass
class Formula:
    statements: list               # A list of Assign.
    result: object = None          # The tensor that the last line is; None in a decomposition.

    def call_nodes(self):
        """Returns each Call."""
        values = [statement.value for statement in self.statements] + [self.result]
        return [node for value in values for node in walk(value) if isinstance(node, Call)]

    def calls(self):
        """Returns the op of each call, so that an op may occur several times."""
        return [node.op for node in self.call_nodes()]


@dataclass
class Backward:
    """How the gradients of an op are computed."""

    reason: str = ""               # Why there are none; the other members are then empty.
    op: object = None              # The op that computes them all, or None if formulas do.
    call: Call = None              # Its arguments.
    prelude: list = field(default_factory=list)     # Assigns that formulas share.
    gradients: dict = field(default_factory=dict)   # Input: Formula, or the output of `op` by name.

    def needed(self, wanted):
        """Returns the statements of the prelude that the gradients of the inputs `wanted` need."""
        names, chosen = set(), []
        for name in wanted:
            formula = self.gradients[name]
            for value in [s.value for s in formula.statements] + [formula.result]:
                names |= set().union(*reads(value))
        for statement in reversed(self.prelude):
            if statement.name in names:
                chosen.insert(0, statement)
                names |= set().union(*reads(statement.value))
        return chosen

    def saved(self, wanted=None):
        """Returns what the gradients of the inputs `wanted` (None: all) keep from the forward call:
        (names read as tensors, names of which only shape or dtype is read, or attributes)."""
        if self.call:
            return reads(self.call)
        formulas = [self.gradients[n] for n in (self.gradients if wanted is None else wanted)]
        statements = self.needed(self.gradients if wanted is None else wanted)
        statements = statements + [s for f in formulas for s in f.statements]
        tensors, others = set(), set()
        for value in [s.value for s in statements] + [f.result for f in formulas]:
            tensors |= reads(value)[0]
            others |= reads(value)[1]
        made = {s.name for s in statements}
        return tensors - made, others - tensors - made


def reads(value):
    """Returns (names of tensors, other names) in `value`."""
    tensors = {n.name for n in walk(value) if isinstance(n, (Ref, ScalarRef))}
    others = set().union(*(n.names() for n in walk(value) if isinstance(n, Value)))
    return tensors, others - tensors


def walk(value):
    """Yields `value` and everything in it, outermost first."""
    yield value
    children = []
    if isinstance(value, Call):
        children = [*value.args.values(), *value.attrs.values(), value.dtype, value.shape]
    elif isinstance(value, View):
        children = [value.tensor, *value.params.values()]
    elif isinstance(value, If):
        children = [value.condition, value.then, value.other]
    for child in children:
        if child is not None:
            yield from walk(child)


class FormulaParser:
    """Parses the lines of a decomposition or of a gradient."""

    def __init__(self, ops, scope, dtypes):
        self.ops = ops             # {name: Op}
        self.scope = dict(scope)
        self.dtypes = dtypes
        self.unset = set()         # Outputs that no line has given a value so far.

    def assigns(self, text, may_assign=()):
        """Returns the Assigns of `text`. Each name is new, or one of `may_assign`."""
        return [self._assign(s, may_assign) for s in parse(text, "exec").body]

    def formula(self, text):
        """Returns the Assigns, and the value of the last line, which is the result."""
        body = parse(" ".join(text.split()) if "\n" not in text.strip() else text, "exec").body
        if not body or not isinstance(body[-1], ast.Expr):
            raise ExpressionError("the last line of a formula is the tensor it gives")
        statements = [self._assign(s, ()) for s in body[:-1]]
        return Formula(statements, self._tensor(body[-1].value))

    def _assign(self, statement, may_assign):
        if not isinstance(statement, ast.Assign) or len(statement.targets) != 1 or \
                not isinstance(statement.targets[0], ast.Name):
            refuse(statement, "a line is NAME = VALUE")
        name = statement.targets[0].id
        if name in self.scope and name not in may_assign:
            refuse(statement, f"'{name}' has a meaning already")
        value = self._tensor_or_value(statement.value)
        if name in may_assign and isinstance(value, Value):
            refuse(statement, f"'{name}' is an output, and this is no tensor")
        self.scope[name] = value.type if isinstance(value, Value) else "tensor"
        self.unset.discard(name)
        return Assign(name, value)

    def _is_tensor(self, node):
        if isinstance(node, ast.IfExp):
            return self._is_tensor(node.body)
        if isinstance(node, ast.Name):
            return self.scope.get(node.id) in ("tensor", "operand", "list", "scalar")
        return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and \
            (node.func.id in VIEWS or node.func.id in self.ops)

    def _tensor_or_value(self, node):
        if self._is_tensor(node):
            return self._tensor(node)
        return parse_value(node, self.scope, ("int", "number", "dims"), self.dtypes)

    def _tensor(self, node):
        if isinstance(node, ast.IfExp):
            condition = parse_value(node.test, self.scope, "condition", self.dtypes)
            return If(condition, self._tensor(node.body), self._tensor(node.orelse))
        if isinstance(node, ast.Name):
            if lookup(node, self.scope) not in ("tensor", "operand") or node.id in self.unset:
                refuse(node, "has no value yet" if node.id in self.unset else "is no tensor")
            return Ref(node.id)
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            refuse(node, "is no tensor; write ops by name, such as mul(a, b)")
        if node.func.id in VIEWS:
            return self._view(node)
        if node.func.id not in self.ops:
            refuse(node, f"there is no op or view '{node.func.id}'")
        return self._call(node, self.ops[node.func.id])

    def _view(self, node):
        params = VIEWS[node.func.id]
        given = dict(zip(params, node.args[1:])) | {k.arg: k.value for k in node.keywords}
        if not node.args or len(node.args) > len(params) + 1 or set(given) != set(params):
            refuse(node, f"takes a tensor{''.join(', ' + p for p in params)}")
        values = {name: parse_value(given[name], self.scope, kind, self.dtypes)
                  for name, kind in params.items()}
        return View(node.func.id, self._tensor(node.args[0]), values)

    def _call(self, node, op):
        call = Call(op, {}, {})
        inputs = [a for a in op.args if a.is_input and not a.is_inout]
        if len(node.args) > len(inputs):
            refuse(node, f"{op.name} takes {len(inputs)} tensors")
        given = {a.name: n for a, n in zip(inputs, node.args)}
        for keyword in node.keywords:
            if keyword.arg in given:
                refuse(node, f"'{keyword.arg}' is given twice")
            given[keyword.arg] = keyword.value
        for what, kind in (("dtype", "dtype"), ("shape", "dims")):
            if what in given and op.arg(what) is None:
                setattr(call, what, parse_value(given.pop(what), self.scope, kind, self.dtypes))
        for name, value in given.items():
            self._bind(node, call, name, value)
        self._check_complete(node, call)
        return call

    def _bind(self, node, call, name, value):
        arg = call.op.arg(name)
        if arg is None or arg.is_out or arg.is_inout:
            refuse(node, f"{call.op.name} takes no '{name}'")
        if arg.kind == "enum":
            call.attrs[name] = self._enum(node, arg, value)
        elif arg.is_attribute:
            kind = ATTRIBUTE_TYPES[arg.kind]
            call.attrs[name] = parse_value(value, self.scope, kind, self.dtypes)
        elif arg.kind == "scalar|tensor" and isinstance(value, ast.Name) and \
                self.scope.get(value.id) == "scalar":
            call.args[name] = ScalarRef(value.id)
        elif arg.has_scalar and not self._is_tensor(value):
            call.args[name] = parse_value(value, self.scope, ("int", "number"), self.dtypes)
        else:
            call.args[name] = self._tensor(value)
            ref = call.args[name]
            if isinstance(ref, Ref) and self.scope[ref.name] == "operand" and arg.kind != "operand":
                refuse(node, f"{ref.name} may be an inline scalar, and {name} may not")

    def _enum(self, node, arg, value):
        """Returns an enum attribute of this op, passed on, or the number of a value."""
        if isinstance(value, ast.Name) and self.scope.get(value.id) == "enum":
            return Value(value, "enum", self.scope)
        if not isinstance(value, ast.Name) or value.id not in arg.enum_values:
            refuse(node, f"{arg.name} is one of {', '.join(arg.enum_values)}")
        number = arg.enum_values.index(value.id) + arg.first_value
        return Value(ast.Constant(number), "enum", self.scope)

    def _check_complete(self, node, call):
        out = next((a for a in call.op.args if a.is_out), None)
        if out is None:
            refuse(node, f"{call.op.name} has no output")
        if (call.shape is not None) != (out.shape == "given"):
            refuse(node, f"{call.op.name} {'needs' if call.shape is None else 'takes no'} shape=")
        if call.dtype is not None and len(out.dtypes) < 2:
            refuse(node, f"the dtype of {call.op.name} cannot be chosen")
        if call.dtype is None and len(out.dtypes) > 1 and not out.default_dtype:
            refuse(node, f"{call.op.name} needs dtype=")
        for arg in call.op.args:
            if arg.is_out or arg.is_optional or arg.is_appended or arg.may_be_absent:
                continue
            if arg.name not in call.args and arg.name not in call.attrs:
                refuse(node, f"{call.op.name} needs {arg.name}")


def known_in(op, revision):
    """Returns the arguments that a formula of this revision knows."""
    return [a for a in op.args if a.since <= revision]


def parse_decomposition(op, ops, dtypes):
    """Returns the Formula of `decompose`, which gives every output of `op` a value, or None for a
    core op. The formula knows the arguments that its revision has, and no later ones."""
    if not op.decompose:
        return None
    known = known_in(op, op.decompose_revision)
    scope = scope_of(op, known)
    parser = FormulaParser(ops, scope, dtypes)
    outputs = [a.name for a in known if a.is_out]
    parser.unset = set(outputs)
    statements = parser.assigns(op.decompose, outputs)
    if parser.unset:
        raise ExpressionError(f"no line gives {', '.join(sorted(parser.unset))} a value")
    return Formula(statements)


def parse_backward(op, ops, dtypes):
    """Returns the Backward of `op`, which knows the arguments that its revision has."""
    known = known_in(op, op.backward_revision)
    scope = scope_of(op, known) | {f"grad_{a.name}": "tensor" for a in known if a.is_out}
    if isinstance(op.backward, str):
        if op.backward.startswith("none: "):
            return Backward(reason=op.backward[6:])
        return _bind_backward(op, ops, scope, known)
    parser = FormulaParser(ops, scope, dtypes)
    result = Backward(prelude=parser.assigns(op.backward.get("prelude", "")))
    for name, text in op.backward.items():
        if name == "prelude":
            continue
        if op.arg(name) not in known or not op.arg(name).is_input:
            raise ExpressionError(f"'{name}' is no input of this op")
        # For a list, the formula is that of one item: NAME.shape and before(NAME, axis) belong to
        # the item.
        kind = "list" if op.arg(name).is_list else "tensor"
        own = FormulaParser(ops, parser.scope | {name: kind}, dtypes)
        result.gradients[name] = own.formula(text)
    return result


def _bind_backward(op, ops, scope, known):
    """Binds the op that `backward` names by the names of its arguments."""
    other = ops.get(op.backward.replace(".", "_"))
    if other is None:
        raise ExpressionError(f"there is no op '{op.backward}'")
    result = Backward(op=other, call=Call(other, {}, {}))
    for arg in other.args:
        if arg.is_out:
            name = arg.name.removeprefix("grad_")
            if arg.is_appended and op.arg(name) not in known:
                continue  # The gradient of what came later.
            if name == arg.name or op.arg(name) not in known or not op.arg(name).is_input:
                raise ExpressionError(
                    f"{other.name}: output '{arg.name}' is the gradient of no input")
            result.gradients[name] = arg.name
        elif arg.name not in scope:
            if arg.is_appended:  # The call does without what came later.
                continue
            raise ExpressionError(
                f"{other.name}: '{arg.name}' is no argument here, and no gradient")
        elif arg.kind == "scalar|tensor":
            result.call.args[arg.name] = ScalarRef(arg.name)
        elif arg.is_tensor:
            result.call.args[arg.name] = Ref(arg.name)
        else:
            node = ast.Name(arg.name, ast.Load())
            result.call.attrs[arg.name] = Value(node, scope[arg.name], scope)
    return result
