#!/usr/bin/env python3
"""Tests that 02_vendor_backend is what `bp-conformance new` writes, except for its kernel.

usage: vendor_test.py BP_CONFORMANCE FOLDER
"""
import pathlib
import subprocess
import sys
import tempfile

# The changes of the example: (file, what `new` writes, what the example has).
CHANGES = [
    ("CMakeLists.txt", "kernels/add.c", "kernels/softmax.c"),
    ("CMakeLists.txt", "  MANIFEST acme.npu)", "  LINK m\n  MANIFEST acme.npu)"),
    ("npu.h", "bp_kernel add;", "bp_kernel softmax;"),
    ("backend.c", "&i->add", "&i->softmax"),
]
OWN = {"README.md", "kernels/softmax.c"}


def files(folder):
    return {p.relative_to(folder).as_posix(): p.read_text(encoding="utf-8")
            for p in folder.rglob("*") if p.is_file()}


def main():
    program, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    with tempfile.TemporaryDirectory() as scratch:
        fresh = pathlib.Path(scratch, "npu")
        subprocess.run([program, "new", "acme.npu", str(fresh)], check=True, capture_output=True)
        written = files(fresh)
        again = subprocess.run([program, "new", "acme.npu", str(fresh)], check=False,
                               capture_output=True, text=True)
    if again.returncode != 2 or "not an empty folder" not in again.stderr:
        return f"`new` into a folder that is not empty gave {again.returncode}: {again.stderr}"
    for name, before, after in CHANGES:
        if before not in written[name]:
            return f"{name}: `new` does not write '{before}' any more"
        written[name] = written[name].replace(before, after)
    del written["kernels/add.c"]
    here = files(folder)
    for name in sorted((set(written) | set(here)) - OWN):
        if written.get(name) != here.get(name):
            return f"{name} is not what `new` writes, with the changes of this test"
    print(f"{len(here)} files are as `new` writes them")
    return 0


if __name__ == "__main__":
    sys.exit(main())
