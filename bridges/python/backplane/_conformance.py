"""The command bp-conformance, as the wheel or the installed package has it."""

import os
import pathlib
import sys

from backplane import _core


def find():
    """Returns the program beside the library that this package uses; None if there is none."""
    library = pathlib.Path(_core.library_path()).resolve()
    program = library.parent.parent / "bin" / "bp-conformance"
    return program if program.is_file() else None


def main():
    """Runs bp-conformance. The entry points of Python packages are in its search path."""
    program = find()
    if program is None:
        sys.exit(f"bp-conformance is not installed beside {_core.library_path()}; install the "
                 "package of Backplane that has it")
    os.execv(program, [str(program), *sys.argv[1:]])
