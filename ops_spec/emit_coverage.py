#!/usr/bin/env python3
"""Writes what serves each operator of Core ATen: emit_coverage.py CORE_ATEN.md

aten_core.yaml has the list. An operator that it names and the spec lacks is an error.
"""

import pathlib

import yaml

import output
import spec
from emit_reference import BANNER, link

LIST = pathlib.Path(__file__).resolve().parent / "aten_core.yaml"
KINDS = {"same": "the same operator", "composed": "several operators",
         "host": "no kernel: a view, a property or memory", "missing": "not reachable"}


def load(ops, path=LIST):
    """Returns {operator of ATen: (key of KINDS, the ops, a text)}."""
    by_name = {op.name: op for op in ops}
    found = {}
    for name, entry in yaml.safe_load(path.read_text(encoding="utf-8")).items():
        if isinstance(entry, dict):
            ((kind, text),) = entry.items()
            found[name] = kind, [], text
            continue
        names = entry if isinstance(entry, list) else [entry]
        for own in names:
            if own not in by_name:
                raise spec.SpecError(path, 1, f"{name}: there is no operator '{own}'")
        found[name] = ("composed" if isinstance(entry, list) else "same",
                       [by_name[own] for own in names], "")
    return found


def share(found):
    """Returns which part of the operators is reachable, from 0 to 1."""
    return sum(kind != "missing" for kind, _, _ in found.values()) / len(found)


def page(found):
    counts = {kind: sum(own == kind for own, _, _ in found.values()) for kind in KINDS}
    out = [BANNER, "# Core ATen", "",
           f"PyTorch's Core ATen IR has {len(found)} operators, of which "
           f"{100 * share(found):.1f} % can be reached:", "",
           "| served by | operators |", "|---|---|"]
    out += [f"| {text} | {counts[kind]} |" for kind, text in KINDS.items()]
    out += ["", "| ATen | served by |", "|---|---|"]
    for name, (kind, ops, text) in found.items():
        by = {"missing": f"not reachable: {text}", "host": f"no kernel: {text}"}.get(
            kind, ", ".join(link(op) for op in ops))
        out.append(f"| `{name}` | {by} |")
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    output.write(output.path(), page(load(spec.load())))
