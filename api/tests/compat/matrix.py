#!/usr/bin/env python3
"""Runs old backends in new hosts and new backends in old hosts, and prints the table.

usage: matrix.py COMPILER INCLUDE_DIR RELEASED_DIR BACKEND_DIR SCRATCH_DIR [--flags FLAGS]
                 [--library LIBRARY SOURCE HOST_INCLUDE_DIR] [--break KIND:WHERE]...

Each set of headers builds a backend and a test host (host.c):

  0.1, ...   from RELEASED_DIR, with the backend's sources of that release
  now        from INCLUDE_DIR, with the backend in BACKEND_DIR
  future     the next minor, written by future.py; it serves no minor older than the minor of now
  1.0, 1.1   two minors of a frozen major: 1.0 is now under another version, 1.1 appends to it

With --library the table has one more column for each program of libbackplane. The programs are
SOURCE, compiled with the released headers that are served and with the headers of now, and run with
LIBRARY.

A cell is "served" or "refused", as the rules of api/docs/versioning.md say, and else red. A refusal
must name the backend's version, and its reply the backend's majors. A cell that must be served is
also red if a struct that both sides know has members in other places. The exit status is 1 if a
cell is red. --break (see future.py) changes the headers of `future` and 1.1, and the table must
turn red. FLAGS are the compiler flags of LIBRARY, such as the flags of a sanitizer.
"""
import argparse
import dataclasses
import pathlib
import shlex
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import boundary  # pylint: disable=wrong-import-position
import future  # pylint: disable=wrong-import-position
import slots  # pylint: disable=wrong-import-position

HERE = pathlib.Path(__file__).resolve().parent
# The headers of the host library. A release holds them beside the headers that backends see.
HOST_HEADERS = {"addresses.h", "blocks.h", "capture.h", "dlpack.h", "host.h", "pinned.h",
                "program.h", "staged.h", "transfers.h"}
FLAGS = ["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror",
         "-Wno-missing-field-initializers"]


@dataclasses.dataclass
class HeaderSet:
    """One version of the headers, and what it is built from."""
    label: str
    include: pathlib.Path
    sources: list[pathlib.Path]  # The sources of the backend.
    headers: boundary.Boundary
    layout: list[str]
    backend: pathlib.Path | str = ""  # The plugin, or why there is none.
    host: pathlib.Path | str = ""

    @property
    def version(self) -> tuple[int, int]:
        return self.headers.version

    @property
    def name(self) -> str:
        return ".".join(map(str, self.version))


@dataclasses.dataclass
class Column:
    """A program that loads a backend: its label, its command, and the set whose rules it
    follows."""
    label: str
    command: list[str] | str
    rules: HeaderSet
    seen_by: HeaderSet  # The program was compiled with the structs of this set.
    tells_majors: bool  # A refusal ends with the majors of the backend's reply.


def is_served(backend: HeaderSet, host: HeaderSet) -> bool:
    return host.headers.serves(backend.version)


def moved_members(a: HeaderSet, b: HeaderSet) -> list[str]:
    """Returns where two sets differ in what the older one has; what only the newer one has does not
    count. Frozen structs of another size come first, because they move the structs that hold
    them."""
    older, newer = (a, b) if a.version <= b.version else (b, a)
    then, now = places(older), places(newer)
    moved = [what for what, place in then.items() if now.get(what) != place]
    return [f"{what} is {then[what]} for {older.label}, {now.get(what, 'gone')} for {newer.label}"
            for what in sorted(moved, key=lambda what: "." in what)]


def places(header_set: HeaderSet) -> dict[str, str]:
    """Returns the place of each member of a struct that backends see, and the size of each frozen
    one."""
    lines = [line.split(" ", 2)[1:] for line in boundary.promised(header_set.layout)]
    of_hosts = {name for name, struct in header_set.headers.structs.items()
                if struct.header in HOST_HEADERS}
    return {what: place for what, place in lines if what.split(".")[0] not in of_hosts}


def joined(reasons: list[str]) -> str:
    """Joins the first reasons. They suffice, because a member that moved moves all members behind
    it."""
    more = [f"and {len(reasons) - 4} more"] if len(reasons) > 4 else []
    return "; ".join(reasons[:4] + more)


