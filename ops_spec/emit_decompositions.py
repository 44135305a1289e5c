#!/usr/bin/env python3
"""Writes the decomposition of every decomposable op as C++: emit_decompositions.py OUTPUT.CPP

Each decomposition becomes one function over the Evaluator of registry/services/decompose.hpp. If
the line that gives an output is a call, the output is computed in the caller's memory.
"""

import expressions
import formulas
import generate
import output
import spec

C_TYPES = {"i32": "int32_t", "i64": "int64_t", "u64": "uint64_t", "f64": "double",
           "dtype": "bp_dtype", "enum": "uint32_t"}


class Function:
    """Makes the function of one op, as lines of C++."""

    def __init__(self, op):
        self.op = op
        self.lines = []
        self.depth = 1
        self.count = 0
        self.locals = {}           # The C++ of each earlier line, by its name.

    def add(self, text):
        self.lines.append("  " * self.depth + text)

    def fresh(self, prefix):
        self.count += 1
        return f"{prefix}{self.count}"

    def resolve(self, what, name):
        op = self.op
        arg = op.arg(name.split(".")[0])
        if what == "enum":
            return f"BP_{op.c_name}_{name.replace('.', '_')}".upper()
        if name in self.locals and what == "attr":
            return self.locals[name]
        tensor = self.locals.get(name, f"f.{name}")
        if what == "attr":
            plain = {"enum": tensor, "f64": tensor, "dtype": tensor,
                     "i64[]": f"dims::list({tensor}, {tensor}_count)"}
            return plain.get(arg.kind, f"static_cast<int64_t>({tensor})")
        shape = f"dims::shape(*{tensor})"
        return {"given": f"({tensor} != nullptr)", "dtype": f"{tensor}->dtype", "shape": shape,
                "ndim": f"{shape}.count", "numel": f"dims::numel({shape})"}[what]

    def cpp(self, value):
        return expressions.cpp(value, self.resolve)

    def dims(self, value):
        name = self.fresh("d")
        self.add(f"const dims::Dims {name} = to_dims({self.cpp(value)});")
        return name

    def tensor(self, value, into="nullptr"):
        """Returns the C++ name of a tensor. A call writes its result to `into`."""
        if isinstance(value, formulas.Ref):
            return self.locals.get(value.name, f"f.{value.name}")
        if isinstance(value, formulas.View):
            return self.view(value)
        if isinstance(value, formulas.If):
            return self.choose(value, into)
        return self.call(value, into)

    def view(self, view):
        tensor = self.tensor(view.tensor)
        params = [self.dims(v) if v.type == "dims" else self.cpp(v) for v in view.params.values()]
        name = self.fresh("t")
        self.add(f"const bp_tensor* {name} = e.{view.kind}({', '.join([tensor, *params])});")
        return name

    def choose(self, value, into):
        name = self.fresh("t")
        self.add(f"const bp_tensor* {name} = nullptr;")
        self.add(f"if ({self.cpp(value.condition)}) {{")
        self.branch(name, value.then, into)
        self.add("} else {")
        self.branch(name, value.other, into)
        self.add("}")
        return name

    def branch(self, name, value, into):
        self.depth += 1
        self.add(f"{name} = {self.tensor(value, into)};")
        self.depth -= 1

    def call(self, call, into):
        op = call.op
        # Operands come first: their own calls stand before the frame of this call.
        members = [line for name, value in call.args.items() for line in
                   self.operand(op.arg(name), value)]
        members += [line for name, value in call.attrs.items() for line in
                    self.attribute(op.arg(name), value)]
        choice = []
        if call.dtype is not None:
            choice.append(f".dtype = {self.cpp(call.dtype)}")
        if call.shape is not None:
            choice.append(f".shape = &{self.dims(call.shape)}")
        frame, name = self.fresh("a"), self.fresh("t")
        self.add(f"bp_{op.c_name}_args {frame}{{}};")
        for member in members:
            self.add(f"{frame}.{member};")
        output = next(a for a in op.args if a.is_out).name
        self.add(f"const bp_tensor* {name} = e.call(BP_OP_{op.c_name.upper()}, {frame}, "
                 f"&bp_{op.c_name}_args::{output}, {{{', '.join(choice)}}}, {into});")
        return name

    def operand(self, arg, value):
        name = arg.name
        if isinstance(value, expressions.Value):
            return [f"{name}_scalar = to_scalar({self.cpp(value)})"]
        if isinstance(value, formulas.ScalarRef) or (
                isinstance(value, formulas.Ref) and value.name not in self.locals and
                self.op.arg(value.name).kind == "operand"):
            return [f"{name} = f.{value.name}", f"{name}_scalar = f.{value.name}_scalar"]
        return [f"{name} = {self.tensor(value)}"]

    def attribute(self, arg, value):
        if arg.kind == "i64[]":
            dims = self.dims(value)
            return [f"{arg.name}_count = static_cast<uint64_t>({dims}.count)",
                    f"{arg.name} = {dims}.data"]
        return [f"{arg.name} = static_cast<{C_TYPES[arg.kind]}>({self.cpp(value)})"]

    def assign(self, statement):
        name, value = statement.name, statement.value
        if isinstance(value, expressions.Value):
            self.locals[name] = f"{name}_"
            text = f"to_dims({self.cpp(value)})" if value.type == "dims" else self.cpp(value)
            self.add(f"const auto {name}_ = {text};")
            return
        arg = self.op.arg(name)
        if arg is None:
            self.locals[name] = self.tensor(value)
            return
        computed = self.tensor(value, f"f.{name}")
        self.add(f"e.store({computed}, f.{name});")
        self.locals[name] = computed

    def text(self):
        for statement in self.op.decomposition.statements:
            self.assign(statement)
        return [f"void {self.op.c_name}(Evaluator& e, const void* frame) {{",
                f"  const auto& f = *static_cast<const bp_{self.op.c_name}_args*>(frame);",
                *self.lines, "}", ""]


