"""Expressions and formulas of the spec: parsed with `ast`, checked, and written out as C++.

An expression is a Value: int, number, dims (a list of int), dtype, enum or condition. A formula is a
list of Assign, whose values are Ref, ScalarRef, Value, Call, View and If. Emitters walk these; they
never see Python's own trees. Whatever the spec does not have is an ExpressionError.
"""

import ast
from dataclasses import dataclass, field

ATTRIBUTE_TYPES = {"i32": "int", "i64": "int", "u64": "int", "f64": "number", "i64[]": "dims",
                   "enum": "enum", "dtype": "dtype"}
VIEWS = {  # name: {parameter: type}, after the tensor.
    "reshape": {"shape": "dims"}, "permute": {"axes": "dims"}, "expand": {"shape": "dims"},
    "slice": {"axis": "int", "start": "int", "stop": "int"}, "transpose": {},
}
FUNCTIONS = {  # name: (types of the arguments, type of the result)
    "min": (("int", "int"), "int"), "max": (("int", "int"), "int"),
    "broadcast": (("dims", "dims"), "dims"),
    "reduced": (("dims", "dims", "int"), "dims"),
    "window": (("dims", "dims", "dims", "dims", "dims"), "dims"),
}
ARITHMETIC = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.FloorDiv: "floor_div",
              ast.Mod: "mod"}
COMPARISONS = {ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">",
               ast.GtE: ">="}


class ExpressionError(ValueError):
    """What is wrong with an expression, without file and line."""


@dataclass
class Value:
    """An expression that no kernel is needed for. cpp() writes it out."""

    node: ast.expr
    type: str                      # int, number, dims, dtype, enum or condition.
    scope: dict = field(repr=False)

    @property
    def text(self):
        return ast.unparse(self.node)

    def names(self):
        """The arguments and earlier names in it; of tensors it reads shape and dtype only."""
        return {n.id for n in ast.walk(self.node) if isinstance(n, ast.Name) and n.id in self.scope}


@dataclass
class Ref:
    """A tensor: an argument, the gradient of an output (grad_NAME), or an earlier name."""

    name: str


@dataclass
class ScalarRef:
    """An argument of kind scalar|tensor, handed on as it is."""

    name: str


@dataclass
class Call:
    """A call of another op: it stands for that op's first output."""

    op: object                     # spec.Op
    args: dict                     # Input, operand or scalar|tensor by name: Ref, ScalarRef, Value, ...
    attrs: dict                    # Attribute by name: Value. Complete: the spec implies no default.
    dtype: object = None           # Value of type dtype, for an output whose dtype can be chosen.
    shape: object = None           # Value of type dims, for an output whose shape is given.


@dataclass
class View:
    """Another view of a tensor. reshape copies where strides cannot express it."""

    kind: str                      # A key of VIEWS.
    tensor: object
    params: dict                   # Value by name.


@dataclass
class If:
    """Only the chosen branch is computed."""

    condition: Value
    then: object
    other: object


@dataclass
class Assign:
    name: str
    value: object                  # A tensor, or a Value of type int, number or dims.


@dataclass
class Formula:
    statements: list               # Of Assign.
    result: object = None          # The tensor that the last line is; None in a decomposition.


@dataclass
class Backward:
    """How the gradients of an op come about."""

    reason: str = ""               # Why there is none; the rest is then empty.
    op: object = None              # The op that computes them all, or None where there are formulas.
    call: Call = None              # Its arguments.
    prelude: list = field(default_factory=list)     # Assigns that formulas share.
    gradients: dict = field(default_factory=dict)   # Input: Formula, or the output of `op` by name.

    def saved(self):
        """(names read as tensors, names of which only shape or dtype is read)."""
        tensors, others, made = set(), set(), set()
        formulas = [g for g in self.gradients.values() if isinstance(g, Formula)]
        statements = self.prelude + [s for f in formulas for s in f.statements]
        values = [s.value for s in statements] + [f.result for f in formulas]
        made |= {s.name for s in statements}
        for value in values + ([self.call] if self.call else []):
            for node in walk(value):
                if isinstance(node, (Ref, ScalarRef)):
                    tensors.add(node.name)
                elif isinstance(node, Value):
                    others |= node.names()
        return tensors - made, others - tensors - made