def compile_c(compiler: list[str], include: list[pathlib.Path], sources: list[pathlib.Path],
              out: pathlib.Path, *flags: str) -> pathlib.Path | str:
    """Returns the file that was built, or the first error."""
    out.parent.mkdir(parents=True, exist_ok=True)
    command = [*compiler, *FLAGS, *[f"-I{folder}" for folder in include], *map(str, sources),
               *flags, "-o", str(out)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode == 0:
        return out
    lines = [line for line in result.stderr.splitlines() if "error" in line]
    words = lines[0].split("error: ")[-1] if lines else result.stderr
    return "does not compile: " + words.split(" {aka")[0].split(" [-W")[0][:200]


class Matrix:
    def __init__(self, arguments: argparse.Namespace):
        self.compiler = arguments.compiler
        self.command = [arguments.compiler, *shlex.split(arguments.flags)]
        self.scratch = arguments.scratch.resolve()
        self.backend_sources = self.c_files(arguments.backend)
        self.breaks = tuple(arguments.breaks)
        folders = sorted(p for p in arguments.released.glob("[0-9]*") if p.is_dir())
        self.released = [self.read(f.name, f / "include", self.c_files(f / "template"))
                         for f in folders]
        self.now = self.read("now", arguments.include, self.backend_sources)
        versions = [s.version for s in self.released + [self.now]]
        oldest = (self.now.version[0], self.now.headers.oldest_minor)
        if oldest not in versions:
            sys.exit(f"BP_ABI_MINOR_MIN is {oldest[1]}, which is neither a released minor nor that "
                     f"of the headers of now")
        self.sets = self.released + [self.now] + self.synthetic(arguments.include)
        self.columns = self.build()
        if arguments.library is not None:
            self.columns += self.library_columns(*arguments.library)

    @staticmethod
    def c_files(folder: pathlib.Path) -> list[pathlib.Path]:
        return sorted(folder.glob("**/*.c"))

    def read(self, label: str, include: pathlib.Path, sources: list[pathlib.Path]) -> HeaderSet:
        headers = boundary.read(include)
        return HeaderSet(label, include, sources, headers,
                         boundary.layout(self.compiler, headers))

    def synthetic(self, include: pathlib.Path) -> list[HeaderSet]:
        major, minor = self.now.version
        made = []
        for label, version, append in (("future", f"{major}.{minor + 1}", True),
                                       ("1.0", f"{major + 1}.0", False),
                                       ("1.1", f"{major + 1}.1", True)):
            folder = self.scratch / "headers" / label
            future.generate(include, folder, version, append, self.breaks if append else ())
            made.append(self.read(label, folder, self.backend_sources))
        return made

    def write_slots(self, header_set: HeaderSet, headers: boundary.Boundary) -> pathlib.Path:
        folder = self.scratch / header_set.label
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "slots.h").write_text(slots.emit(headers, [s.headers for s in self.sets]),
                                        encoding="utf-8")
        return folder

    def build_backend(self, header_set: HeaderSet) -> pathlib.Path | str:
        out = self.scratch / header_set.label / "libbackend.so"
        folders = sorted({source.parent for source in header_set.sources})
        include = [header_set.include, *folders]
        flags = ["-shared", "-fPIC", "-fvisibility=hidden", "-pthread"]
        if header_set.version < (0, 3):  # The wrapper names what 0.3 brought.
            return compile_c(self.command, include, header_set.sources, out, *flags)
        # Only the backend's own sources get another name of the entry.
        inner = self.scratch / header_set.label / "wrapped.o"
        objects = compile_c(self.command, include, header_set.sources, inner, "-r", "-fPIC",
                            "-nostdlib", "-fvisibility=hidden", "-Dbp_backend_entry=wrapped_entry")
        if isinstance(objects, str):
            return objects
        return compile_c(self.command, include, [HERE / "widen.c", objects], out, *flags)

    def build(self) -> list[Column]:
        columns = []
        for header_set in self.sets:
            folder = self.write_slots(header_set, header_set.headers)
            header_set.backend = self.build_backend(header_set)
            header_set.host = compile_c(
                self.command, [header_set.include, HERE, folder],
                [HERE / "host.c", HERE / "exercise.c"], folder / "host", "-ldl")
            command = (header_set.host if isinstance(header_set.host, str)
                       else [str(header_set.host), "{}", str(header_set.headers.oldest_minor)])
            columns.append(Column(header_set.label, command, header_set, header_set,
                                  header_set.version >= (0, 3)))
        return columns

    def library_columns(self, library: str, source: str, include: str) -> list[Column]:
        """Returns programs of every minor that is served, and of now, with the library of now.
        Programs of other minors need a library of another name (SOVERSION in
        registry/CMakeLists.txt), so they do not start with this one."""
        columns = []
        for header_set in self.released + [self.now]:
            if not is_served(header_set, self.now):
                continue
            folders = [header_set.include]
            if header_set is self.now:
                folders.append(pathlib.Path(include))
            folder = self.write_slots(header_set, header_set.headers)
            path = pathlib.Path(library).resolve()
            program = compile_c(self.command, [*folders, HERE, folder],
                                [pathlib.Path(source), HERE / "exercise.c"],
                                folder / "library_host", str(path), f"-Wl,-rpath,{path.parent}")
            columns.append(Column(f"lib, {header_set.label}",
                                  program if isinstance(program, str) else [str(program), "{}"],
                                  self.now, header_set, False))
        return columns

    def run(self, backend: HeaderSet, column: Column) -> str:
        """Returns the line that the program says of the backend."""
        for part in (backend.backend, column.command):
            if isinstance(part, str):
                return "FAILED: " + part
        command = [part.format(backend.backend) for part in column.command]
        try:
            result = subprocess.run(command, capture_output=True, text=True, check=False,
                                    timeout=60)
        except subprocess.TimeoutExpired:
            return "FAILED: ran for 60 s without an end"
        if result.returncode < 0:
            return f"FAILED: ended by signal {-result.returncode}"
        return (result.stdout.splitlines() or ["FAILED: printed nothing"])[-1]

    def cell(self, backend: HeaderSet, column: Column) -> tuple[str, str]:
        """Returns the word of a cell, and why it is red, or "" if it is not."""
        said = self.run(backend, column)
        if not is_served(backend, column.rules):
            told = f"; majors {backend.version[0]} to {backend.version[0]}"
            told = told if column.tells_majors else ""
            if (said.startswith("refused: ") and f"ABI {backend.name}" in said
                    and said.endswith(told)):
                return "refused", ""
            return "RED", (f"expected a refusal that names ABI {backend.name} and ends with "
                           f"'{told}', got: {said}")
        reasons = [] if said == f"served {backend.name}" else [said]
        reasons += moved_members(backend, column.seen_by)
        return ("RED", joined(reasons)) if reasons else ("served", "")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("compiler")
    for name in ("include", "released", "backend", "scratch"):
        parser.add_argument(name, type=pathlib.Path)
    parser.add_argument("--flags", default="")
    parser.add_argument("--library", nargs=3)
    parser.add_argument("--break", dest="breaks", action="append", default=[])
    matrix = Matrix(parser.parse_args())

    rows = [(s, [matrix.cell(s, column) for column in matrix.columns]) for s in matrix.sets]
    print("rows: backends; columns: hosts, then programs of libbackplane")
    print(f"{'':14}" + "".join(f"{c.label:>12}" for c in matrix.columns))
    for header_set, cells in rows:
        label = header_set.label
        if label != header_set.name:
            label += f" ({header_set.name})"
        print(f"{label:14}" + "".join(f"{word:>12}" for word, _ in cells))
    red = 0
    for header_set, cells in rows:
        for column, (_, reason) in zip(matrix.columns, cells, strict=True):
            if reason:
                red += 1
                print(f"RED: backend {header_set.label}, host {column.label}: {reason}")
    print(f"{len(rows) * len(matrix.columns)} cells, {red} red")
    return 1 if red else 0


if __name__ == "__main__":
    sys.exit(main())
