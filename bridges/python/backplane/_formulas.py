"""Gradients from descriptions: the formulas of `backward` become functions of Python.

A formula is lines `name = value` in the words of the library (backplane/operator.h), which are
expressions of Python but for names of values: `reduction=sum`, `mode == reflect`, `dtype=i64`.
Those become strings.
"""

import ast
import copy
import functools

from backplane import _core

_VIEWS = {"reshape", "permute", "expand", "slice", "transpose"}
_NUMBERS = {"max", "min", "numel", "len", "reduced", "window", "covered", "blocks", "band", "given",
            "acc", "is_integer", "is_quantized", "before", "broadcast"}
_FIELDS = {"shape", "ndim", "dtype"}
_FACTS = {"numel", "acc", "given", "is_integer", "before"}


class Unreadable(Exception):
    """A formula has a word that this version does not know."""


def parse(text):
    """Returns the lines of a formula: pairs of a name and an ast."""
    lines = []
    for statement in ast.parse(text).body:
        if not isinstance(statement, ast.Assign) or not isinstance(statement.targets[0], ast.Name):
            raise Unreadable(f"no line 'name = value': {ast.unparse(statement)}")
        lines.append((statement.targets[0].id, statement.value))
    return lines


def names_in(tree):
    """Returns the names that an expression reads, those of functions left out."""
    called = {id(n.func) for n in ast.walk(tree) if isinstance(n, ast.Call)}
    return {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and id(n) not in called}


def slice_of(lines, wanted):
    """Returns the lines that the wanted names need, in order."""
    needed, kept = set(wanted), []
    for name, tree in reversed(lines):
        if name in needed:
            kept.append((name, tree))
            needed |= names_in(tree)
    return kept[::-1]


def facts_in(lines):
    """Returns the names of which the lines read shape, rank or dtype alone, and no elements."""
    read, facts = set(), set()

    def visit(node):
        if isinstance(node, ast.Name):
            read.add(node.id)
            return
        is_field = isinstance(node, ast.Attribute)
        is_fact = isinstance(node, ast.Call) and node.func.id in _FACTS
        inner = [node.value] if is_field else node.args if is_fact else []
        if inner and isinstance(inner[0], ast.Name):
            facts.add(inner[0].id)
            return
        children = ast.iter_child_nodes(node)
        if isinstance(node, ast.Call):
            children = [*node.args, *(k.value for k in node.keywords)]
        for child in children:
            visit(child)

    for _, tree in lines:
        visit(tree)
    return facts - read


class _Translator(ast.NodeTransformer):
    """Makes an expression that Python runs. `known` are the names that have values, and `enums` the
    attributes whose values are names: beside them a name is one, also if a line has the same."""

    def __init__(self, known, enums):
        self.known, self.enums = known, enums

    def visit_Compare(self, node):
        sides = [node.left, *node.comparators]
        if any(isinstance(s, ast.Name) and s.id in self.enums for s in sides):
            sides = [ast.Constant(s.id) if isinstance(s, ast.Name) and s.id not in self.enums else s
                     for s in sides]
        node.left, *node.comparators = [self.visit(s) for s in sides]
        return node

    def visit_Name(self, node):
        if node.id in self.known:
            return node
        return ast.copy_location(ast.Constant(node.id), node)

    def visit_Attribute(self, node):
        if node.attr not in _FIELDS:
            raise Unreadable(f"'.{node.attr}'")
        return _call(f"_{node.attr}", [self.visit(node.value)])

    def visit_Call(self, node):
        name = node.func.id
        arguments = [self.visit(a) for a in node.args]
        if name not in _VIEWS and name not in _NUMBERS:
            return self.op_call(name, arguments, node.keywords)
        keywords = [ast.keyword(k.arg, self.visit(k.value)) for k in node.keywords]
        if name == "given":
            return ast.Compare(arguments[0], [ast.IsNot()], [ast.Constant(None)])
        return _call(f"_{name}", arguments, keywords)

    def full_name(self, name):
        """Formulas of a vendor call `acme.swiglu` as acme_swiglu."""
        if name in _core.op_names():
            return name
        return next((n for n in _core.op_names() if n.replace(".", "_") == name), name)

    def visit_value(self, value, is_enum):
        is_value = isinstance(value, ast.Name) and is_enum and value.id not in self.enums
        return ast.Constant(value.id) if is_value else self.visit(value)

    def op_call(self, name, arguments, keywords):
        """Positional arguments of a formula are the tensors of the op, in their order."""
        described = _core.describe(self.full_name(name))
        enums = {a["name"] for a in described["arguments"] if a["values"]}
        inputs = [a["name"] for a in described["arguments"]
                  if a["is_tensor"] and not a["is_output"]]
        keywords = [ast.keyword(k.arg, self.visit_value(k.value, k.arg in enums))
                    for k in keywords]
        keywords += [ast.keyword(inputs[i], a) for i, a in enumerate(arguments)]
        if any(a["is_given_shape"] for a in described["arguments"]):
            keywords.append(ast.keyword("device", ast.Name("_device", ast.Load())))
        if name == "copy":
            return _call("_copy", [], keywords)
        call = _call("_op", [ast.Constant(described["name"])])
        return ast.Call(call, [], keywords)


