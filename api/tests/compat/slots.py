"""Writes slots.h for a set of headers: what a host of that set does about every slot of a table. It
is derived from the headers, so that the test host names no slot by hand.

  fill_<table>(t)             puts a stub that returns BP_UNSUPPORTED into each empty slot
  check_<table>(t, version)   calls each slot that is younger than `version`, major << 16 | minor;
                              NULL if all return BP_UNSUPPORTED, else the first that does not
"""
import re

import boundary

LAST_WORD = re.compile(r"\w+$")
# The arguments are all zero: a stub reads none of them, and a real entry refuses NULL handles.
HEAD = """/* Derived from the headers of ABI {version}. */
#ifndef SLOTS_H_
#define SLOTS_H_

{includes}
"""


def tables(headers: boundary.Boundary) -> list[boundary.Struct]:
    """Returns the tables that a backend and a host give each other. Other structs with functions
    are left out."""
    return [s for s in headers.structs.values() if s.is_table and s.name != "bp_host"]


def slots(struct: boundary.Struct) -> list[boundary.Member]:
    return [member for member in struct.members if member.parameters is not None]


def since(struct: boundary.Struct, slot: str, earlier: list[boundary.Boundary],
          now: boundary.Boundary) -> tuple[int, int]:
    """Returns the version that brought a slot."""
    for headers in sorted(earlier, key=lambda h: h.version):
        known = headers.structs.get(struct.name)
        if known is not None and any(m.name == slot for m in known.members):
            return headers.version
    return now.version


def stub(struct: boundary.Struct, slot: boundary.Member) -> list[str]:
    names = [LAST_WORD.search(parameter).group(0) for parameter in slot.parameters]
    unused = ", ".join(f"(void){name}" for name in names)
    return [f"static bp_status stub_{struct.name}_{slot.name}({', '.join(slot.parameters)}) {{",
            f"  {unused};", "  return BP_UNSUPPORTED;", "}", ""]


def fill(struct: boundary.Struct) -> list[str]:
    name = struct.name
    lines = [f"static inline void fill_{name}({name}* t) {{"]
    lines += [f"  if (t->{s.name} == NULL) t->{s.name} = stub_{name}_{s.name};"
              for s in slots(struct)]
    return lines + ["}", ""]


def check(struct: boundary.Struct, earlier: list[boundary.Boundary],
          now: boundary.Boundary) -> list[str]:
    name = struct.name
    lines = [f"static inline const char* check_{name}(const {name}* t, uint32_t version) {{",
             "  (void)t, (void)version;"]
    for slot in slots(struct):
        arguments = ", ".join(["t->self"] + ["0"] * (len(slot.parameters) - 1))
        major, minor = since(struct, slot.name, earlier, now)
        lines += [f"  if (version < {major << 16 | minor} &&",
                  f"      (t->{slot.name} == NULL || t->{slot.name}({arguments}) != "
                  "BP_UNSUPPORTED)) {", f'    return "{name}.{slot.name}";', "  }"]
    return lines + ["  return NULL;", "}", ""]


def emit(now: boundary.Boundary, earlier: list[boundary.Boundary]) -> str:
    includes = "\n".join(f'#include "{header}"' for header in now.headers)
    lines = [HEAD.format(version=".".join(map(str, now.version)), includes=includes)]
    for struct in tables(now):
        if any(slot.parameters[0] != "void* self" for slot in slots(struct)):
            continue
        for slot in slots(struct):
            lines += stub(struct, slot)
        lines += fill(struct) + check(struct, earlier, now)
    return "\n".join(lines + ["#endif", ""])
