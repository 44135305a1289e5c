#!/usr/bin/env python3
"""Writes the argument checks and the shape inference of every op: emit_infer.py OP_INFER.CPP

Each op becomes one function over the predicates of checks.hpp, in this order: tensors, dtypes,
ranks, attributes, shapes of inputs, rules, outputs, rules that read outputs.
"""

import ast
import re

import expressions
import generate
import output
import spec

def dtype_mask(dtypes):
    return "kSet_" + "_".join(dtypes)


def quoted(text):
    return '"' + " ".join(text.split()).replace("\\", "\\\\").replace('"', '\\"') + '"'


class Function:
    """Makes the infer function of one op, as lines of C++."""

    def __init__(self, op):
        self.op = op
        self.lines = []
        self.index = {arg.name: i for i, arg in enumerate(op.args)}
        self.outputs = {arg.name: i for i, arg in enumerate(
            a for a in op.args if a.kind in ("out", "out?"))}

    def add(self, text, depth=1):
        self.lines.append("  " * depth + text)

    def refuse(self, condition, call, depth=1):
        self.add(f"if ({condition}) {{", depth)
        self.add(f"return {call};", depth + 1)
        self.add("}", depth)

    def resolve(self, item=""):
        """Implements resolve() for expressions.cpp(). `item` indexes the lists of tensors."""
        op = self.op

        def leaf(what, name):
            arg = op.arg(name.split(".")[0])
            if what == "enum":
                return f"BP_{op.c_name}_{name.replace('.', '_')}".upper()
            if what == "attr":
                plain = {"enum": f"f.{name}", "f64": f"f.{name}", "dtype": f"f.{name}",
                         "i64[]": f"dims::list(f.{name}, f.{name}_count)",
                         "u64": f"static_cast<int64_t>(f.{name})"}
                return plain.get(arg.kind, f"int64_t{{f.{name}}}")
            shape = f"dims::shape(*f.{name}{item})"
            if arg.is_list and not item:
                shape = f"dims::first_shape(f.{name}, f.{name}_count)"
            if name in self.outputs:
                shape = f"shape(out[{self.outputs[name]}])"
            return {"count": f"static_cast<int64_t>(f.{name}_count)",
                    "list": f"std::span(f.{name}, f.{name}_count)",
                    "given": f"(f.{name} != nullptr)", "dtype": f"{name}_dtype", "shape": shape,
                    "ndim": f"{shape}.count", "numel": f"dims::numel({shape})"}[what]
        return leaf

    def cpp(self, value, item=""):
        return expressions.cpp(value, self.resolve(item))

    def names(self, *values):
        """Returns the bits of the arguments that expressions read."""
        names = set().union(*(value.names() for value in values if value))
        return " | ".join(f"1u << {i}" for i in sorted(self.index[n] for n in names)) or "0u"

    def each(self, arg, body):
        """Calls body(C++ of the tensor, item index, depth) in a loop for a list, else once."""
        if arg.is_list:
            self.add(f"for (uint64_t i = 0; i < f.{arg.name}_count; ++i) {{")
            body(f"f.{arg.name}[i]", "static_cast<int64_t>(i)", 2)
            self.add("}")
        elif arg.is_optional or arg.has_scalar:
            self.add(f"if (f.{arg.name} != nullptr) {{")
            body(f"f.{arg.name}", "kNoItem", 2)
            self.add("}")
        else:
            body(f"f.{arg.name}", "kNoItem", 1)

    def tensors(self):
        for arg in self.op.args:
            index = self.index[arg.name]
            if arg.is_list:
                self.refuse(f"!is_list(f.{arg.name}, f.{arg.name}_count)",
                            f"bad_list(row, {index}, f.{arg.name}_count)")
            if arg.is_input or arg.kind == "scalar|tensor" or arg.shape == "given":
                self.each(arg, lambda tensor, item, depth, i=index: self.refuse(
                    f"!is_sound({tensor})", f"bad_tensor(row, {i}, {item}, {tensor})", depth))

    def dtypes(self):
        for arg in self.op.dtype_order:
            self.scalar_tensor(arg) if arg.kind == "scalar|tensor" else self.dtype(arg)

    def rule(self, rule):
        """Returns the C++ of like(x), acc(x), sum(x) or a dtype."""
        match = re.fullmatch(r"(\w+)\((\w+)\)", rule)
        if not match:
            return f"bp_dtype{{BP_{rule.upper()}}}"
        function = {"like": "", "acc": "dims::accumulator", "sum": "dims::sum_dtype"}[match[1]]
        return f"{function}({match[2]}_dtype)" if function else f"{match[2]}_dtype"

    def dtype(self, arg):
        name, index = arg.name, self.index[arg.name]
        if arg.is_out:
            if arg.is_free:
                default = self.rule(arg.default_dtype) if arg.default_dtype else "bp_dtype{0}"
                self.declare(name, f"chosen_dtype(f.{name}, {default})")
            else:
                self.declare(name, self.rule(arg.dtype))
        elif arg.is_list:
            own = f"f.{name}_count != 0 ? f.{name}[0]->dtype : bp_dtype{{0}}"
            self.declare(name, own if arg.is_free else self.rule(arg.dtype))
        else:
            own = f"f.{name}->dtype"
            if arg.is_optional:
                own = f"f.{name} != nullptr ? {own} : bp_dtype{{0}}"
            self.declare(name, own if arg.is_free else self.rule(arg.dtype))
        if arg.is_free:
            mask = dtype_mask(arg.dtypes)
            given = f"f.{name}_count != 0 && " if arg.is_list else ""
            if arg.kind == "tensor?":
                given = f"f.{name} != nullptr && "
            self.refuse(f"{given}!is_in({name}_dtype, {mask})",
                        f"bad_dtype(row, {index}, kNoItem, {name}_dtype, {mask})")
        if arg.is_input and (arg.is_list or not arg.is_free):
            self.each(arg, lambda tensor, item, depth: self.refuse(
                f"{tensor}->dtype != {name}_dtype",
                f"bad_dtype(row, {index}, {item}, {tensor}->dtype, 1u << {name}_dtype)", depth))
        if arg.kind == "operand":
            self.scalar(arg, f"f.{name} == nullptr && ")

    def declare(self, name, value):
        self.add(f"[[maybe_unused]] const bp_dtype {name}_dtype = {value};")

    def scalar(self, arg, condition):
        value = f"f.{arg.name}_scalar"
        if arg.is_appended or arg.may_be_absent:  # The call may give neither tensor nor scalar.
            condition += f"{value}.dtype != 0 && "
        self.refuse(f"{condition}!is_scalar({value}, {arg.name}_dtype)",
                    f"bad_scalar(row, {self.index[arg.name]}, {value}, {arg.name}_dtype)")

    def scalar_tensor(self, arg):
        name, index = arg.name, self.index[arg.name]
        if arg.is_free:  # An inline scalar has the first dtype of the set.
            first, mask = self.rule(arg.dtypes[0]), dtype_mask(arg.dtypes)
            self.declare(name, f"f.{name} != nullptr ? f.{name}->dtype : {first}")
            self.refuse(f"!is_in({name}_dtype, {mask})",
                        f"bad_dtype(row, {index}, kNoItem, {name}_dtype, {mask})")
        else:
            self.declare(name, self.rule(arg.dtype))
            self.refuse(f"f.{name} != nullptr && f.{name}->dtype != {name}_dtype",
                        f"bad_dtype(row, {index}, kNoItem, f.{name}->dtype, 1u << {name}_dtype)")
        self.scalar(arg, f"f.{name} == nullptr && ")
        self.refuse(f"f.{name} != nullptr && dims::numel(dims::shape(*f.{name})) != 1",
                    f"bad_element_count(row, {index}, *f.{name})")

    def ranks(self):
        for arg in self.op.args:
            if arg.ndim is None or (arg.is_out and arg.shape != "given"):
                continue
            index = self.index[arg.name]
            if isinstance(arg.ndim, tuple):
                low, high, text = *arg.ndim, "nullptr"
            else:
                low = high = self.cpp(arg.values["ndim"])
                text = quoted(arg.ndim) if isinstance(arg.ndim, str) else "nullptr"

            def body(tensor, item, depth):
                tests = [f"{tensor}->ndim < {low}"] * (low != 0) + [f"{tensor}->ndim > {high}"]
                test = f"{tensor}->ndim != {low}" if low == high else " || ".join(tests)
                given = f"{index}, {item}, {tensor}->ndim"
                self.refuse(test, f"bad_rank(row, {given}, {low}, {high}, {text})", depth)
            self.each(arg, body)

    def attributes(self):
        for arg in self.op.args:
            index = self.index[arg.name]
            if arg.kind == "enum":
                below = f"f.{arg.name} < {arg.first_value} || " if arg.first_value else ""
                self.refuse(f"{below}f.{arg.name} > {arg.last_value}",
                            f"bad_enumeration(row, {index}, f.{arg.name})")
            if arg.count is not None:
                self.count(arg, index)
            bounds = [b for b in ("min", "max", "below") if b in arg.values]
            if bounds and arg.kind == "i64[]":
                self.add(f"for (uint64_t i = 0; i < f.{arg.name}_count; ++i) {{")
                self.bounds(arg, f"f.{arg.name}[i]", "static_cast<int64_t>(i)", 2)
                self.add("}")
            elif bounds:
                value = f"f.{arg.name}" if arg.kind == "f64" else f"int64_t{{f.{arg.name}}}"
                self.bounds(arg, value, "kNoItem", 1)
            if arg.distinct:
                items = f"f.{arg.name}, f.{arg.name}_count"
                self.refuse(f"!are_distinct({items})",
                            f"bad_duplicate(row, {index}, dims::list({items}))")

    def count(self, arg, index):
        count, empty = self.cpp(arg.values["count"]), "true" if arg.may_be_empty else "false"
        test = f"static_cast<int64_t>(f.{arg.name}_count) != {count}"
        test += f" && f.{arg.name}_count != 0" if arg.may_be_empty else ""
        self.refuse(test, f"bad_count(row, {index}, f.{arg.name}_count, {count}, "
                          f"{quoted(str(arg.count))}, {empty})")

    def bounds(self, arg, value, item, depth):
        ctype = "double" if arg.kind == "f64" else "int64_t"
        high = "below" if "below" in arg.values else "max"
        less = "<" if high == "below" else "<="
        tests, low_text, high_text = [], "nullptr", "nullptr"
        self.add("{", depth)
        if "min" in arg.values:
            self.add(f"const {ctype} low = {self.cpp(arg.values['min'])};", depth + 1)
            tests, low_text = [f"{value} >= low"], "&low"
        if high in arg.values:
            self.add(f"const {ctype} high = {self.cpp(arg.values[high])};", depth + 1)
            tests, high_text = tests + [f"{value} {less} high"], "&high"
        given = f"{self.index[arg.name]}, {item}, {value}"
        self.refuse(f"!({' && '.join(tests)})",
                    f'bad_bound(row, {given}, {low_text}, {high_text}, "{less}")', depth + 1)
        self.add("}", depth)

    def input_shapes(self):
        for arg in self.op.inputs:
            if "shape" not in arg.values:
                continue
            value, index = arg.values["shape"], self.index[arg.name]

            def body(tensor, item, depth):
                allowed = self.cpp(value, "[i]" if arg.is_list else "")
                refusal = (f"bad_shape(row, {index}, {item}, dims::shape(*{tensor}), {allowed}, "
                           f"{quoted(value.text)})")
                if not isinstance(value.node, ast.Attribute):  # All but a whole shape may be none.
                    none = (f"no_shape(row, {index}, {item}, frame, {quoted(value.text)}, "
                            f"{self.names(value)})")
                    refusal = f"dims::View({allowed}).exists() ? {refusal} : {none}"
                self.refuse(f"!(dims::shape(*{tensor}) == {allowed})", refusal, depth)
            self.each(arg, body)

    def rules(self, on_outputs):
        for item in self.op.requires:
            names = item.rule.names() | (item.when.names() if item.when else set())
            if bool(names & set(self.outputs)) != on_outputs:
                continue
            when = f"{self.cpp(item.when)} && " if item.when else ""
            text = item.rule.text + (f" where {item.when.text}" if item.when else "")
            self.refuse(f"{when}!{self.cpp(item.rule)}",
                        f"bad_rule(row, frame, {quoted(text)}, {quoted(item.says)}, "
                        f"{self.names(item.rule, item.when)})")

    def output_shapes(self):
        for name, k in self.outputs.items():
            arg = self.op.arg(name)
            if arg.shape == "given":
                self.add(f"set_output(out[{k}], {name}_dtype, dims::shape(*f.{name}));")
                continue
            value = arg.values["shape"]
            self.refuse(f"!set_output(out[{k}], {name}_dtype, {self.cpp(value)})",
                        f"bad_output(row, {self.index[name]}, frame, {quoted(value.text)}, "
                        f"{self.names(value)})")

    def text(self):
        op = self.op
        for step in (self.tensors, self.dtypes, self.ranks, self.attributes, self.input_shapes,
                     lambda: self.rules(False), self.output_shapes, lambda: self.rules(True)):
            step()
        out = "bp_op_output* out" if self.outputs else "bp_op_output*"
        return [f"bp_status infer_{op.c_name}(const Row& row, const void* frame, {out}) {{",
                f"  const auto& f = *static_cast<const bp_{op.c_name}_args*>(frame);",
                *self.lines, "  return BP_OK;", "}", ""]


