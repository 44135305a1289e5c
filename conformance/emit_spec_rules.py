#!/usr/bin/env python3
"""Writes each rule that the spec has for a call, as data: emit_spec_rules.py SPEC_RULES.CPP

A rule is a condition in postfix notation, which cases/rules/spec_rules.cpp evaluates over a frame.
It reads the spec a second time, apart from the checks that ops_spec/emit_infer.py writes. The words
are:

  #N #F.F          an int, a number
  shape:X ndim:X numel:X dtype:X count:X given:X     of an argument; of a list, its first tensor
  item.shape:X item.ndim:X item.numel:X item.dtype:X  of the tensor at hand, if X is a list
  attr:X           the value of an attribute
  concatenated:X   the shape of a list's tensors behind each other; takes the axis
  list:N           the last N ints as a list
  end              the end of a slice
  dtype.D          a dtype
  in:D,D           whether a dtype is one of these
  sound:X          whether the elements of X can be counted
  scalar:X         whether the value beside the tensor X fits a dtype
  if               condition, value, other value
and the functions and operators of ops_spec/expressions.py by name.
"""

import ast
import re

import expressions
import generate
import output
import spec

MOST_AXES = 8


class Program:
    """Writes expressions of one op; `item` is the list whose tensors are read one by one."""

    def __init__(self, op, item=""):
        self.op = op
        self.item = item

    def words(self, node):
        kinds = {ast.Constant: self.constant, ast.Name: self.name, ast.Attribute: self.attribute,
                 ast.Subscript: self.subscript, ast.List: self.listed, ast.BinOp: self.binary,
                 ast.UnaryOp: lambda n: ["#0", *self.words(n.operand), "sub"],
                 ast.IfExp: self.choice, ast.Compare: self.compare, ast.Call: self.call}
        return kinds[type(node)](node)

    def leaf(self, what, name):
        of_item = bool(self.item) and self.op.arg(name).is_list
        return f"{'item.' if of_item else ''}{what}:{name}"

    def constant(self, node):
        return [f"#{node.value}"]

    def name(self, node):
        return [f"attr:{node.id}"]

    def attribute(self, node):
        return [self.leaf(node.attr, node.value.id)]

    def subscript(self, node):
        source = self.words(node.value)
        if not isinstance(node.slice, ast.Slice):
            return [*source, *self.words(node.slice), "at"]
        lower = self.words(node.slice.lower) if node.slice.lower else ["#0"]
        upper = self.words(node.slice.upper) if node.slice.upper else ["end"]
        return [*source, *lower, *upper, "slice"]

    def listed(self, node):
        items = [word for item in node.elts for word in self.words(item)]
        return [*items, f"list:{len(node.elts)}"]

    def binary(self, node):
        types = [n.spec_type for n in (node.left, node.right)]
        operator = {("dims", "dims"): "concat", ("dims", "int"): "repeat"}.get(
            tuple(types), expressions.ARITHMETIC[type(node.op)])
        return [*self.words(node.left), *self.words(node.right), operator]

    def choice(self, node):
        return [*self.words(node.test), *self.words(node.body), *self.words(node.orelse), "if"]

    def compare(self, node):
        left, right = node.left, node.comparators[0]
        if left.spec_type == "enum":
            arg = self.op.arg(left.id)
            other = [f"#{arg.enum_values.index(right.id) + arg.first_value}"]
        else:
            other = self.words(right)
        return [*self.words(left), *other, expressions.COMPARISONS[type(node.ops[0])]]

    def call(self, node):
        name, args = node.func.id, node.args
        if name in ("len", "given"):
            return [f"{'count' if name == 'len' else 'given'}:{args[0].id}"]
        if name in ("is_integer", "is_quantized"):
            return [*dtype_words(self.op, self.op.arg(args[0].id)), name]
        if name == "concatenated":
            return [*self.words(args[1]), f"concatenated:{args[0].id}"]
        if name == "numel" and isinstance(args[0], ast.Name) and self.op.arg(args[0].id).is_tensor:
            return [self.leaf("numel", args[0].id)]
        return [word for arg in args for word in self.words(arg)] + [name]


