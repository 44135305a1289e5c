"""The gradients of the spec as C++. emit_autograd.py makes nodes of them; it and emit_wrappers.py
also ask this module about an op's formulas.
"""

import ast
import re

import expressions
import formulas
from signatures import enum_type, is_flag, pascal, recorded_inputs, signature

def differentiable_outputs(op):
    """Returns the outputs whose gradients the formulas of the op read, in order."""
    read = set().union(*(part for v in parts_of(op.gradients) for part in formulas.reads(v)))
    return [a for a in op.outputs if f"grad_{a.name}" in read]


def parts_of(gradients):
    """Returns all that the gradients of an op compute, in order."""
    if gradients.op:
        return [gradients.call]
    parts = [s.value for s in gradients.prelude]
    for formula in gradients.gradients.values():
        parts += [s.value for s in formula.statements] + [formula.result]
    return parts


def values_of(gradients):
    """Returns all expressions in the gradients of an op."""
    return [node for part in parts_of(gradients) for node in formulas.walk(part)
            if isinstance(node, expressions.Value)]


def asks_given(gradients, name):
    """Returns whether a formula asks given(name), or the backward op takes `name` or nothing."""
    if gradients.op:
        return gradients.op.arg(name) is not None and gradients.op.arg(name).is_optional
    return any(isinstance(n, ast.Call) and n.func.id == "given" and n.args[0].id == name
               for value in values_of(gradients) for n in ast.walk(value.node))


def without_gradient(op, ops):
    """Returns the inputs that may be floats and have no gradient. If the op is the backward of
    another op, the results of that op do not count: they are functions of that op's inputs, and the
    gradients of these lead through it. If such an op has no gradient at all, all of its inputs do,
    because a second derivative would lack it."""
    forwards = [o for o in ops if o.gradients.op is op]
    if not recorded_inputs(op):
        return [a for a in op.inputs if _may_be_float(op, a)] if forwards else []
    results = {a.name for forward in forwards for a in forward.outputs}
    return [a for a in op.inputs if a.name not in op.gradients.gradients and
            a.name not in results and _may_be_float(op, a)]


def _may_be_float(op, arg):
    source = re.fullmatch(r"\w+\((\w+)\)", arg.dtype)
    if source:
        return _may_be_float(op, op.arg(source[1]))
    return any(re.match(r"b?f\d", dtype) for dtype in arg.dtypes)


def _paths(value, name, path=()):
    """Yields the conditions on each way to where `value` reads tensor `name`, with whether they
    hold."""
    if isinstance(value, (formulas.Ref, formulas.ScalarRef)):
        if value.name == name:
            yield path
    elif isinstance(value, formulas.If):
        yield from _paths(value.then, name, path + ((value.condition, True),))
        yield from _paths(value.other, name, path + ((value.condition, False),))
    elif isinstance(value, formulas.View):
        yield from _paths(value.tensor, name, path)
    elif isinstance(value, formulas.Call):
        for arg in value.args.values():
            yield from _paths(arg, name, path)


def kept_when(op, name):
    """Returns the C++ of the condition over attributes under which a gradient reads the tensor
    `name`, or "" if it always does."""
    attributes = {a.name for a in op.attributes if a.kind != "i64[]"}

    def resolve(what, of):
        if what == "enum":
            arg = op.arg(of.split(".")[0])
            return f"{enum_type(arg)}::k{pascal(of.split('.')[1])}"
        return f"int64_t{{{of}}}" if is_flag(op.arg(of)) else of

    ways = []
    for path in (p for part in parts_of(op.gradients) for p in _paths(part, name)):
        known = [("" if holds else "!") + expressions.cpp(condition, resolve)
                 for condition, holds in path if condition.names() <= attributes]
        if not known:
            return ""
        ways.append(" && ".join(known))
    ways = list(dict.fromkeys(ways))
    return ways[0] if len(ways) == 1 else " || ".join(f"({way})" for way in ways)