def applies(op):
    """Returns the C++ of the function that tells whether the decomposition serves a frame."""
    tests = [f"f.{name} != {'nullptr' if op.arg(name).is_tensor else 0}"
             for name in op.decompose_where_given]
    return [f"bool {op.c_name}_applies(const void* frame) {{",
            f"  const auto& f = *static_cast<const bp_{op.c_name}_args*>(frame);",
            f"  return {' || '.join(tests)};", "}", ""]


def revision_of(op):
    """Returns the revision of the formula, and the size that the frame has in it, as C++."""
    changed = max(r for r in generate.frame(op)[1] if r <= op.decompose_revision)
    return f"{op.decompose_revision}, BP_{op.c_name.upper()}_ARGS_SIZE_R{changed}"


def row(op):
    where = op.decompose_where_given
    text = "the op has a decomposition only where it is given " + " or ".join(where)
    guard = f'{op.c_name}_applies, "{text}"' if where else 'nullptr, ""'
    return f"    {{BP_OP_{op.c_name.upper()}, {revision_of(op)}, {op.c_name}, {guard}}},"


def source(ops):
    ops = [op for op in ops if op.decomposition]
    out = [generate.banner("ops_spec/ops", "emit_decompositions.py", "Do not edit."),
           '#include "registry/services/decompose.hpp"', "",
           "namespace bp::services {", "namespace {", ""]
    for op in ops:
        out += Function(op).text()
        if op.decompose_where_given:
            out += applies(op)
    out += ["}  // namespace", "", "const Decomposition kDecompositions[] = {"]
    out += [row(op) for op in ops]
    out += ["};", f"const size_t kDecompositionCount = {len(ops)};", "",
            "}  // namespace bp::services", ""]
    return "\n".join(out)


if __name__ == "__main__":
    output.write(output.path(), source(spec.load()))
