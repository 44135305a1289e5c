#!/usr/bin/env python3
"""Writes how ops are recorded and run backward: emit_autograd.py RECORD.HPP | RECORD.CPP

Each op with a gradient becomes a node, which keeps what the spec's formulas read, and a function
detail::record_NAME, which makes the node and leads its edges to where the inputs came from. Inputs
are kept only if a gradient that is wanted needs them.
"""

import pathlib
import sys

import expressions
import formulas
import spec
from signatures import enum_type, is_elementwise, is_flag, pascal, recorded_inputs, signature


def record_parameter(arg):
    if arg.kind == "i64[]":
        return f"const dims::Dims& {arg.name}"
    if arg.is_attribute:
        return f"{member_type(arg)} {arg.name}"
    is_operand = arg.has_scalar
    return f"const {'Operand' if is_operand else 'Tensor'}& {arg.name}"


def member_type(arg):
    if arg.kind == "enum":
        return enum_type(arg)
    if is_flag(arg):
        return "bool"
    return {"i32": "int64_t", "i64": "int64_t", "u64": "uint64_t", "f64": "double",
            "dtype": "bp_dtype", "i64[]": "dims::Dims"}[arg.kind]


def declaration(op):
    return f"void record_{op.c_name}({', '.join(map(record_parameter, op.args))})"


def values_read(gradients):
    """The names in expressions: attributes, and tensors of which shape or dtype is read."""
    parts = [gradients.call] if gradients.op else [s.value for s in gradients.prelude]
    for formula in [] if gradients.op else gradients.gradients.values():
        parts += [s.value for s in formula.statements] + [formula.result]
    return {name for part in parts for node in formulas.walk(part)
            if isinstance(node, expressions.Value) for name in node.names()}


