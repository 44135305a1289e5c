#!/usr/bin/env python3
"""Writes the description of every op, as bp_op_describe() lends it: emit_descriptions.py OUTPUT.CPP

The descriptions stand in the order of the spec, which is that of ops.def.
"""

import ast
import re

import generate
import output
import spec


def text(value):
    """Returns a C string of one line, or nullptr for what the entry does not have."""
    if value is None or value == "":
        return "nullptr"
    line = " ".join(str(value).split()).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{line}"'


def lines(value):
    """Returns a C string that keeps its line breaks."""
    if not value:
        return "nullptr"
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + escaped.replace("\n", '\\n" "') + '"'


def rank_rule(arg):
    if isinstance(arg.ndim, tuple):
        return f"{arg.ndim[0]} to {arg.ndim[1]}"
    return arg.ndim


def count_rule(arg):
    if arg.count is None:
        return None
    return f"{arg.count} or 0" if arg.may_be_empty else arg.count


def default_value(arg):
    """Returns the bp_scalar of a default that is a number or a value of the enumeration."""
    if arg.kind == "enum" and arg.default is not None:
        number = arg.first_value + arg.enum_values.index(arg.default)
        return f"{{BP_I64, 0, {number}}}"
    if isinstance(arg.default, bool) or not isinstance(arg.default, (int, float)):
        return "{0, 0, 0}"
    if arg.kind == "f64":
        return f"{{BP_F64, 0, std::bit_cast<uint64_t>({float(arg.default)!r})}}"
    if arg.kind == "i64[]":
        return "{0, 0, 0}"
    return f"{{BP_I64, 0, static_cast<uint64_t>(int64_t{{{arg.default}}})}}"


def renamed(text, names, suffix):
    """Returns a formula whose own names end in `suffix`. The keyword of a call stays."""
    for name in names:
        text = re.sub(rf"\b{name}\b(?!=)", f"{name}_{suffix}", text)
    return text


def backward(op):
    """Returns how gradients are computed as one text. Formulas of different inputs may use one name
    for different values, so each name gets that of its input."""
    if not isinstance(op.backward, dict):
        return op.backward
    parts = [op.backward["prelude"].strip()] if "prelude" in op.backward else []
    for name, formula in op.gradients.gradients.items():
        text = op.backward[name].strip()
        body = ast.parse(text if "\n" in text else " ".join(text.split())).body
        last = ast.get_source_segment(text, body[-1])
        before = text[:len(text) - len(last)] if len(body) > 1 else ""
        joined = f"{before}grad_{name} = {last if before else text}"
        parts.append(renamed(joined, [line.name for line in formula.statements], name))
    return "\n".join(parts)


def condition(op):
    """Returns which calls the decomposition serves, as an expression; None if it serves all."""
    def is_given(arg):
        if arg.kind == "enum":
            return f"{arg.name} != {arg.enum_values[0]}"
        return f"given({arg.name})" if arg.is_tensor else f"{arg.name} != 0"

    return " or ".join(is_given(op.arg(name)) for name in op.decompose_where_given)


