#!/usr/bin/env python3
"""Prints what each kernel of the cuda backend takes of a multiprocessor: registers, stack, spilled
bytes, shared memory; and how long each source takes to compile. Needs nvcc and no GPU.

usage: report_resources.py BUILD_FOLDER [--jobs N] [--all] [--out FILE.json] [--no-spills]
       report_resources.py --sass FILE... [--architecture sm_90] [--admit FILE] [--out FILE.json]
       report_resources.py BUILD_FOLDER --sass-of SOURCE... [the options of --sass]

Compiles the device code again by the commands of BUILD_FOLDER/compile_commands.json, with the
assembler's notes. Prints the kernels that have a stack frame or spill, with --all every one, and a
line per architecture. With --no-spills the exit code is 1 if one spills.

With --sass it reads the code of plugins or objects that were built, by cuobjdump and nvdisasm (of
the toolkit, or the wheels nvidia-cuda-cuobjdump and nvidia-cuda-nvdisasm on the path): instructions
of tensor cores and of local memory, registers, shared memory, and the share of a multiprocessor's
warps that can be resident. The exit code is 1 if a kernel uses local memory, 77 without cuobjdump.
A file of --admit has lines such as "48 sdpa_mma.cu rounded why": kernels of this source whose names
contain the word may have a stack of so many bytes. With --sass-of the sources are compiled for one
architecture, optimised as in a release, whatever the build's own settings are.
"""

import argparse
import concurrent.futures
import json
import os
import re
import shlex
import shutil
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


FUNCTION = re.compile(r"Function\s*:\s*(\w+)")
RESOURCES = re.compile(r"Function (\w+):\s*REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)")
INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9]*)")
TENSOR_CORES = {"HMMA", "IMMA", "DMMA", "QMMA", "OMMA", "HGMMA", "IGMMA", "QGMMA", "UTCHMMA"}
LOCAL_MEMORY = {"LDL", "STL"}


def parse_sass(text):
    """Returns the instructions of each function: tensor cores, local memory, f32, all."""
    functions = {}
    counts = None
    for line in text.splitlines():
        if match := FUNCTION.search(line):
            counts = functions.setdefault(match[1], {"tensor": 0, "local": 0, "ffma": 0, "all": 0})
        elif counts is not None and (match := INSTRUCTION.search(line)):
            counts["all"] += 1
            counts["tensor"] += match[1] in TENSOR_CORES
            counts["local"] += match[1] in LOCAL_MEMORY
            counts["ffma"] += match[1] == "FFMA"
    return functions


def parse_resources(text):
    """Returns registers, stack and shared bytes of each function that cuobjdump tells of."""
    return {
        match[1]: {"registers": int(match[2]), "stack_bytes": int(match[3]),
                   "shared_bytes": int(match[4])}
        for match in RESOURCES.finditer(text)
    }


# What a multiprocessor has (CUDA programming guide, technical specifications per capability):
# resident warps, resident blocks, and bytes of shared memory.
MULTIPROCESSORS = {
    "sm_80": (64, 32, 164 << 10), "sm_90": (64, 32, 228 << 10),
    "sm_100": (64, 32, 228 << 10), "sm_120": (48, 24, 100 << 10),
}