class NodeSource:
    """The node of one op, as lines of C++."""

    def __init__(self, op):
        self.op = op
        self.gradients = op.gradients
        self.inputs = recorded_inputs(op)
        tensors, others = self.gradients.saved()[0], values_read(self.gradients)
        outputs = {f"grad_{a.name}" for a in op.outputs}
        if (tensors & outputs) - {f"grad_{op.outputs[0].name}"}:
            raise op.error("only the first output can have a gradient so far", "backward")
        self.grad = f"grad_{op.outputs[0].name}"
        # Tensors that are kept, in the order of the frame.
        self.saved = [a for a in op.args if a.name in tensors]
        # Shapes and dtypes that are kept.
        keeps_shape = {a.name for a in self.inputs} if is_elementwise(op) else set()
        self.metas = [a for a in op.args if a.is_tensor and a.name in others | keeps_shape]
        self.attributes = [a for a in op.attributes if a.name in others]

    @property
    def name(self):
        return f"{pascal(self.op.c_name)}Node"

    # ---- Expressions ----

    def resolve(self, what, name):
        """The resolver of expressions.cpp()."""
        if what == "enum":
            arg = self.op.arg(name.split(".")[0])
            return f"{enum_type(arg)}::k{pascal(name.split('.')[1])}"
        arg = self.op.arg(name)
        if what == "attr":
            if arg is None:
                return name
            return f"int64_t{{{name}_}}" if is_flag(arg) else f"{name}_"
        is_kept = arg is not None
        source = f"{name}_meta_" if is_kept else name
        shape = f"shape_of({source})"
        return {"shape": shape, "ndim": f"{shape}.count", "numel": f"dims::numel({shape})",
                "dtype": f"{source}.dtype" if is_kept else f"{source}.dtype()",
                "given": f"({source}.dtype != 0)"}[what]

    def value(self, value):
        return expressions.cpp(value, self.resolve)

    def tensor(self, node):
        """The C++ of a tensor in a formula, or of a number for an operand."""
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
        if node.op.name == "copy":  # A cast, which is none where the dtype is right already.
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
        return f"{self.grad}.device()" if name == "device" else \
            "Tensor()" if parameter.default == "{}" else parameter.default

    def statement(self, assign):
        value = assign.value
        if not isinstance(value, expressions.Value):
            return f"const Tensor {assign.name} = {self.tensor(value)};"
        if value.type == "dims":
            return f"const dims::Dims {assign.name}({self.value(value)});"
        return f"const auto {assign.name} = {self.value(value)};"

    # ---- The parts ----

    def struct(self):
        op, count = self.op, len(self.saved)
        saved = f"saved_, {count}" if count else "nullptr, 0"
        out = [f"struct {self.name} final : Node {{",
               f'  {self.name}() : Node("{op.name}", edges_, {len(self.inputs)}, {saved}) {{}}',
               "  void backward(const Tensor* grad_outputs, Tensor* grad_inputs) override;",
               f"  Edge edges_[{len(self.inputs)}];"]
        if count:
            out.append(f"  Saved saved_[{count}];")
        out += [f"  Meta {a.name}_meta_;" for a in self.metas]
        out += [f"  {member_type(a)} {a.name}_;" for a in self.attributes]
        return out + ["};", ""]

    def unpack(self):
        """Locals for what was kept."""
        for index, arg in enumerate(self.saved):
            name = arg.name
            if not arg.has_scalar:
                yield f'const Tensor {name} = saved({index}, "{name}");'
                continue
            yield f'const Tensor {name}_tensor = saved({index}, "{name}");'
            yield f"const Operand {name} = saved_operand({index}, {name}_tensor);"

    def backward(self):
        grads = self.gradients
        body = [f"const Tensor& {self.grad} = grad_outputs[0];", *self.unpack()]
        if grads.op:
            if len(grads.gradients) != 1:
                raise self.op.error(f"{grads.op.name} has more than one output", "backward")
            body.append(f"grad_inputs[0] = {self.call(grads.call)};")
        else:
            body += [self.statement(s) for s in grads.prelude]
            for index, arg in enumerate(self.inputs):
                body += self.formula(index, arg, grads.gradients[arg.name])
        return [f"void {self.name}::backward(const Tensor* grad_outputs, Tensor* grad_inputs) {{",
                *(f"  {line}" for line in body), "}", ""]

    def formula(self, index, arg, formula):
        result = self.tensor(formula.result)
        if is_elementwise(self.op):
            result = f"reduce_to({result}, {arg.name}_meta_)"
        return [f"if (needs({index})) {{", *(f"  {self.statement(s)}" for s in formula.statements),
                f"  grad_inputs[{index}] = {result};", "}"]

    def wanted_by(self, arg):
        """The condition under which `arg` is kept; "" if always."""
        if self.gradients.op or any(arg.name in formulas.reads(s.value)[0]
                                    for s in self.gradients.prelude):
            return ""
        users = [i for i, own in enumerate(self.inputs)
                 if arg.name in self.gradients.saved([own.name])[0]]
        if len(users) == len(self.inputs):
            return ""
        return f"if ({' || '.join(f'node->needs({i})' for i in users)}) "

    def record(self):
        op = self.op
        body = [f"auto node = make_node<{self.name}>();"]
        body += [f"node->connect({i}, {a.name});" for i, a in enumerate(self.inputs)]
        for index, arg in enumerate(self.saved):
            save = "save_output" if arg is op.outputs[0] else "save"
            body.append(f"{self.wanted_by(arg)}node->{save}({index}, {arg.name});")
        body += [f"node->{a.name}_meta_ = Meta({a.name});" for a in self.metas]
        body += [f"node->{a.name}_ = {a.name};" for a in self.attributes]
        used = {a.name for a in [*self.inputs, *self.saved, *self.metas, *self.attributes]}
        parameters = ", ".join(
            record_parameter(a) if a.name in used | {op.outputs[0].name} else
            record_parameter(a).removesuffix(f" {a.name}") for a in op.args)
        return [f"void record_{op.c_name}({parameters}) {{", *(f"  {line}" for line in body),
                f"  attach(node.release(), {op.outputs[0].name});", "}", ""]


def header(ops):
    out = ["// Generated by ops_spec/emit_autograd.py from ops_spec/ops. Do not edit.",
           "// Records one call of an op: all its arguments as resolved, and what it gave.",
           "#pragma once", "", '#include "backplane/runtime/ops.hpp"',
           '#include "ops_spec/dims.hpp"', "", "namespace bp::detail {", ""]
    names = ", ".join(f'"{op.name}"' for op in ops)
    out += [f"{declaration(op)};" for op in ops]
    out += ["", f"inline constexpr const char* kOpsWithGradient[] = {{{names}}};"]
    return "\n".join(out + ["", "}  // namespace bp::detail", ""])


def source(ops):
    out = ["// Generated by ops_spec/emit_autograd.py from ops_spec/ops. Do not edit.",
           '#include "runtime/autograd/record.hpp"', "", '#include "runtime/autograd/node.hpp"',
           '#include "runtime/ops/dispatch.hpp"', "", "namespace bp::detail {"]
    nodes = [NodeSource(op) for op in ops]
    out += ["namespace {", ""]
    for node in nodes:
        out += node.struct() + node.backward()
    out += ["}  // namespace", ""]
    for node in nodes:
        out += node.record()
    return "\n".join(out + ["}  // namespace bp::detail", ""])


if __name__ == "__main__":
    target = pathlib.Path(sys.argv[1])
    target.parent.mkdir(parents=True, exist_ok=True)
    emit = header if target.suffix == ".hpp" else source
    target.write_text(emit([op for op in spec.load() if recorded_inputs(op)]), encoding="utf-8")
