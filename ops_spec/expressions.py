"""Expressions of the spec over shapes, dtypes and attributes: parsed with `ast`, checked, and
written out as C++ over ops_spec/dims.hpp. A Value is an int, number, dims (a list of int), dtype,
enum or condition. An expression that the spec does not have is an ExpressionError.
"""

import ast
from dataclasses import dataclass, field

ATTRIBUTE_TYPES = {"i32": "int", "i64": "int", "u64": "int", "f64": "number", "i64[]": "dims",
                   "enum": "enum", "dtype": "dtype"}
FUNCTIONS = {  # name: (types of the arguments, type of the result)
    "min": (("int", "int"), "int"), "max": (("int", "int"), "int"),
    "broadcast": (("dims", "dims"), "dims"),
    "reduced": (("dims", "dims", "int"), "dims"),
    "blocks": (("dims", "dims"), "dims"),
    "band": (("int", "int", "int", "int"), "int"),
    "window": (("dims", "dims", "dims", "dims", "dims"), "dims"),
    "covered": (("dims", "dims", "dims", "dims", "dims", "dims"), "dims"),
}
# Functions of a list of tensors and an axis: the shape of all tensors behind each other along the
# axis, and how far along it the present item begins.
LIST_FUNCTIONS = {"concatenated": "dims", "before": "int"}
# Functions of one argument of the op, which is no list.
OF_ONE = {"given": "condition", "acc": "dtype", "is_integer": "condition",
          "is_quantized": "condition"}
ARITHMETIC = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.FloorDiv: "floor_div",
              ast.Mod: "mod"}
COMPARISONS = {ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">",
               ast.GtE: ">="}


class ExpressionError(ValueError):
    """What is wrong with an expression, without file and line."""

@dataclass
class Value:
    """An expression over facts that are known without running a kernel. cpp() writes it out."""

    node: ast.expr
    type: str                      # int, number, dims, dtype, enum or condition.
    scope: dict = field(repr=False)

    @property
    def text(self):
        return ast.unparse(self.node)

    def names(self):
        """Returns the arguments and earlier names in the expression, which reads only shape and
        dtype of tensors."""
        return {n.id for n in ast.walk(self.node) if isinstance(n, ast.Name) and n.id in self.scope}


# ---- Scopes --------------------------------------------------------------------------------------


def scope_of(op, known=None):
    """Returns the names that an expression of `op` may use: {name: type}. The type of a tensor is
    tensor, list or operand. `known` are the arguments of which it may speak, by default all."""
    scope = {}
    for arg in op.args if known is None else known:
        if arg.is_list and arg.is_tensor:
            scope[arg.name] = "list"
        elif arg.is_tensor:
            scope[arg.name] = "operand" if arg.kind == "operand" else "tensor"
        else:
            scope[arg.name] = ATTRIBUTE_TYPES.get(arg.kind, "scalar")
        for value in arg.enum_values:
            scope.setdefault(f"={arg.name}.{value}", "enum")
    return scope


# ---- Values --------------------------------------------------------------------------------------


def parse_value(text, scope, want, dtypes=()):
    """Returns the Value of `text`. `want` is its type, or a tuple of the types that it may have."""
    node = parse(text, "eval").body if isinstance(text, str) else text
    value = Value(node, _type_of(node, scope, dtypes), scope)
    wanted = (want,) if isinstance(want, str) else want
    if value.type not in wanted and not (value.type == "int" and "number" in wanted):
        raise ExpressionError(f"'{value.text}' is {_a(value.type)}, not {_a(wanted[0])}")
    return value


def _a(kind):
    return f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"


def parse(text, mode):
    try:
        # A line break within an expression means nothing, also without brackets around it.
        return ast.parse(" ".join(text.split()) if mode == "eval" else text, mode=mode)
    except SyntaxError as error:
        raise ExpressionError(f"'{(error.text or text).strip()}': {error.msg}") from None


def refuse(node, why):
    raise ExpressionError(f"'{ast.unparse(node)}': {why}")


def lookup(node, scope):
    if node.id not in scope:
        names = ", ".join(sorted(n for n in scope if n[0] != "="))
        refuse(node, f"no such name here; there are {names}")
    return scope[node.id]