def occupancy(architecture, registers, shared_bytes, threads):
    """The share of the warps that can be resident, by the formula of NVIDIA's calculator: a warp
    takes its registers in units of 256 and of 4 warps, a block its shared memory in units of 128
    bytes and 1 KiB for the system."""
    most_warps, most_blocks, most_shared = MULTIPROCESSORS[architecture]
    warps = -(-threads // 32)
    registers_per_warp = -(-max(registers, 1) * 32 // 256) * 256
    by_registers = 65536 // registers_per_warp // 4 * 4 // warps
    by_shared = most_shared // (-(-(shared_bytes + 1024) // 128) * 128)
    return min(by_registers, by_shared, most_warps // warps, most_blocks) * warps / most_warps


def read_sass(path, architecture):
    """Returns one dictionary for each kernel of a file."""
    texts = []
    for option in ("-res-usage", "-sass"):
        done = subprocess.run(["cuobjdump", "-arch", architecture, option, path],
                              capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"cuobjdump does not read {path}: {done.stderr or done.stdout}")
        texts.append(done.stdout)
    resources, sass = parse_resources(texts[0]), parse_sass(texts[1])
    name = Path(path).name
    return [
        dict(resources[function], kernel=function, source=name, architecture=architecture, **counts)
        for function, counts in sass.items() if function in resources
    ]


def read_admitted(path):
    """Returns [(bytes, source, a word of the kernel)] of a file of --admit."""
    admitted = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        words = line.split(None, 3)
        if len(words) < 4 or not words[0].isdigit():
            sys.exit(f"{path}:{number}: a line is BYTES SOURCE WORD REASON, not '{line}'")
        admitted.append((int(words[0]), words[1], words[2]))
    return admitted


def is_admitted(kernel, admitted):
    """Whether the stack of a kernel is no larger than the file of --admit allows."""
    return any(kernel["source"] == source and word in kernel["kernel"] and
               kernel["stack_bytes"] <= most for most, source, word in admitted)


def print_sass(kernels, threads, admitted=()):
    print("tensor   ffma    all  local  registers  shared  occupancy  kernel")
    for k in sorted(kernels, key=lambda k: (-k["tensor"], -k["all"])):
        share = occupancy(k["architecture"], k["registers"], k["shared_bytes"], threads)
        print(f"{k['tensor']:6} {k['ffma']:6} {k['all']:6} {k['local']:6} {k['registers']:10} "
              f"{k['shared_bytes']:7} {share:9.0%}  {k['source']}: {k['kernel'][:90]}")
    print(f"{len(kernels)} kernels of {kernels[0]['architecture']}; occupancy for blocks of "
          f"{threads} threads without dynamic shared memory")
    users = [k for k in kernels if k["local"] and not is_admitted(k, admitted)]
    for k in users:
        print(f"FAILED: {k['source']}: {k['kernel']} uses local memory "
              f"({k['local']} instructions, {k['stack_bytes']} bytes)")
    return 1 if users else 0


def report_sass(options):
    if shutil.which("cuobjdump") is None:
        print("skipped: there is no cuobjdump (install the wheels nvidia-cuda-cuobjdump and "
              "nvidia-cuda-nvdisasm, or the toolkit)")
        return 77
    if options.sass:
        kernels = [k for path in options.sass for k in read_sass(path, options.architecture)]
    else:
        kernels = compile_and_read(options)
    if not kernels:
        sys.exit(f"there is no code for {options.architecture}")
    demangle(kernels)
    status = print_sass(kernels, options.threads,
                        read_admitted(options.admit) if options.admit else ())
    if options.out:
        options.out.write_text(json.dumps({"kernels": kernels}, indent=1) + "\n")
    return status


def command_of(entry, folder):
    """Returns the command of one source, without a compiler cache, which would drop the notes. What
    it writes lies in `folder`."""
    command = shlex.split(entry["command"]) if "command" in entry else list(entry["arguments"])
    while command and "nvcc" not in os.path.basename(command[0]):
        del command[0]
    command[command.index("-o") + 1] = os.path.join(folder, "out.o")
    for option in ("-MF", "-MT"):
        if option in command:
            command[command.index(option) + 1] = os.path.join(folder, "out.d")
    return command


def optimised(command, architecture):
    """Returns the command for one architecture, with the optimisation of a release."""
    number = architecture.removeprefix("sm_")
    # A release makes the code of all architectures from PTX of the oldest one.
    made = [int(n) for word in command for n in re.findall(r"arch=compute_([0-9]+)", word)]
    ptx = min([int(number), *made])
    kept = [word for word in command
            if not re.match(r"(-Ofc=|-O[0-9]$|-g$|-G$|--generate-code|-arch)", word)]
    return kept + ["-O2", f"--generate-code=arch=compute_{ptx},code=[{architecture}]"]


def compile_and_read(options):
    """Compiles the sources of --sass-of, and returns their kernels."""
    names = {Path(source).name for source in options.sass_of}
    entries = [entry for entry in device_sources(options.build)
               if Path(entry["file"]).name in names]
    missing = names - {Path(entry["file"]).name for entry in entries}
    if missing:
        sys.exit(f"the build has no source {', '.join(sorted(missing))}")

    def read(entry):
        with tempfile.TemporaryDirectory() as folder:
            command = optimised(command_of(entry, folder), options.architecture)
            done = subprocess.run(command, cwd=entry["directory"], capture_output=True, text=True)
            if done.returncode != 0:
                sys.exit(f"{entry['file']} does not compile:\n{done.stderr}")
            kernels = read_sass(os.path.join(folder, "out.o"), options.architecture)
        return [dict(kernel, source=Path(entry["file"]).name) for kernel in kernels]

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        return [kernel for found in pool.map(read, entries) for kernel in found]


def device_sources(build):
    """Returns the compile commands of the device code in a build folder."""
    database = build / "compile_commands.json"
    if not database.is_file():
        sys.exit(f"there is no {database}: configure the build first")
    # The emulated device compiles the same sources as C++.
    entries = [
        entry
        for entry in json.loads(database.read_text())
        if entry["file"].endswith(".cu") and "backends/cuda/" in entry["file"] and
        "nvcc" in entry.get("command", " ".join(entry.get("arguments", ())))
    ]
    if not entries:
        sys.exit(f"{database} has no device code: was the cuda backend configured?")
    return entries


def compile_with_notes(entry):
    """Compiles one source; returns its kernels and the seconds that took."""
    with tempfile.TemporaryDirectory() as folder:
        command = command_of(entry, folder)
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
    parser.add_argument("build", type=Path, nargs="?",
                        help="a folder in which the backend was configured")
    parser.add_argument("--sass", nargs="+", metavar="FILE", help="plugins or objects to read")
    parser.add_argument("--sass-of", nargs="+", metavar="SOURCE",
                        help="compile these sources of the build, optimised, and read their code")
    parser.add_argument("--admit", type=Path, help="which kernels may use local memory, and why")
    parser.add_argument("--architecture", default="sm_90", choices=sorted(MULTIPROCESSORS),
                        help="whose code is read; the default is sm_90")
    parser.add_argument("--threads", type=int, default=256,
                        help="the threads of a block, for the occupancy; the default is 256")
    parser.add_argument("--jobs", type=int, default=1, help="how many compile at once")
    parser.add_argument("--all", action="store_true", help="list every kernel")
    parser.add_argument("--out", type=Path, help="write everything as JSON, too")
    parser.add_argument("--no-spills", action="store_true", help="exit code 1 if a kernel spills")
    options = parser.parse_args()
    if options.build is None and not options.sass:
        parser.error("a build folder or --sass is needed")
    if options.sass or options.sass_of:
        return report_sass(options)
    entries = device_sources(options.build)
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
