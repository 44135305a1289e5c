"""The operators of ops_spec/ops as Python objects, from which every generator and emitter starts.

load(folder) reads and checks the YAML files and returns the ops by id. A fault in them is a
SpecError that names file and line. expressions.py parses expressions, formulas.py formulas over
tensors, compute.py and reduce.py formulas over elements.
"""

import json
import pathlib
import re
from dataclasses import dataclass, field

import jsonschema
import yaml

import classes
import compute
import expressions
import formulas
import reduce

HERE = pathlib.Path(__file__).resolve().parent

# The bits of one element, in the order in which sets are written out.
DTYPES = {
    "bool": 8, "u8": 8, "i8": 8, "u16": 16, "i16": 16, "u32": 32, "i32": 32, "u64": 64, "i64": 64,
    "f16": 16, "bf16": 16, "f32": 32, "f64": 64, "f8e4m3fn": 8, "f8e5m2": 8, "f8e8m0fnu": 8,
    "c64": 64, "c128": 128,
    "i4": 4, "u4": 4, "i2": 2, "u2": 2, "f6e2m3": 6, "f6e3m2": 6, "f4e2m1": 4,
}
SETS = {
    "float": ("f32", "f64", "f16", "bf16"),
    "int": ("i32", "i64"),
    "small": ("u8", "i8", "i16"),  # The host runs them in i32 where a backend does not.
    "index": ("i64", "i32"),  # A family must have i64; a kernel may claim i32 too.
    "any": ("bool", "u8", "i8", "i16", "i32", "i64", "f16", "bf16", "f32", "f64", "f8e4m3fn",
            "f8e5m2"),
    # What has whole bytes: ops that move elements see only their width.
    "every": ("bool", "u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64", "f16", "bf16", "f32",
              "f64", "f8e4m3fn", "f8e5m2", "f8e8m0fnu", "c64", "c128"),
    # Ops that move whole rows move packed elements too.
    "packable": tuple(DTYPES),
    "quantized": ("i8", "u8", "i4", "u4", "i2", "u2", "f8e4m3fn", "f8e5m2", "f6e2m3", "f6e3m2",
                  "f4e2m1"),
    "factor": ("f32", "f16", "bf16", "i8", "u8", "i4", "u4", "i2", "u2", "f8e4m3fn", "f8e5m2",
               "f6e2m3", "f6e3m2", "f4e2m1"),
    "scale": ("f32", "f16", "bf16", "f8e8m0fnu", "f8e4m3fn"),
}
# What an op moves whose first free dtype has one of these sets. It never looks at the values.
MOVED_SETS = {"every": "elements", "packable": "rows"}
# The kinds as they stand in YAML, with their tokens in ops.def.
KINDS = {
    "tensor": "tensor", "tensor?": "tensor_opt", "tensor[]": "tensor_list",
    "out": "out", "out?": "out_opt", "out[]": "out_list",
    "inout": "inout", "inout[]": "inout_list",
    "operand": "operand", "scalar|tensor": "scalar_tensor",
    "i32": "i32", "i64": "i64", "u64": "u64", "f64": "f64", "i64[]": "i64_list",
    "dtype": "dtype", "enum": "enumeration",
}
OUT_KINDS = ("out", "out?", "out[]")
TENSOR_KINDS = ("tensor", "tensor?", "tensor[]", "operand", "inout", "inout[]") + OUT_KINDS
# Words that are reserved in C or C++ and cannot name a member of a frame.
RESERVED = frozenset(
    "struct_size flags auto bool break case char class const continue default delete do double "
    "else enum extern float for friend goto if inline int long namespace new operator private "
    "protected public register return short signed sizeof static struct switch template this throw "
    "try typedef typename union unsigned using virtual void volatile while".split())
# The parser in C, where PyYAML has it: it takes a tenth of the time, and each emitter reads all.
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
FIRST_PRIVATE_ID = 1 << 16  # Ids from here on belong to vendors.
# The revision of the operators of ABI 0.3. Those of vendors begin with revision 1.
FIRST_REVISION = 3


class SpecError(Exception):
    """A fault in the spec. The message begins with file:line."""

    def __init__(self, path, line, message):
        super().__init__(f"{path}:{line}: {message}")


