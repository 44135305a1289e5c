#!/usr/bin/env python3
"""Writes the formulas of the reductions for kernels, from `reduce`: emit_reductions.py
reductions.def | reductions.hpp | reductions-inl.hpp | reductions.cuh | reductions_f32.glsl |
    reductions_f64.glsl | reductions_integers.glsl

The .def lists the ops:
  BP_REDUCTION(name, Name, BP_OP_NAME, dtypes)   `dtypes` are the rows of the kernel's claim
Each op becomes a struct NameFormula of vectors in Highway and of elements in CUDA. It has the
functions map(x, shift) and finish(total, count, shift), and constants that say which of them the
formula has (reductions.py). A map that is a condition gives a mask in Highway. A shader has both
functions for all ops, and asks which op it is; its host side asks by the id of the op what holds of
the formula (the .hpp). The walk over a tensor is written by hand: reduction.cpp, reduce.cuh,
reduce.glsl.
"""

import fractions
import sys

import compute
import elementwise
import emit_cuda
import emit_glsl
import emit_highway
import output
import primitives
import reductions
from signatures import pascal


def constants(op):
    lines = [f"{name} = {str(holds).lower()}" for name, holds in reductions.facts(op).items()]
    return [f"  static constexpr bool {', '.join(lines[i:i + 4])};"
            for i in range(0, len(lines), 4)]


def definitions(ops):
    return [f"BP_REDUCTION({op.c_name}, {pascal(op.c_name)}, BP_OP_{op.c_name.upper()}, "
            f"{reductions.dtypes(op)})" for op in ops] + ["#undef BP_REDUCTION"]


def structs(op, template, qualifier, value, condition, first, write, declare):
    """Returns the struct of an op. Its functions give a `value`, or a `condition`. `first` is a
    parameter before the values, or nothing."""
    out = [f"struct {reductions.formula_name(op)} {{", *constants(op)]
    for name, parameters, formula in reductions.formulas(op):
        lines, result = compute.written(formula, write, declare)
        listed = [*first, *(value + " " + (p if p in formula.inputs else f"/* {p} */")
                            for p in parameters)]
        gives = value if formula.result.type == primitives.NUMBER else condition
        out += [f"  template <{template}>", f"  {qualifier} {gives} {name}({', '.join(listed)}) {{",
                *(f"    {line}" for line in lines), f"    return {result};", "  }"]
    return [*out, "};", ""]


def highway(ops):
    guard = "BACKPLANE_REDUCTIONS_INL_HPP"
    out = [f"#if defined({guard}) == defined(HWY_TARGET_TOGGLE)", f"#ifdef {guard}",
           f"#undef {guard}", "#else", f"#define {guard}", "#endif", "",
           '#include "backends/host_kernels/elementwise-inl.hpp"', "",
           "HWY_BEFORE_NAMESPACE();", "namespace bp::kernels {", "namespace HWY_NAMESPACE {", ""]
    for op in ops:
        out += structs(op, "class D, class V = hn::Vec<D>", "static HWY_INLINE", "V",
                       "hn::Mask<D>", ["[[maybe_unused]] D d"], emit_highway.write_vector,
                       emit_highway.declare)
    return [*out, "}  // namespace HWY_NAMESPACE", "}  // namespace bp::kernels",
            "HWY_AFTER_NAMESPACE();", "", f"#endif  // {guard}"]


def cuda(ops):
    out = ["#pragma once", "", '#include "backends/cuda/kernels/elementwise.cuh"', "",
           "namespace bp::cuda {", ""]
    for op in ops:
        out += structs(op, "typename C", "__host__ __device__ static", "C", "bool", [],
                       emit_cuda.write, emit_cuda.declare)
    return [*out, "}  // namespace bp::cuda"]


# What a function of a shader returns for an op that has no formula of its own.
DEFAULTS = {"map": "x", "finish": "total"}
PARAMETERS = {"map": ("x", "shift"), "finish": ("total", "count", "shift")}


