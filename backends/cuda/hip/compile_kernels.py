#!/usr/bin/env python3
"""Compiles the kernels of the cuda backend for GPUs of AMD with hipcc, and prints what they take.
Nothing is linked and nothing runs: no GPU is needed.

usage: compile_kernels.py FOLDER [--arch GFX]... [--jobs N] [--only WORD]... [--hipcc PROGRAM]

The sources are those with device code of kernels/sources.cmake, except those of its list
cuda_kernel_sources_of_nvidia, which are counted as skipped. Emitted sources, objects and the words
of the compiler go to FOLDER. Each source is compiled for each architecture, and its line says how
many kernels the object has, how many of them keep data in memory of their threads (scratch), the
most vector registers that one takes, and the time. The exit code is 1 if a source does not compile
or warns.
"""

import argparse
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

CUDA = Path(__file__).resolve().parent.parent
ROOT = CUDA.parent.parent
# Their wavefronts have 32 lanes, as the kernels assume: RDNA 2 and RDNA 3.
ARCHES = ("gfx1030", "gfx1100")
# A product and a sum are fused only where they stand in one expression, because kernels keep some
# apart by functions, and hipcc would fuse those too. Errors of HIP must be used, unlike those of
# CUDA, and are not where a failure could only be reported again. A loop that is not unrolled is
# slower and no less right.
FLAGS = ("-std=c++20", "-O2", "-ffp-contract=on", "-fPIC", "-Wall", "-Wextra",
         "-Wno-missing-field-initializers", "-Wno-unused-result",
         "-Wno-pass-failed", "-Rpass-analysis=kernel-resource-usage")

NAMED = re.compile(r"remark: Function Name: (\S+)")
MEMBERS = {"VGPRs": "registers", "ScratchSize [bytes/lane]": "scratch_bytes",
           "VGPRs Spill": "spilled_registers", "LDS Size [bytes/block]": "shared_bytes"}
VALUE = re.compile(rf"remark: +({'|'.join(map(re.escape, MEMBERS))}): (\d+)")


def parse_remarks(text):
    """Returns a dictionary for each kernel that the compiler's remarks tell of."""
    kernels = []
    for line in text.splitlines():
        if match := NAMED.search(line):
            kernels.append({"kernel": match[1]} | dict.fromkeys(MEMBERS.values(), 0))
        elif kernels and (match := VALUE.search(line)):
            kernels[-1][MEMBERS[match[1]]] = int(match[2])
    return kernels


def entries(text, name):
    """Returns the entries of set(NAME ...) in a CMake file."""
    match = re.search(rf"^set\({name}\s([^)]*)\)", text, re.M)
    if match is None:
        raise SystemExit(f"kernels/sources.cmake has no list {name}")
    return re.sub(r"^\s*#.*$", "", match[1], flags=re.M).split()


def read_sources(text):
    """Returns the sources to compile, those to emit, and those that are left out."""
    listed = [source for source in entries(text, "cuda_kernel_sources") if source.endswith(".cu")]
    left_out = entries(text, "cuda_kernel_sources_of_nvidia")
    if unknown := set(left_out) - set(listed):
        raise SystemExit("cuda_kernel_sources_of_nvidia names what is no source with device code: "
                         + ", ".join(sorted(unknown)))
    emitted = {"emit_cuda.py": entries(text, "cuda_emitted_kernel_sources"),
               "emit_reductions.py": entries(text, "cuda_emitted_reduction_parts")}
    kept = ["fill_pattern.cu"] + [source for source in listed if source not in left_out]
    return kept, emitted, left_out


def emit(emitted, folder):
    """Writes the sources that emitters of ops_spec make. Returns those that are compiled."""
    spec = ROOT / "ops_spec"
    environment = os.environ | {"PYTHONPATH": str(spec), "PYTHONDONTWRITEBYTECODE": "1"}
    for script, names in emitted.items():
        for name in names:
            subprocess.run([sys.executable, spec / script, folder / name], check=True,
                           env=environment)
    return [folder / name for names in emitted.values() for name in names if name.endswith(".cu")]