@dataclass
class Arg:
    """One argument of an op. Its kind decides which members have a meaning."""

    name: str
    kind: str                      # A key of KINDS; an enum without its list.
    line: int
    dtypes: tuple = ()             # What the caller chooses from; () if `dtype` is a rule.
    dtype: str = ""                # like(x), acc(x), sum(x) or one dtype; "" if there is a set.
    dtype_set: str = ""            # How the set is written in ops.def: float, set(f32, i64), ...
    default_dtype: str = ""        # For an out with a set: its dtype if the caller gives none.
    shape: str = ""                # An expression; "given" if the caller chooses, "" if any.
    ndim: object = None            # None, a number, (lowest, highest) or an expression.
    count: object = None           # For a list: None, a number or an expression.
    may_be_empty: bool = False     # Whether a list may also have no elements.
    may_alias: tuple = ()          # For an out: inputs whose memory it may be.
    min: object = None             # Bounds of an attribute: None, a number or an expression.
    max: object = None
    below: object = None
    distinct: bool = False         # No two elements of an i64[] are equal.
    looked_up: bool = False        # Read by index, at most once per element of the results.
    default: object = None         # For wrappers; a frame always says the value.
    enum_name: str = ""
    enum_values: tuple = ()        # Their values count from `first_value`.
    first: object = None           # The number of the first value as written: 0, or None.
    may_be_absent: bool = False    # For scalar|tensor: neither is given, which stands for 0.
    since: int = 0                 # The revision that brought the argument.
    is_appended: bool = False      # Whether the op is older than the argument.
    values_since: dict = field(default_factory=dict)  # The revisions that brought later values.
    doc: str = ""
    values: dict = field(default_factory=dict)  # expressions.Value of shape, ndim, count, min, ...

    @property
    def is_tensor(self):
        return self.kind in TENSOR_KINDS

    @property
    def is_out(self):
        return self.kind in OUT_KINDS

    @property
    def is_inout(self):
        return self.kind in ("inout", "inout[]")

    @property
    def is_input(self):
        """Whether the argument is a tensor that is read: tensor, operand and inout kinds."""
        return self.is_tensor and not self.is_out

    @property
    def is_list(self):
        return self.kind.endswith("[]")

    @property
    def is_optional(self):
        return self.kind.endswith("?")

    @property
    def has_scalar(self):
        """Whether a second member NAME_scalar holds the value if the tensor is NULL."""
        return self.kind in ("operand", "scalar|tensor")

    @property
    def is_attribute(self):
        return not self.is_tensor and self.kind != "scalar|tensor"

    @property
    def is_axis(self):
        """Whether the argument is an axis of a tensor, or a list of axes. Wrappers resolve negative
        ones."""
        return self.axis_of is not None

    @property
    def axis_of(self):
        """The name of the tensor that the argument is an axis of, or None. The bound
        max(x.ndim, 1) gives an x without axes one axis, which has one element."""
        match = re.fullmatch(r"max\((\w+)\.ndim, 1\)|(\w+)\.ndim", str(self.below))
        return match and (match[1] or match[2])

    @property
    def is_free(self):
        """Whether the dtype is one of several and follows from no other. Claims of kernels list
        it."""
        return (self.is_tensor or self.kind == "scalar|tensor") and len(self.dtypes) > 1

    @property
    def first_value(self):
        """The number of the first value of an enum. Zero in an appended member is what the op did
        before."""
        return 0 if self.is_appended or self.first == 0 else 1

    @property
    def last_value(self):
        return self.first_value + len(self.enum_values) - 1

    @property
    def kind_token(self):
        return KINDS[self.kind]

    @property
    def dtype_rule(self):
        """The rule as ops.def has it."""
        return self.dtype or self.dtype_set or "none"


