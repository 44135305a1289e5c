#!/usr/bin/env python3
"""Writes how ops are recorded and run backward: emit_autograd.py RECORD.HPP | RECORD.CPP

Each op with a gradient becomes a node, which keeps what the spec's formulas read, and a function
detail::record_NAME, which makes the node and leads its edges to where the inputs came from. A node
keeps an input or output only if a wanted gradient reads it, and the values of the attributes lead
to a formula that does. If nothing depended on an output, its gradient is empty for formulas that
ask given() for it, and zeros for all others.
"""

import expressions
import gradient_code
import output
import spec
from gradient_code import asks_given, differentiable_outputs, kept_when, values_of
from signatures import broadcasts, enum_type, is_flag, pascal, recorded_inputs


def record_parameter(arg):
    if arg.kind == "i64[]":
        return f"const dims::Dims& {arg.name}"
    if arg.is_attribute:
        return f"{member_type(arg)} {arg.name}"
    if arg.is_list:
        return f"std::span<const Tensor> {arg.name}"
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


class NodeSource(gradient_code.Expressions):
    """The node of one op, as lines of C++."""

    def __init__(self, op):
        self.op = op
        self.gradients = op.gradients
        self.inputs = recorded_inputs(op)
        self.outputs = differentiable_outputs(op)
        self.list = next((a for a in self.inputs if a.is_list), None)
        tensors = self.gradients.saved()[0]
        others = {name for value in values_of(self.gradients) for name in value.names()}
        others |= {a.name for a in self.made_zeros()}
        # The tensors that the node keeps, in the order of the frame.
        self.saved = [a for a in op.args if a.name in tensors]
        # The inputs whose shapes and dtypes the node keeps.
        keeps_shape = {a.name for a in self.inputs} if broadcasts(op) else set()
        self.metas = [a for a in op.args if a.is_tensor and a.name in others | keeps_shape]
        self.attributes = [a for a in op.attributes if a.name in others]
        self.check()

    def check(self):
        if self.list and (self.list is not self.inputs[-1] or self.list in self.saved):
            raise self.op.error("of a list, gradients read shapes, and it is the last input",
                                "args")
        for arg in self.made_zeros():
            if arg.is_optional:
                raise self.op.error(f"{arg.name} may not be there: ask given(grad_{arg.name})",
                                    "backward")

    def made_zeros(self):
        """Returns the outputs whose gradients become zeros if nothing depended on them."""
        if len(self.outputs) == 1:
            return []
        return [a for a in self.outputs if not asks_given(self.gradients, f"grad_{a.name}")]

    @property
    def name(self):
        return f"{pascal(self.op.c_name)}Node"

    def struct(self):
        op, count = self.op, len(self.saved)
        saved = f"saved_, {count}" if count else "nullptr, 0"
        fixed = len(self.inputs) - bool(self.list)
        if self.list:
            out = [f"struct {self.name} final : Node {{",
                   f"  explicit {self.name}(size_t count)",
                   f'      : Node("{op.name}", nullptr, 0, {saved}), edges_({fixed} + count) {{',
                   "    lend_edges(edges_.data(), edges_.size());", "  }"]
        else:
            out = [f"struct {self.name} final : Node {{",
                   f'  {self.name}() : Node("{op.name}", edges_, {fixed}, {saved}) {{}}']
        out += ["  void backward(const Tensor* grad_outputs, Tensor* grad_inputs) override;",
                "  std::vector<Edge> edges_;" if self.list else f"  Edge edges_[{fixed}];"]
        if count:
            out.append(f"  Saved saved_[{count}];")
        out += [f"  std::vector<Meta> {a.name}_metas_;" if a is self.list else
                f"  Meta {a.name}_meta_;" for a in self.metas]
        out += [f"  {member_type(a)} {a.name}_;" for a in self.attributes]
        return out + ["};", ""]

    def unpack(self):
        """Yields the lines that declare locals for what was kept."""
        for index, arg in enumerate(self.saved):
            name = arg.name
            if not arg.has_scalar:
                yield f'const Tensor {name} = saved({index}, "{name}");'
                continue
            yield f'const Tensor {name}_tensor = saved({index}, "{name}");'
            yield f"const Operand {name} = saved_operand({index}, {name}_tensor);"

    def given_gradients(self):
        """Yields the lines that declare locals for the gradients that come in."""
        zeros = self.made_zeros()
        for index, arg in enumerate(self.outputs):
            value = f"grad_outputs[{index}]"
            if arg in zeros:
                device = f"device_of(grad_outputs, {len(self.outputs)})"
                yield (f"const Tensor grad_{arg.name} = or_zeros({value}, {arg.name}_meta_, "
                       f"{device});")
            else:
                yield f"const Tensor& grad_{arg.name} = {value};"

    def backward(self):
        grads = self.gradients
        body = [*self.given_gradients(), *self.unpack()]
        if grads.op:
            first = self.index_of(grads.op.outputs[0].name)
            body += [f"Tensor first = {self.call(grads.call)};",
                     f"if (needs({first})) grad_inputs[{first}] = std::move(first);"]
        else:
            for statement in grads.prelude:
                body += self.shared(statement)
            for index, arg in enumerate(self.inputs):
                body += self.formula(index, arg, grads.gradients[arg.name])
        return [f"void {self.name}::backward(const Tensor* grad_outputs, Tensor* grad_inputs) {{",
                *(f"  {line}" for line in body), "}", ""]

    def shared(self, statement):
        """Returns the code of a statement of the prelude. It only runs if a gradient needs it."""
        users = [i for i, a in enumerate(self.inputs)
                 if statement in self.gradients.needed([a.name])]
        if isinstance(statement.value, expressions.Value) or len(users) == len(self.inputs):
            return [self.statement(statement)]
        condition = " || ".join(f"needs({i})" for i in users)
        return [f"Tensor {statement.name};",
                f"if ({condition}) {statement.name} = {self.tensor(statement.value)};"]

    def formula(self, index, arg, formula):
        result = self.tensor(formula.result)
        if broadcasts(self.op):
            result = f"reduce_to({result}, {arg.name}_meta_)"
        if arg is self.list:
            start = [f"for (uint32_t i = 0; i < {arg.name}_metas_.size(); ++i) {{",
                     f"  if (!needs({index} + i)) continue;"]
            end = f"grad_inputs[{index} + i] = {result};"
        else:
            start, end = [f"if (needs({index})) {{"], f"grad_inputs[{index}] = {result};"
        return [*start, *(f"  {self.statement(s)}" for s in formula.statements), f"  {end}", "}"]

    def wanted_by(self, arg):
        """Returns the condition under which `arg` is kept; "" if always."""
        conditions = [kept_when(self.op, arg.name)]
        if not self.gradients.op:
            users = [i for i, own in enumerate(self.inputs)
                     if arg.name in self.gradients.saved([own.name])[0]]
            if len(users) < len(self.inputs):
                conditions.append(" || ".join(f"node->needs({i})" for i in users))
        conditions = [c for c in conditions if c]
        if len(conditions) > 1:
            conditions = [f"({c})" if "||" in c else c for c in conditions]
        return f"if ({' && '.join(conditions)}) " if conditions else ""

    def keep(self):
        """Yields the lines that keep tensors, shapes and attributes."""
        for index, arg in enumerate(self.saved):
            if arg in self.outputs:
                call = f"save_output({index}, {arg.name}, {self.outputs.index(arg)})"
            else:
                call = f"save({index}, {arg.name})"
            yield f"{self.wanted_by(arg)}node->{call};"
        for arg in self.metas:
            if arg is self.list:
                yield f"node->{arg.name}_metas_.assign({arg.name}.begin(), {arg.name}.end());"
            else:
                yield f"node->{arg.name}_meta_ = Meta({arg.name});"
        for arg in self.attributes:
            yield f"node->{arg.name}_ = {arg.name};"

    def record(self):
        op = self.op
        count = f"{self.list.name}.size()" if self.list else ""
        body = [f"auto node = make_node<{self.name}>({count});"]
        for index, arg in enumerate(self.inputs):
            if arg is self.list:
                body.append(f"node->connect_all({index}, {arg.name});")
            else:
                body.append(f"node->connect({index}, {arg.name});")
        body += self.keep()
        for index, arg in enumerate(self.outputs):
            given = f"if ({arg.name}) " if arg.is_optional else ""
            body.append(f"{given}attach(*node, {arg.name}, {index});")
        used = {a.name for a in [*self.inputs, *self.saved, *self.metas, *self.attributes,
                                 *self.outputs]}
        parameters = ", ".join(
            record_parameter(a) if a.name in used else
            record_parameter(a).removesuffix(f" {a.name}") for a in op.args)
        return [f"void record_{op.c_name}({parameters}) {{", *(f"  {line}" for line in body),
                "}", ""]


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
           '#include "runtime/autograd/record.hpp"', "", "#include <vector>", "",
           '#include "runtime/autograd/node.hpp"',
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
    target = output.path()
    emit = header if target.suffix == ".hpp" else source
    output.write(target, emit([op for op in spec.load() if recorded_inputs(op)]))