class Result:
    """What became of one source for one architecture."""

    def __init__(self, source, arch, code, log, seconds):
        self.source, self.arch, self.seconds = source, arch, seconds
        self.kernels = parse_remarks(log)
        self.complaints = [line for line in log.splitlines()
                           if re.search(r"\b(error|warning): ", line)]
        if code != 0 and not self.complaints:
            self.complaints = log.splitlines()[-5:] or [f"hipcc ended with {code}"]

    def line(self):
        """Returns the line of the report."""
        scratch = sum(kernel["scratch_bytes"] > 0 for kernel in self.kernels)
        most = max((kernel["registers"] for kernel in self.kernels), default=0)
        word = "FAILED" if self.complaints else "passed"
        return (f"{word}  {self.arch} {self.source.name:<28} {len(self.kernels):5} kernels"
                f" {scratch:3} with scratch, at most {most:3} registers  {self.seconds:5.1f} s")


def compile_source(hipcc, source, arch, folder):
    """Compiles one source for one architecture."""
    target = folder / arch / f"{source.stem}.o"
    command = [hipcc, f"--offload-arch={arch}", *FLAGS, f"-I{ROOT}", f"-I{ROOT}/api/include",
               f"-I{ROOT}/backends/shell/include", f"-I{folder}", "-x", "hip", "-c", str(source),
               "-o", str(target)]
    begin = time.monotonic()
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace", check=False)
    target.with_suffix(".log").write_text(done.stdout, encoding="utf-8")
    return Result(source, arch, done.returncode, done.stdout, time.monotonic() - begin)


def summary(results, skipped):
    """Returns the lines at the end of the report."""
    lines = []
    for arch in sorted({result.arch for result in results}):
        kernels = [kernel for result in results if result.arch == arch for kernel in result.kernels]
        seconds = sum(result.seconds for result in results if result.arch == arch)
        lines.append(
            f"{arch}: {len(kernels)} kernels, of which"
            f" {sum(kernel['scratch_bytes'] > 0 for kernel in kernels)} use scratch and"
            f" {sum(kernel['spilled_registers'] > 0 for kernel in kernels)} spill vector registers;"
            f" {seconds:.0f} s of compiling")
    failed = sum(bool(result.complaints) for result in results)
    lines.append(f"{len(results) - failed} passed, {failed} failed, {skipped} skipped")
    return lines


def main(arguments):
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1].splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--arch", action="append")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--hipcc", default="hipcc")
    given = parser.parse_args(arguments)
    if shutil.which(given.hipcc) is None:
        raise SystemExit(f"{given.hipcc} is not installed; .ci/hip installs it")
    arches = given.arch or ARCHES
    folder = given.folder.resolve()
    for arch in arches:
        (folder / arch).mkdir(parents=True, exist_ok=True)
    listing = (CUDA / "kernels/sources.cmake").read_text(encoding="utf-8")
    kept, emitted, left_out = read_sources(listing)
    sources = [CUDA / source for source in kept] + emit(emitted, folder)
    if given.only:
        sources = [source for source in sources if any(word in source.name for word in given.only)]
    for source in left_out:
        print(f"skipped  {source}: it has instructions or calls of NVIDIA alone")
    results = []
    with concurrent.futures.ThreadPoolExecutor(given.jobs) as pool:
        pending = [pool.submit(compile_source, given.hipcc, source, arch, folder)
                   for source in sources for arch in arches]
        for done in concurrent.futures.as_completed(pending):
            results.append(done.result())
            print("\n        ".join([results[-1].line(), *results[-1].complaints[:5]]), flush=True)
    print("\n".join(summary(results, len(left_out) * len(arches))))
    return 1 if not results or any(result.complaints for result in results) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
