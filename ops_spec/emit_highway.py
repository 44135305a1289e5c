#!/usr/bin/env python3
"""Writes the element-wise kernels of the cpu and sim backends, from `compute`:
emit_highway.py elementwise_FAMILY.cpp | elementwise_list.hpp

A FAMILY is a file of ops_spec/ops. Each op becomes a functor on vectors, its row functions and a
kernel kElementwiseNAME, which the list names. They use elementwise-inl.hpp.
"""

import sys

import compute
import elementwise
import output
import primitives
from signatures import pascal

# Each primitive on vectors of D d. For a signbit it is the vector itself, whose sign select reads.
ROWS = {
    "neg": "hn::Neg({0})", "abs": "hn::Abs({0})", "add": "hn::Add({0}, {1})",
    "sub": "hn::Sub({0}, {1})", "mul": "hn::Mul({0}, {1})", "div": "hn::Div({0}, {1})",
    "ratio": "quotient(d, {0}, {1})", "fma": "hn::MulAdd({0}, {1}, {2})",
    "max": "larger_of(d, {0}, {1})", "min": "smaller_of(d, {0}, {1})", "lt": "hn::Lt({0}, {1})",
    "le": "hn::Le({0}, {1})", "eq": "hn::Eq({0}, {1})", "ne": "hn::Not(hn::Eq({0}, {1}))",
    "isnan": "hn::IsNaN({0})", "isinf": "hn::IsInf({0})", "isfinite": "hn::IsFinite({0})",
    "both": "hn::And({0}, {1})", "either": "hn::Or({0}, {1})", "differ": "hn::Xor({0}, {1})",
    "floor": "hn::Floor({0})", "ceil": "hn::Ceil({0})", "trunc": "hn::Trunc({0})",
    "round": "hn::Round({0})", "bit_not": "hn::Not({0})", "bit_and": "hn::And({0}, {1})",
    "bit_or": "hn::Or({0}, {1})", "bit_xor": "hn::Xor({0}, {1})",
    "shift_left": "shift_left(d, {0}, {1})", "shift_right": "shift_right(d, {0}, {1})",
    "signbit": "{0}",
    "select": "hn::IfThenElse({0}, {1}, {2})", "sqrt": "hn::Sqrt({0})", "exp": "exp(d, {0})",
    "log": "log(d, {0})", "tanh": "tanh(d, {0})", "erfinv": "erfinv(d, {0})",
    **{name: f"{name}(d, {{0}})" for name in primitives.FUNCTIONS},
    "pow": "pow(d, {0}, {1})", "atan2": "atan2(d, {0}, {1})", "hypot": "hypot(d, {0}, {1})",
    "fmod": "rest_of(d, {0}, {1})", "modulo": "modulo_of(d, {0}, {1})",
    "floor_quotient": "floor_quotient(d, {0}, {1})",
}
primitives.check_rows(ROWS, "emit_highway.py")
# Comparisons of scalars. The compiler turns them into vectors.
SCALAR_ROWS = {
    "lt": "({0} < {1})", "le": "({0} <= {1})", "eq": "({0} == {1})", "ne": "({0} != {1})",
    "isnan": "is_nan({0})", "isinf": "is_infinite({0})", "isfinite": "is_finite({0})",
    "both": "({0} && {1})", "either": "({0} || {1})", "differ": "({0} != {1})",
}

# Functions of math-inl.hpp that compute a whole op with no more accuracy than a result of 16 bits
# needs.
NARROW = {"silu": "narrow_times_sigmoid(d, {0})"}

# The primitives that change the sign of a float alone, on the bits of a float of 16 bits.
SIGN_ROWS = {"neg": "hn::Xor({0}, hn::Set(d, 0x8000))", "abs": "hn::And({0}, hn::Set(d, 0x7fff))"}

# The primitives that give NaN if one of their arguments is NaN.
SPREADS_NAN = {"neg", "abs", "add", "sub", "mul", "div", "ratio", "fma"}


def nan_anyway(part):
    """Returns the inputs whose NaN reaches the result whatever functions make of it."""
    if part.kind == "input":
        return {part.name}
    spreads = part.kind in SPREADS_NAN
    return set().union(*map(nan_anyway, part.args)) if spreads else set()


def is_never_negative(part):
    return part.kind in ("abs", "exp") or (part.kind == "number" and part.value >= 0)


def is_never_positive(part):
    if part.kind == "mul":
        return (is_never_positive(part.args[0]) and is_never_negative(part.args[1]) or
                is_never_negative(part.args[0]) and is_never_positive(part.args[1]))
    return part.kind == "neg" and is_never_negative(part.args[0])


