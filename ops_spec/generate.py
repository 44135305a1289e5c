#!/usr/bin/env python3
"""Writes the two committed files that follow from the spec: ops.h and ops.def.

    generate.py                     writes api/include/backplane/ops.h and ops.def
    generate.py --check COUNT       writes nothing; fails if a file is out of date, or if there are
                                    not exactly COUNT ops
    generate.py --ops DIR --header FILE --rows FILE
                                    the same for a vendor's private ops
"""

import argparse
import pathlib
import re
import sys
import textwrap

import spec

ROOT = spec.HERE.parent
API = ROOT / "api" / "include" / "backplane"
WIDTH = 100
SIZES = {"bp_scalar": 24, "uint32_t": 4, "int32_t": 4, "bp_dtype": 4}  # All others have 8 bytes.


def members(arg):
    """Returns (C type, name, comment) of each member that stands for `arg` in the frame."""
    comment = describe(arg)
    if arg.is_list:
        item = "const int64_t*" if arg.kind == "i64[]" else "const bp_tensor* const*"
        return [("uint64_t", f"{arg.name}_count", describe_count(arg)), (item, arg.name, comment)]
    if arg.has_scalar:
        return [("const bp_tensor*", arg.name, comment),
                ("bp_scalar", f"{arg.name}_scalar", f"The value where {arg.name} is NULL.")]
    types = {"i32": "int32_t", "i64": "int64_t", "u64": "uint64_t", "f64": "double",
             "enum": "uint32_t", "dtype": "bp_dtype"}
    return [(types.get(arg.kind, "const bp_tensor*"), arg.name, comment)]


def frame(op):
    """Returns the members of the frame of `op` with all padding, as (C type, name, comment), and
    the size of the frame by each revision that changed it. What a revision appends begins at a
    multiple of 8 bytes, so that the size tells what a frame has."""
    rows = [("uint32_t", "struct_size", ""), ("uint32_t", "flags", "None defined: 0.")]
    offset, gaps, sizes = 8, 0, {}

    def pad():
        nonlocal offset, gaps
        if offset % 8:
            rows.append(("uint32_t", f"reserved_{gaps}", "0."))
            offset, gaps = offset + 4, gaps + 1

    revision = op.since
    for arg in op.args:
        if arg.since != revision:
            pad()
            sizes[revision], revision = offset, arg.since
        for ctype, name, comment in members(arg):
            size = SIZES.get(ctype, 8)
            if size >= 8:
                pad()
            rows.append((ctype, name, comment))
            offset += size
    pad()
    return rows, sizes | {revision: offset}


def describe(arg):
    """Returns the comment of a member: role, dtype, shape and bounds."""
    parts = [role(arg), describe_dtype(arg), describe_shape(arg), describe_bounds(arg)]
    text = ", ".join(p for p in parts if p)
    if arg.is_appended:
        text += f"{'; ' if text else ''}since revision {arg.since}, 0 before"
    if arg.may_be_absent:
        text += "; 0 if the scalar is absent too"
    if arg.may_alias:
        text += f"; may alias {' or '.join(arg.may_alias)}"
    return f"{text[0].upper()}{text[1:]}. {arg.doc}".strip() if text else arg.doc


def role(arg):
    roles = {"tensor?": "or NULL", "out": "out", "out?": "out or NULL", "inout": "in and out",
             "tensor[]": "each", "out[]": "out, each", "inout[]": "in and out, each",
             "scalar|tensor": "NULL or one element", "operand": "NULL or a tensor"}
    return roles.get(arg.kind, "")


def describe_dtype(arg):
    if arg.kind == "dtype":
        return "a BP_ dtype"
    if arg.dtype:
        return arg.dtype
    if "(" not in arg.dtype_set:
        return arg.dtype_set
    return " or ".join(arg.dtype_set[4:-1].rsplit(", ", 1))


def describe_shape(arg):
    if arg.shape == "given":
        return "shape of your choice" + (f" in {arg.ndim}-D" if arg.ndim is not None else "")
    if arg.shape:
        return "shape " + " ".join(arg.shape.split())
    if isinstance(arg.ndim, tuple):
        return f"{arg.ndim[0]}-D to {arg.ndim[1]}-D"
    return f"{arg.ndim}-D" if isinstance(arg.ndim, int) else f"ndim {arg.ndim}" if arg.ndim else ""