@dataclass
class Op:
    name: str
    id: int
    path: str
    line: int
    lifecycle: list
    profile: str
    doc: str
    source: str
    args: list
    requires: list                 # A list of Requirement.
    compute: str                   # "" if the op is not element-wise, or its formula is not given.
    reduce: dict                   # {} if the op is no reduction by a formula.
    decompose: str                 # "" if the op is core.
    decompose_revision: int        # The revision for which it was written: it knows no more.
    # The formula serves calls that give one of these arguments; every call if there is none.
    decompose_where_given: list
    backward: object               # As written; `gradients` has it parsed.
    backward_revision: int         # The revision for which it was written: it knows no more.
    numerics: str                  # A key of classes.CLASSES; the formula may decide it.
    samples: str                   # The data of the cases of an element-wise op, else "".
    flops: str                     # Of a product: multiplications and additions, else "".
    # What others call it: {"aten": [names], "onnx": ..., "stablehlo": ..., "ggml": ...}.
    names: dict = field(default_factory=dict)
    since: int = FIRST_REVISION    # The revision that brought the op.
    # The line of each path of keys in the entry.
    lines: dict = field(default_factory=dict, repr=False)
    # Each argument comes after the one that it is like.
    dtype_order: list = field(default_factory=list, repr=False)
    flops_value: object = field(default=None, repr=False)        # The Value of `flops`, or None.
    formula: object = None         # compute.Compute, or None
    reduction: object = None       # reduce.Reduction, or None
    decomposition: object = None   # formulas.Formula, or None if the op is core.
    gradients: object = None       # formulas.Backward

    def arg(self, name):
        return next((a for a in self.args if a.name == name), None)

    def error(self, message, *keys):
        """Returns a SpecError at the deepest of `keys` that the entry has."""
        while keys and keys not in self.lines:
            keys = keys[:-1]
        return SpecError(self.path, self.lines.get(keys, self.line), f"{self.name}: {message}")

    @property
    def c_name(self):
        return self.name.replace(".", "_")

    @property
    def inputs(self):
        return [a for a in self.args if a.is_input]

    @property
    def outputs(self):
        return [a for a in self.args if a.is_out]

    @property
    def inouts(self):
        return [a for a in self.args if a.is_inout]

    @property
    def free(self):
        """Returns the arguments whose dtypes a kernel's claim lists, in the claim's order."""
        return [a for a in self.args if a.is_free]

    @property
    def attributes(self):
        return [a for a in self.args if a.is_attribute]

    @property
    def scalars(self):
        return [a for a in self.args if a.kind == "scalar|tensor"]


@dataclass
class Requirement:
    rule: object                   # A comparison that must hold: expressions.Value.
    when: object                   # The condition under which it must hold; None: always.
    says: str                      # The reason, for the message; "" if the rule says it all.


def _line_map(node, keys, lines, path):
    """Notes the line of every key and item below `node`, and refuses keys that occur twice."""
    lines[keys] = node.start_mark.line + 1
    if isinstance(node, yaml.MappingNode):
        seen = set()
        for key, value in node.value:
            line = key.start_mark.line + 1
            if key.value in seen:
                raise SpecError(path, line, f"'{key.value}' stands here a second time")
            seen.add(key.value)
            _line_map(value, keys + (key.value,), lines, path)
            lines[keys + (key.value,)] = line
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            _line_map(value, keys + (index,), lines, path)


def _read_yaml(path):
    text = pathlib.Path(path).read_text(encoding="utf-8")
    try:
        node = yaml.compose(text, Loader=LOADER)
        if node is None:
            raise SpecError(path, 1, "the file has no ops")
        lines = {}
        _line_map(node, (), lines, path)
        return yaml.load(text, Loader=LOADER), lines
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise SpecError(path, mark.line + 1 if mark else 1, error.problem or "bad YAML") from None


def _validate(data, lines, path):
    schema = json.loads((HERE / "schema.json").read_text(encoding="utf-8"))
    schema["$defs"]["dtype_set"]["enum"] = [*SETS, *DTYPES]
    rules = "|".join([r"(like|acc|sum)\([a-z][a-z0-9_]*\)", *DTYPES])
    schema["$defs"]["dtype_rule"]["pattern"] = f"^({rules})$"
    validator = jsonschema.Draft202012Validator(schema)
    errors = sorted(validator.iter_errors(data), key=lambda e: list(map(str, e.absolute_path)))
    if errors:
        keys = tuple(errors[0].absolute_path)
        where = ".".join(map(str, keys)) or "the file"
        raise SpecError(path, lines.get(keys, 1), f"{where}: {errors[0].message}")


def _dtype_set(names):
    """Returns (dtypes, spelling in ops.def) of a set or of a list of sets and dtypes."""
    names = [names] if isinstance(names, str) else names
    dtypes = []
    for name in names:
        dtypes += [d for d in SETS.get(name, (name,)) if d not in dtypes]
    spelling = names[0] if len(names) == 1 else f"set({', '.join(dtypes)})"
    return tuple(dtypes), spelling


