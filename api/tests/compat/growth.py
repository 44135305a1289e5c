#!/usr/bin/env python3
"""Runs operators that have grown through old and new kernels, hosts, callers and recordings.

usage: growth.py SCRATCH_DIR COMPILER BACKEND_DIR
                 (--old LABEL INCLUDE_DIR LIBRARY PROGRAMS
                  --new LABEL INCLUDE_DIR LIBRARY PROGRAMS)... --host INCLUDE_DIR CALLER_SOURCE
                 [--flags FLAGS] [--claim-all] [--claim-whole] [--skip-tables]
                 [--break KIND:WHERE]...

--old and --new give a pair of the same major. `old` are headers with the operators of the tree, and
a libbackplane that was built with them. `new` are headers whose operators future.py has grown with
--ops, and a libbackplane of these. PROGRAMS is a library with the compiler for programs.
INCLUDE_DIR of --host has host.h. For each set of headers this test builds the backend in
BACKEND_DIR with the kernels of growth_backend.c, and a caller from CALLER_SOURCE. Each caller of a
pair then runs with each library and each backend of the pair, and with both backends in one host.
A call or program is red if the rules of api/docs/versioning.md say something else about it. A
recording is red if a replay of the other side would not know a member of a call that gives nothing
new. Each host also loads each backend of the other majors, and is red if the two do not refuse each
other in words. It must say the same of their manifests.

Each set of headers builds two more backends, and each host of the pair runs the calls of its own
caller on them: one whose tables, kernels and records are longer than every host knows them
("longer"), and one whose tables end where they ended in their first release ("shorter"). --skip-
tables leaves both out.

--claim-all (growth_backend.c) and --break (future.py) break the new sides, --claim-whole the
shorter tables, and the result must be red.
"""
import argparse
import dataclasses
import itertools
import json
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

import future
import matrix
from header_text import HeaderText

HERE = pathlib.Path(__file__).resolve().parent
OLD_HOST = "of the frame is not zero, and this host is too old to know it"


@dataclasses.dataclass
class Side:
    """One set of headers, and what was built with them."""
    label: str
    include: pathlib.Path
    library: pathlib.Path
    programs: pathlib.Path
    is_grown: bool
    backend: pathlib.Path | None = None
    others: dict[str, pathlib.Path] = dataclasses.field(default_factory=dict)
    caller: pathlib.Path | None = None

    def read(self, name: str) -> str:
        return (self.include / "backplane" / name).read_text(encoding="utf-8")

    @property
    def revision(self) -> int:
        return int(re.search(r"^#define BP_OPS_REVISION (\d+)", self.read("ops.h"), re.M)[1])

    def brought(self, op: str) -> int:
        """Returns the revision that brought the op, for which its decomposition was written."""
        name = f"BP_{op.upper()}_ARGS_SIZE_R"
        return min(int(n) for n in re.findall(rf"{name}(\d+)\b", self.read("ops.h")))

    def abi(self, part: str) -> int:
        return int(re.search(rf"^#define BP_ABI_{part} (\d+)", self.read("base.h"), re.M)[1])

    @property
    def version(self) -> str:
        return f"{self.abi('MAJOR')}.{self.abi('MINOR')}"

    @property
    def served(self) -> str:
        """What a host of this side says that it serves."""
        return f"ABI {self.abi('MAJOR')}.{self.abi('MINOR_MIN')} to {self.version}"

    def members(self, op: str) -> set[str]:
        return set(re.findall(rf"^BP_ARG\({op}, (\w+),", self.read("ops.def"), re.M))