def of_none(op, type_name):
    """Returns the result for no elements. A driver need not divide by 0, or take the logarithm of
    0, as IEEE 754 does."""
    value = op.reduction.evaluate([])
    if value.is_finite():
        return emit_glsl.write_number(fractions.Fraction(value), type_name)
    if value.is_nan():
        return "VALUE(quiet_nan())"
    return f"{'-' if value < 0 else ''}VALUE(infinity())"


def is_one_of(ops, fact, name):
    """Returns the C++ and GLSL condition that a fact holds of the op whose id `name` is."""
    return " || ".join(f"{name} == {op.id}u" for op in ops if reductions.facts(op)[fact]) or "false"


def conditions(ops, type_name):
    """Returns holds(), the maps that are conditions."""
    out = ["bool holds(VALUE x) {", "  switch (kOp) {"]
    for op in ops:
        lines, result = emit_glsl.body(op.reduction.map, {}, type_name)
        out += [f"    case {op.id}u: {{", *(f"      {line}" for line in lines),
                f"      return {result};", "    }"]
    return [*out, "    default:", "      return false;", "  }", "}", ""]


def glsl(ops, type_name):
    """Returns map_of(), finish_of(), holds() and result_of_none(), which ask kOp, and the facts
    about an op."""
    taken = ops if type_name != "integers" else [o for o in ops if elementwise.takes_integers(o)]
    out = []
    for name, default in DEFAULTS.items():
        listed = ", ".join(f"VALUE {p}" for p in PARAMETERS[name])
        out += [f"VALUE {name}_of({listed}) {{", "  switch (kOp) {"]
        for op in taken:
            for own, _, formula in reductions.formulas(op):
                if own == name and formula.result.type == primitives.NUMBER:
                    lines, result = emit_glsl.body(formula, {}, type_name)
                    out += [f"    case {op.id}u: {{", *(f"      {line}" for line in lines),
                            f"      return {result};", "    }"]
        out += ["    default:", f"      return {default};", "  }", "}", ""]
    out += conditions(filter(lambda op: op.reduction.counts, taken), type_name)
    out += ["VALUE result_of_none(VALUE total) {", "  switch (kOp) {"]
    for op in taken:
        if op.reduction.finish:
            out += [f"    case {op.id}u:", f"      return {of_none(op, type_name)};"]
    out += ["    default:", "      return total;", "  }", "}", ""]
    for fact, function in (("kAdds", "adds"), ("kMultiplies", "multiplies"),
                           ("kIsSmallest", "is_smallest"), ("kHasShift", "has_shift"),
                           ("kCounts", "counts"), ("kIsAny", "is_any"), ("kIsAll", "is_all")):
        out += [f"bool {function}() {{ return {is_one_of(ops, fact, 'kOp')}; }}"]
    return out


def hosts(ops):
    out = ["#pragma once", "", "#include <cstdint>", "", "namespace bp::vulkan {", "",
           "// What holds of the formula of a reduction, by the id of the op."]
    for fact, function in (("kHasShift", "has_shift"), ("kCopiesOne", "copies_one"),
                           ("kCounts", "counts")):
        out += [f"constexpr bool {function}(uint32_t op) {{",
                f"  return {is_one_of(ops, fact, 'op')};", "}"]
    return [*out, "", "}  // namespace bp::vulkan"]


def main(target):
    ops = reductions.load()
    write = {
        "reductions.def": definitions, "reductions.hpp": hosts, "reductions-inl.hpp": highway,
        "reductions.cuh": cuda,
        **{f"reductions_{kind}.glsl": lambda ops, kind=kind: glsl(ops, kind)
           for kind in ("f32", "f64", "integers")},
    }.get(target.name)
    if write is None:
        sys.exit(f"emit_reductions.py: it does not write '{target.name}'")
    lines = [elementwise.banner("emit_reductions.py"), *write(ops), ""]
    elementwise.write(target, "\n".join(lines))


if __name__ == "__main__":
    main(output.path())
