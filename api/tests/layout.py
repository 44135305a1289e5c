#!/usr/bin/env python3
"""Compares the layout of every boundary struct with the golden file.

usage: layout.py COMPILER GOLDEN INCLUDE_DIR [--update]

The members are read from the headers, so nothing is typed by hand: a small C program that prints
sizeof and offsetof of each is compiled and run. A line of the golden that changes or vanishes
fails; so does a line that is not in it yet, until --update has appended it and a person has
reviewed it.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

STRUCT = re.compile(r"typedef struct (bp_\w+) \{(.*?)\n\} \1;", re.S)
COMMENT = re.compile(r"/\*.*?\*/", re.S)
FROZEN = {"bp_struct_header", "bp_buffer_ref", "bp_tensor", "bp_scalar", "bp_launch",
          "bp_add_result"}


def members(body: str) -> list[str]:
    """The names that a struct declares, in order."""
    names = []
    for declaration in COMMENT.sub("", body).split(";"):
        declaration = " ".join(declaration.split())
        if not declaration:
            continue
        function = re.search(r"\(\*(\w+)\)", declaration)
        if function:
            names.append(function.group(1))
            continue
        for part in declaration.split(","):
            names.append(re.search(r"(\w+)(\[\w+\])?$", part.strip()).group(1))
    return names


def kind(name: str, fields: list[str]) -> str:
    """frozen, frame or extensible, as versioning.md defines them; else the reason it is none."""
    if name in FROZEN:
        return "frozen"
    if fields[:2] == ["struct_size", "flags"] and name.endswith("_args"):
        return "frame"
    if fields[:3] == ["struct_size", "struct_type", "next"]:
        return "extensible"
    sys.exit(f"{name} is not frozen, not a frame, and does not begin with the struct header")


def read_structs(folder: pathlib.Path) -> dict[str, list[str]]:
    structs = {}
    for header in sorted(folder.glob("backplane/*.h")):
        for name, body in STRUCT.findall(COMMENT.sub("", header.read_text())):
            structs[name] = members(body)
    return structs


def measure(compiler: str, folder: pathlib.Path, structs: dict[str, list[str]]) -> list[str]:
    lines = ['#include "backplane/backend.h"', '#include "backplane/ops.h"', "#include <stdio.h>",
             "int main(void) {"]
    for name, fields in structs.items():
        label = f"{kind(name, fields)} {name}"
        lines.append(f'  printf("{label} size %zu\\n", sizeof({name}));')
        lines += [f'  printf("{label}.{field} at %zu size %zu\\n", offsetof({name}, {field}), '
                  f"sizeof((({name}*)0)->{field}));" for field in fields]
    lines += ["  return 0;", "}"]
    with tempfile.TemporaryDirectory() as scratch:
        source = pathlib.Path(scratch, "layout.c")
        source.write_text("\n".join(lines))
        program = pathlib.Path(scratch, "layout")
        subprocess.run([compiler, "-std=c11", f"-I{folder}", source, "-o", program], check=True)
        return subprocess.run([program], capture_output=True, text=True,
                              check=True).stdout.splitlines()


def main() -> int:
    compiler, golden, folder = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
    structs = read_structs(folder)
    if missing := FROZEN - structs.keys():
        sys.exit(f"frozen structs that no header defines: {', '.join(sorted(missing))}")
    now = measure(compiler, folder, structs)
    if "--update" in sys.argv:
        golden.write_text("\n".join(now) + "\n")
        return 0
    then = golden.read_text().splitlines()
    # The size of what may grow is not a promise: the members are.
    promised = [line for line in then if " size " in line and not (
        line.startswith(("extensible", "frame")) and " at " not in line)]
    broken = [line for line in promised if line not in now]
    added = [line for line in now if line not in then]
    for line in broken:
        print(f"BROKEN: {line}")
    for line in added:
        print(f"not in {golden.name} (review, then run with --update): {line}")
    print(f"{len(structs)} structs, {len(now)} lines, {len(broken)} broken, {len(added)} new")
    return 1 if broken or added else 0


if __name__ == "__main__":
    sys.exit(main())