def dtype_words(op, arg):
    """Returns the dtype that an argument has or, if it follows from another argument, must have."""
    if arg.is_free and arg.kind == "scalar|tensor":  # An inline scalar has the first dtype.
        return [f"given:{arg.name}", f"dtype:{arg.name}", f"dtype.{arg.dtypes[0]}", "if"]
    if arg.is_free and not arg.is_out:
        return [f"dtype:{arg.name}"]
    if arg.is_free:
        otherwise = rule_words(op, arg.default_dtype) if arg.default_dtype else ["#0"]
        return [f"given:{arg.name}", f"dtype:{arg.name}", *otherwise, "if"]
    return rule_words(op, arg.dtype)


def rule_words(op, rule):
    match = re.fullmatch(r"(\w+)\((\w+)\)", rule)
    if not match:
        return [f"dtype.{rule}"]
    words = dtype_words(op, op.arg(match[2]))
    return words + {"like": [], "acc": ["acc"], "sum": ["sum_dtype"]}[match[1]]


def tensor_rules(op, arg):
    """Returns (kind, text, words) for each tensor that stands for the argument."""
    item = Program(op, arg.name if arg.is_list else "")
    own = item.leaf("dtype", arg.name)
    yield "shape", f"{arg.name} has at most 2^58 elements", [item.leaf("sound", arg.name)]
    if arg.is_free:
        yield "dtype", f"{arg.name} is {arg.dtype_set}", [own, "in:" + ",".join(arg.dtypes)]
    if not arg.is_free or arg.is_list:
        yield "dtype", f"{arg.name} is {arg.dtype or 'as the first'}", [
            own, *dtype_words(op, arg), "=="]
    yield from rank_rules(arg, item)
    if arg.kind == "scalar|tensor":
        yield "shape", f"{arg.name} has one element", [f"numel:{arg.name}", "#1", "=="]
    if "shape" in arg.values and not arg.is_out:
        value = arg.values["shape"]
        yield "shape", f"{arg.name}.shape == {value.text}", [
            item.leaf("shape", arg.name), *item.words(value.node), "=="]


def rank_rules(arg, item):
    own = item.leaf("ndim", arg.name)
    if "ndim" in arg.values:
        value = arg.values["ndim"]
        yield "rank", f"{arg.name}.ndim == {value.text}", [own, *item.words(value.node), "=="]
    elif arg.ndim is not None:
        low, high = arg.ndim
        if low > 0:
            yield "rank", f"{arg.name}.ndim >= {low}", [own, f"#{low}", ">="]
        if high < MOST_AXES:
            yield "rank", f"{arg.name}.ndim <= {high}", [own, f"#{high}", "<="]


def attribute_rules(op, arg):
    words = Program(op).words
    own = f"attr:{arg.name}"
    if arg.kind == "enum":
        if arg.first_value:  # No value is below 0.
            yield "values", f"{arg.name} >= {arg.first_value}", [own, f"#{arg.first_value}", ">="]
        yield "values", f"{arg.name} <= {arg.last_value}", [own, f"#{arg.last_value}", "<="]
    if "count" in arg.values:
        count = arg.values["count"]
        text = f"len({arg.name}) == {count.text}"
        test = [f"count:{arg.name}", *words(count.node), "=="]
        empty = [f"count:{arg.name}", "#0", "==", "or"] if arg.may_be_empty else []
        yield "count", text + (" or 0" if empty else ""), test + empty
    for key, sign in (("min", ">="), ("max", "<="), ("below", "<")):
        if key in arg.values:
            value = arg.values[key]
            each = "each" if arg.kind == "i64[]" else ""
            yield "bound", f"{arg.name} {sign} {value.text}", [
                own, *words(value.node), each + sign]
    if arg.distinct:
        yield "distinct", f"no value of {arg.name} twice", [own, "distinct"]


