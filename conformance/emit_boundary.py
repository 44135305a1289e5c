#!/usr/bin/env python3
"""Writes boundary.def for the cases abi.size.*: each struct of the ABI whose size may differ
between builds, and each function that takes one.

usage: emit_boundary.py PARSER_DIR COMPILER RELEASED_DIR INCLUDE_DIR OUT

PARSER_DIR has the module that reads the headers. The list covers the headers that backend.h
includes; extensions have tests of their own. The rows are:

  BP_REQUEST(table, slot, desc, first)  a function of a table that takes a request
  BP_NESTED(request, first)             a request that other requests point to
  BP_OUT(table, slot, result, first)    a function that fills a struct of the caller's size
  BP_OFFER(offer, first)                any other struct that may grow
"""
import pathlib
import re
import sys


# Requests that hosts alone read. The tests of the registry check their sizes.
READ_BY_HOSTS = {"bp_op_desc"}


def struct_of(parameter: str) -> tuple[str, bool]:
    """Returns the type in "const bp_stream_desc* desc", and whether the callee fills it."""
    match = re.match(r"(const )?(bp_\w+)\* (out_)?\w+$", parameter)
    return (match.group(2), bool(match.group(3))) if match else ("", False)


def requests_by_comment(includes: list[pathlib.Path]) -> set[str]:
    """Returns the structs that a header calls a request in the comment before them."""
    found = set()
    for header in [h for folder in includes for h in sorted(folder.glob("backplane/*.h"))]:
        text = header.read_text(encoding="utf-8")
        for match in re.finditer(r"/\*((?:(?!\*/).)*)\*/\s*typedef struct (bp_\w+) \{", text, re.S):
            if re.search(r"\b[Aa]\s+(\*\s+)?request\b", match.group(1)):
                found.add(match.group(2))
    return found


def included_by(folder: pathlib.Path, header: str, seen: set[str]) -> set[str]:
    if header not in seen:
        seen.add(header)
        text = (folder / "backplane" / header).read_text(encoding="utf-8")
        for name in re.findall(r'#include "backplane/(\w+\.h)"', text):
            included_by(folder, name, seen)
    return seen


def first_sizes(boundary, compiler: str, released: pathlib.Path, now) -> dict[str, int]:
    """Returns the size of each struct in the first minor that has it and is still served."""
    sizes = {}
    folders = sorted((p for p in released.glob("[0-9]*") if p.is_dir()),
                     key=lambda p: [int(part) for part in p.name.split(".")])
    for headers in [boundary.read(folder / "include") for folder in folders] + [now]:
        if headers.version < (now.version[0], now.oldest_minor):
            continue
        for line in boundary.layout(compiler, headers):
            match = re.match(r"\w+ (bp_\w+) size (\d+)$", line)
            if match:
                sizes.setdefault(match.group(1), int(match.group(2)))
    return sizes


def rows(now, is_request: set[str], sizes: dict[str, int]) -> list[str]:
    written, direct = [], set()
    for table in now.structs.values():
        for slot in [m for m in table.members if m.parameters is not None]:
            for parameter in slot.parameters[1:]:
                name, is_out = struct_of(parameter)
                struct = now.structs.get(name)
                if struct is None or struct.kind != "extensible" or struct.is_table:
                    continue
                if is_out or name in is_request:
                    direct.add(name)
                    written.append(f"{'BP_OUT' if is_out else 'BP_REQUEST'}({table.name}, "
                                   f"{slot.name}, {name}, {sizes[name]})")
    for struct in now.structs.values():
        if struct.kind != "extensible" or struct.name in direct:
            continue
        kind = "BP_NESTED" if struct.name in is_request else "BP_OFFER"
        written.append(f"{kind}({struct.name}, {sizes[struct.name]})")
    return written


def main() -> int:
    parser, compiler, released, include, out = sys.argv[1:]
    sys.path.insert(0, parser)
    import boundary  # pylint: disable=import-error,import-outside-toplevel
    folder = pathlib.Path(include)
    now = boundary.read(folder)
    listed = included_by(folder, "backend.h", set())
    now.structs = {n: s for n, s in now.structs.items() if s.header in listed}
    is_request = {name for name in now.structs if name.endswith("_desc")}
    is_request |= requests_by_comment([folder]) & now.structs.keys()
    is_request -= READ_BY_HOSTS
    sizes = first_sizes(boundary, compiler, pathlib.Path(released), now)
    lines = ["// Written by emit_boundary.py from the headers.",
             *[f"#ifndef {kind}\n#define {kind}(...)\n#endif"
               for kind in ("BP_REQUEST", "BP_NESTED", "BP_OUT", "BP_OFFER")],
             *rows(now, is_request, sizes),
             *[f"#undef {kind}" for kind in ("BP_REQUEST", "BP_NESTED", "BP_OUT", "BP_OFFER")]]
    pathlib.Path(out).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
