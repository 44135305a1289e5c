"""Writes the type stubs of the ops from their descriptions: stubs.py FOLDER_OF_CORE OUT."""

import pathlib
import sys

_HEAD = '''\
# Written by stubs.py from the descriptions of the library. Do not edit.
"""The operators of the library, each by its name."""

from collections.abc import Sequence
from typing import Any, Callable, Literal

from backplane._core import Device, DType, Tensor

Number = bool | int | float

def names() -> list[str]: ...
def get(name: str) -> Callable[..., Any]: ...
def describe(name: str) -> dict[str, Any]: ...
def __getattr__(name: str) -> Any: ...  # The ops of vendors.
'''

_I32, _I64, _U64, _F64, _I64_LIST, _DTYPE, _ENUM = range(11, 18)
_TYPES = {_I32: "int", _I64: "int", _U64: "int", _F64: "float", _I64_LIST: "int | Sequence[int]",
          _DTYPE: "DType | str"}


def _type_of(argument):
    """Returns the annotation of an input or attribute."""
    if argument["is_tensor"]:
        if argument["is_list"]:
            return "Sequence[Tensor]"
        return "Tensor | Number" if argument["has_scalar"] else "Tensor"
    if argument["kind"] == _ENUM:
        return f"Literal[{', '.join(repr(v) for v in argument['values'])}]"
    return _TYPES[argument["kind"]]


def _keyword_type(name, argument):
    if name == argument["name"]:
        return "Tensor | bool" if argument["is_optional"] else "Tensor | None"
    return {"shape": "Sequence[int] | int | None", "device": "Device | str | None"}.get(
        name, "DType | str | None")


def _parameters(described, has_operand):
    parts, arguments = [], described["arguments"]
    for name, is_positional, is_required, index in described["parameters"]:
        argument = arguments[index]
        if not is_positional:
            parts += ["*"] if "*" not in parts else []
            parts.append(f"{name}: {_keyword_type(name, argument)} = ...")
            continue
        type_ = _type_of(argument)
        if has_operand and type_ == "Tensor" and not argument["is_optional"]:
            type_ = "Tensor | Number"
        if not is_required and argument["is_tensor"]:
            type_ += " | None"
        parts.append(f"{name}: {type_}" + ("" if is_required else " = ..."))
    return ", ".join(parts)


def _result(described):
    made = [a for a in described["arguments"] if a["is_output"]]
    if not made:
        return "None"
    return "Any" if any(a["is_optional"] for a in made) else (
        "Tensor" if len(made) == 1 else "tuple[Tensor, ...]")


def write_op(described):
    """Returns the stub of one op."""
    has_operand = any(a["kind"] == 9 for a in described["arguments"])
    doc = (described["doc"] or "").replace("\\", "\\\\").replace('"""', "'''")
    return (f"\ndef {described['name']}({_parameters(described, has_operand)}) -> "
            f"{_result(described)}:\n    \"\"\"{doc}\"\"\"\n")


def write(core):
    names = [n for n in core.op_names() if "." not in n]
    return _HEAD + "".join(write_op(core.describe(n)) for n in names)


def main(folder, out):
    sys.path.insert(0, folder)
    import _core
    path = pathlib.Path(out)
    path.mkdir(parents=True, exist_ok=True)
    (path / "ops.pyi").write_text(write(_core), encoding="ascii")
    (path / "py.typed").write_text("", encoding="ascii")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
