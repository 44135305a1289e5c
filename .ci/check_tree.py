"""Checks the rules of the tree that a search can check: dependencies point one way, the core names
no vendor, versions agree, and the text is plain. Prints one line per finding. The exit status is 1
if there is a finding.

usage: check_tree.py    in the root of a checkout; looks at tracked files
"""

import re
import subprocess
import sys
from pathlib import Path

# A module may use the public headers and the libraries of these modules. A module's private headers
# are its own.
MAY_USE = {
    "api": {"api"},
    "registry": {"api", "registry"},
    "simulation": {"simulation"},
    "backends": {"api", "simulation", "backends"},
    "conformance": {"api", "registry", "conformance"},
    "runtime": {"api", "registry", "simulation", "runtime"},
    "examples": {"api", "registry", "runtime", "examples"},
    "bridges": {"api", "registry", "runtime", "bridges"},
}
# Modules that users do not see: all their headers are for the modules that may use them. They may
# use the shared headers below, which need no library.
INNER_MODULES = {"simulation"}
# Sources that are compiled into the library of another module. They obey the rules of that module.
COMPILED_INTO = {"ops_spec": "registry"}
# Examples that are whole backends of a vendor. They obey the rules of backends.
EXAMPLE_BACKENDS = ("examples/12_opencl/",)
# Headers that generated sources of any module call. These headers need the api alone.
OF_GENERATED_SOURCES = {"ops_spec/dims.hpp"}
# Headers without a library behind them, which each module may use that may use the public headers
# of their module. They guard in one way what is read from outside and what is written for others,
# and compute facts about tensors in one place.
SHARED_HEADERS = {
    "api/fuzz/fuzz.hpp",
    "api/fuzz/scratch.hpp",
    "registry/files/json_depth.hpp",
    "registry/files/read_file.hpp",
    "registry/files/whole_file.hpp",
    "registry/boundary/number_text.hpp",
    "registry/calls/op_texts.hpp",
    "registry/boundary/plugin_text.hpp",
    "registry/tensors/floats.hpp",
    "registry/tensors/strides.hpp",
    "registry/tests/comma_locale.hpp",
}
# Headers with one source behind them, which each module above that uses them compiles into its own
# library: the library of the module that has it does not export it.
SHARED_SOURCES = {"registry/files/sha256.hpp"}
# Files that show users how to ask for the package.
FIND_PACKAGE = (
    "README.md",
    "backends/template/CMakeLists.txt",
    "backends/template_async/CMakeLists.txt",
    "bridges/onnxruntime/CMakeLists.txt",
    "bridges/python/CMakeLists.txt",
    "bridges/torch/CMakeLists.txt",
    "examples/01_hello_abi.c",
    "examples/02_vendor_backend/CMakeLists.txt",
    "examples/05_vendor_op/CMakeLists.txt",
    "examples/12_opencl/CMakeLists.txt",
    "examples/CMakeLists.txt",
)
FOLDERS = set(MAY_USE) | set(COMPILED_INTO) | {".ci"}

# Public headers in folders of their own, with the module of each folder.
PUBLIC_FOLDERS = {"backplane/runtime/": "runtime", "backplane/shell/": "backends"}

# The parts that backends share name no backend.
SHARED_BY_BACKENDS = ("backends/shell/", "backends/host_kernels/")

# Modules whose folders can be put in an order in which each includes only those before it. Tests
# and fuzz targets look into all of them.
ORDERED_FOLDERS = {"conformance", "registry"}

# The rooms of the suite's cases: each may include those before it. Tests look into all of them.
CASES = "conformance/cases/"
ROOMS_OF_CASES = ("fixtures", "engine", "ops", "rules", "layouts", "abi")

# The module of each library of the build. Every module may link a library of no module.
LIBRARY_MODULE = {
    "api": "api",
    "registry": "registry",
    "simulation": "simulation",
    "shell": "backends",
    "conformance": "conformance",
    "onnx": "runtime",
    "runtime": "runtime",
    "warnings": None,
    "yaml_cpp": None,
    "sleef": None,
}

# Copies of the headers of the api and of the registry, as they were in each release.
RELEASED = "api/released/"

# The core knows no vendor and no backend. Benches name the peers that they measure.
NAMELESS = {"api", "registry", "conformance", "runtime"}
NAMELESS_EXCEPT = ("api/cmake/", "runtime/bench/")
VENDOR = re.compile(
    r"\b(nvidia|cuda\w*|cudnn\w*|cublas\w*|nccl\w*|rocm|amd|intel|onednn|dnnl\w*|mkl|vulkan"
    r"|lavapipe|ascend|qualcomm|apple|huawei)\b"
    r"|\b(lib)?backplane[._](cpu|sim|template|cuda|vulkan)\b"
    r"|\bbackends/(cpu|sim|template|cuda|vulkan)\b",
    re.IGNORECASE,
)