class Expressions:
    """Writes the formulas of one op as C++ within its node. A kept argument NAME is NAME_ there, or
    NAME_meta_ if only its shape and dtype are kept. A subclass has op, inputs, outputs, gradients
    and list: the input that is a list, or None."""

    def resolve(self, what, name):
        """Implements resolve() for expressions.cpp()."""
        if what == "enum":
            arg = self.op.arg(name.split(".")[0])
            return f"{enum_type(arg)}::k{pascal(name.split('.')[1])}"
        arg = self.op.arg(name)
        if what == "attr":
            if arg is None:
                return name
            return f"int64_t{{{name}_}}" if is_flag(arg) else f"{name}_"
        is_kept = arg is not None
        if what == "list":
            return f"std::span({name}_metas_).first(i)"
        item = arg is not None and arg is self.list
        source = f"{name}_metas_[i]" if item else f"{name}_meta_" if is_kept else name
        shape = f"shape_of({source})"
        return {"shape": shape, "ndim": f"{shape}.count", "numel": f"dims::numel({shape})",
                "dtype": f"{source}.dtype" if is_kept else f"{source}.dtype()",
                "given": f"({source}.dtype != 0)" if is_kept else f"bool({name})"}[what]

    def value(self, value):
        return expressions.cpp(value, self.resolve)

    def tensor(self, node):
        """Returns the C++ of a tensor in a formula, or of a number for an operand."""
        if isinstance(node, (formulas.Ref, formulas.ScalarRef)):
            return node.name
        if isinstance(node, formulas.View):
            return self.view(node)
        if isinstance(node, formulas.If):
            return (f"({self.value(node.condition)} ? Tensor({self.tensor(node.then)}) "
                    f": Tensor({self.tensor(node.other)}))")
        if isinstance(node, formulas.Call):
            return self.call(node)
        return self.value(node)

    def view(self, node):
        params = [f"ints({self.value(v)})" if v.type == "dims" else self.value(v)
                  for v in node.params.values()]
        return f"{self.tensor(node.tensor)}.{node.kind}({', '.join(params)})"

    def call(self, node):
        if node.op.name == "copy":  # A cast, which does nothing if the dtype is right already.
            return f"{self.tensor(node.args['x'])}.to({self.value(node.dtype)})"
        arguments = [self.argument(node, p) for p in signature(node.op, False)]
        return f"bp::{node.op.c_name}({', '.join(arguments)})"

    def argument(self, node, parameter):
        name = parameter.name
        if name in node.args:
            return self.tensor(node.args[name])
        if name in node.attrs:
            arg, text = node.op.arg(name), self.value(node.attrs[name])
            if arg.kind == "enum":
                return f"static_cast<{enum_type(arg)}>({text})"
            if is_flag(arg):
                return f"{text} != 0"
            return f"ints({text})" if arg.kind == "i64[]" else text
        if name == "dtype" and node.dtype is not None:
            return self.value(node.dtype)
        if name == "shape" and node.shape is not None:
            return f"ints({self.value(node.shape)})"
        if name == "device":
            return f"device_of(grad_outputs, {len(self.outputs)})"
        if node is self.gradients.call and parameter.kind == "Tensor*":
            index = self.index_of(name)
            return f"needs({index}) ? &grad_inputs[{index}] : nullptr"
        return "Tensor()" if parameter.default == "{}" else parameter.default

    def index_of(self, output):
        """Returns the index of the input whose gradient is this output of the backward op."""
        own = self.gradients.gradients
        return next(i for i, a in enumerate(self.inputs) if own[a.name] == output)

    def statement(self, assign):
        value = assign.value
        if not isinstance(value, expressions.Value):
            return f"const Tensor {assign.name} = {self.tensor(value)};"
        if value.type == "dims":
            return f"const dims::Dims {assign.name}({self.value(value)});"
        return f"const auto {assign.name} = {self.value(value)};"