def walk(value):
    """`value` and everything in it, outermost first."""
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


# ---- Scopes ---------------------------------------------------------------------------------------


def scope_of(op):
    """What an expression of `op` can name: {name: type}. A tensor is `tensor`, `list` or `operand`."""
    scope = {}
    for arg in op.args:
        if arg.is_list and arg.is_tensor:
            scope[arg.name] = "list"
        elif arg.is_tensor:
            scope[arg.name] = "operand" if arg.kind == "operand" else "tensor"
        else:
            scope[arg.name] = ATTRIBUTE_TYPES.get(arg.kind, "scalar")
        for value in arg.enum_values:
            scope.setdefault(f"={arg.name}.{value}", "enum")
    return scope


# ---- Values ---------------------------------------------------------------------------------------


def parse_value(text, scope, want, dtypes=()):
    """The Value that `text` is; `want` is its type, or a tuple of the types it may have."""
    node = _parse(text, "eval").body if isinstance(text, str) else text
    value = Value(node, _type_of(node, scope, dtypes), scope)
    wanted = (want,) if isinstance(want, str) else want
    if value.type not in wanted and not (value.type == "int" and "number" in wanted):
        raise ExpressionError(f"'{value.text}' is {_a(value.type)}, not {_a(wanted[0])}")
    return value


def _a(kind):
    return f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"


def _parse(text, mode):
    try:
        # Line breaks within an expression mean nothing, also without brackets around it.
        return ast.parse(" ".join(text.split()) if mode == "eval" else text, mode=mode)
    except SyntaxError as error:
        raise ExpressionError(f"'{(error.text or text).strip()}': {error.msg}") from None


def _refuse(node, why):
    raise ExpressionError(f"'{ast.unparse(node)}': {why}")


def _lookup(node, scope):
    if node.id not in scope:
        names = ", ".join(sorted(n for n in scope if n[0] != "="))
        _refuse(node, f"no such name here; there are {names}")
    return scope[node.id]


def _type_of(node, scope, dtypes):
    """The type of an expression; refuses what expressions do not have."""
    kinds = {ast.Constant: _constant_type, ast.Name: _name_type, ast.Attribute: _attribute_type,
             ast.Subscript: _subscript_type, ast.List: _list_type, ast.BinOp: _binary_type,
             ast.UnaryOp: _unary_type, ast.IfExp: _if_type, ast.Compare: _compare_type,
             ast.Call: _call_type}
    if type(node) not in kinds:
        _refuse(node, "expressions have nothing like this")
    return kinds[type(node)](node, scope, dtypes)


def _expect(node, scope, dtypes, *wanted):
    found = _type_of(node, scope, dtypes)
    if found not in wanted:
        _refuse(node, f"is {_a(found)}, not {_a(wanted[0])}")
    return found


def _constant_type(node, scope, dtypes):
    if isinstance(node.value, bool) or not isinstance(node.value, (int, float)):
        _refuse(node, "is not a number")
    return "int" if isinstance(node.value, int) else "number"


def _name_type(node, scope, dtypes):
    if node.id not in scope and node.id in dtypes:
        return "dtype"
    found = _lookup(node, scope)
    if found in ("tensor", "operand", "list", "scalar"):
        _refuse(node, f"is {_a(found)}; an expression reads its .shape, .ndim or .dtype")
    return found


def _attribute_type(node, scope, dtypes):
    if not isinstance(node.value, ast.Name) or node.attr not in ("shape", "ndim", "dtype"):
        _refuse(node, "only .shape, .ndim and .dtype of an argument exist")
    if _lookup(node.value, scope) not in ("tensor", "operand", "list"):
        _refuse(node, f"{node.value.id} is no tensor")
    return {"shape": "dims", "ndim": "int", "dtype": "dtype"}[node.attr]