def _make_arg(name, entry, line):
    entry = dict(entry)
    kind = entry.pop("kind")
    arg = Arg(name=name, kind=kind, line=line)
    if kind.startswith("enum("):
        arg.kind = "enum"
        arg.enum_name, values = kind[5:-1].split(": ")
        arg.enum_values = tuple(values.split(", "))
    if "dtypes" in entry:
        arg.dtypes, arg.dtype_set = _dtype_set(entry.pop("dtypes"))
        if len(arg.dtypes) == 1:
            arg.dtype = arg.dtypes[0]
    for key, value in entry.items():
        setattr(arg, key, tuple(value) if isinstance(value, list) else value)
    if arg.dtype in DTYPES:
        arg.dtypes = (arg.dtype,)
    return arg


def _make_op(name, entry, path, lines):
    own = {keys[1:]: line for keys, line in lines.items() if keys[:1] == (name,)}
    args = [_make_arg(n, a, own[("args", n)]) for n, a in entry["args"].items()]
    requires = [Requirement(r, None, "") if isinstance(r, str) else
                Requirement(r["rule"], r.get("when"), r.get("says", ""))
                for r in entry.get("requires", [])]
    since = entry.get("since", FIRST_REVISION if entry["id"] < FIRST_PRIVATE_ID else 1)
    for arg in args:
        arg.is_appended = arg.since > since
        arg.since = arg.since or since
        if arg.is_appended and arg.is_attribute and arg.default is None:
            arg.default = arg.enum_values[0] if arg.kind == "enum" else 0
    return Op(name=name, id=entry["id"], path=str(path), line=own[()], lifecycle=entry["lifecycle"],
              profile=entry["profile"], doc=entry["doc"].strip(), source=entry.get("source", ""),
              args=args, requires=requires, compute=entry.get("compute", ""),
              reduce=entry.get("reduce", {}),
              decompose=entry.get("decompose", "").rstrip(),
              decompose_revision=entry.get("decompose_revision", since),
              decompose_where_given=entry.get("decompose_where_given", []),
              backward=entry["backward"], backward_revision=entry.get("backward_revision", since),
              numerics=entry.get("numerics", ""),
              samples=entry.get("samples", ""), flops=entry.get("cost", {}).get("flops", ""),
              names={where: [given] if isinstance(given, str) else given
                     for where, given in entry.get("names", {}).items()},
              since=since, lines=own)


def _check_fields(op, arg):
    """Checks that the members of `arg` are those that its kind has."""
    allowed = {"kind", "doc", "name", "line", "default", "since"}
    if arg.is_tensor:
        allowed |= {"dtypes", "dtype", "shape", "ndim"}
    if arg.is_out:
        allowed |= {"default_dtype", "may_alias"}
    if arg.kind == "scalar|tensor":
        allowed |= {"dtype", "dtypes", "may_be_absent"}
    if arg.kind == "tensor":
        allowed |= {"looked_up"}
    if arg.is_list:
        allowed |= {"count", "may_be_empty"}
    if arg.kind in ("i32", "i64", "u64", "f64", "i64[]"):
        allowed |= {"min", "max", "below"}
    if arg.kind == "i64[]":
        allowed |= {"distinct"}
    if arg.kind == "enum":
        allowed |= {"values_since", "first"}
    for keys in op.lines:
        if keys[:2] == ("args", arg.name) and len(keys) == 3 and keys[2] not in allowed:
            raise op.error(f"{arg.name}: {arg.kind} has no '{keys[2]}'", *keys)


