#!/usr/bin/env python3
"""Compiles every public C header alone, in each standard that is promised.

usage: headers.py COMPILER_C COMPILER_CXX INCLUDE_DIR [INCLUDE_DIR ...]

Warnings are errors, and so is padding that has no name. Each header is also compiled where names
that programs often have as macros are macros, because a slot or member of such a name breaks there.
Exits with 77, which CTest counts as skipped, if the compiler is not installed.
"""
import pathlib
import shutil
import subprocess
import sys
import tempfile

FLAGS = ["-fsyntax-only", "-Wall", "-Wextra", "-Wpedantic", "-Wpadded", "-Wconversion", "-Werror"]
STANDARDS = [("c", "c11"), ("c", "c17"), ("c++", "c++17"), ("c++", "c++20")]
# The C library and checkers of memory define these as macros; `log` is one of tgmath.h.
MACROS = ["assert", "calloc", "errno", "free", "log", "malloc", "realloc", "stderr", "stdin",
          "stdout"]
# The macros come behind the headers of the C library that the public headers include.
WITH_MACROS = "".join(f"#include <{name}.h>\n" for name in ("stddef", "stdint", "string"))
WITH_MACROS += "".join(f"#undef {name}\n#define {name} @\n" for name in MACROS)
VARIANTS = [(language, standard, standard, "") for language, standard in STANDARDS]
VARIANTS.append(("c", "c11", "c11 with macros", WITH_MACROS))


def main() -> int:
    compilers = {"c": sys.argv[1], "c++": sys.argv[2]}
    includes = [pathlib.Path(folder) for folder in sys.argv[3:]]
    for compiler in compilers.values():
        if shutil.which(compiler) is None:
            print(f"SKIPPED: {compiler} is not installed")
            return 77
    headers = [h for folder in includes for h in sorted(folder.glob("backplane/*.h"))]
    if len(headers) < 9:
        print(f"only {len(headers)} headers found in {', '.join(map(str, includes))}")
        return 1

    failed = 0
    for header in headers:
        for language, standard, label, before in VARIANTS:
            with tempfile.NamedTemporaryFile("w", suffix=".c") as source:
                # The header is included twice, so that a header without a guard fails.
                source.write(before + f'#include "backplane/{header.name}"\n' * 2)
                source.flush()
                command = [compilers[language], "-x", language, f"-std={standard}", *FLAGS]
                command += [f"-I{folder}" for folder in includes] + [source.name]
                result = subprocess.run(command, capture_output=True, text=True, check=False)
            if result.returncode != 0:
                failed += 1
                print(f"{header.name} as {label}:\n{result.stderr}")
    print(f"{len(headers)} headers, {len(STANDARDS)} standards, {failed} failures")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