def _subscript_type(node, scope, dtypes):
    _expect(node.value, scope, dtypes, "dims")
    if not isinstance(node.slice, ast.Slice):
        _expect(node.slice, scope, dtypes, "int")
        return "int"
    if node.slice.step is not None:
        _refuse(node, "a slice has no step")
    for end in (node.slice.lower, node.slice.upper):
        if end is not None:
            _expect(end, scope, dtypes, "int")
    return "dims"


def _list_type(node, scope, dtypes):
    for item in node.elts:
        _expect(item, scope, dtypes, "int")
    return "dims"


def _binary_type(node, scope, dtypes):
    if type(node.op) not in ARITHMETIC:
        _refuse(node, "the operators are + - * // and %")
    left, right = (_expect(n, scope, dtypes, "int", "number", "dims")
                   for n in (node.left, node.right))
    if left == right == "dims" and isinstance(node.op, ast.Add):
        return "dims"
    if (left, right) == ("dims", "int") and isinstance(node.op, ast.Mult):
        return "dims"
    if "dims" in (left, right):
        _refuse(node, "lists only have + with a list and * with an int")
    if "number" in (left, right) and isinstance(node.op, (ast.FloorDiv, ast.Mod)):
        _refuse(node, "// and % are for ints")
    return "number" if "number" in (left, right) else "int"


def _unary_type(node, scope, dtypes):
    if not isinstance(node.op, ast.USub):
        _refuse(node, "the only operator in front is -")
    return _expect(node.operand, scope, dtypes, "int", "number")


def _if_type(node, scope, dtypes):
    _expect(node.test, scope, dtypes, "condition")
    found = _expect(node.body, scope, dtypes, "int", "number", "dims", "dtype")
    _expect(node.orelse, scope, dtypes, found)
    return found


def _compare_type(node, scope, dtypes):
    if len(node.ops) != 1 or type(node.ops[0]) not in COMPARISONS:
        _refuse(node, "a condition is one comparison: == != < <= > or >=")
    left = _expect(node.left, scope, dtypes, "int", "number", "dims", "enum")
    right = node.comparators[0]
    if left == "enum":
        values = [n.split(".")[1] for n in scope if n.startswith(f"={node.left.id}.")]
        if not isinstance(right, ast.Name) or right.id not in values:
            _refuse(node, f"{node.left.id} is one of {', '.join(values)}")
    else:
        _expect(right, scope, dtypes, *(("dims",) if left == "dims" else ("int", "number")))
    if left in ("enum", "dims") and not isinstance(node.ops[0], (ast.Eq, ast.NotEq)):
        _refuse(node, "only == and != exist here")
    return "condition"


def _call_type(node, scope, dtypes):
    name = node.func.id if isinstance(node.func, ast.Name) else ""
    if node.keywords:
        _refuse(node, "functions have no keywords")
    if name in ("len", "given", "acc"):
        if len(node.args) != 1 or not isinstance(node.args[0], ast.Name):
            _refuse(node, f"{name} takes one argument of the op")
        found = _lookup(node.args[0], scope)
        if (found == "list") != (name == "len") or found not in ("tensor", "list"):
            _refuse(node, f"{name} does not take {_a(found)}")
        return {"len": "int", "given": "condition", "acc": "dtype"}[name]
    if name in ("numel", "bytes"):
        if len(node.args) != 1:
            _refuse(node, f"{name} takes a tensor" + (" or a list" if name == "numel" else ""))
        arg = node.args[0]
        if isinstance(arg, ast.Name) and _lookup(arg, scope) in ("tensor", "operand", "list"):
            return "int"
        if name == "bytes":
            _refuse(node, "bytes takes a tensor")
        _expect(arg, scope, dtypes, "dims")
        return "int"
    if name not in FUNCTIONS:
        functions = ", ".join(sorted([*FUNCTIONS, "numel", "bytes", "len", "given", "acc"]))
        _refuse(node, f"no such function; there are {functions}")
    wanted, result = FUNCTIONS[name]
    if len(node.args) != len(wanted):
        _refuse(node, f"{name} takes {len(wanted)} arguments")
    for arg, kind in zip(node.args, wanted):
        _expect(arg, scope, dtypes, kind)
    return result