# The sources of the host library that may name the version of the ABI. registry/future.cmake makes
# libraries of other versions, and compiles only the first of them again.
NAME_VERSION = {
    "registry/boundary/served_abi.cpp",
    "registry/layers/oldabi.cpp",
    "registry/layers/released.hpp",
}
ABI_VERSION = re.compile(r"\b(BP_ABI_M(?:AJOR|INOR)\w*)")
CODE = {".c", ".h", ".cpp", ".hpp", ".def", ".py", ".cmake", ".map", ".sh"}
INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)[">]', re.MULTILINE)
LIBRARY = re.compile(r"\bbackplane::(\w+)")
MACHINE_PATH = re.compile(r"(?<![\w.$})])/(work|tmp|home|root|farm)/")
OPEN_MARK = re.compile(r"\b(TOD[O]|FIXM[E]|XX[X]|HAC[K])\b(?!\(#\d+\):)")
COLUMNS = 100


def module_of(path):
    """Returns the module whose rules hold for a file."""
    if str(path).startswith(EXAMPLE_BACKENDS):
        return "backends"
    return COMPILED_INTO.get(path.parts[0], path.parts[0])


def is_code(path):
    """Returns whether the file is a program or a part of one. The rules of plain text hold for
    programs."""
    return path.suffix in CODE or path.name in ("CMakeLists.txt", "test", "quickstart") or (
        path.parts[0] == ".ci" and not path.suffix
    )


def is_text(path):
    """Returns whether the file is text. A seed of a fuzz target may be any bytes."""
    is_seed = path.parts[1:3] == ("fuzz", "corpus") or path.parts[2:4] == ("fuzz", "corpus")
    return path.suffix != ".csv" and path.name != "LICENSE" and not is_seed


def lines_matching(pattern, text):
    """Yields (line number, matched text)."""
    for number, line in enumerate(text.splitlines(), 1):
        for match in pattern.finditer(line):
            yield number, match.group(0)


def owner(header, headers):
    """Returns the module of an include, "" for a header from outside the tree, or None if no module
    has it."""
    first = header.split("/")[0]
    if first in FOLDERS and "/" in header:
        return COMPILED_INTO.get(first, first)
    if first != "backplane":
        return ""
    for folder, module in PUBLIC_FOLDERS.items():
        if header.startswith(folder):
            return module
    return headers.get(header)


def check_includes(path, text, headers):
    """Checks the dependencies between modules, as the sources show them."""
    module = module_of(path)
    for header in INCLUDE.findall(text):
        used = owner(header, headers)
        if header in OF_GENERATED_SOURCES:
            continue
        if str(path).startswith(SHARED_BY_BACKENDS) and header.startswith("backends/"):
            if not header.startswith(SHARED_BY_BACKENDS):
                yield f"{path}: knows no backend, and includes {header}"
        if used is None:
            yield f"{path}: includes {header}, which no module has"
        elif module in INNER_MODULES and header in SHARED_HEADERS:
            continue
        elif used and used not in MAY_USE[module]:
            yield f"{path}: {module} must not include {header} of {used}"
        elif header in SHARED_HEADERS | SHARED_SOURCES:
            continue
        elif used in INNER_MODULES:
            continue
        elif used and used != module and not header.startswith("backplane/"):
            yield f"{path}: {header} is private to {used}"


def check_rooms(path, text):
    """Checks the dependencies between the rooms of the suite's cases, which point one way."""
    room = path.parts[2] if str(path).startswith(CASES) else ""
    if room not in ROOMS_OF_CASES or path.stem.endswith("_test"):
        return
    for header in INCLUDE.findall(text):
        used = header.removeprefix(CASES).split("/")[0] if header.startswith(CASES) else ""
        later = ROOMS_OF_CASES[ROOMS_OF_CASES.index(room) + 1 :]
        if used in later:
            yield f"{path}: {CASES}{room} must not include {header}, of a later room"


def folder_includes(module, texts):
    """Returns {folder: {folder it includes: "file includes header"}}; `texts` are of all files."""
    found = {}
    for path, text in sorted(texts.items()):
        is_part = path.parts[0] == module and path.suffix in (".c", ".h", ".cpp", ".hpp", ".def")
        if not is_part or path.stem.endswith("_test") or {"tests", "fuzz"} & set(path.parts):
            continue
        for header in INCLUDE.findall(text):
            to = str(Path(header).parent)
            if header.startswith(module + "/") and to != str(path.parent):
                edges = found.setdefault(str(path.parent), {})
                edges.setdefault(to, f"{path} includes {header}")
    return found


def check_cycles(module, texts):
    """Yields a text for each circle of folders of a module that include each other."""
    includes = folder_includes(module, texts)
    done = set()

    def visit(folder, trail):
        if folder in trail:
            circle = trail[trail.index(folder) :] + [folder]
            steps = [includes[a][b] for a, b in zip(circle, circle[1:])]
            yield f"{module}: its folders include each other in a circle: " + "; ".join(steps)
        elif folder not in done:
            for to in includes.get(folder, {}):
                yield from visit(to, trail + [folder])
            done.add(folder)

    for folder in list(includes):
        yield from visit(folder, [])


def check_links(path, text):
    """Checks the dependencies between modules, as the build lists show them."""
    module = module_of(path)
    for library in LIBRARY.findall(text):
        if library not in LIBRARY_MODULE:
            yield f"{path}: backplane::{library} is not known to .ci/check_tree.py"
        elif LIBRARY_MODULE[library] not in MAY_USE[module] | {None}:
            yield f"{path}: {module} must not link backplane::{library}"


def check_names(path, text):
    """Checks that the core names no vendor and no backend."""
    if path.parts[0] in NAMELESS and not str(path).startswith(NAMELESS_EXCEPT):
        for number, name in lines_matching(VENDOR, text):
            yield f"{path}:{number}: names {name}"


def check_abi_version(path, text):
    """Checks that few sources of the host library name the version of the ABI."""
    is_test = path.stem.endswith("_test") or "tests" in path.parts
    if module_of(path) == "registry" and not is_test and str(path) not in NAME_VERSION:
        for number, name in lines_matching(ABI_VERSION, text):
            yield f"{path}:{number}: {name} is for registry/boundary/served_abi.cpp alone"


def check_text(path, text):
    """Checks for plain ASCII, no tabs, 100 columns, no path of one machine, and no open mark
    without its issue."""
    for number, line in enumerate(text.splitlines(), 1):
        if not line.isascii():
            yield f"{path}:{number}: has a character that is not ASCII"
        if "\t" in line or line != line.rstrip():
            yield f"{path}:{number}: has a tab or ends in a space"
        if len(line) > COLUMNS:
            yield f"{path}:{number}: has {len(line)} columns, at most {COLUMNS}"
    for number, mark in lines_matching(OPEN_MARK, text):
        yield f"{path}:{number}: {mark} without an issue, as in {mark}(#12):"


def check_file(path, text, headers):
    """Yields what is wrong with one file."""
    for number, found in lines_matching(MACHINE_PATH, text):
        yield f"{path}:{number}: {found} is a path of one machine"
    if not is_code(path):
        return
    yield from check_text(path, text)
    if module_of(path) not in MAY_USE:
        return
    yield from check_names(path, text)
    if path.suffix in (".c", ".h", ".cpp", ".hpp") and not str(path).startswith(RELEASED):
        yield from check_includes(path, text, headers)
        yield from check_rooms(path, text)
        yield from check_abi_version(path, text)
    if path.name == "CMakeLists.txt":
        yield from check_links(path, text)


def check_versions(read):
    """Checks that the same version stands in each place that has one. `read` returns the text of a
    file."""
    header = dict(re.findall(r"#define BP_ABI_(M\w+) (\d+)", read("api/include/backplane/base.h")))
    cmake = dict(
        re.findall(r"set\(BACKPLANE_ABI_(M\w+) (\d+)\)", read("api/cmake/BackplaneBackend.cmake"))
    )
    for part in ("MAJOR", "MINOR"):
        if part not in header or header.get(part) != cmake.get(part):
            yield (
                f"ABI {part.lower()} is {header.get(part)} in base.h, "
                f"{cmake.get(part)} in BackplaneBackend.cmake"
            )
    version = re.search(r"project\(backplane VERSION ([\d.]+)", read("CMakeLists.txt")).group(1)
    if not re.search(rf"^## {re.escape(version)}\b", read("CHANGELOG.md"), re.MULTILINE):
        yield f"CHANGELOG.md has no section for version {version} of CMakeLists.txt"
    abi = f"{header.get('MAJOR')}.{header.get('MINOR')}"
    if not version.startswith(f"{abi}."):
        yield (
            f"CMakeLists.txt has version {version}; it begins with that of the ABI, {abi}, because "
            f"users ask find_package() for the ABI"
        )
    for name in FIND_PACKAGE:
        for asked in re.findall(r"find_package\(Backplane ([\d.]+)", read(name)):
            if asked != abi:
                yield f"{name} asks for Backplane {asked}; the ABI is {abi}"


def tracked_files():
    output = subprocess.run(["git", "ls-files", "-z"], check=True, capture_output=True, text=True)
    return [Path(name) for name in output.stdout.split("\0") if name and Path(name).is_file()]


def main():
    files = tracked_files()
    headers = {
        "/".join(path.parts[2:]): path.parts[0] for path in files if path.parts[1:2] == ("include",)
    }
    found = []
    texts = {}
    for path in files:
        if len(path.parts) > 1 and path.parts[0] not in FOLDERS:
            found.append(f"{path}: {path.parts[0]} is not a folder of the tree")
        elif is_text(path):
            texts[path] = path.read_text(encoding="utf-8")
            found += check_file(path, texts[path], headers)
    for module in sorted(ORDERED_FOLDERS):
        found += check_cycles(module, texts)
    found += check_versions(lambda name: Path(name).read_text(encoding="utf-8"))
    for line in found:
        print(line)
    print(f"{len(files)} files, {len(found)} findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