def _type_of(node, scope, dtypes):
    """Returns the type of an expression, and refuses what expressions do not have."""
    kinds = {ast.Constant: _constant_type, ast.Name: _name_type, ast.Attribute: _attribute_type,
             ast.Subscript: _subscript_type, ast.List: _list_type, ast.BinOp: _binary_type,
             ast.UnaryOp: _unary_type, ast.IfExp: _if_type, ast.Compare: _compare_type,
             ast.Call: _call_type}
    if type(node) not in kinds:
        refuse(node, "expressions have nothing like this")
    node.spec_type = kinds[type(node)](node, scope, dtypes)  # cpp() reads it.
    return node.spec_type


def _expect(node, scope, dtypes, *wanted):
    found = _type_of(node, scope, dtypes)
    if found not in wanted:
        refuse(node, f"is {_a(found)}, not {_a(wanted[0])}")
    return found


def _constant_type(node, scope, dtypes):
    if isinstance(node.value, bool) or not isinstance(node.value, (int, float)):
        refuse(node, "is not a number")
    return "int" if isinstance(node.value, int) else "number"


def _name_type(node, scope, dtypes):
    if node.id not in scope and node.id in dtypes:
        return "dtype"
    found = lookup(node, scope)
    if found in ("tensor", "operand", "list", "scalar"):
        refuse(node, f"is {_a(found)}; an expression reads its .shape, .ndim or .dtype")
    return found


def _attribute_type(node, scope, dtypes):
    if not isinstance(node.value, ast.Name) or node.attr not in ("shape", "ndim", "dtype"):
        refuse(node, "only .shape, .ndim and .dtype of an argument exist")
    if lookup(node.value, scope) not in ("tensor", "operand", "list"):
        refuse(node, f"{node.value.id} is no tensor")
    return {"shape": "dims", "ndim": "int", "dtype": "dtype"}[node.attr]


def _subscript_type(node, scope, dtypes):
    _expect(node.value, scope, dtypes, "dims")
    if not isinstance(node.slice, ast.Slice):
        _expect(node.slice, scope, dtypes, "int")
        return "int"
    if node.slice.step is not None:
        refuse(node, "a slice has no step")
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
        refuse(node, "the operators are + - * // and %")
    left, right = (_expect(n, scope, dtypes, "int", "number", "dims")
                   for n in (node.left, node.right))
    if left == right == "dims" and isinstance(node.op, ast.Add):
        return "dims"
    if (left, right) == ("dims", "int") and isinstance(node.op, ast.Mult):
        return "dims"
    if "dims" in (left, right):
        refuse(node, "lists only have + with a list and * with an int")
    if "number" in (left, right) and isinstance(node.op, (ast.FloorDiv, ast.Mod)):
        refuse(node, "// and % are for ints")
    return "number" if "number" in (left, right) else "int"


def _unary_type(node, scope, dtypes):
    if not isinstance(node.op, ast.USub):
        refuse(node, "the only operator in front is -")
    return _expect(node.operand, scope, dtypes, "int", "number")


def _if_type(node, scope, dtypes):
    _expect(node.test, scope, dtypes, "condition")
    found = _expect(node.body, scope, dtypes, "int", "number", "dims", "dtype")
    _expect(node.orelse, scope, dtypes, found)
    return found


def _compare_type(node, scope, dtypes):
    if len(node.ops) != 1 or type(node.ops[0]) not in COMPARISONS:
        refuse(node, "a condition is one comparison: == != < <= > or >=")
    left = _expect(node.left, scope, dtypes, "int", "number", "dims", "enum", "dtype")
    right = node.comparators[0]
    if left == "enum":
        values = [n.split(".")[1] for n in scope if n.startswith(f"={node.left.id}.")]
        if not isinstance(right, ast.Name) or right.id not in values:
            refuse(node, f"{node.left.id} is one of {', '.join(values)}")
    else:
        same = (left,) if left in ("dims", "dtype") else ("int", "number")
        _expect(right, scope, dtypes, *same)
    if left in ("enum", "dims", "dtype") and not isinstance(node.ops[0], (ast.Eq, ast.NotEq)):
        refuse(node, "only == and != exist here")
    return "condition"


