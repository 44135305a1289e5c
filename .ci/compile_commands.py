"""Writes a compilation database that other tools than the build's compiler can follow.

usage: compile_commands.py DATABASE FOLDER

The commands in FOLDER/compile_commands.json are those of DATABASE without launchers, such as a
compiler cache, without precompiled headers, which only the compiler that wrote them can read, and
without options that GCC alone has: a source that a tool checks by these commands must include what
it uses. Sources that the build compiles as one have a command each, for the same reason.
"""

import json
import os
import pathlib
import re
import shlex
import sys

COMPILER = re.compile(r"(?:^|-)(cc|c\+\+|gcc|g\+\+|clang|clang\+\+|nvcc)(-\d+)?$")
# Options of code generation that clang refuses.
OF_GCC_ALONE = ("-mmemcpy-strategy=", "-mmemset-strategy=", "--param=tsan-")
ASSIGNMENT = re.compile(r"\w+=")
INCLUDED = re.compile(r'^#include "([^"]+)"', re.MULTILINE)


def is_compiler(word):
    """Whether a word names a compiler: /usr/bin/x86_64-linux-gnu-g++-12, but not distcc, and not
    CC=/usr/bin/gcc."""
    return not ASSIGNMENT.match(word) and COMPILER.search(os.path.basename(word)) is not None


def plain_words(command):
    """The words of a compile command from the compiler on, without precompiled headers."""
    words = shlex.split(command["command"])
    while words and not is_compiler(words[0]):
        words.pop(0)
    if not words:
        raise ValueError(f"no compiler in the command of {command['file']}")
    plain, index = [], 0
    while index < len(words):
        if words[index] == "-include" and "cmake_pch" in os.path.basename(words[index + 1]):
            index += 2
            continue
        if not words[index].startswith(("-Winvalid-pch", "-fpch-preprocess", *OF_GCC_ALONE)):
            plain.append(words[index])
        index += 1
    return plain


def with_members(command):
    """The command, or if it compiles united sources, one command for each of them."""
    file = pathlib.Path(command["file"])
    if file.parent.name != "Unity":
        return [command]
    members = INCLUDED.findall(file.read_text(encoding="utf-8"))
    return [{**command, "file": member, "command": command["command"].replace(str(file), member)}
            for member in members]


def main(database, folder):
    united = json.loads(pathlib.Path(database).read_text(encoding="utf-8"))
    commands = [member for command in united for member in with_members(command)]
    for command in commands:
        command["command"] = shlex.join(plain_words(command))
    target = pathlib.Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    (target / "compile_commands.json").write_text(json.dumps(commands, indent=1),
                                                  encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
