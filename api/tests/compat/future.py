#!/usr/bin/env python3
"""Writes the headers of a minor that does not exist yet, from the headers of now.

usage: future.py INCLUDE_DIR OUT_DIR MAJOR.MINOR [--append] [--ops OPS_SPEC] [--break KIND:WHERE]...

A host with these headers serves no minor older than the minor of now. Without --append only the
version differs. With it the headers have all that the rule "append only" allows: one more slot in
each table, one more member in each other struct that may grow, one more flag in each set of flags,
and one more struct type. BP_ABI_SYNTHETIC is then defined.

With --ops the operators of the specification OPS_SPEC have grown by arguments of each kind
(grown_ops.py). The grown specification is OUT_DIR/ops_spec.

--break changes what no minor may change, to prove that a check notices:
  move-member:STRUCT.MEMBER    swaps the member with the one before it
  retype:STRUCT.MEMBER         an integer becomes a floating-point number of the same size
  narrow:STRUCT.MEMBER         an integer gets half of its size, the rest has no name
  rename:STRUCT.MEMBER         the member has another name
  remove-member:STRUCT.MEMBER  the member, or slot, is removed
  insert:STRUCT.MEMBER         there is a new member, or slot, before it
  retype-slot:STRUCT.SLOT      the last parameter of the function is a number instead
  grow-frozen:STRUCT           a frozen struct has one more member
  renumber:CONSTANT            an enumerator has another value
"""
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import boundary  # pylint: disable=wrong-import-position
import grown_ops  # pylint: disable=wrong-import-position
from header_text import HeaderText  # pylint: disable=wrong-import-position

SLOT = "bp_status (*{name})(void* self, uint64_t value, uint64_t* out_value)"
FLAG_SET = re.compile(r"(typedef uint32_t bp_\w+;\s*enum \{)(.*?)(\s*\};)", re.S)
RETYPED = {"uint64_t": "double", "int64_t": "double", "uint32_t": "float", "int32_t": "float"}
NARROWED = {"uint64_t": "uint32_t", "int64_t": "int32_t", "uint32_t": "uint16_t"}


def set_version(headers: HeaderText, version: str):
    now = headers.known.version
    oldest = now[1] if version.startswith(f"{now[0]}.") else 0
    for part, number in zip(("MAJOR", "MINOR", "MINOR_MIN"), [*version.split("."), oldest],
                            strict=True):
        headers.substitute("base.h", rf"^#define BP_ABI_{part} \d+$",
                           f"#define BP_ABI_{part} {number}")


def with_flag(match: re.Match) -> str:
    """Returns the set of flags with one more flag. A set of plain numbers stays as it is."""
    name = re.search(r"bp_\w+", match.group(1)).group(0).upper()
    if "<<" not in match.group(2):
        return match.group(0)
    body = match.group(2).rstrip()
    # The last enumerator may have a comment behind it and no comma before the comment.
    body = re.sub(r"(1u << \d+)(?!,)(\s*(/\*((?!\*/).)*\*/)?)$", r"\1,\2", body, flags=re.S)
    return f"{match.group(1)}{body}\n  {name}_APPENDED = 1u << 30{match.group(3)}"


def append_everywhere(headers: HeaderText, but_for: tuple[str, ...] = ()):
    """Appends to all structs but the frozen ones and those of the kinds `but_for`."""
    for struct in headers.known.structs.values():
        if struct.kind in ("frozen", *but_for):
            continue
        has_slots = struct.is_table or struct.name == "bp_kernel"
        headers.append_member(struct, SLOT.format(name="appended") if has_slots
                              else "uint64_t appended")
    for name, text in headers.texts.items():
        headers.texts[name] = FLAG_SET.sub(with_flag, text)
    headers.substitute("base.h", r"^  BP_STRUCT_HOST = 1,$",
                       "  BP_STRUCT_APPENDED = 0x00fffffe,\n  BP_STRUCT_HOST = 1,")
    headers.substitute("base.h", r"^(#define BP_ABI_MINOR \d+)$",
                       r"\1\n#define BP_ABI_SYNTHETIC 1")