class Description:
    """Makes the description of one op, and the lists that it points to, as lines of C++."""

    def __init__(self, op):
        self.op = op
        self.index = {arg.name: i for i, arg in enumerate(op.args)}

    def list_name(self, arg, what):
        return f"k_{self.op.c_name}_{arg.name}_{what}"

    def lists(self, arg):
        if arg.dtypes and not arg.dtype:
            names = ", ".join(f"BP_{dtype.upper()}" for dtype in arg.dtypes)
            yield f"constexpr bp_dtype {self.list_name(arg, 'dtypes')}[] = {{{names}}};"
        if arg.kind != "enum":
            return
        names = ", ".join(f'"{value}"' for value in arg.enum_values)
        yield f"constexpr const char* {self.list_name(arg, 'values')}[] = {{{names}}};"
        since = ", ".join(str(arg.values_since.get(value, arg.since)) for value in arg.enum_values)
        yield f"constexpr uint32_t {self.list_name(arg, 'revisions')}[] = {{{since}}};"

    def argument(self, arg):
        free = bool(arg.dtypes) and not arg.dtype
        is_enum = arg.kind == "enum"
        aliases = " | ".join(f"uint64_t{{1}} << {self.index[n]}" for n in arg.may_alias) or "0"
        rule = arg.dtype_rule if arg.dtype_rule != "none" else None
        return [
            "    {.struct_size = sizeof(bp_op_argument),",
            "     .struct_type = BP_STRUCT_OP_ARGUMENT,",
            "     .next = nullptr,",
            f'     .name = "{arg.name}",',
            f"     .kind = {list(spec.KINDS).index(arg.kind) + 1},",
            f"     .offset_bytes = offsetof(bp_{self.op.c_name}_args, {arg.name}),",
            f"     .since = {arg.since},",
            f"     .dtype_count = {len(arg.dtypes) if free else 0},",
            f"     .dtypes = {self.list_name(arg, 'dtypes') if free else 'nullptr'},",
            f"     .dtype_rule = {text(rule)},",
            f"     .default_dtype = {text(arg.default_dtype)},",
            f"     .shape_rule = {text(arg.shape)},",
            f"     .rank_rule = {text(rank_rule(arg))},",
            f"     .count_rule = {text(count_rule(arg))},",
            f"     .at_least = {text(arg.min)},",
            f"     .at_most = {text(arg.max)},",
            f"     .below = {text(arg.below)},",
            f"     .default_text = {text(arg.default)},",
            f"     .default_value = {default_value(arg)},",
            f"     .may_alias = {aliases},",
            f"     .value_names = {self.list_name(arg, 'values') if is_enum else 'nullptr'},",
            f"     .value_revisions = "
            f"{self.list_name(arg, 'revisions') if is_enum else 'nullptr'},",
            f"     .value_count = {len(arg.enum_values)},",
            f"     .first_value = {arg.first_value if is_enum else 0},",
            f"     .doc = {text(arg.doc)}}},",
        ]

    def arguments(self):
        for arg in self.op.args:
            yield from self.lists(arg)
        yield f"constexpr bp_op_argument k_{self.op.c_name}[] = {{"
        for arg in self.op.args:
            yield from self.argument(arg)
        yield "};"

    def row(self):
        op = self.op
        since = [op.since] + [arg.since for arg in op.args]
        since += [revision for arg in op.args for revision in arg.values_since.values()]
        return [
            "    {.struct_size = sizeof(bp_op_desc),",
            "     .struct_type = BP_STRUCT_OP_DESC,",
            "     .next = nullptr,",
            f'     .name = "{op.name}",',
            f"     .doc = {text(op.doc)},",
            f"     .op = BP_OP_{op.c_name.upper()},",
            f"     .since = {op.since},",
            f"     .revision = {max(since)},",
            f"     .frame_size_bytes = sizeof(bp_{op.c_name}_args),",
            f"     .arguments = k_{op.c_name},",
            f"     .argument_count = {len(op.args)},",
            "     .argument_stride_bytes = sizeof(bp_op_argument),",
            f'     .numerics = "{op.numerics}",',
            f"     .decomposition = {lines(op.decompose)},",
            f"     .condition = {text(condition(op))},",
            f"     .backward = {lines(backward(op))},",
            f"     .formula_revision = {op.decompose_revision},",
            f"     .backward_revision = {op.backward_revision}}},",
        ]


def source(ops):
    out = [generate.banner("ops_spec/ops", "emit_descriptions.py", "Do not edit."),
           "#include <bit>", "#include <cstddef>", "",
           '#include "registry/calls/descriptions.hpp"', '#include "backplane/ops.h"', "",
           "namespace bp::core {", "namespace {", ""]
    for op in ops:
        out += [*Description(op).arguments(), ""]
    out += ["constexpr bp_op_desc kDescriptions[] = {"]
    for op in ops:
        out += Description(op).row()
    out += ["};", "", "}  // namespace", "",
            "std::span<const bp_op_desc> descriptions() { return kDescriptions; }", "",
            "}  // namespace bp::core", ""]
    return "\n".join(out)


if __name__ == "__main__":
    output.write(output.path(), source(spec.load()))