# ---- C++ ------------------------------------------------------------------------------------------


def cpp(value, resolve):
    """`value` as a C++ expression over ops_spec/dims.hpp.

    resolve(what, name) gives the C++ for a leaf; `what` is
      shape ndim dtype numel bytes given   of the tensor argument `name` (View, int64_t, bp_dtype,
                                           int64_t, int64_t, bool)
      count                                how many tensors the list `name` has (int64_t)
      attr                                 an attribute or an earlier name (int64_t, double, View of
                                           an i64[], bp_dtype, or the uint32_t of an enum)
      enum                                 the constant for NAME.VALUE of an enum attribute
    """
    return _cpp(value.node, value.scope, resolve)


def _cpp(node, scope, resolve):
    def sub(inner):
        return _cpp(inner, scope, resolve)

    if isinstance(node, ast.Constant):
        return f"int64_t{{{node.value}}}" if isinstance(node.value, int) else repr(node.value)
    if isinstance(node, ast.Name):
        return resolve("attr", node.id) if node.id in scope else f"BP_{node.id.upper()}"
    if isinstance(node, ast.Attribute):
        return resolve(node.attr, node.value.id)
    if isinstance(node, ast.Subscript):
        if not isinstance(node.slice, ast.Slice):
            return f"dims::at({sub(node.value)}, {sub(node.slice)})"
        lower = sub(node.slice.lower) if node.slice.lower else "0"
        upper = sub(node.slice.upper) if node.slice.upper else "dims::kEnd"
        return f"dims::slice({sub(node.value)}, {lower}, {upper})"
    if isinstance(node, ast.List):
        return f"dims::Dims{{{', '.join(map(sub, node.elts))}}}"
    if isinstance(node, ast.UnaryOp):
        if isinstance(node.operand, ast.Constant):
            return sub(ast.Constant(-node.operand.value))
        number = _type_of(node, scope, ()) == "number"
        return f"-({sub(node.operand)})" if number else f"dims::sub(0, {sub(node.operand)})"
    if isinstance(node, ast.IfExp):
        wrap = "dims::View" if _type_of(node.body, scope, ()) == "dims" else ""
        return f"({sub(node.test)} ? {wrap}({sub(node.body)}) : {wrap}({sub(node.orelse)}))"
    if isinstance(node, ast.BinOp):
        left, right = sub(node.left), sub(node.right)
        types = [_type_of(n, scope, ()) for n in (node.left, node.right)]
        if types == ["dims", "dims"]:
            return f"dims::concat({left}, {right})"
        if types == ["dims", "int"]:
            return f"dims::repeat({left}, {right})"
        if "number" in types:
            symbol = {"add": "+", "sub": "-", "mul": "*"}[ARITHMETIC[type(node.op)]]
            return f"({_cpp_number(node.left, sub)} {symbol} {_cpp_number(node.right, sub)})"
        return f"dims::{ARITHMETIC[type(node.op)]}({left}, {right})"
    if isinstance(node, ast.Compare):
        return _cpp_compare(node, scope, resolve)
    return _cpp_call(node, scope, resolve)


def _cpp_compare(node, scope, resolve):
    left, right, symbol = node.left, node.comparators[0], COMPARISONS[type(node.ops[0])]
    if _type_of(left, scope, ()) == "enum":
        value = resolve("enum", f"{left.id}.{right.id}")
        return f"({resolve('attr', left.id)} {symbol} {value})"
    def sub(inner):
        text = _cpp(inner, scope, resolve)
        return _cpp_number(inner, lambda _: text) if number else text

    number = "number" in (_type_of(left, scope, ()), _type_of(right, scope, ()))
    return f"({sub(left)} {symbol} {sub(right)})"


def _cpp_number(node, sub):
    """A double, also where the expression is an int."""
    if isinstance(node, ast.Constant):
        return repr(float(node.value))
    return f"static_cast<double>({sub(node)})"