def exp_of_negative(part, arg, kept_nan):
    """Returns exp() of a part that is never positive. Its value at NaN need not be NaN if the
    result is NaN anyway."""
    kept = {n.name for n in part.walk() if n.kind == "input"} <= kept_nan
    return f"exp_of_negative{'_number' if kept else ''}(d, {arg})"


def write_vector(part, args, kept_nan=frozenset()):
    """Returns the text of a part. A NaN in inputs of `kept_nan` reaches the result without it."""
    if part.kind == "input":
        return part.name
    if part.kind == "number":
        value = repr(float(part.value)) if part.value.denominator > 1 else part.value.numerator
        return f"hn::Set(d, static_cast<hn::TFromD<D>>({value}))" if value else "hn::Zero(d)"
    if part.kind == "exp" and is_never_positive(part.args[0]):
        return exp_of_negative(part, args[0], kept_nan)
    if part.kind == "neg" and part.args[0].kind == "abs" and args[0].startswith("hn::Abs("):
        return f"negative_abs(d, {args[0][8:-1]})"
    if part.kind == "select" and part.args[0].kind == "signbit":
        return f"hn::IfNegativeThenElse({args[0]}, {args[1]}, {args[2]})"
    zeros = [a.kind == "number" and a.value == 0 for a in part.args]
    if part.kind == "select" and zeros[1]:
        return f"hn::IfThenZeroElse({args[0]}, {args[2]})"
    if part.kind == "select" and zeros[2]:
        return f"hn::IfThenElseZero({args[0]}, {args[1]})"
    if part.kind == "max" and zeros[1]:
        return f"positive_part(d, {args[0]})"
    if part.kind == "fma" and part.args[0].kind == "neg" and args[0].startswith("hn::Neg("):
        return f"hn::NegMulAdd({args[0][8:-1]}, {args[1]}, {args[2]})"
    return ROWS[part.kind].format(*args)


def write_scalar(part, args):
    if part.kind == "input":
        return part.name
    if part.kind == "number":
        return f"T({part.value.numerator})"
    if part.kind not in SCALAR_ROWS:
        sys.exit(f"emit_highway.py: a condition is one of {', '.join(SCALAR_ROWS)} of inputs, and "
                 f"not of {part.kind}")
    return SCALAR_ROWS[part.kind].format(*args)


def declare(name, part, text):
    return f"const {'V' if part.type == primitives.NUMBER else 'auto'} {name} = {text};"


def functor(op):
    """Returns the functor of the op on vectors, or on two scalars if it gives conditions."""
    names = [a.name for a in op.inputs]
    if elementwise.is_condition(op):
        _, result = compute.written(op.formula, write_scalar, declare)
        return [f"struct {pascal(op.c_name)} {{", "  template <typename T>",
                f"  HWY_INLINE bool operator()({', '.join(f'T {n}' for n in names)}) const {{",
                f"    return {result};", "  }", "};", ""]
    kept_nan = nan_anyway(op.formula.result)
    lines, result = compute.written(
        op.formula, lambda part, args: write_vector(part, args, kept_nan), declare)
    return [f"struct {pascal(op.c_name)} {{", "  template <class D, class V = hn::Vec<D>>",
            f"  HWY_INLINE V operator()([[maybe_unused]] D d, "
            f"{', '.join(f'V {n}' for n in names)}) const {{",
            *(f"    {line}" for line in lines), f"    return {result};", "  }",
            *narrow_method(op.c_name, names), *sign_functor(op, names), "};", ""]


def narrow_method(name, inputs):
    """Returns the function of a functor for results of 16 bits, if the op has one."""
    if name not in NARROW:
        return []
    return ["  template <class D, class V = hn::Vec<D>>",
            f"  HWY_INLINE V narrow(D d, {', '.join(f'V {n}' for n in inputs)}) const {{",
            f"    return {NARROW[name].format(*inputs)};", "  }"]


def sign_functor(op, inputs):
    """Returns the functor on the bits of 16-bit floats, if the op changes nothing but signs."""
    parts = list(op.formula.result.walk())
    if {p.kind for p in parts} - {"input"} - SIGN_ROWS.keys() or len(parts) == 1:
        return []
    _, result = compute.written(
        op.formula,
        lambda part, args: (part.name if part.kind == "input" else
                            SIGN_ROWS[part.kind].format(*args)),
        declare)
    return ["  struct OnBits {", "    template <class D, class V = hn::Vec<D>>",
            f"    HWY_INLINE V operator()(D d, {', '.join(f'V {n}' for n in inputs)}) const {{",
            f"      return {result};", "    }", "  };"]


