"""Grows real operators in a copy of ops_spec, as a later revision may: one op for each kind of
argument that may be appended, and an enumeration that gets a value. Ops whose kernels are generated
from a formula do not grow here, because the specification checks that the formula has each
argument.

grow(ops_spec, out) writes the copy. Its emitters and generators then speak of the grown operators.
"""
import pathlib
import re
import shutil
import sys

# The arguments that each op gets, as ops_spec/ops has them.
APPENDED = {
    "softmax": ["window: {kind: i64}",
                'bias: {kind: "tensor?", dtypes: float, shape: "x.shape"}'],
    "log_softmax": ["window: {kind: i64}"],
    "index_select": ['order: {kind: "enum(index_order: free, sorted)"}'],
    "argmax": ['mask: {kind: "tensor?", dtype: bool, shape: "x.shape"}',
               'largest: {kind: "out?", dtype: like(x), shape: "y.shape"}'],
    "sort": ['keys: {kind: "i64[]", min: 0}'],
    "gather": ['others: {kind: "tensor[]", dtype: like(x)}'],
    "topk": ["floor: {kind: operand, dtype: like(x)}"],
    "scatter": ['scale: {kind: "scalar|tensor", dtype: f32}'],
}
# The enumerations that get a value, with their values so far.
VALUES = {"gelu_approximation: none, tanh": "sigmoid"}


def newest_revision(ops_spec: pathlib.Path) -> int:
    """Returns the value of FIRST_REVISION of spec.py, or a later `since:` of an entry."""
    text = (ops_spec / "spec.py").read_text(encoding="utf-8")
    for path in sorted((ops_spec / "ops").glob("*.yaml")):
        text += path.read_text(encoding="utf-8")
    return max(int(number) for number in
               re.findall(r"(?:^FIRST_REVISION =|\bsince:) (\d+)", text, re.M))


def append(text: str, op: str, arguments: list[str], revision: int) -> str:
    """Returns the text of a family in which `op` has got arguments."""
    pattern = rf"(^{op}:\n(?:(?!^\w).*\n)*?  args:\n(?:    .*\n)+)"
    lines = "".join(f"    {a[:-1]}, since: {revision}}}\n" for a in arguments)
    return re.sub(pattern, lambda match: match[1] + lines, text, count=1, flags=re.M)


def grow(ops_spec: pathlib.Path, out: pathlib.Path):
    """Writes a copy of `ops_spec` to `out`, in which the ops have grown in the next revision."""
    revision = newest_revision(ops_spec) + 1
    (out / "ops").mkdir(parents=True, exist_ok=True)
    for path in [*ops_spec.glob("*.py"), ops_spec / "schema.json"]:
        shutil.copyfile(path, out / path.name)
    left = {*APPENDED, *VALUES}
    for path in sorted((ops_spec / "ops").glob("*.yaml")):
        text = path.read_text(encoding="utf-8")
        for op, arguments in APPENDED.items():
            grown = append(text, op, arguments, revision)
            left -= {op} if grown != text else set()
            text = grown
        for values, added in VALUES.items():
            old = f'kind: "enum({values})"'
            left -= {values} if old in text else set()
            text = text.replace(old, f'kind: "enum({values}, {added})", '
                                     f"values_since: {{{added}: {revision}}}")
        (out / "ops" / path.name).write_text(text, encoding="utf-8")
    if left:
        sys.exit(f"grown_ops.py: the specification has no {', '.join(sorted(left))}")
