#!/usr/bin/env python3
"""Prints what each kernel of the cuda backend takes of a multiprocessor: registers, stack, spilled
bytes, shared memory; and how long each source takes to compile. Needs nvcc and no GPU.

usage: report_resources.py BUILD_FOLDER [--jobs N] [--all] [--out FILE.json] [--no-spills]

Compiles the device code again by the commands of BUILD_FOLDER/compile_commands.json, with the
assembler's notes. Prints the kernels that have a stack frame or spill, with --all every one, and a
line per architecture. With --no-spills the exit code is 1 if one spills.
"""

import argparse
import concurrent.futures
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ENTRY = re.compile(r"Compiling entry function '(\w+)' for '(sm_\w+)'")
FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers")
SHARED = re.compile(r"(\d+) bytes smem")


def parse_notes(text):
    """Returns a dictionary for each kernel that ptxas notes, by -Xptxas=-v, tell of."""
    kernels = []
    for line in text.splitlines():
        if match := ENTRY.search(line):
            kernels.append(
                {"kernel": match[1], "architecture": match[2], "registers": 0, "stack_bytes": 0,
                 "spill_bytes": 0, "shared_bytes": 0}
            )
        elif not kernels:
            continue
        elif match := FRAME.search(line):
            # A called function has its own frame; the largest frame counts.
            kernel = kernels[-1]
            kernel["stack_bytes"] = max(kernel["stack_bytes"], int(match[1]))
            kernel["spill_bytes"] = max(kernel["spill_bytes"], int(match[2]) + int(match[3]))
        elif match := USED.search(line):
            kernels[-1]["registers"] = int(match[1])
            if shared := SHARED.search(line):
                kernels[-1]["shared_bytes"] = int(shared[1])
    return kernels


def compile_with_notes(entry):
    """Compiles one source; returns its kernels and the seconds that took."""
    command = shlex.split(entry["command"]) if "command" in entry else list(entry["arguments"])
    while command and "nvcc" not in os.path.basename(command[0]):
        del command[0]  # A compiler cache would drop the notes.
    with tempfile.TemporaryDirectory() as folder:
        command[command.index("-o") + 1] = os.path.join(folder, "out.o")
        for option in ("-MF", "-MT"):
            if option in command:
                command[command.index(option) + 1] = os.path.join(folder, "out.d")
        start = time.monotonic()
        done = subprocess.run(
            command + ["-Xptxas=-v"], cwd=entry["directory"], capture_output=True, text=True
        )
        seconds = time.monotonic() - start
    if done.returncode != 0:
        sys.exit(f"{entry['file']} does not compile:\n{done.stderr}")
    kernels = parse_notes(done.stdout + done.stderr)
    name = Path(entry["file"]).name
    return [dict(kernel, source=name) for kernel in kernels], {"source": name, "seconds": seconds}


def demangle(kernels):
    """Puts readable names in, where c++filt is installed."""
    try:
        names = "\n".join(kernel["kernel"] for kernel in kernels)
        done = subprocess.run(["c++filt"], input=names, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return
    for kernel, name in zip(kernels, done.stdout.splitlines()):
        kernel["kernel"] = name.replace("bp::cuda::", "").replace("(anonymous namespace)::", "")


def print_report(kernels, times, wants_all):
    listed = [k for k in kernels if wants_all or k["stack_bytes"] or k["spill_bytes"]]
    if listed:
        print("registers  stack  spill  shared  arch    kernel")
    for k in sorted(listed, key=lambda k: (-k["spill_bytes"], -k["stack_bytes"], k["kernel"])):
        print(
            f"{k['registers']:9}  {k['stack_bytes']:5}  {k['spill_bytes']:5}  "
            f"{k['shared_bytes']:6}  {k['architecture']:6}  {k['source']}: {k['kernel'][:100]}"
        )
    for architecture in sorted({k["architecture"] for k in kernels}):
        ours = [k for k in kernels if k["architecture"] == architecture]
        print(
            f"{architecture}: {len(ours)} kernels, at most {max(k['registers'] for k in ours)} "
            f"registers, {sum(k['stack_bytes'] > 0 for k in ours)} with a stack frame, "
            f"{sum(k['spill_bytes'] > 0 for k in ours)} that spill"
        )
    for entry in sorted(times, key=lambda t: -t["seconds"])[:5]:
        print(f"{entry['seconds']:6.1f} s  {entry['source']}")
    print(f"{sum(t['seconds'] for t in times):6.1f} s  all {len(times)} sources, one by one")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("build", type=Path, help="a folder in which the backend was configured")
    parser.add_argument("--jobs", type=int, default=1, help="how many compile at once")
    parser.add_argument("--all", action="store_true", help="list every kernel")
    parser.add_argument("--out", type=Path, help="write everything as JSON, too")
    parser.add_argument("--no-spills", action="store_true", help="exit code 1 if a kernel spills")
    options = parser.parse_args()
    database = options.build / "compile_commands.json"
    if not database.is_file():
        sys.exit(f"there is no {database}: configure the build first")
    entries = [
        entry
        for entry in json.loads(database.read_text())
        if entry["file"].endswith(".cu") and "backends/cuda/" in entry["file"]
    ]
    if not entries:
        sys.exit(f"{database} has no device code: was the cuda backend configured?")
    kernels, times = [], []
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for found, seconds in pool.map(compile_with_notes, entries):
            kernels += found
            times.append(seconds)
    demangle(kernels)
    print_report(kernels, times, options.all)
    if options.out:
        options.out.write_text(json.dumps({"kernels": kernels, "sources": times}, indent=1) + "\n")
    return 1 if options.no_spills and any(k["spill_bytes"] for k in kernels) else 0


if __name__ == "__main__":
    sys.exit(main())
