#!/usr/bin/env python3
"""Writes the headers of a minor that does not exist yet, from the headers of now.

usage: future.py INCLUDE_DIR OUT_DIR MAJOR.MINOR [--append] [--break KIND:WHERE]...

A host with these headers serves no older minor than that of now. Without --append nothing but the
version differs. With it the headers are what rule "append only"
allows at most: a slot more in each table, a member more in each other struct that may grow, a flag
more in each set of flags, one more struct type. BP_ABI_SYNTHETIC is then defined.

--break changes what no minor may change, to prove that somebody notices:
  move-member:STRUCT.MEMBER    swaps the member with the one before it
  retype:STRUCT.MEMBER         an integer becomes a floating-point number of the same size
  narrow:STRUCT.MEMBER         an integer gets half of its size, the rest has no name
  rename:STRUCT.MEMBER         the member has another name
  remove-member:STRUCT.MEMBER  the member, or slot, is gone
  insert:STRUCT.MEMBER         there is a new member, or slot, before it
  retype-slot:STRUCT.SLOT      the last parameter of the function is a number instead
  grow-frozen:STRUCT           a frozen struct has a member more
  renumber:CONSTANT            an enumerator has another value
"""
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import boundary  # pylint: disable=wrong-import-position

SLOT = "bp_status (*{name})(void* self, uint64_t value, uint64_t* out_value)"
FLAG_SET = re.compile(r"(typedef uint32_t bp_\w+;\s*enum \{)(.*?)(\s*\};)", re.S)
RETYPED = {"uint64_t": "double", "int64_t": "double", "uint32_t": "float", "int32_t": "float"}
NARROWED = {"uint64_t": "uint32_t", "int64_t": "int32_t", "uint32_t": "uint16_t"}


class Headers:
    """The text of each header, with edits by struct and member."""

    def __init__(self, folder: pathlib.Path):
        self.known = boundary.read(folder)
        self.texts = {path.name: path.read_text(encoding="utf-8")
                      for path in sorted(folder.glob("backplane/*"))}

    def substitute(self, header: str, pattern: str, replacement: str):
        """Replaces exactly one place, or stops."""
        text, count = re.subn(pattern, replacement, self.texts[header], flags=re.M)
        if count != 1:
            sys.exit(f"{header}: {count} places are like {pattern}, expected 1")
        self.texts[header] = text

    def struct(self, name: str) -> boundary.Struct:
        if name not in self.known.structs:
            sys.exit(f"no header has a struct {name}")
        return self.known.structs[name]

    def append_member(self, struct: boundary.Struct, text: str):
        self.substitute(struct.header, rf"^\}} {struct.name};", f"  {text};\n}} {struct.name};")

    def write_members(self, struct: boundary.Struct, texts: list[str]):
        """Replaces the whole body: what is broken needs no comments."""
        text = self.texts[struct.header]
        begin = text.index(f"typedef struct {struct.name} {{")
        end = text.index(f"\n}} {struct.name};", begin)
        body = f"typedef struct {struct.name} {{\n" + "".join(f"  {t};\n" for t in texts)
        self.texts[struct.header] = text[:begin] + body.rstrip("\n") + text[end:]

    def write(self, folder: pathlib.Path):
        (folder / "backplane").mkdir(parents=True, exist_ok=True)
        for name, text in self.texts.items():
            (folder / "backplane" / name).write_text(text, encoding="utf-8")


def set_version(headers: Headers, version: str):
    now = headers.known.version
    oldest = now[1] if version.startswith(f"{now[0]}.") else 0
    for part, number in zip(("MAJOR", "MINOR", "MINOR_MIN"), [*version.split("."), oldest],
                            strict=True):
        headers.substitute("base.h", rf"^#define BP_ABI_{part} \d+$",
                           f"#define BP_ABI_{part} {number}")


def prefix_of(names: list[str]) -> str:
    """What the enumerators of one set begin with: BP_LAUNCH_ of BP_LAUNCH_STRICT_F32 and others."""
    words = [name.split("_") for name in names]
    count = 0
    while all(len(w) > count + 1 and w[count] == words[0][count] for w in words):
        count += 1
    return "_".join(words[0][:count]) + "_"


def with_flag(match: re.Match) -> str:
    """The set of flags with one more; a set of plain numbers stays as it is."""
    names = re.findall(r"\b(BP_\w+) =", match.group(2))
    if "<<" not in match.group(2):
        return match.group(0)
    body = match.group(2).rstrip()
    # Behind the comment of the last enumerator there may be no comma before it.
    body = re.sub(r"(1u << \d+)(?!,)(\s*(/\*((?!\*/).)*\*/)?)$", r"\1,\2", body, flags=re.S)
    return f"{match.group(1)}{body}\n  {prefix_of(names)}APPENDED = 1u << 30{match.group(3)}"


def append_everywhere(headers: Headers):
    for struct in headers.known.structs.values():
        if struct.kind == "frozen":
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
    """The declarations of a struct with the one at this index broken."""
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


def break_it(headers: Headers, what: str, where: str):
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
             breaks: tuple[str, ...] = ()):
    """Writes the headers of `version` below `out`; each break is "kind:where"."""
    headers = Headers(source)
    for one in breaks:
        break_it(headers, *one.split(":", 1))
        headers.write(out)
        headers = Headers(out)
    set_version(headers, version)
    if append:
        append_everywhere(headers)
    headers.write(out)


def main() -> int:
    arguments = sys.argv[1:]
    breaks = tuple(arguments[i + 1] for i, a in enumerate(arguments[:-1]) if a == "--break")
    plain = [a for a in arguments if not a.startswith("--") and a not in breaks]
    if len(plain) != 3 or not re.fullmatch(r"\d+\.\d+", plain[2]):
        sys.exit(__doc__)
    generate(pathlib.Path(plain[0]), pathlib.Path(plain[1]), plain[2], "--append" in arguments,
             breaks)
    return 0


if __name__ == "__main__":
    sys.exit(main())
