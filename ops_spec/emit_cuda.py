#!/usr/bin/env python3
"""Writes the element-wise kernels of the cuda backend, from `compute`:
emit_cuda.py elementwise_PART_of_PARTS.cu | elementwise_list.hpp

Each op becomes a functor on elements, a launch and a kernel kElementwiseNAME, which the list
names. The kernels are spread over PARTS files, so that no file takes the compiler long. They use
elementwise.cuh, where the functions of primitives stand in the namespace `primitive`.
"""

import compute
import elementwise
import output
import primitives
from signatures import pascal

# Each primitive on values of C, the type in which elements are computed.
ROWS = {
    "neg": "primitive::neg({0})", "abs": "primitive::abs({0})",
    "add": "primitive::add({0}, {1})", "sub": "primitive::sub({0}, {1})",
    "mul": "primitive::mul({0}, {1})", "div": "({0} / {1})", "ratio": "({0} / {1})",
    "fma": "fma({0}, {1}, {2})", "max": "primitive::max({0}, {1})",
    "min": "primitive::min({0}, {1})", "lt": "({0} < {1})", "le": "({0} <= {1})",
    "eq": "({0} == {1})", "ne": "({0} != {1})", "isnan": "is_nan({0})",
    "isinf": "primitive::isinf({0})", "isfinite": "primitive::isfinite({0})",
    "both": "({0} && {1})", "either": "({0} || {1})", "differ": "({0} != {1})",
    "floor": "floor({0})", "ceil": "ceil({0})", "trunc": "trunc({0})", "round": "rint({0})",
    "bit_not": "(~{0})", "bit_and": "({0} & {1})", "bit_or": "({0} | {1})",
    "bit_xor": "({0} ^ {1})", "shift_left": "primitive::shift_left({0}, {1})",
    "shift_right": "primitive::shift_right({0}, {1})", "signbit": "primitive::signbit({0})",
    "select": "({0} ? {1} : {2})",
    "sqrt": "sqrt({0})", "exp": "exp({0})", "log": "log({0})", "tanh": "tanh({0})",
    "erfinv": "erfinv({0})",
    **{name: f"{name}({{0}})" for name in primitives.FUNCTIONS},
    "pow": "pow({0}, {1})", "atan2": "atan2({0}, {1})", "hypot": "hypot({0}, {1})",
    "fmod": "primitive::fmod({0}, {1})", "modulo": "primitive::modulo({0}, {1})",
    "floor_quotient": "primitive::floor_quotient({0}, {1})",
}
primitives.check_rows(ROWS, "emit_cuda.py")


def write(part, args):
    if part.kind == "input":
        return part.name
    if part.kind == "number":
        is_whole = part.value.denominator == 1
        return f"static_cast<C>({part.value.numerator if is_whole else repr(float(part.value))})"
    return ROWS[part.kind].format(*args)


def declare(name, part, text):
    return f"const {'C' if part.type == primitives.NUMBER else 'bool'} {name} = {text};"


def functor(op):
    """Returns the functor of the op on elements of T. An operand may also be a value in C."""
    names = [a.name for a in op.inputs]
    types = ["T" for _ in names]
    if elementwise.operand(op):
        types[-1] = "Operand"
    lines, result = compute.written(op.formula, write, declare)
    gives = "bool" if elementwise.is_condition(op) else "T"
    result = result if gives == "bool" else f"narrow<T>({result})"
    parameters = ", ".join(f"{t} element_{n}" for t, n in zip(types, names))
    templates = ", ".join(f"typename {t}" for t in dict.fromkeys(types))
    return [f"struct {pascal(op.c_name)} {{", f"  template <{templates}>",
            f"  __host__ __device__ {gives} operator()({parameters}) const {{",
            "    using C = Compute<T>;",
            *(f"    const C {n} = widen(element_{n});" for n in names),
            *(f"    {line}" for line in lines), f"    return {result};", "  }", "};", ""]


def submit(op, functor_text, inputs, last=""):
    """Returns the submission of a functor over `inputs`."""
    result = "bool" if elementwise.is_condition(op) else "T"
    types = ", ".join([result, *("T" for _ in inputs)])
    tensors = ", ".join(f"args.{a.name}" for a in inputs)
    return (f"submit_map<{functor_text}, {types}>(launch, {functor_text}{{{last}}}, "
            f"loop_over(*args.{op.outputs[0].name}, {tensors}))")


def launch(op):
    name, first, own = pascal(op.c_name), op.inputs[0], elementwise.operand(op)
    dispatch = elementwise.pick(op, "with_float", "with_number", "with_integer",
                                "with_any")
    lines = [f"return {submit(op, name, op.inputs)};"]
    if own:
        bound = submit(op, f"WithOperand<{name}>", op.inputs[:-1], f"{name}(), value")
        value = f"args.{own.name}, args.{own.name}_scalar, acc_dtype(args.{first.name}->dtype)"
        lines = [f"if ({elementwise.is_acc_operand(op)}) {{",
                 f"  const ScalarArgument value({value});",
                 f"  return {bound};",
                 "}", *lines]
    return [f"bp_status {op.c_name}_launch(const bp_{op.c_name}_args& args, Launch& launch) {{",
            f"  return {dispatch}(args.{first.name}->dtype, [&]<typename T>(T) {{",
            *(f"    {line}" for line in lines), "  });", "}", ""]


def kernel(op):
    dtypes = elementwise.pick(op, "kFloatDtypes", "kNumberDtypes", "kIntegerDtypes",
                              "kAnyDtypes")
    return [f"constinit const bp_kernel {elementwise.kernel_name(op)} =",
            f"    make_kernel<bp_{op.c_name}_args, {op.c_name}_launch>(kernel_row(",
            f'        "{op.c_name}", BP_OP_{op.c_name.upper()}, {dtypes}, '
            f"{elementwise.flags(op)}));", ""]


def source(ops):
    out = [elementwise.banner("emit_cuda.py"),
           '#include "backends/cuda/kernels/elementwise.cuh"', '#include "elementwise_list.hpp"',
           "", "namespace bp::cuda {", "namespace {", ""]
    for op in ops:
        out += functor(op) + launch(op)
    out += ["}  // namespace", ""]
    for op in ops:
        out += kernel(op)
    return "\n".join(out + ["}  // namespace bp::cuda", ""])


def main(target):
    ops = elementwise.load()
    if target.suffix == ".hpp":
        text = elementwise.listing(ops, "emit_cuda.py", "bp::cuda")
    else:
        _, part, _, parts = target.stem.split("_")
        text = source(ops[int(part) - 1::int(parts)])
    elementwise.write(target, text)


if __name__ == "__main__":
    main(output.path())