def _check_arg(op, arg):
    where = ("args", arg.name)
    if arg.name in RESERVED or re.match(r"reserved_|.*_(scalar|count)$", arg.name):
        raise op.error(f"'{arg.name}' cannot be the name of an argument", *where)
    _check_fields(op, arg)
    has_dtype = bool(arg.dtype or arg.dtype_set)
    if (arg.is_tensor or arg.kind == "scalar|tensor") != has_dtype:
        raise op.error(f"{arg.name}: {arg.kind} needs 'dtype' or 'dtypes'", *where)
    for rule, key in ((arg.dtype, "dtype"), (arg.default_dtype, "default_dtype")):
        match = re.fullmatch(r"\w+\((\w+)\)", rule)
        if match and not (op.arg(match[1]) and op.arg(match[1]).is_tensor):
            raise op.error(f"{arg.name}: {rule} names no tensor of this op", *where, key)
    if arg.is_out and not arg.shape:
        raise op.error(f"{arg.name}: an output needs 'shape'", *where)
    if arg.shape == "given" and not arg.is_out:
        raise op.error(f"{arg.name}: only an output has a shape that is given", *where, "shape")
    for other in arg.may_alias:
        if not (op.arg(other) and op.arg(other).is_input):
            raise op.error(f"{arg.name}: may_alias: '{other}' is no input of this op", *where)
    if arg.kind == "enum" and len(set(arg.enum_values)) != len(arg.enum_values):
        raise op.error(f"{arg.name}: a value stands twice", *where)
    if arg.kind == "enum" and arg.default is not None and arg.default not in arg.enum_values:
        raise op.error(f"{arg.name}: '{arg.default}' is none of its values", *where, "default")


def _check_growth(op):
    """Checks that what later revisions brought is at the end, and may be absent."""
    for before, arg in zip([None, *op.args], op.args):
        where = ("args", arg.name, "since")
        if arg.since < (before.since if before else op.since):
            raise op.error(f"{arg.name}: came in revision {arg.since}, before what precedes it",
                           *where)
        if arg.is_appended and arg.kind in ("tensor", "out", "inout"):
            raise op.error(f"{arg.name}: an argument that is appended is optional, and {arg.kind} "
                           f"is not", *where)
        if arg.is_appended and arg.is_list and not arg.may_be_empty and arg.count is not None:
            raise op.error(f"{arg.name}: a list that is appended may be empty", *where)
        if arg.is_appended and isinstance(arg.min, (int, float)) and arg.min > 0:
            raise op.error(f"{arg.name}: an attribute that is appended may be 0", *where)
        later = [value for value in arg.enum_values if arg.values_since.get(value, 0) > arg.since]
        if arg.values_since.keys() != set(later) or \
                list(arg.enum_values[len(arg.enum_values) - len(later):]) != later:
            raise op.error(f"{arg.name}: values_since names values at the end of the list, with "
                           f"revisions after {arg.since}", "args", arg.name, "values_since")


def _check_formula_revisions(op, newest):
    """Checks that no formula claims a revision that does not exist yet, because its author cannot
    have read what that one brings."""
    has_gradient = not str(op.backward).startswith("none: ")
    for key, revision, is_there, what in (
            ("decompose_revision", op.decompose_revision, op.decompose, "decomposition"),
            ("backward_revision", op.backward_revision, has_gradient, "gradient")):
        if (key,) in op.lines and not is_there:
            raise op.error(f"{key}: the op has no {what}", key)
        if not op.since <= revision <= newest:
            raise op.error(f"{key}: {revision} is not from {op.since}, which brought the op, to "
                           f"{newest}, which is the newest", key)
    for name in op.decompose_where_given:
        arg = op.arg(name)
        if arg and arg.since > op.decompose_revision:
            raise op.error(f"decompose_where_given: revision {arg.since} brought '{name}', and "
                           f"decompose_revision is {op.decompose_revision}",
                           "decompose_where_given")


def revisions(ops):
    """Returns the revisions that brought something, in order."""
    found = set()
    for op in ops:
        found |= {op.since, *(arg.since for arg in op.args)}
        found |= {since for arg in op.args for since in arg.values_since.values()}
    return sorted(found)


def _check_ids(ops):
    by_id, by_name, enums = {}, {}, {}
    for op in ops:
        for key, index, what in ((op.id, by_id, f"id {op.id}"), (op.c_name, by_name, "the name")):
            if key in index:
                other = index[key]
                raise op.error(f"{what} is taken by {other.name} ({other.path}:{other.line})", "id")
            index[key] = op
        if ("." in op.name) != (op.id >= FIRST_PRIVATE_ID):
            raise op.error(f"id {op.id}: private ops are named vendor.op and have ids from "
                           f"{FIRST_PRIVATE_ID}, all others lower ones", "id")
        for arg in op.args:
            values = (arg.enum_values, arg.first_value)
            if arg.kind == "enum" and enums.setdefault(arg.enum_name, values) != values:
                raise op.error(f"{arg.name}: enum '{arg.enum_name}' has other values elsewhere",
                               "args", arg.name)