def _call(name, arguments, keywords=()):
    return ast.Call(ast.Name(name, ast.Load()), arguments, list(keywords))


def compile_lines(lines, parameters, enums, results):
    """Returns a function of a dict of values that runs the lines, and returns the results."""
    known = set(parameters) | {"_device"}
    body = [ast.parse(f"{p} = _values.get({p!r})").body[0] for p in sorted(parameters)]
    for name, tree in lines:
        value = _Translator(known, enums).visit(copy.deepcopy(tree))
        body.append(ast.Assign([ast.Name(name, ast.Store())], value))
        known.add(name)
    listed = ast.List([ast.Name(r, ast.Load()) for r in results], ast.Load())
    body.append(ast.Return(listed))
    function = ast.parse("def formula(_values, _device, _before): pass").body[0]
    function.body = body
    module = ast.fix_missing_locations(ast.Module([function], []))
    scope = dict(_SCOPE)
    exec(compile(module, "<formula>", "exec"), scope)  # The host has checked the formula.
    return scope["formula"]


# ---- What formulas call --------------------------------------------------------------------------


def _numel(x):
    shape = x if isinstance(x, (list, tuple)) else x.shape
    count = 1
    for extent in shape:
        count *= extent
    return count


def _reduced(shape, axes, keepdims):
    if keepdims:
        return [1 if i in axes else n for i, n in enumerate(shape)]
    return [n for i, n in enumerate(shape) if i not in axes]


def _window(size, kernel, stride, padding, dilation):
    count = len(kernel)
    return [(size[i] + padding[i] + padding[count + i] - dilation[i] * (kernel[i] - 1) - 1)
            // stride[i] + 1 for i in range(count)]


def _covered(count, kernel, stride, padding, dilation, extra):
    n = len(kernel)
    return [(count[i] - 1) * stride[i] - padding[i] - padding[n + i]
            + dilation[i] * (kernel[i] - 1) + extra[i] + 1 for i in range(n)]


def _broadcast(a, b):
    rank = max(len(a), len(b))
    a, b = [1] * (rank - len(a)) + list(a), [1] * (rank - len(b)) + list(b)
    return [n if m == 1 else m for m, n in zip(a, b)]


def _band(rows, columns, begin, end):
    return sum(max(0, min(columns, r + end) - max(0, r + begin)) for r in range(rows))


def _acc(x):
    dtype = x.dtype
    return _core.dtype("f32") if dtype.name in ("f16", "bf16") else dtype


def _is_integer(x):
    return x.dtype.name[0] in "iu"


def _copy(x, dtype=None, y=None):
    """A copy to the dtype that a tensor has is the tensor."""
    return x if dtype is None or x.dtype == dtype else x.to(_core.dtype(dtype))


def _slice(x, axis, start, stop):
    return x.slice(axis, start, stop)


_SCOPE = {
    "_shape": lambda x: list(x.shape),
    "_ndim": lambda x: x.ndim,
    "_dtype": lambda x: x.dtype,
    "_max": max,
    "_min": min,
    "_len": len,
    "_numel": _numel,
    "_reduced": _reduced,
    "_window": _window,
    "_covered": _covered,
    "_broadcast": _broadcast,
    "_blocks": lambda shape, counts: list(counts),
    "_band": _band,
    "_acc": _acc,
    "_is_integer": _is_integer,
    "_is_quantized": lambda x: False,
    "_reshape": lambda x, shape: x.reshape(shape),
    "_permute": lambda x, axes: x.permute(axes),
    "_expand": lambda x, shape: x.expand(shape),
    "_slice": _slice,
    "_transpose": lambda x: x.transpose(-2, -1),
    "_copy": _copy,
    "_op": functools.lru_cache(maxsize=None)(_core.op),
}