def describe_bounds(arg):
    """Returns the comment on an attribute's values. A name in front of a sign keeps its
    spelling."""
    if arg.kind == "enum":
        return "one of the constants above"
    bounds = []
    if arg.min is not None:
        bounds.append(f"at least {arg.min}")
    if arg.below is not None:
        bounds.append(f"below {arg.below}")
    if arg.max is not None:
        bounds.append(f"at most {arg.max}")
    return ", ".join(bounds + ["all different"] * arg.distinct)


def describe_count(arg):
    if arg.count is None:
        return ""
    return f"{arg.count}{' or 0' if arg.may_be_empty else ''}."


def block(text):
    """Returns the lines of a C comment."""
    lines = textwrap.wrap(text, WIDTH - 8)
    return ["/* " + lines[0], *(" * " + line for line in lines[1:-1]),
            " * " + lines[-1] + " */"] if len(lines) > 1 else [f"/* {lines[0]} */"]


def head(op, source):
    state, since = op.lifecycle[-1]
    return textwrap.wrap(f"{op.name}: {op.doc}", WIDTH - 3) + [
        f"{source}/{pathlib.Path(op.path).name}; profile {op.profile}; numerics {op.numerics}; "
        f"{state} since {since}."]


def struct(op):
    """Returns the typedef of the frame. A comment stands beside its member, or above it if it is
    long."""
    rows = [(f"  {ctype} {name};", comment) for ctype, name, comment in frame(op)[0]]
    lines, run = [f"typedef struct bp_{op.c_name}_args {{"], []

    def flush():
        column = max((len(code) for code, _ in run), default=0)
        lines.extend(f"{code:<{column}} /* {comment} */" if comment else code
                     for code, comment in run)
        run.clear()

    column = max(len(code) for code, _ in rows)
    for code, comment in rows:
        if column + len(f" /* {comment} */") > WIDTH:
            flush()
            lines.extend("  " + line for line in block(comment))
            lines.append(code)
        else:
            run.append((code, comment))
            if not comment:
                flush()
    flush()
    return lines + [f"}} bp_{op.c_name}_args;"]


def ids(op):
    """Returns the enumeration of the id of an op, and of the size of its frame in each revision
    that changed it."""
    name = op.c_name.upper()
    sizes = "".join(f", BP_{name}_ARGS_SIZE_R{revision} = {size}"
                    for revision, size in frame(op)[1].items())
    line = f"enum {{ BP_OP_{name} = {op.id}{sizes} }};"
    return "\n".join(textwrap.wrap(line, WIDTH, subsequent_indent="  "))


def revision_name(source):
    """Returns the macro of the newest revision of the ops in a header."""
    if source == "ops_spec/ops":
        return "BP_OPS_REVISION"
    return f"BP_{re.sub(r'[^A-Z0-9]', '_', source.upper())}_REVISION"


def enums(op):
    for arg in op.args:
        prefix = f"BP_{op.c_name}_{arg.name}_".upper()
        if arg.kind == "enum":
            yield "enum {"
            yield from (f"  {prefix}{value.upper()} = {number},"
                        for number, value in enumerate(arg.enum_values, arg.first_value))
            yield "};"


def banner(source, script="generate.py", advice="Do not edit: change the row and run it."):
    return f"/* Generated by ops_spec/{script} from {source}. {advice} */"