def _cpp_call(node, scope, resolve):
    name = node.func.id
    if name == "acc":
        return f"dims::accumulator({resolve('dtype', node.args[0].id)})"
    if name in ("len", "given"):
        return resolve({"len": "count"}.get(name, name), node.args[0].id)
    if name in ("numel", "bytes") and isinstance(node.args[0], ast.Name) and \
            scope.get(node.args[0].id) in ("tensor", "operand", "list"):
        return resolve(name, node.args[0].id)
    return f"dims::{name}({', '.join(_cpp(a, scope, resolve) for a in node.args)})"


# ---- Formulas -------------------------------------------------------------------------------------


class FormulaParser:
    """Parses the lines of a decomposition or of a gradient."""

    def __init__(self, ops, scope, dtypes):
        self.ops = ops             # {name: Op}
        self.scope = dict(scope)
        self.dtypes = dtypes
        self.unset = set()         # Outputs that no line has given a value yet.

    def assigns(self, text, may_assign=()):
        """The Assigns of `text`; a name is new, or one of `may_assign`."""
        return [self._assign(s, may_assign) for s in _parse(text, "exec").body]

    def formula(self, text):
        """Assigns, and a last line that is the result."""
        body = _parse(" ".join(text.split()) if "\n" not in text.strip() else text, "exec").body
        if not body or not isinstance(body[-1], ast.Expr):
            raise ExpressionError("the last line of a formula is the tensor it gives")
        statements = [self._assign(s, ()) for s in body[:-1]]
        return Formula(statements, self._tensor(body[-1].value))

    def _assign(self, statement, may_assign):
        if not isinstance(statement, ast.Assign) or len(statement.targets) != 1 or \
                not isinstance(statement.targets[0], ast.Name):
            _refuse(statement, "a line is NAME = VALUE")
        name = statement.targets[0].id
        if name in self.scope and name not in may_assign:
            _refuse(statement, f"'{name}' has a meaning already")
        value = self._tensor_or_value(statement.value)
        if name in may_assign and isinstance(value, Value):
            _refuse(statement, f"'{name}' is an output, and this is no tensor")
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
            if _lookup(node, self.scope) not in ("tensor", "operand") or node.id in self.unset:
                _refuse(node, "has no value yet" if node.id in self.unset else "is no tensor")
            return Ref(node.id)
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            _refuse(node, "is no tensor; write ops by name, such as mul(a, b)")
        if node.func.id in VIEWS:
            return self._view(node)
        if node.func.id not in self.ops:
            _refuse(node, f"there is no op or view '{node.func.id}'")
        return self._call(node, self.ops[node.func.id])

    def _view(self, node):
        params = VIEWS[node.func.id]
        given = dict(zip(params, node.args[1:])) | {k.arg: k.value for k in node.keywords}
        if not node.args or len(node.args) > len(params) + 1 or set(given) != set(params):
            _refuse(node, f"takes a tensor{''.join(', ' + p for p in params)}")
        values = {name: parse_value(given[name], self.scope, kind, self.dtypes)
                  for name, kind in params.items()}
        return View(node.func.id, self._tensor(node.args[0]), values)

    def _call(self, node, op):
        call = Call(op, {}, {})
        inputs = [a for a in op.args if a.is_input and not a.is_inout]
        if len(node.args) > len(inputs):
            _refuse(node, f"{op.name} takes {len(inputs)} tensors")
        given = {a.name: n for a, n in zip(inputs, node.args)}
        for keyword in node.keywords:
            if keyword.arg in given:
                _refuse(node, f"'{keyword.arg}' is given twice")
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
            _refuse(node, f"{call.op.name} takes no '{name}'")
        if arg.kind == "enum":
            call.attrs[name] = self._enum(node, arg, value)
        elif arg.is_attribute:
            call.attrs[name] = parse_value(value, self.scope, ATTRIBUTE_TYPES[arg.kind], self.dtypes)
        elif arg.kind == "scalar|tensor" and isinstance(value, ast.Name) and \
                self.scope.get(value.id) == "scalar":
            call.args[name] = ScalarRef(value.id)
        elif arg.has_scalar and not self._is_tensor(value):
            call.args[name] = parse_value(value, self.scope, ("int", "number"), self.dtypes)
        else:
            call.args[name] = self._tensor(value)
            ref = call.args[name]
            if isinstance(ref, Ref) and self.scope[ref.name] == "operand" and arg.kind != "operand":
                _refuse(node, f"{ref.name} may be an inline scalar, and {name} may not")

    def _enum(self, node, arg, value):
        """An enum attribute of this op handed on, or the number of a value."""
        if isinstance(value, ast.Name) and self.scope.get(value.id) == "enum":
            return Value(value, "enum", self.scope)
        if not isinstance(value, ast.Name) or value.id not in arg.enum_values:
            _refuse(node, f"{arg.name} is one of {', '.join(arg.enum_values)}")
        return Value(ast.Constant(arg.enum_values.index(value.id) + 1), "enum", self.scope)

    def _check_complete(self, node, call):
        out = next((a for a in call.op.args if a.is_out), None)
        if out is None:
            _refuse(node, f"{call.op.name} has no output")
        if (call.shape is not None) != (out.shape == "given"):
            _refuse(node, f"{call.op.name} {'needs' if call.shape is None else 'takes no'} shape=")
        if call.dtype is not None and len(out.dtypes) < 2:
            _refuse(node, f"the dtype of {call.op.name} cannot be chosen")
        if call.dtype is None and len(out.dtypes) > 1 and not out.default_dtype:
            _refuse(node, f"{call.op.name} needs dtype=")
        for arg in call.op.args:
            if arg.is_out or arg.is_optional:
                continue
            if arg.name not in call.args and arg.name not in call.attrs:
                _refuse(node, f"{call.op.name} needs {arg.name}")