def _order_dtypes(op):
    """Returns the arguments with a dtype, each after the one whose dtype it follows."""
    order, left = [], [a for a in op.args if a.dtype or a.dtype_set]
    while left:
        known = {a.name for a in order}
        ready = [a for a in left if all(r in known for r in
                                        re.findall(r"\((\w+)\)", a.dtype + a.default_dtype))]
        if not ready:
            raise op.error(f"{left[0].name}: its dtype follows from itself", "args", left[0].name)
        order += ready
        left = [a for a in left if a not in ready]
    return order


def _parse_arg(op, arg, scope):
    types = {"shape": "dims", "ndim": "int", "count": "int"}
    bound = "number" if arg.kind == "f64" else "int"
    for key in ("shape", "ndim", "count", "min", "max", "below", "default"):
        text = getattr(arg, key)
        if text in (None, "", "given") or isinstance(text, tuple) or \
                (arg.kind == "enum" and key == "default"):
            continue
        want = types.get(key, ("int", "number") if arg.has_scalar else
                         ("int", "dims") if arg.kind == "i64[]" else bound)
        yield (arg.name, key), lambda t=str(text), w=want: expressions.parse_value(t, scope, w)


def _parse_expressions(op, ops):
    """Parses each expression in `op`, and stores the result beside it."""
    scope = expressions.scope_of(op)

    def parse(make, *keys):
        try:
            return make()
        except expressions.ExpressionError as error:
            raise op.error(str(error), *keys) from None

    for arg in op.args:
        for (name, key), make in _parse_arg(op, arg, scope):
            arg.values[key] = parse(make, "args", name, key)
    for index, item in enumerate(op.requires):
        item.rule, item.when = (t and parse(
            lambda t=t: expressions.parse_value(t, scope, "condition"), "requires", index)
            for t in (item.rule, item.when))
    if bool(op.compute) != bool(op.samples):
        raise op.error("an entry has `samples`, which names the data of its cases, if and only if "
                       "it has `compute`", "samples" if op.samples else "compute")
    if op.flops:
        op.flops_value = parse(lambda: expressions.parse_value(op.flops, scope, "int"),
                               "cost", "flops")
    op.formula = parse(lambda: compute.parse_compute(op), "compute")
    op.reduction = parse(lambda: reduce.parse_reduce(op), "reduce")
    classes.resolve(op)
    op.decomposition = parse(lambda: formulas.parse_decomposition(op, ops, DTYPES), "decompose")
    for name in op.decompose_where_given:
        arg = op.arg(name)
        if op.decomposition is None or arg is None or not (
                arg.kind == "tensor?" or arg.kind in ("i32", "i64", "u64", "f64") or
                (arg.kind == "enum" and arg.first_value == 0)):
            raise op.error(f"decompose_where_given: '{name}' is no optional tensor, no number and "
                           "no enum that counts from 0 of a decomposed op",
                           "decompose_where_given")
    op.gradients = parse(lambda: formulas.parse_backward(op, ops, DTYPES), "backward")


def load(folder=HERE / "ops", others=()):
    """Returns the ops of all *.yaml files in `folder`, by id. Raises SpecError. `others` are ops
    that are loaded already and that formulas may call: a vendor's own ops may call the public
    ones."""
    paths = sorted(pathlib.Path(folder).glob("*.yaml"))
    if not paths:
        raise SpecError(folder, 0, "no *.yaml files here")
    ops = []
    for path in paths:
        data, lines = _read_yaml(path)
        _validate(data, lines, path)
        ops += [_make_op(name, entry, path, lines) for name, entry in data.items()]
    for op in ops:
        for arg in op.args:
            _check_arg(op, arg)
        _check_growth(op)
        op.dtype_order = _order_dtypes(op)
    _check_ids([*others, *ops])
    last_revision = revisions(ops)[-1]
    for op in ops:
        _check_formula_revisions(op, last_revision)
        _parse_expressions(op, {o.c_name: o for o in [*others, *ops]})
    for op in ops:
        classes.check(op)
    return sorted(ops, key=lambda op: op.id)
