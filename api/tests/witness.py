#!/usr/bin/env python3
"""Compares the types of the headers of now with those of the minors that they serve, by abidiff.

usage: witness.py COMPILER RELEASED_DIR INCLUDE_DIR [INCLUDE_DIR ...]

A witness is a library, written here from a set of headers. It has a function for each struct that
takes the struct by value, and the functions of the host's library themselves. Its debug information
has every type that crosses the boundary, down to the parameters of each slot. A later minor may
append members to structs that are not frozen, and may add structs and functions. So each struct of
now that may grow is cut to as many members as were released, and then additions are the only
difference allowed. Constants are no types, and neither are names: released.py compares them. The
exit status is 77, which CTest counts as skipped, if abidiff is not installed.
"""
import pathlib
import shutil
import subprocess
import sys
import tempfile

import boundary
from header_text import HeaderText


def cut(includes: list[pathlib.Path], released: boundary.Boundary, out: pathlib.Path):
    """Writes the headers of now with each struct that may grow cut to its released members."""
    headers = HeaderText(*includes)
    for name, struct in headers.known.structs.items():
        then = released.structs.get(name)
        if then is not None and struct.kind != "frozen":
            texts = [member.text for member in struct.members]
            headers.write_members(struct, texts[:len(then.members)])
    headers.write(out)


def source(headers: boundary.Boundary) -> str:
    lines = [f'#include "{header}"' for header in headers.headers]
    for name in headers.structs:
        lines.append(f"BP_API void witness_{name}({name} value);")
        lines.append(f"void witness_{name}({name} value) {{ (void)value; }}")
    for declaration in headers.functions.values():
        is_void = declaration.startswith("void ")
        lines.append(f"{declaration} {{ {'' if is_void else 'return 0; '}}}")
    # A typedef gives the one function that a backend exports its type.
    lines += ["bp_status bp_backend_entry(const bp_entry_request* a, bp_entry_reply* b) {",
              "  return a == NULL && b == NULL;", "}"]
    return "\n".join(lines) + "\n"


def build(compiler: str, include: pathlib.Path, out: pathlib.Path):
    path = out.with_suffix(".c")
    path.write_text(source(boundary.read(include)), encoding="utf-8")
    subprocess.run([compiler, "-std=c11", "-g", "-w", "-shared", "-fPIC", f"-I{include}", path,
                    "-o", out], check=True)


def differences(compiler: str, folder: pathlib.Path, includes: list[pathlib.Path]) -> str:
    """Returns what abidiff finds between the released headers in `folder` and the headers of now,
    or "" if the second only add to the first."""
    with tempfile.TemporaryDirectory() as scratch:
        then, now = pathlib.Path(scratch, "then.so"), pathlib.Path(scratch, "now.so")
        cut(includes, boundary.read(folder / "include"), pathlib.Path(scratch, "cut"))
        build(compiler, folder / "include", then)
        build(compiler, pathlib.Path(scratch, "cut"), now)
        result = subprocess.run(["abidiff", "--no-added-syms", then, now], capture_output=True,
                                text=True, check=False)
    if result.returncode == 0:
        return ""
    return result.stdout + result.stderr or f"abidiff ended with {result.returncode}"


def main() -> int:
    compiler, released = sys.argv[1], pathlib.Path(sys.argv[2])
    includes = [pathlib.Path(folder) for folder in sys.argv[3:]]
    if shutil.which("abidiff") is None:
        print("SKIPPED: abidiff is not installed (Debian: abigail-tools)")
        return 77
    folders = sorted(path for path in released.glob("[0-9]*") if path.is_dir())
    now = boundary.read(*includes)
    served = [folder for folder in folders
              if now.serves(boundary.read(folder / "include").version)]
    broken = 0
    for folder in served:
        if found := differences(compiler, folder, includes):
            broken += 1
            print(f"BROKEN: {folder.name} and now differ in more than additions:\n{found}")
    print(f"{len(now.structs)} structs, {len(folders)} released minors, {len(served)} of them "
          f"served, {broken} broken")
    return 1 if broken or not folders else 0


if __name__ == "__main__":
    sys.exit(main())
