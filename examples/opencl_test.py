#!/usr/bin/env python3
"""Tests that 12_opencl is what `bp-conformance new --async` writes, except for its driver, its
kernels, its waivers and its documents.

usage: opencl_test.py BP_CONFORMANCE FOLDER
"""
import pathlib
import subprocess
import sys
import tempfile

# What the vendor wrote: files, and a folder. In it only launch.cpp is from the scaffold.
OWN = {"README.md", "CMakeLists.txt", "driver.cpp", "driver.hpp", "waivers.yaml"}
SHARED_KERNEL_FILE = "kernels/launch.cpp"


def is_shared(name):
    return name not in OWN and (not name.startswith("kernels/") or name == SHARED_KERNEL_FILE)


def shared_files(folder):
    paths = (p for p in folder.rglob("*") if p.is_file())
    texts = {p.relative_to(folder).as_posix(): p.read_text(encoding="utf-8") for p in paths}
    return {name: text for name, text in texts.items() if is_shared(name)}


def main():
    program, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    with tempfile.TemporaryDirectory() as scratch:
        fresh = pathlib.Path(scratch, "opencl")
        subprocess.run([program, "new", "--async", "acme.opencl", str(fresh)], check=True,
                       capture_output=True)
        written = shared_files(fresh)
    here = shared_files(folder)
    for name in sorted(set(written) | set(here)):
        if written.get(name) != here.get(name):
            return f"{name} is not what `new --async acme.opencl` writes"
    if len(here) < 10:
        return f"only {len(here)} files were compared"
    print(f"{len(here)} files are as `new --async` writes them")
    return 0


if __name__ == "__main__":
    sys.exit(main())