def parse_decomposition(op, ops, dtypes):
    """The Formula of `decompose`, which gives every output of `op` a value; None for a core op."""
    if not op.decompose:
        return None
    parser = FormulaParser(ops, scope_of(op), dtypes)
    outputs = [a.name for a in op.args if a.is_out]
    parser.unset = set(outputs)
    statements = parser.assigns(op.decompose, outputs)
    if parser.unset:
        raise ExpressionError(f"no line gives {', '.join(sorted(parser.unset))} a value")
    return Formula(statements)


def parse_backward(op, ops, dtypes):
    """The Backward of `op`."""
    scope = scope_of(op) | {f"grad_{a.name}": "tensor" for a in op.args if a.is_out}
    if isinstance(op.backward, str):
        if op.backward.startswith("none: "):
            return Backward(reason=op.backward[6:])
        return _bind_backward(op, ops, scope)
    parser = FormulaParser(ops, scope, dtypes)
    result = Backward(prelude=parser.assigns(op.backward.get("prelude", "")))
    for name, text in op.backward.items():
        if name == "prelude":
            continue
        if not op.arg(name) or not op.arg(name).is_input:
            raise ExpressionError(f"'{name}' is no input of this op")
        own = FormulaParser(ops, parser.scope | {name: "tensor"}, dtypes)
        result.gradients[name] = own.formula(text)
    return result


def _bind_backward(op, ops, scope):
    """Binds the op that `backward` names by the names of its arguments."""
    other = ops.get(op.backward)
    if other is None:
        raise ExpressionError(f"there is no op '{op.backward}'")
    result = Backward(op=other, call=Call(other, {}, {}))
    for arg in other.args:
        if arg.is_out:
            name = arg.name.removeprefix("grad_")
            if name == arg.name or not op.arg(name) or not op.arg(name).is_input:
                raise ExpressionError(f"{other.name}: output '{arg.name}' is the gradient of no input")
            result.gradients[name] = arg.name
        elif arg.name not in scope:
            raise ExpressionError(f"{other.name}: '{arg.name}' is no argument here, and no gradient")
        elif arg.kind == "scalar|tensor":
            result.call.args[arg.name] = ScalarRef(arg.name)
        elif arg.is_tensor:
            result.call.args[arg.name] = Ref(arg.name)
        else:
            result.call.attrs[arg.name] = Value(ast.Name(arg.name), scope[arg.name], scope)
    return result