def rules(op):
    """Returns rows (argument, of each tensor, kind, text, words)"""
    for arg in op.args:
        if arg.is_input or arg.kind == "scalar|tensor" or arg.shape == "given":
            yield from ((arg.name, True, *rule) for rule in tensor_rules(op, arg))
        elif arg.is_out and arg.is_free:
            yield (arg.name, True, "dtype", f"{arg.name} is {arg.dtype_set}",
                   [f"dtype:{arg.name}", "in:" + ",".join(arg.dtypes)])
        if arg.has_scalar:
            yield (arg.name, False, "dtype", f"the value of {arg.name} fits its dtype",
                   [f"given:{arg.name}", *dtype_words(op, arg), f"scalar:{arg.name}", "or",
                    *([f"absent:{arg.name}", "or"] if arg.may_be_absent else [])])
        if arg.is_attribute or arg.is_list:
            yield from ((arg.name, False, *rule) for rule in attribute_rules(op, arg))
        if arg.is_out and "shape" in arg.values and may_fail(op, arg.values["shape"].node):
            value = arg.values["shape"]
            yield (arg.name, False, "output", f"there is {value.text}",
                   [*Program(op).words(value.node), "exists"])
    for item in op.requires:
        test = Program(op).words(item.rule.node)
        if item.when:
            test += [*Program(op).words(item.when.node), "not", "or"]
        text = item.rule.text + (f" where {item.when.text}" if item.when else "")
        yield "", False, "requires", text, test


def may_fail(op, node):
    """Returns whether a shape may be missing although all inputs have one; parts always exist."""
    if isinstance(node, ast.Attribute):
        arg = op.arg(node.value.id)
        return arg.is_out and may_fail(op, arg.values["shape"].node)
    if isinstance(node, ast.Subscript):
        return may_fail(op, node.value)
    if isinstance(node, ast.IfExp):
        return may_fail(op, node.body) or may_fail(op, node.orelse)
    if isinstance(node, ast.Call):
        return node.func.id != "reduced" or may_fail(op, node.args[0])
    return not (isinstance(node, ast.List) and len(node.elts) <= 1)


def outputs(op):
    """Returns (argument, words of the shape, of the dtype); shape "" if the caller chooses."""
    for arg in op.outputs:
        shape = Program(op).words(arg.values["shape"].node) if "shape" in arg.values else []
        yield arg.name, shape, dtype_words(op, arg)


def flops(op):
    """Returns the words of a product's cost; none for an op whose roof is memory."""
    return Program(op).words(op.flops_value.node) if op.flops_value else []


def looked_up(op):
    return next((a.name for a in op.args if a.looked_up), "")


def quoted(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def resolved(op, words):
    """Returns the words with shapes of outputs, which no call has yet, in terms of input shapes."""
    shapes = {name: shape for name, shape, _ in outputs(op) if shape}
    for word in words:
        what, _, name = word.partition(":")
        if name in shapes and what in ("shape", "ndim", "numel"):
            yield from resolved(op, shapes[name])
            yield from {"shape": [], "ndim": ["len"], "numel": ["numel"]}[what]
        else:
            yield word


def spelled(op, words):
    return quoted(" ".join(resolved(op, words)))


def source(ops):
    out = [generate.banner("ops_spec/ops", "emit_spec_rules.py", "Do not edit."),
           '#include "conformance/cases/rules/spec_rules.hpp"', "",
           '#include "backplane/ops.h"', "",
           "namespace bp::conformance {", "namespace {", ""]
    for op in ops:
        out.append(f"const SpecRule k_{op.c_name}_rules[] = {{")
        out += [f"    {{{quoted(name)}, {str(each).lower()}, {quoted(kind)}, {quoted(text)}, "
                f"{spelled(op, words)}}}," for name, each, kind, text, words in rules(op)]
        out += ["};", f"const SpecOutput k_{op.c_name}_outputs[] = {{"]
        out += [f"    {{{quoted(name)}, {spelled(op, shape)}, {spelled(op, dtype)}}},"
                for name, shape, dtype in outputs(op)] or ["    {nullptr, nullptr, nullptr},"]
        out += ["};", ""]
    out += ["}  // namespace", "", "SpecOp spec_of(uint32_t op) {", "  switch (op) {"]
    for op in ops:
        count = len(list(outputs(op)))
        out.append(f"    case BP_OP_{op.c_name.upper()}: return {{k_{op.c_name}_rules, "
                   f"{{k_{op.c_name}_outputs, {count}}}, {spelled(op, flops(op))}, "
                   f"{quoted(looked_up(op))}}};")
    out += ["    default: return {};", "  }", "}", "", "}  // namespace bp::conformance", ""]
    return "\n".join(out)


if __name__ == "__main__":
    output.path().write_text(source(spec.load()), encoding="utf-8")
