#!/usr/bin/env python3
"""Writes the element-wise ops of the vulkan backend, from `compute`:
emit_glsl.py elementwise_ops.def | elementwise_f32.glsl | elementwise_f64.glsl |
    elementwise_integers.glsl | elementwise_kernels.cpp | elementwise_list.hpp

A shader computes y from a, b and c, which are the inputs of an op in their order. Each op becomes
a case of apply() in map.glsl, a number kMapNAME, and a kernel kElementwiseNAME on the host's side.
The functions of the primitives are in primitives.glsl.
"""

import compute
import elementwise
import output
import primitives
from signatures import pascal

OPERANDS = "abc"
# Each primitive on a VALUE, the type that the shader computes in.
ROWS = {
    "neg": "negative_of({0})", "abs": "magnitude_of({0})", "add": "({0} + {1})",
    "sub": "({0} - {1})", "mul": "({0} * {1})", "div": "quotient_of({0}, {1})",
    "ratio": "({0} / {1})",
    "fma": "({0} * {1} + {2})", "max": "larger_of({0}, {1})", "min": "smaller_of({0}, {1})",
    "lt": "({0} < {1})", "le": "({0} <= {1})", "eq": "({0} == {1})", "signbit": "has_sign({0})",
    "ne": "({0} != {1})", "isnan": "is_nan({0})", "isinf": "is_infinite({0})",
    "isfinite": "is_finite({0})", "both": "({0} && {1})", "either": "({0} || {1})",
    "differ": "({0} != {1})", "floor": "floor_of({0})", "ceil": "ceil_of({0})",
    "trunc": "trunc_of({0})", "round": "round_of({0})", "bit_not": "(~{0})",
    "bit_and": "({0} & {1})", "bit_or": "({0} | {1})", "bit_xor": "({0} ^ {1})",
    "shift_left": "shift_left({0}, {1})", "shift_right": "shift_right({0}, {1})",
    "select": "({0} ? {1} : {2})", "sqrt": "root_of({0})", "exp": "exp_of({0})",
    "log": "log_of({0})", "tanh": "tanh_of({0})",
    "erfinv": "erfinv_of({0})",
    **{name: f"{name}_of({{0}})" for name in primitives.FUNCTIONS},
    "pow": "pow_of({0}, {1})", "atan2": "atan2_of({0}, {1})", "hypot": "hypot_of({0}, {1})",
    "fmod": "remainder_of({0}, {1})", "modulo": "modulo_of({0}, {1})",
    "floor_quotient": "floor_quotient_of({0}, {1})",
}
primitives.check_rows(ROWS, "emit_glsl.py")
# Functions of so many steps that a shader has one copy of the op for eight elements.
LONG = {*primitives.FUNCTIONS, "pow", "atan2", "hypot", "fmod", "modulo"}
FIRST_NUMBER = 100  # The number of the first op. map_ops.def has the numbers below.


def map_name(op):
    return f"kMap{pascal(op.c_name)}"


def write_number(value, type_name):
    if type_name == "integers":
        return f"VALUE({value.numerator})"
    return f"{float(value)!r}{'lf' if type_name == 'f64' else ''}"


def body(formula, names, type_name):
    """Returns compute.written() of a formula for a shader that computes in a type: f32, f64 or
    integers. `names` maps the inputs that have other names in the shader."""
    def write(part, args):
        if part.kind == "input":
            return names.get(part.name, part.name)
        if part.kind == "number":
            return write_number(part.value, type_name)
        return ROWS[part.kind].format(*args)

    def declare(name, part, text):
        return f"const {'VALUE' if part.type == primitives.NUMBER else 'bool'} {name} = {text};"

    # The prefix keeps names apart from `half` and `input`, which are words of the language.
    renamed = compute.Compute(formula.result,
                              {node: f"value_{name}" for node, name in formula.names.items()})
    return compute.written(renamed, write, declare)


def case(op, type_name):
    """Returns the case of the op in map.glsl."""
    names = {a.name: OPERANDS[i] for i, a in enumerate(op.inputs)}
    lines, result = body(op.formula, names, type_name)
    if elementwise.is_condition(op):
        result = f"VALUE({result} ? 1 : 0)"
    return [f"    case {map_name(op)}: {{", *(f"      {line}" for line in lines),
            f"      return {result};", "    }"]


def cases(ops, type_name):
    return [line for op in ops for line in case(op, type_name)]


def is_long(op):
    return any(node.kind in LONG for node in op.formula.result.walk())


def numbers(ops):
    for op in ops:
        if op.id < FIRST_NUMBER:
            raise op.error(f"emit_glsl.py: ids below {FIRST_NUMBER} are numbers of map_ops.def",
                           "id")
    return [f"BP_MAP_{'LONG_' if is_long(op) else ''}OP({map_name(op)}, {op.id})" for op in ops]


def kernel(op):
    scalar = elementwise.scalar_of_call(op)
    tensors = ", ".join(f"args.{a.name}" for a in [op.outputs[0], *op.inputs])
    dtypes = elementwise.pick(op, "kFloatDtypes", "kNumberDtypes", "kIntegerDtypes",
                              "kAnyDtypes")
    launch = [f"bp_status {op.c_name}_launch(const bp_{op.c_name}_args& args, Launch& launch) {{",
              *([f"  const uint64_t scalar = {scalar};"] if scalar else []),
              f"  return submit_map(launch, {map_name(op)}, {{{tensors}}}"
              f"{', scalar' if scalar else ''});", "}", ""]
    row = [f"constinit const bp_kernel {elementwise.kernel_name(op)} =",
           f"    make_kernel<bp_{op.c_name}_args, {op.c_name}_launch>(",
           f'        kernel_row("{op.c_name}", BP_OP_{op.c_name.upper()}, {dtypes}, '
           f"{elementwise.flags(op)}));", ""]
    return launch, row


def kernels(ops):
    out = ['#include "backends/vulkan/kernels/map.hpp"',
           '#include "backplane/shell/scalar.hpp"', '#include "elementwise_list.hpp"', "",
           "namespace bp::vulkan {", "namespace {", ""]
    pairs = [kernel(op) for op in ops]
    for launch, _ in pairs:
        out += launch
    out += ["}  // namespace", ""]
    for _, row in pairs:
        out += row
    return [*out, "}  // namespace bp::vulkan"]


def main(target):
    ops = elementwise.load()
    if target.suffix == ".hpp":
        elementwise.write(target, elementwise.listing(ops, "emit_glsl.py", "bp::vulkan"))
        return
    lines = {
        "elementwise_ops.def": lambda: numbers(ops),
        "elementwise_f32.glsl": lambda: cases(filter(elementwise.takes_floats, ops), "f32"),
        "elementwise_f64.glsl": lambda: cases(filter(elementwise.takes_floats, ops), "f64"),
        "elementwise_integers.glsl": lambda: cases(
            filter(elementwise.takes_integers, ops), "integers"),
        "elementwise_kernels.cpp": lambda: kernels(ops),
    }[target.name]()
    elementwise.write(target, "\n".join([elementwise.banner("emit_glsl.py"), *lines, ""]))


if __name__ == "__main__":
    main(output.path())