def retyped(text: str, types: dict[str, str]) -> str:
    match = re.match(r"(\w+) (\w+)$", text)
    if match is None or match.group(1) not in types:
        sys.exit(f"'{text}' is no plain integer; allowed are {', '.join(types)}")
    return f"{types[match.group(1)]} {match.group(2)}"


def broken_members(what: str, texts: list[str], at: int) -> list[str]:
    """Returns the declarations of a struct with the one at this index broken."""
    member = texts[at]
    if what == "move-member":
        return texts[:at - 1] + [member, texts[at - 1]] + texts[at + 1:]
    if what == "retype":
        return texts[:at] + [retyped(member, RETYPED)] + texts[at + 1:]
    if what == "narrow":
        return texts[:at] + [retyped(member, NARROWED)] + texts[at + 1:]
    if what == "rename":
        name = boundary.members(member + ";")[0].name
        return texts[:at] + [re.sub(rf"\b{name}\b", f"{name}_renamed", member)] + texts[at + 1:]
    if what == "remove-member":
        return texts[:at] + texts[at + 1:]
    if what == "insert":
        added = SLOT.format(name="inserted") if "(*" in member else "uint64_t inserted"
        return texts[:at] + [added] + texts[at:]
    if what == "retype-slot" and "(*" in member:
        return texts[:at] + [re.sub(r", [^,]*\)$", ", double retyped)", member)] + texts[at + 1:]
    sys.exit(f"cannot {what} '{member}'")


def break_it(headers: HeaderText, what: str, where: str):
    if what == "renumber":
        header = next((name for name, text in headers.texts.items()
                       if re.search(rf"^\s*{where} = ", text, re.M)), None)
        if header is None:
            sys.exit(f"no header has a constant {where} on a line of its own")
        return headers.substitute(header, rf"^(\s*{where}) = \w+", r"\1 = 77")
    struct_name, _, member_name = where.partition(".")
    struct = headers.struct(struct_name)
    if what == "grow-frozen":
        return headers.append_member(struct, "uint64_t appended")
    names = [member.name for member in struct.members]
    if member_name not in names:
        sys.exit(f"{struct_name} has no member '{member_name}'; it has {', '.join(names)}")
    texts = [member.text for member in struct.members]
    return headers.write_members(struct, broken_members(what, texts, names.index(member_name)))


def generate(source: pathlib.Path, out: pathlib.Path, version: str, append: bool,
             breaks: tuple[str, ...] = (), but_for: tuple[str, ...] = ()):
    """Writes the headers of `version` below `out`; each break is "kind:where". Nothing is appended
    to structs of the kinds `but_for`."""
    headers = HeaderText(source)
    for one in breaks:
        break_it(headers, *one.split(":", 1))
        headers.write(out)
        headers = HeaderText(out)
    set_version(headers, version)
    if append:
        append_everywhere(headers, but_for)
    headers.write(out)


def grow_ops(ops_spec: pathlib.Path, out: pathlib.Path):
    """Writes the grown specification to `out`, and its headers in place of those that are there."""
    grown = out / "ops_spec"
    grown_ops.grow(ops_spec, grown)
    headers = [out / "backplane" / name for name in ("ops.h", "ops.def")]
    command = [sys.executable, "-B", grown / "generate.py", "--header", headers[0], "--rows",
               headers[1]]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def values_of(option: str, arguments: list[str]) -> tuple[str, ...]:
    return tuple(arguments[i + 1] for i, a in enumerate(arguments[:-1]) if a == option)


def main() -> int:
    arguments = sys.argv[1:]
    breaks, specs = values_of("--break", arguments), values_of("--ops", arguments)
    plain = [a for a in arguments if not a.startswith("--") and a not in breaks + specs]
    if len(plain) != 3 or not re.fullmatch(r"\d+\.\d+", plain[2]):
        sys.exit(__doc__)
    generate(pathlib.Path(plain[0]), pathlib.Path(plain[1]), plain[2], "--append" in arguments,
             breaks)
    for ops_spec in specs:
        grow_ops(pathlib.Path(ops_spec), pathlib.Path(plain[1]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
