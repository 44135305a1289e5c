"""What the public headers declare, read from their text: structs with their members, constants and
functions. The headers have one form, so that a few expressions can read them. What these miss
shows as a struct of no kind, or as a wrong count in a test.
"""
import dataclasses
import pathlib
import re
import subprocess
import sys
import tempfile

STRUCT = re.compile(r"typedef struct (bp_\w+) \{(.*?)\n\} \1;", re.S)
COMMENT = re.compile(r"/\*.*?\*/", re.S)
ENUM = re.compile(r"\benum \{(.*?)\};", re.S)
MACRO = re.compile(r"^#define (BP_\w+) (.+)$", re.M)
FUNCTION = re.compile(r"^BP_API ([^;{]*?\b(bp_\w+)\(([^;{]*?)\));", re.M | re.S)
POINTER = re.compile(r"\(\*(\w+)\)\((.*)\)$")
# The one list of frozen structs is a paragraph of base.h. It names those of host.h as well.
FROZEN = re.compile(r"The list of frozen structs is:(.*?)\n \*\n", re.S)
BASE = pathlib.Path(__file__).resolve().parent.parent / "include" / "backplane" / "base.h"
# Constants that each minor changes by their meaning.
VERSIONS = {"BP_ABI_MAJOR", "BP_ABI_MINOR", "BP_ABI_MINOR_MIN", "BP_OPS_REVISION"}


@dataclasses.dataclass
class Member:
    name: str
    text: str  # "uint64_t size_bytes", or a whole function pointer.
    parameters: list[str] | None = None  # Set for a function pointer.


@dataclasses.dataclass
class Struct:
    name: str
    header: str
    kind: str  # frozen, frame or extensible, as versioning.md defines them.
    members: list[Member]

    @property
    def is_request(self) -> bool:
        """Whether a tail that is not zero is refused. The tail of an offer is ignored."""
        return self.kind == "frame" or self.name.endswith("_desc")

    @property
    def is_table(self) -> bool:
        return any(member.name == "self" for member in self.members)


@dataclasses.dataclass
class Boundary:
    includes: list[pathlib.Path]
    headers: list[str]
    structs: dict[str, Struct]
    frozen: set[str]  # The names on the list of base.h.
    constants: list[str]
    functions: dict[str, str]  # Name to declaration.
    version: tuple[int, int]
    oldest_minor: int  # The oldest minor that a host with these headers serves.

    def serves(self, version: tuple[int, int]) -> bool:
        """Returns whether a host with these headers serves what was built with `version`, by the
        rule of versioning.md, which is written a second time here."""
        if version[0] != self.version[0]:
            return False
        return self.version[0] > 0 or self.oldest_minor <= version[1] <= self.version[1]


def one_line(text: str) -> str:
    return " ".join(text.split())


def members(body: str) -> list[Member]:
    """Returns the members that a struct declares, in order."""
    found = []
    for declaration in map(one_line, COMMENT.sub("", body).split(";")):
        if not declaration:
            continue
        if function := POINTER.search(declaration):
            parameters = [part.strip() for part in function.group(2).split(",")]
            found.append(Member(function.group(1), declaration, parameters))
            continue
        first, *others = declaration.split(",")
        kind = re.match(r"(.*?)\**\w+(\[\w+\])?$", first).group(1)
        for part in [first] + [kind + other.strip() for other in others]:
            found.append(Member(re.search(r"(\w+)(\[\w+\])?$", part).group(1), part))
    return found


def frozen_structs(folder: pathlib.Path) -> set[str]:
    """Returns the list in the base.h of this folder. Those of 0.1 and 0.2 had none, and what is
    frozen now never was another kind of struct."""
    base = folder / "backplane" / "base.h"
    found = FROZEN.search(base.read_text(encoding="utf-8")) if base.exists() else None
    found = found or FROZEN.search(BASE.read_text(encoding="utf-8"))
    return set(re.findall(r"\bbp_\w+", found.group(1)))