def argument_rows(op):
    index = {arg.name: i for i, arg in enumerate(op.args)}
    yield f"constexpr Argument k_{op.c_name}[] = {{"
    for arg in op.args:
        aliases = " | ".join(f"1u << {index[n]}" for n in arg.may_alias) or "0"
        values = quoted(", ".join(arg.enum_values))
        first = arg.first_value if arg.kind == "enum" else 0
        offset = f"offsetof(bp_{op.c_name}_args, {arg.name})"
        yield (f'    {{"{arg.name}", {values}, {aliases}, {offset}, {first}, '
               f"Kind::{arg.kind_token}}},")
    yield "};"


def table(ops):
    yield "constexpr Row kRows[] = {"
    for op in ops:
        outputs = sum(a.kind in ("out", "out?") for a in op.args)
        first = f"BP_{op.c_name.upper()}_ARGS_SIZE_R{op.since}"
        yield (f'    {{"{op.name}", k_{op.c_name}, infer_{op.c_name}, {op.id}, {first}, '
               f"sizeof(bp_{op.c_name}_args), {len(op.args)}, {outputs}}},")
    yield "};"
    outputs = max(sum(a.kind in ("out", "out?") for a in op.args) for op in ops)
    yield f"static_assert({outputs} <= kMaxOutputs);"
    yield from (f"static_assert(sizeof(bp_{op.c_name}_args) <= kMaxFrameBytes);" for op in ops)


def source(ops):
    sets = {a.dtypes for op in ops for a in op.args if a.is_free}
    out = [generate.banner("ops_spec/ops", "emit_infer.py", "Do not edit."),
           "#include <cstddef>", "", '#include "ops_spec/checks.hpp"', "",
           "namespace bp::ops {", "namespace {", ""]
    for dtypes in sorted(sets):
        bits = " | ".join(f"1u << BP_{d.upper()}" for d in dtypes)
        out.append(f"constexpr uint32_t {dtype_mask(dtypes)} = {bits};")
    out.append("")
    for op in ops:
        out += Function(op).text() + [*argument_rows(op), ""]
    out += [*table(ops), "", "}  // namespace", "", "const Row* find_row(uint32_t op) {",
            "  switch (op) {"]
    out += [f"    case BP_OP_{op.c_name.upper()}: return &kRows[{i}];" for i, op in enumerate(ops)]
    out += ["    default: return nullptr;", "  }", "}", "", "}  // namespace bp::ops", ""]
    return "\n".join(out)


if __name__ == "__main__":
    output.write(output.path(), source(spec.load()))