INTRODUCTION = """\
/* The ids of the operators, and for each the frame that carries its arguments.
 *
 * Every member is given: no default is implied, axes are not negative, and tensors that are
 * combined element by element have one shape already (a stride of 0 repeats an element). An out is
 * allocated by the caller, in the dtype and shape that its comment states; bp_op_infer() tells
 * them. A frame and what it points to is borrowed during the call, the memory of its tensors until
 * the work has completed.
 *
 *   float    f32, f64, f16 or bf16           like(x)  the dtype of x
 *   int      i32 or i64                      acc(x)   f32 for f16 and bf16, else the dtype of x
 *   index    i64 or i32                      sum(x)   i64 for bool and int, else the dtype of x
 *   any      bool u8 i8 i16 i32 i64 f16 bf16 f32 f64 f8e4m3fn f8e5m2
 *   every    any, u16 u32 u64 f8e8m0fnu c64 c128
 *   packable   every, i4 u4 i2 u2 f6e2m3 f6e3m2 f4e2m1
 *   quantized  i8 u8 i4 u4 i2 u2 f8e4m3fn f8e5m2 f6e2m3 f6e3m2 f4e2m1
 *   factor   f32, f16, bf16 or quantized
 *   scale    f32 f16 bf16 f8e8m0fnu f8e4m3fn
 *
 *   reduced(shape, axes, keepdims)  the shape without axes, or with 1 there
 *   window(size, kernel, stride, padding, dilation)  for each axis
 *       floor((size + padding before and after - dilation * (kernel - 1) - 1) / stride) + 1
 *   covered(count, kernel, stride, padding, dilation, extra)  for each axis
 *       (count - 1) * stride + dilation * (kernel - 1) + 1 + extra - padding before and after
 *   blocks(shape, counts)           counts, which divide the extents of shape
 *
 * Where a tensor may be NULL for a value, bp_scalar holds it: an f64 only for floats. If the tensor
 * may have several dtypes, the value is rounded to the first of them.
 *
 * An op that reads indices has `bounds`, which says what an index does that is out of range.
 *   FAIL       It is an asynchronous data failure of the stream, and the outputs are undefined.
 *   CLAMP      An index below 0 acts as 0, and one behind the last element acts as the last.
 *   UNDEFINED  The outputs are undefined. Nothing outside of the tensors is read or written.
 * With CLAMP and UNDEFINED a device reports nothing. Where there is an index and no element that it
 * could act as, they are refused.
 *
 * The meaning of an id never changes. A later revision may append to a frame what does nothing if
 * it is zero or NULL, and may append values to an enumeration. A kernel names the revision for
 * which it was written, such as 3, and the size that its frame has there, such as
 * BP_SOFTMAX_ARGS_SIZE_R3. It never names sizeof, which grows with these headers: the kernel would
 * claim what it ignores. */
"""


def header(ops, guard, source):
    out = [banner(source), INTRODUCTION.rstrip(), f"#ifndef {guard}", f"#define {guard}", "",
           '#include "backplane/tensor.h"', "", "#ifdef __cplusplus", 'extern "C" {', "#endif", "",
           *block("The newest revision of the operators that these headers have. Kernels name the "
                  "one for which they were written, and never this constant."),
           f"#define {revision_name(source)} {spec.revisions(ops)[-1]}", "",
           "/* clang-format off */"]
    for op in ops:
        lines = head(op, source)
        out += ["", "/* " + lines[0], *(f" * {line}" for line in lines[1:-1]),
                f" * {lines[-1]} */", ids(op),
                *enums(op), *struct(op)]
    out += ["", "/* clang-format on */", "", "#ifdef __cplusplus", '} /* extern "C" */', "#endif",
            "", f"#endif /* {guard} */", ""]
    return "\n".join(out)


def dtype_sets():
    """Returns the rows of the sets of dtypes."""
    for name, dtypes in spec.SETS.items():
        row = f"BP_DTYPE_SET({name}, {spec.MOVED_SETS.get(name, 'none')}, {', '.join(dtypes)})"
        yield from textwrap.wrap(row, WIDTH, subsequent_indent="             ")