class Growth:
    """A pair of sides of one major, and what is red about it."""

    def __init__(self, arguments: argparse.Namespace, old: list[str], new: list[str]):
        self.compiler = [arguments.compiler, *shlex.split(arguments.flags)]
        self.host_include, self.caller = map(pathlib.Path, arguments.host)
        self.scratch = arguments.scratch.resolve()
        self.sources = sorted(arguments.backend.glob("**/*.c"))
        self.old = Side(old[0], *self.paths(old[1:]), False)
        self.new = Side(new[0], *self.paths(new[1:]), True)
        if arguments.breaks:
            self.new.include = self.broken(arguments.breaks)
        short = ["-DSHORT"] + ["-DCLAIM_WHOLE"] * arguments.claim_whole
        new = ["-DGROWN"] + ["-DCLAIM_ALL"] * arguments.claim_all
        for side, flags in ((self.old, []), (self.new, new)):
            self.build(side, flags)
            if not arguments.skip_tables:
                self.build_other_tables(side, flags, flags + short)
        self.programs = {(caller.label, host.label): self.link(caller, host)
                         for caller, host in itertools.product(self.sides, self.sides)}
        self.red: list[str] = []

    @property
    def sides(self) -> tuple[Side, Side]:
        return self.old, self.new

    @staticmethod
    def paths(words: list[str]) -> list[pathlib.Path]:
        return [pathlib.Path(word).resolve() for word in words]

    def broken(self, breaks: list[str]) -> pathlib.Path:
        folder = self.scratch / f"{self.new.label}_broken"
        source = self.new.include
        for one in breaks:
            headers = HeaderText(source)
            future.break_it(headers, *one.split(":", 1))
            headers.write(folder)
            source = folder
        return folder

    def compile(self, include: pathlib.Path, sources: list, out: pathlib.Path,
                *flags: str) -> pathlib.Path:
        folders = [include, self.host_include, *sorted({p.parent for p in self.sources})]
        built = matrix.compile_c(self.compiler, folders, sources, out, *flags)
        if isinstance(built, str):
            sys.exit(f"{out.relative_to(self.scratch)}: {built}")
        return built

    def compile_backend(self, side: Side, include: pathlib.Path, folder: pathlib.Path,
                        flags: list[str]) -> pathlib.Path:
        inner = self.compile(include, self.sources, folder / "wrapped.o", "-r", "-fPIC",
                             "-nostdlib", "-fvisibility=hidden", "-Dbp_backend_entry=wrapped_entry")
        return self.compile(include, [HERE / "growth_backend.c", inner], folder / "libbackend.so",
                            "-shared", "-fPIC", "-fvisibility=hidden", str(side.programs),
                            f"-Wl,-rpath,{side.programs.parent}", *flags)

    def build(self, side: Side, flags: list[str]):
        folder = self.scratch / side.label
        side.backend = self.compile_backend(side, side.include, folder, flags)
        side.caller = self.compile(side.include, [self.caller], folder / "caller.o", "-c", *flags)

    def build_other_tables(self, side: Side, flags: list[str], short: list[str]):
        longer, shorter = (self.scratch / side.label / name for name in ("longer", "shorter"))
        # A frame is as long as the revision of its operator says.
        future.generate(side.include, longer, side.version, True, but_for=("frame",))
        side.others = {"longer": self.compile_backend(side, longer, longer, flags),
                       "shorter": self.compile_backend(side, side.include, shorter, short)}

    def link(self, caller: Side, host: Side) -> pathlib.Path:
        """Returns the program of a caller with the library of a host."""
        out = self.scratch / f"{caller.label}_{host.label}"
        return self.compile(caller.include, [caller.caller], out, str(host.library),
                            f"-Wl,-rpath,{host.library.parent}")

    def run(self, program: pathlib.Path, *words: str) -> dict[str, str]:
        """Returns what the program says, by the words in front of the colon."""
        command = [str(program), *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        # The refusals of a backend have several lines.
        said = dict(line.split(": ", 1) for line in done.stdout.splitlines() if ": " in line)
        if done.returncode != 0 and "FAILED" not in said:
            said["FAILED"] = f"exit code {done.returncode}: {done.stderr[-200:]}"
        return said

    def expected(self, what: str, caller: Side, host: Side, kernels: Side) -> str:
        """Returns the words that an outcome has, as a regular expression."""
        call, _, kind = what.partition(" ")
        op, _, new = call.partition(".")
        old = self.old.revision
        if what == "loaded ABI":
            return f"^{re.escape(kernels.version)}$"
        if what == "tables read":
            return "^whole, 8 absent$"
        if kind == "program":
            return self.expected_of_program(op, new, host, kernels)
        if op == "blur":
            return self.expected_of_vendor(kind, new, kernels, kernels)
        if what == "inferred":
            return f"^{1 + (caller.is_grown and host.is_grown)} of {1 + caller.is_grown}$"
        if kind == "checked":
            return "^ok$" if not new or host.is_grown else "is 3; allowed|differs from byte"
        if not new:
            return "^served by( (copy|amax|sub|exp|sum|log))+$" if op == "log_softmax" \
                else f"^served by {op}$"
        if new == "sigmoid" and not host.is_grown:
            return "^refused: gelu: approximation is 3; this host knows the values up to 2$"
        if kernels.is_grown and op != "log_softmax":
            return rf"^served by {op}\+$"
        if not host.is_grown:
            return f"^refused: .*{OLD_HOST}"
        if new == "sigmoid":
            return (f"^refused: .*approximation is sigmoid, which revision {self.new.revision} "
                    f"brought; the kernel was written for revision {old}")
        if op == "log_softmax":
            old, new = self.old.brought(op), f"decomposition: {new}"
        return rf"^refused: .*{new} is given; the kernel was written for revision {old}"

    def expected_of_program(self, op: str, new: str, host: Side, compiler: Side) -> str:
        """Returns the same for a program of one call. The host only names what is new."""
        if not new or compiler.is_grown:
            return rf"^served by {op}{chr(92) + '+' if new else ''}$"
        if new == "sigmoid":
            value = "sigmoid" if host.is_grown else "3"
            return f"^refused: approximation is {value}; this build knows the values up to 2$"
        if not host.is_grown:
            return ("^refused: byte [0-9]+ of the frame is not zero, and this build and its host "
                    "are too old to know it$")
        return f"^refused: {new} is given; the kernel was written for revision {self.old.revision}$"

    @staticmethod
    def expected_of_vendor(kind: str, new: str, kernels: Side, described: Side) -> str:
        """Returns the same for the op of a vendor, which only its backends describe, so that the
        host needs not know it. `described` has the newest description that is loaded."""
        if kind == "checked":
            return "^ok$" if not new or described.is_grown else "differs from byte"
        if not new or kernels.is_grown:
            return rf"^served by acme.blur{chr(92) + '+' if new else ''}$"
        if not described.is_grown:
            return f"^refused: .*{OLD_HOST}"
        return rf"^refused: .*{new} is given; the kernel was written for revision 1"

    def check_pair(self, caller: Side, host: Side, first: Side, program: pathlib.Path) -> int:
        """Loads both backends into one host, `first` first, and returns how many calls of the op
        that both describe there were. The longer description serves both; after the unload of the
        second backend it still names what is new."""
        second = self.new if first is self.old else self.old
        said = self.run(program, first.backend, second.backend)
        where = f"caller {caller.label}, host {host.label}, backends {first.label}, {second.label}"
        for what, outcome in said.items():
            place, _, call = what.partition(" ")
            name, _, kind = call.partition(" ")
            kernels = second if place == "second" else first
            words = "no failure"
            if what != "FAILED":
                words = self.expected_of_vendor(kind, name.partition(".")[2], kernels, self.new)
            if not re.search(words, outcome):
                self.red.append(f"{where}: {what}: expected '{words}', got: {outcome}")
        if len(said) != (12 if caller.is_grown else 6):
            self.red.append(f"{where}: made {len(said)} calls and checks")
        return len(said) // 2

    def check(self, caller: Side, host: Side, kernels: Side, tables: str = "") -> int:
        """Runs the calls of one cell, and returns how many there were. `tables` names another
        backend of the side."""
        said = self.run(self.programs[caller.label, host.label],
                        kernels.others[tables] if tables else kernels.backend)
        where = f"caller {caller.label}, host {host.label}, kernels {kernels.label}"
        where += f", {tables} tables" if tables else ""
        for what, outcome in said.items():
            words = self.expected(what, caller, host, kernels) if what != "FAILED" else "no failure"
            if not re.search(words, outcome):
                self.red.append(f"{where}: {what}: expected '{words}', got: {outcome}")
        calls = [what for what in said if " " not in what]
        programs = [what for what in said if what.endswith(" program")]
        if "tables read" not in said:
            self.red.append(f"{where}: says nothing about its tables")
        counts = (23, 7) if caller.is_grown else (11, 3)
        if (len(calls), len(programs)) != counts:
            self.red.append(f"{where}: made {len(calls)} calls and {len(programs)} programs")
        return len(calls) + len(programs)

    def check_recording(self, caller: Side, host: Side, program: pathlib.Path) -> int:
        """Records the calls of one program on the newest kernels, and returns how many launches a
        replay of the other side reads."""
        folder = self.scratch / "recording"
        shutil.rmtree(folder, ignore_errors=True)
        said = self.run(program, self.new.backend, "record", f"record.dir={folder}")
        reader = self.old if host.is_grown else self.new
        where = f"recording of caller {caller.label}, host {host.label}"
        stream = folder / "stream.jsonl"
        if not stream.exists():
            self.red.append(f"{where}: there is none: {said.get('FAILED', 'no failure')}")
            return 0
        lines = [json.loads(line) for line in stream.read_text(encoding="utf-8").splitlines()]
        if lines[0]["abi"] != host.version:
            self.red.append(f"{where}: it is of ABI {lines[0]['abi']}, not {host.version}")
        launches = [line for line in lines if line.get("call") == "kernel.launch"]
        # A recording describes the ops of vendors, so a replay knows all of them.
        known = {line["op"]: {argument["name"] for argument in line["description"]["arguments"]}
                 for line in lines if line.get("call") == "op.describe"}
        newer = [(line["op"], sorted(set(line["args"]) -
                                     known.get(line["op"], reader.members(line["op"]))))
                 for line in launches]
        given = [tuple(what.split(".")) for what, outcome in said.items()
                 if "." in what and " " not in what and outcome.startswith("served")
                 and what not in ("gelu.sigmoid", "blur.radius")]
        told = [(op, members[0]) for op, members in newer if len(members) == 1]
        if "FAILED" in said or not launches or any(len(members) > 1 for _, members in newer):
            self.red.append(f"{where}: {said.get('FAILED', newer)}")
        elif host.is_grown and sorted(told) != sorted(given):
            self.red.append(f"{where}: it has {told}, and the calls gave {given}")
        elif not host.is_grown:
            unrecorded = [line for line in lines if line.get("call") == "unrecorded"
                          and "runs a program" not in line["why"]]
            if told or len(unrecorded) != len(given):
                self.red.append(f"{where}: {len(unrecorded)} calls are not recorded, and "
                                f"{len(given)} gave what this host does not know")
        return len(launches) - len(told)

    def check_all(self):
        """Runs all combinations of the two sides, and prints a line for each."""
        for caller, host in itertools.product(self.sides, self.sides):
            program = self.programs[caller.label, host.label]
            where = f"caller {caller.label:5}  host {host.label:5}"
            for kernels in self.sides:
                count = self.check(caller, host, kernels)
                print(f"{where}  kernels {kernels.label:5}  {count} calls and programs")
                count = self.check_pair(caller, host, kernels, program)
                print(f"{where}  backends {kernels.label:5} and the other: {count} calls of an op "
                      "of both")
            count = self.check_recording(caller, host, program)
            print(f"{where}  recording: the other side reads {count} launches")
        for host, kernels in itertools.product(self.sides, self.sides):
            for tables in kernels.others:
                count = self.check(host, host, kernels, tables)
                print(f"caller {host.label:5}  host {host.label:5}  kernels {kernels.label:5}  "
                      f"{tables} tables: {count} calls and programs")

    def check_refusal(self, host: Side, backend: Side):
        """Loads a backend of another major, which says what it serves. The host adds what it serves
        itself, and the major of the backend."""
        program = self.programs[host.label, host.label]
        outcome = self.run(program, backend.backend).get("FAILED", "it was loaded")
        words = (rf"^bp_registry_load: .* serves ABI {re.escape(backend.version)} \(this host "
                 rf"serves {re.escape(host.served)}; the backend is for major "
                 rf"{backend.abi('MAJOR')} alone\)$")
        is_refused = re.search(words, outcome) is not None
        print(f"caller {host.label:5}  host {host.label:5}  kernels {backend.label:5}  "
              f"{'refused' if is_refused else 'RED'}, another major")
        if not is_refused:
            self.red.append(f"host {host.label}, kernels {backend.label}: expected '{words}', got: "
                            f"{outcome}")

    def check_manifests(self, host: Side, manifests: pathlib.Path, known: list[Side]):
        """Shows a host the manifests of all sides. It says the same of them as of backends."""
        said = self.run(self.programs[host.label, host.label], "manifests", manifests)
        served = 0
        for side in known:
            words = "^ok$" if side in self.sides else (
                f"^it serves ABI {re.escape(side.version)} to {re.escape(side.version)}, this host "
                f"{re.escape(host.served)}$")
            outcome = said.pop(side.label, "it is not listed")
            served += outcome == "ok"
            if not re.search(words, outcome):
                self.red.append(f"host {host.label}, manifest of {side.label}: expected '{words}', "
                                f"got: {outcome}")
        if said:
            self.red.append(f"host {host.label}, manifests: {said}")
        print(f"caller {host.label:5}  host {host.label:5}  manifests: {served} of {len(known)} "
              "served")


def write_manifests(folder: pathlib.Path, sides: list[Side]) -> pathlib.Path:
    """Writes a manifest for the backend of each side, and returns their folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for side in sides:
        abi = {"major": side.abi("MAJOR"), "minor_min": side.abi("MINOR"),
               "minor": side.abi("MINOR")}
        manifest = {"name": side.label, "library": str(side.backend), "abi": abi}
        (folder / f"{side.label}.json").write_text(json.dumps(manifest), encoding="utf-8")
    return folder


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("scratch", type=pathlib.Path)
    parser.add_argument("compiler")
    parser.add_argument("backend", type=pathlib.Path)
    parser.add_argument("--old", nargs=4, action="append", required=True)
    parser.add_argument("--new", nargs=4, action="append", required=True)
    parser.add_argument("--host", nargs=2, required=True)
    parser.add_argument("--flags", default="")
    parser.add_argument("--claim-all", action="store_true")
    parser.add_argument("--claim-whole", action="store_true")
    parser.add_argument("--skip-tables", action="store_true")
    parser.add_argument("--break", dest="breaks", action="append", default=[])
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    pairs = [Growth(arguments, old, new)
             for old, new in zip(arguments.old, arguments.new, strict=True)]
    for pair in pairs:
        pair.check_all()
    for pair, other in itertools.permutations(pairs, 2):
        for host, backend in itertools.product(pair.sides, other.sides):
            pair.check_refusal(host, backend)
    known = [side for pair in pairs for side in pair.sides]
    manifests = write_manifests(arguments.scratch.resolve() / "manifests", known)
    for pair in pairs:
        for host in pair.sides:
            pair.check_manifests(host, manifests, known)
    red = [line for pair in pairs for line in pair.red]
    for line in red:
        print(f"RED: {line}")
    print(f"{len(red)} red")
    return 1 if red else 0


if __name__ == "__main__":
    sys.exit(main())