def kind_of(name: str, names: list[str], frozen: set[str]) -> str:
    has_header = names[:3] == ["struct_size", "struct_type", "next"]
    if name in frozen:
        if has_header and name != "bp_struct_header":
            sys.exit(f"{name} is on the list of frozen structs of base.h, and has a struct header")
        return "frozen"
    if names[:2] == ["struct_size", "flags"] and name.endswith("_args"):
        return "frame"
    if has_header:
        return "extensible"
    sys.exit(f"{name} is not on the list of frozen structs of base.h, is not a frame, and does not "
             "begin with the struct header")


def constants(text: str) -> list[str]:
    """Returns the names of enumerators, and of macros that are numbers."""
    names = [re.match(r"\w+", part.strip()).group(0)
             for body in ENUM.findall(text) for part in body.split(",") if part.strip()]
    return names + [name for name, value in MACRO.findall(text)
                    if name not in VERSIONS and re.match(r"[0-9(]", value)]


def read(*includes: pathlib.Path) -> Boundary:
    """Returns everything that the headers in these include folders declare."""
    frozen = frozen_structs(includes[0])
    found = Boundary(list(includes), [], {}, frozen, [], {}, (0, 0), 0)
    for header in [h for folder in includes for h in sorted(folder.glob("backplane/*.h"))]:
        text = COMMENT.sub("", header.read_text(encoding="utf-8"))
        found.headers.append(f"backplane/{header.name}")
        for name, body in STRUCT.findall(text):
            listed = members(body)
            kind = kind_of(name, [member.name for member in listed], frozen)
            found.structs[name] = Struct(name, header.name, kind, listed)
        found.constants += constants(text)
        for declaration, name, _ in FUNCTION.findall(text):
            found.functions[name] = one_line(declaration)
        if header.name == "base.h":
            numbers = dict(re.findall(r"#define BP_ABI_(M\w+) (\d+)", text))
            found.version = (int(numbers["MAJOR"]), int(numbers["MINOR"]))
            found.oldest_minor = int(numbers.get("MINOR_MIN", numbers["MINOR"]))
    if not found.structs:
        sys.exit(f"no headers in {', '.join(map(str, includes))}")
    return found


def run_program(compiler: str, boundary: Boundary, body: list[str]) -> list[str]:
    """Returns the lines that a C program prints which includes every header."""
    lines = [f'#include "{header}"' for header in boundary.headers]
    lines += ["#include <stdio.h>", "int main(void) {", *body, "  return 0;", "}"]
    with tempfile.TemporaryDirectory() as scratch:
        source, program = pathlib.Path(scratch, "print.c"), pathlib.Path(scratch, "print")
        source.write_text("\n".join(lines) + "\n", encoding="utf-8")
        includes = [f"-I{folder}" for folder in boundary.includes]
        subprocess.run([compiler, "-std=c11", "-w", *includes, source, "-o", program], check=True)
        return subprocess.run([program], capture_output=True, text=True,
                              check=True).stdout.splitlines()


def layout(compiler: str, boundary: Boundary) -> list[str]:
    """Returns a line for the size of each struct, and a line for the place of each member."""
    body = []
    for struct in boundary.structs.values():
        label = f"{struct.kind} {struct.name}"
        body.append(f'  printf("{label} size %zu\\n", sizeof({struct.name}));')
        body += [f'  printf("{label}.{m.name} at %zu size %zu\\n", offsetof({struct.name}, '
                 f"{m.name}), sizeof((({struct.name}*)0)->{m.name}));" for m in struct.members]
    return run_program(compiler, boundary, body)


def values(compiler: str, boundary: Boundary) -> list[str]:
    """Returns a line for each constant."""
    return run_program(compiler, boundary, [
        f'  printf("{name} is %lld\\n", (long long)({name}));' for name in boundary.constants])


def promised(lines: list[str]) -> list[str]:
    """Returns the lines of a layout that no later minor may change. A struct that may grow has no
    promised size."""
    return [line for line in lines if " size " in line and not (
        line.startswith(("extensible", "frame")) and " at " not in line)]
