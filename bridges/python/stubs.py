"""Writes the type stubs of the package: stubs.py FOLDER_OF_CORE PACKAGE OUT.

Those of the ops come from the descriptions of the library, those of the extension from its classes,
with the methods that Python code adds to tensors.
"""

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


# What backplane/_operators.py adds to tensors, beside the operators.
_METHODS = """\
    T: Tensor
    mT: Tensor
    def __hash__(self) -> int: ...
    def __getitem__(self, key: Any) -> Tensor: ...
    def __setitem__(self, key: Any, value: Any) -> None: ...
    def __bool__(self) -> bool: ...
    def __int__(self) -> int: ...
    def __float__(self) -> float: ...
    def __complex__(self) -> complex: ...
    def __index__(self) -> int: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Tensor]: ...
    def __dlpack__(self, *, stream: Any = ..., max_version: tuple[int, int] | None = ...,
                   dl_device: tuple[int, int] | None = ..., copy: bool | None = ...) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
    def __array__(self, dtype: Any = ..., copy: bool | None = ...) -> Any: ...
    def __array_namespace__(self, /, *, api_version: str | None = ...) -> Any: ...
    def numpy(self, dtype: Any = ..., copy: bool | None = ...) -> Any: ...
    def tolist(self) -> Any: ...
    def to_device(self, device: Device | str, /, *, stream: Any = ...) -> Tensor: ...
    def backward(self, gradient: Tensor | None = ..., retain_graph: bool = ...,
                 create_graph: bool = ...) -> None: ...
"""


def _operators(package):
    """Returns the stubs of the operators and reductions of tensors, from the package's tables."""
    source = (pathlib.Path(package) / "_operators.py").read_text(encoding="ascii")
    tables = source[source.index("_BINARY = {"):source.index("def _takes")]
    scope = {}
    exec(tables, scope)  # The tables name functions alone.
    lines = []
    for name in scope["_BINARY"]:
        for prefix in ("", "r", "i"):
            lines.append(f"    def __{prefix}{name}__(self, other: Any, /) -> Tensor: ...\n")
    for name in scope["_COMPARISONS"]:
        note = "  # type: ignore[override]" if name in ("eq", "ne") else ""
        lines.append(f"    def __{name}__(self, other: Any, /) -> Tensor: ...{note}\n")
    for name in scope["_UNARY"]:
        lines.append(f"    def __{name}__(self, /) -> Tensor: ...\n")
    for name in scope["_METHODS"]:
        given = "axis: Any = ..., **keywords: Any"
        lines.append(f"    def {name}(self, /, *, {given}) -> Tensor: ...\n")
    return "".join(lines)


def write_core(core, package):
    """Returns the stub of the extension."""
    from nanobind.stubgen import StubGen
    generator = StubGen(core, include_private=False)
    generator.put(core)
    text = generator.get()
    place = text.index("class Tensor:\n") + len("class Tensor:\n")
    doc_end = text.index('"""', text.index('"""', place) + 3) + 3
    imports = "from collections.abc import Iterator\nfrom typing import Any\n\n"
    return (imports + text[:doc_end] + "\n\n" + _METHODS + _operators(package) + text[doc_end:])


def main(folder, package, out):
    sys.path.insert(0, folder)
    import _core
    path = pathlib.Path(out)
    path.mkdir(parents=True, exist_ok=True)
    (path / "_core.pyi").write_text(write_core(_core, package), encoding="ascii")
    (path / "ops.pyi").write_text(write(_core), encoding="ascii")
    (path / "py.typed").write_text("", encoding="ascii")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
