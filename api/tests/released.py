#!/usr/bin/env python3
"""Compares the released headers with the headers of now.

usage: released.py COMPILER RELEASED_DIR INCLUDE_DIR [INCLUDE_DIR ...]

RELEASED_DIR has a folder per released minor, such as 0.1, and `sha256sums` of every file in them.
The check fails if a released file changed, came or went. For each minor that a host with the
headers of now serves, it also fails if a struct lost a member; if a member moved or has another
size; if a constant has another value; if a function of the host's library is declared in other
words; and if anything was added to a minor that was released.
"""
import hashlib
import pathlib
import sys

import boundary


def file_problems(released: pathlib.Path) -> list[str]:
    """Returns the files that differ from those of the release of their minor."""
    sums = dict(reversed(line.split(None, 1)) for line in
                (released / "sha256sums").read_text(encoding="utf-8").splitlines())
    found = {str(path.relative_to(released)): hashlib.sha256(path.read_bytes()).hexdigest()
             for path in released.glob("[0-9]*/**/*") if path.is_file()}
    problems = [f"{name}: changed after its release" for name in sums.keys() & found.keys()
                if sums[name] != found[name]]
    problems += [f"{name}: is gone" for name in sums.keys() - found.keys()]
    problems += [f"{name}: is not in sha256sums" for name in found.keys() - sums.keys()]
    return sorted(problems)


def described(compiler: str, headers: boundary.Boundary) -> list[str]:
    """Returns everything about the headers that a program which was built with them relies on."""
    return (boundary.layout(compiler, headers) + boundary.values(compiler, headers) +
            [f"function {declaration}" for declaration in headers.functions.values()])


def version_problems(compiler: str, folder: pathlib.Path, headers: boundary.Boundary,
                     now: list[str]) -> list[str]:
    """Returns what a program that was built with the headers in `folder` no longer finds in `now`,
    if it is served."""
    then_headers = boundary.read(folder / "include")
    name = ".".join(map(str, then_headers.version))
    if name != folder.name:
        return [f"{folder.name}: its headers say that they are {name}"]
    if not headers.serves(then_headers.version):
        return []
    then = described(compiler, then_headers)
    kept = boundary.promised(then) + [line for line in then if " size " not in line]
    problems = [f"{name} promised: {line}" for line in kept if line not in now]
    if then_headers.version == headers.version:
        problems += [f"{name} is released, and has not: {line}; raise the minor"
                     for line in now if line not in then]
    return problems


def main() -> int:
    compiler, released = sys.argv[1], pathlib.Path(sys.argv[2])
    headers = boundary.read(*map(pathlib.Path, sys.argv[3:]))
    problems = file_problems(released)
    now = described(compiler, headers)
    folders = sorted(path for path in released.glob("[0-9]*") if path.is_dir())
    for folder in folders:
        problems += version_problems(compiler, folder, headers, now)
    for problem in problems:
        print(f"BROKEN: {problem}")
    versions = ", ".join(folder.name for folder in folders)
    print(f"released: {versions}; now: {headers.version[0]}.{headers.version[1]}; "
          f"{len(now)} facts, {len(problems)} problems")
    return 1 if problems or not folders else 0


if __name__ == "__main__":
    sys.exit(main())
