"""The C++ functions of the runtime, for emit_wrappers.py and emit_autograd.py: names, parameters,
and which arguments are recorded for gradients.
"""

# For these ops a function of runtime/ops/dispatch.cpp first makes the inputs agree, by recorded
# views.
PREPARED = {"matmul": ("a", "b")}


def pascal(name):
    return "".join(part.capitalize() for part in name.split("_"))


def enum_type(arg):
    return pascal(arg.enum_name)


def is_flag(arg):
    """Returns whether the argument is an i32 that is 0 or 1: a bool in C++."""
    return arg.kind == "i32" and (arg.min, arg.max) == (0, 1)


def broadcasts(op):
    """Returns whether the op takes an operand. Its inputs are broadcast to each other, and a and b
    cast."""
    return any(a.kind == "operand" for a in op.args)


def is_elementwise(op):
    """Returns whether the op broadcasts and has the inputs a and b, either of which may be a
    number."""
    return broadcasts(op) and [a.name for a in op.inputs] == ["a", "b"]


def chosen(op):
    """Returns the output whose dtype the caller may choose, or None."""
    return next((a for a in op.outputs if len(a.dtypes) > 1 and a.shape != "given"), None)


def dtype_name(op):
    """Returns the name of the parameter for the dtype of chosen(op)."""
    return f"{chosen(op).name}_dtype" if chosen(op).is_optional else "dtype"


def given_shape(op):
    return any(a.shape == "given" for a in op.outputs)


def cpp_number(value):
    return str(value).lower() if not isinstance(value, float) else repr(value)


class Parameter:
    """One parameter of a C++ function. `default` is None if a caller must give it."""

    def __init__(self, kind, name, default=None):
        self.kind, self.name, self.default = kind, name, default

    def text(self, with_default):
        default = f" = {self.default}" if with_default and self.default is not None else ""
        return f"{self.kind} {self.name}{default}"


def attribute(arg):
    """Returns the Parameter of an attribute."""
    if is_flag(arg):
        return Parameter("bool", arg.name, None if arg.default is None else
                         cpp_number(bool(arg.default)))
    if arg.kind == "enum":
        default = arg.default and f"{enum_type(arg)}::k{pascal(arg.default)}"
        return Parameter(enum_type(arg), arg.name, default)
    if arg.kind == "i64[]":
        # If it is not given, it is what the spec says for the rank of the tensor.
        default = "kAllAxes" if arg.is_axis else None if arg.default is None else "{}"
        return Parameter("IntList", arg.name, default)
    kind = {"i32": "int64_t", "i64": "int64_t", "u64": "uint64_t", "f64": "double",
            "dtype": "bp_dtype"}[arg.kind]
    return Parameter(kind, arg.name, None if arg.default is None else cpp_number(arg.default))


def inputs(op):
    """Returns the Parameters of tensors and numbers that go in. Those with a default come last."""
    result = []
    for arg in op.args:
        if arg.is_out:
            continue
        if arg.is_list and arg.is_tensor:
            result.append(Parameter("std::span<const Tensor>", arg.name))
        elif arg.kind == "tensor" and is_elementwise(op) or arg.has_scalar:
            default = "0" if arg.may_be_absent or arg.is_appended else None
            result.append(Parameter("const Operand&", arg.name, default))
        elif arg.is_tensor:
            result.append(Parameter("const Tensor&", arg.name, "{}" if arg.is_optional else None))
    return result


def outputs(op):
    return [Parameter("const Tensor&", a.name) for a in op.outputs]


def last_ones(op):
    """Returns the names of the arguments that come last: an optional tensor behind the outputs, and
    all arguments behind it, or without one enumerations whose 0 is what an op did before. Ops grow
    by them, so the parameters before keep their places."""
    names = [a.name for a in op.args]
    behind = max((names.index(a.name) for a in op.outputs), default=len(names)) + 1
    first = next((i for i in range(behind, len(names)) if op.args[i].kind == "tensor?"), len(names))
    return names[first:] or [a.name for a in op.args if a.first == 0]


def signature(op, is_out):
    """Returns the Parameters of bp::NAME or bp::NAME_out, in order."""
    parameters = outputs(op) if is_out else []
    tail = []
    if not is_out and given_shape(op):
        parameters += [Parameter("IntList", "shape"), Parameter("bp_dtype", "dtype"),
                       Parameter("Device", "device")]
    elif not is_out and chosen(op):
        default = "0" if chosen(op).default_dtype else None
        tail.append(Parameter("bp_dtype", dtype_name(op), default))
    if not is_out:
        optional = [Parameter("Tensor*", a.name, "nullptr") for a in op.outputs if a.is_optional]
        # The dtype of an optional output stands behind it.
        tail = optional + tail if chosen(op) and chosen(op).is_optional else tail + optional
    own = inputs(op) + [attribute(a) for a in op.attributes]
    last = last_ones(op)
    late = sorted((p for p in own if p.name in last), key=lambda p: last.index(p.name))
    own = [p for p in own if p.name not in last] + tail + late
    parameters += [p for p in own if p.default is None] + [p for p in own if p.default is not None]
    return parameters


def declaration(op, is_out, with_default):
    has_result = op.outputs and not is_out
    name = f"{op.c_name}_out" if is_out else op.c_name
    parameters = ", ".join(p.text(with_default) for p in signature(op, is_out))
    return f"{'Tensor' if has_result else 'void'} {name}({parameters})"


def variants(op):
    """Returns, for each function of the op, whether it is NAME_out. An op without outputs has only
    NAME."""
    return (False, True) if op.outputs else (False,)


def recorded_inputs(op):
    """Returns the inputs that have a gradient."""
    return [] if op.gradients.reason else [a for a in op.inputs if a.name in op.gradients.gradients]


def ready(op, name):
    if is_elementwise(op) and op.arg(name).kind == "tensor":
        return "in.first()"
    return f"{name}_ready" if name in PREPARED.get(op.name, ()) else name


def is_recorded(op):
    return f"detail::is_recorded({', '.join(ready(op, a.name) for a in recorded_inputs(op))})"


def given_later(op):
    """Yields what a call may give that came after the revision of the op's gradient, in words, with
    the condition over the frame under which the call gives it."""
    for arg in op.args:
        name = f"frame.{arg.name}"
        if arg.since <= op.backward_revision:
            for value, revision in arg.values_since.items():
                if revision > op.backward_revision:
                    number = arg.first_value + arg.enum_values.index(value)
                    yield f"{arg.name} {value}", f"{name} == {number}"
        elif arg.has_scalar:
            yield arg.name, f"{name} != nullptr || {name}_scalar.dtype != 0"
        elif arg.is_list:
            yield arg.name, f"{name}_count != 0"
        else:
            yield arg.name, f"{name} != {'nullptr' if arg.is_tensor else '0'}"


def recorded_arguments(op):
    """Returns the arguments of detail::record_NAME: all arguments of the op, resolved."""
    result = []
    for arg in op.args:
        if arg.is_out:
            result.append(arg.name if arg is op.outputs[0] else f"{arg.name}_made")
        elif arg.kind == "i64[]":
            result.append(f"{arg.name}_list")
        else:
            result.append(ready(op, arg.name))
    return result