def rows(ops, source):
    out = [banner(source),
           *block("Define BP_OP(id, name, since, profile, core_or_decomposable, numerics) and "
                  "BP_ARG(op, member, kind, dtype_rule), include this file, and #undef both. "
                  "`since` is the revision that brought the op. Five more may be defined, which "
                  "this file ends itself: BP_DTYPE_SET(name, moves, ...) is a set of dtypes that "
                  "a dtype_rule may name. `moves` says what an op moves whose first free dtype has "
                  "this set: elements, or rows of elements, which may be packed. Such an op never "
                  "looks at the values. With the word none it computes with them. "
                  "BP_ARGS_SIZE(op, revision, bytes) is the size of the "
                  "frame since a revision. BP_VALUE_SINCE(op, member, name, value, revision) is a "
                  "value of an enumeration that came later than its member. "
                  "BP_LAST_VALUE(op, member, value) is the last value of an enumeration. "
                  "BP_MAY_BE_ABSENT(op, member) is a value of kind scalar|tensor that is 0 if a "
                  "frame gives neither the tensor nor the scalar."),
           "#ifndef BP_DTYPE_SET", "#define BP_DTYPE_SET(name, moves, ...)", "#endif",
           "#ifndef BP_ARGS_SIZE", "#define BP_ARGS_SIZE(op, revision, bytes)", "#endif",
           "#ifndef BP_VALUE_SINCE", "#define BP_VALUE_SINCE(op, member, name, value, revision)",
           "#endif", "#ifndef BP_LAST_VALUE", "#define BP_LAST_VALUE(op, member, value)", "#endif",
           "#ifndef BP_MAY_BE_ABSENT", "#define BP_MAY_BE_ABSENT(op, member)", "#endif"]
    if source == "ops_spec/ops":  # Those of a vendor name the same sets.
        out += dtype_sets()
    for op in ops:
        form = "decomposable" if op.decompose and not op.decompose_where_given else "core"
        row = [op.id, op.c_name, op.since, op.profile, form, op.numerics]
        out.append(f"BP_OP({', '.join(map(str, row))})")
        out += [f"BP_ARG({op.c_name}, {arg.name}, {arg.kind_token}, {arg.dtype_rule})"
                for arg in op.args]
        out += [f"BP_ARGS_SIZE({op.c_name}, {revision}, {size})"
                for revision, size in frame(op)[1].items()]
        out += [f"BP_VALUE_SINCE({op.c_name}, {arg.name}, {value}, "
                f"{arg.first_value + arg.enum_values.index(value)}, {revision})"
                for arg in op.args for value, revision in arg.values_since.items()]
        out += [f"BP_LAST_VALUE({op.c_name}, {arg.name}, {arg.last_value})"
                for arg in op.args if arg.kind == "enum"]
        out += [f"BP_MAY_BE_ABSENT({op.c_name}, {arg.name})"
                for arg in op.args if arg.may_be_absent]
    out += ["#undef BP_DTYPE_SET", "#undef BP_ARGS_SIZE", "#undef BP_VALUE_SINCE",
            "#undef BP_LAST_VALUE", "#undef BP_MAY_BE_ABSENT"]
    return "\n".join(out) + "\n"


def parse_arguments(argv):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", type=pathlib.Path, default=spec.HERE / "ops")
    parser.add_argument("--header", type=pathlib.Path, default=API / "ops.h")
    parser.add_argument("--rows", type=pathlib.Path, default=API / "ops.def")
    parser.add_argument("--check", type=int, metavar="COUNT")
    return parser.parse_args(argv)


def check(files, ops, count):
    """Yields what is out of date, as lines."""
    for path, text in files.items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            yield f"{path}: out of date: run ops_spec/generate.py"
    if len(ops) != count:
        yield f"the spec has {len(ops)} ops, and {count} were expected"


def main(argv=None):
    options = parse_arguments(argv)
    try:
        public = spec.load()
        own = options.ops.resolve() == (spec.HERE / "ops").resolve()
        ops = public if own else spec.load(options.ops, public)
    except spec.SpecError as error:
        print(error, file=sys.stderr)
        return 1
    guard = f"BACKPLANE_{options.header.stem.upper()}_H_"
    source = "ops_spec/ops" if own else options.ops.name
    files = {options.header: header(ops, guard, source), options.rows: rows(ops, source)}
    if options.check is not None:
        problems = list(check(files, ops, options.check))
        print("\n".join(problems), file=sys.stderr, end="\n" if problems else "")
        return 1 if problems else 0
    for path, text in files.items():
        path.write_text(text, encoding="utf-8")
    print(f"{len(ops)} ops: {', '.join(str(path) for path in files)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