def _call_type(node, scope, dtypes):
    name = node.func.id if isinstance(node.func, ast.Name) else ""
    if node.keywords:
        refuse(node, "functions have no keywords")
    if name == "len" or name in OF_ONE:
        if len(node.args) != 1 or not isinstance(node.args[0], ast.Name):
            refuse(node, f"{name} takes one argument of the op")
        found = lookup(node.args[0], scope)
        if (found == "list") != (name == "len") or found not in ("tensor", "list"):
            refuse(node, f"{name} does not take {_a(found)}")
        return OF_ONE.get(name, "int")
    if name in LIST_FUNCTIONS:
        listed = node.args and isinstance(node.args[0], ast.Name) and \
            lookup(node.args[0], scope) == "list"
        if len(node.args) != 2 or not listed:
            refuse(node, f"{name} takes a list of tensors and an axis")
        _expect(node.args[1], scope, dtypes, "int")
        return LIST_FUNCTIONS[name]
    if name == "numel":
        if len(node.args) != 1:
            refuse(node, "numel takes a tensor or a list")
        arg = node.args[0]
        if isinstance(arg, ast.Name) and lookup(arg, scope) in ("tensor", "operand", "list"):
            return "int"
        _expect(arg, scope, dtypes, "dims")
        return "int"
    if name not in FUNCTIONS:
        functions = ", ".join(sorted(
            [*FUNCTIONS, *LIST_FUNCTIONS, *OF_ONE, "numel", "len"]))
        refuse(node, f"no such function; there are {functions}")
    wanted, result = FUNCTIONS[name]
    if len(node.args) != len(wanted):
        refuse(node, f"{name} takes {len(wanted)} arguments")
    for arg, kind in zip(node.args, wanted):
        _expect(arg, scope, dtypes, kind)
    return result


# ---- C++ -----------------------------------------------------------------------------------------


def cpp(value, resolve):
    """Returns `value` as a C++ expression over ops_spec/dims.hpp.

    resolve(what, name) gives the C++ for a leaf; `what` is
      shape ndim dtype numel given         of the tensor argument `name` (View, int64_t, bp_dtype,
                                           int64_t, bool)
      count                                how many tensors the list `name` has (int64_t)
      list                                 the list `name`, as functions of dims.hpp take it
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
        number = node.spec_type == "number"
        return f"-({sub(node.operand)})" if number else f"dims::sub(0, {sub(node.operand)})"
    if isinstance(node, ast.IfExp):
        wrap = "dims::View" if node.body.spec_type == "dims" else ""
        return f"({sub(node.test)} ? {wrap}({sub(node.body)}) : {wrap}({sub(node.orelse)}))"
    if isinstance(node, ast.BinOp):
        left, right = sub(node.left), sub(node.right)
        types = [n.spec_type for n in (node.left, node.right)]
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
    if left.spec_type == "enum":
        value = resolve("enum", f"{left.id}.{right.id}")
        return f"({resolve('attr', left.id)} {symbol} {value})"
    def sub(inner):
        text = _cpp(inner, scope, resolve)
        return _cpp_number(inner, lambda _: text) if number else text

    number = "number" in (left.spec_type, right.spec_type)
    return f"({sub(left)} {symbol} {sub(right)})"


def _cpp_number(node, sub):
    """Returns the C++ of a double, also if the expression is an int."""
    if isinstance(node, ast.Constant):
        return repr(float(node.value))
    return f"static_cast<double>({sub(node)})"


def _cpp_call(node, scope, resolve):
    name = node.func.id
    if name == "acc":
        return f"dims::accumulator({resolve('dtype', node.args[0].id)})"
    if name in ("is_integer", "is_quantized"):
        return f"dims::{name}({resolve('dtype', node.args[0].id)})"
    if name in ("len", "given"):
        return resolve({"len": "count"}.get(name, name), node.args[0].id)
    if name in LIST_FUNCTIONS:
        items, axis = resolve("list", node.args[0].id), _cpp(node.args[1], scope, resolve)
        return f"dims::{name}({items}, {axis})"
    if name == "numel" and isinstance(node.args[0], ast.Name) and \
            scope.get(node.args[0].id) in ("tensor", "operand", "list"):
        return resolve(name, node.args[0].id)
    return f"dims::{name}({', '.join(_cpp(a, scope, resolve) for a in node.args)})"
