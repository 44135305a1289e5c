#!/usr/bin/env python3
"""Compares the layout of every boundary struct with the golden file.

usage: layout.py COMPILER GOLDEN INCLUDE_DIR [--update]

The members are read from the headers, so nothing is typed by hand: a small C program that prints
sizeof and offsetof of each member is compiled and run. The check fails if a line of the golden
changes or vanishes. It also fails for a line that is not in the golden, until --update has appended
the line and a person has reviewed it.
"""
import pathlib
import sys

import boundary

# host.h and dlpack.h, whose frozen structs are on the same list.
REGISTRY = pathlib.Path(__file__).resolve().parents[2] / "registry" / "include"


def main() -> int:
    compiler, golden, folder = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
    headers = boundary.read(folder)
    everything = boundary.read(folder, REGISTRY)
    if missing := headers.frozen - everything.structs.keys():
        sys.exit("the list of frozen structs of base.h names what no header defines: "
                 + ", ".join(sorted(missing)))
    now = boundary.layout(compiler, headers)
    if "--update" in sys.argv:
        golden.write_text("\n".join(now) + "\n", encoding="utf-8")
        return 0
    then = golden.read_text(encoding="utf-8").splitlines()
    broken = [line for line in boundary.promised(then) if line not in now]
    added = [line for line in now if line not in then]
    for line in broken:
        print(f"BROKEN: {line}")
    for line in added:
        print(f"not in {golden.name} (review, then run with --update): {line}")
    print(f"{len(headers.structs)} structs, {len(now)} lines, {len(broken)} broken, "
          f"{len(added)} new")
    return 1 if broken or added else 0


if __name__ == "__main__":
    sys.exit(main())