def row(op):
    """Returns the row function of the op for `dtype`."""
    name = pascal(op.c_name)
    if elementwise.is_condition(op):
        if len(op.inputs) == 1:
            return f"condition_row<{name}>(dtype)"
        return f"comparison_row<{name}>(dtype, is_acc)"
    kind = elementwise.pick(op, "floating", "number", "integer", "")
    if elementwise.operand(op):
        return f"{kind}_operand_row<{name}, {len(op.inputs)}>(dtype, is_acc)"
    return f"{kind}_row<{name}, {len(op.inputs)}>(dtype)"


def launch(op):
    first, scalar = op.inputs[0], elementwise.scalar_of_call(op)
    tensors = ", ".join(f"args.{a.name}" for a in [op.outputs[0], *op.inputs])
    # If an op takes long, fewer elements are worth another thread.
    kinds = {n.kind for n in op.formula.result.walk()}
    grain = "kMathGrain" if elementwise.LONG & kinds else "kGrain"
    body = [f"const Loop loop = make_loop({{{tensors}}});"]
    if scalar:
        body = [f"const uint64_t scalar = {scalar};",
                f"const Loop loop = make_loop({{{tensors}}}, scalar);"]
    identifier = f"BP_OP_{op.c_name.upper()}"
    is_acc = elementwise.is_acc_operand(op) or "false"
    body += ["RowFunction* const row = HWY_DYNAMIC_DISPATCH(elementwise_row)(",
             f"    {identifier}, args.{first.name}->dtype, {is_acc});",
             f"return submit_rows(launch, loop, row, {grain});"]
    return [f"bp_status {op.c_name}_launch(const bp_{op.c_name}_args& args, Launch& launch) {{",
            *(f"  {line}" for line in body), "}", ""]


def kernel(op):
    dtypes = elementwise.pick(op, "kFloatDtypes", "kNumberDtypes", "kIntegerDtypes",
                              "kAnyDtypes")
    return [f"constinit const bp_kernel {elementwise.kernel_name(op)} =",
            f"    make_kernel<bp_{op.c_name}_args, {op.c_name}_launch>(kernel_row(",
            f'        "{op.c_name}", BP_OP_{op.c_name.upper()}, {dtypes}, '
            f"{elementwise.flags(op)}));", ""]


def source(ops, name):
    out = [elementwise.banner("emit_highway.py"),
           "#undef HWY_TARGET_INCLUDE", f'#define HWY_TARGET_INCLUDE "{name}"',
           '#include "hwy/foreach_target.h"',
           '#include "backends/host_kernels/elementwise-inl.hpp"',
           '#include "backends/host_kernels/scalar.hpp"', '#include "elementwise_list.hpp"',
           '#include "hwy/highway.h"', "", "HWY_BEFORE_NAMESPACE();", "namespace bp::kernels {",
           "namespace HWY_NAMESPACE {", "namespace {", ""]
    for op in ops:
        out += functor(op)
    out += ["// `is_acc` says that the last input is an operand in acc(x).",
            "RowFunction* elementwise_row(uint32_t op, bp_dtype dtype,",
            "                             [[maybe_unused]] bool is_acc) {",
            "  switch (op) {"]
    for op in ops:
        out += [f"    case BP_OP_{op.c_name.upper()}:", f"      return {row(op)};"]
    out += ["    default:", "      return nullptr;", "  }", "}", "", "}  // namespace",
            "}  // namespace HWY_NAMESPACE", "}  // namespace bp::kernels",
            "HWY_AFTER_NAMESPACE();", "", "#if HWY_ONCE", "namespace bp::kernels {", "namespace {",
            "", "HWY_EXPORT(elementwise_row);", ""]
    for op in ops:
        out += launch(op)
    out += ["}  // namespace", ""]
    for op in ops:
        out += kernel(op)
    return "\n".join(out + ["}  // namespace bp::kernels", "#endif  // HWY_ONCE", ""])


def main(target):
    ops = elementwise.load()
    if target.suffix == ".hpp":
        text = elementwise.listing(ops, "emit_highway.py", "bp::kernels")
    else:
        family = target.stem.removeprefix("elementwise_")
        text = source([op for op in ops if elementwise.family(op) == family], target.name)
    elementwise.write(target, text)


if __name__ == "__main__":
    main(output.path())
