"""Compiles sources by the flags of a database that compile_commands.py wrote, with another
compiler than the build's.

usage: compile_with.py COMPILER DATABASE JOBS [FLAG...] -- SOURCE...

Nothing is written: the compiler only checks. Flags that only the build's compiler knows are left
out. Prints what the compiler says of each source that it refuses, and fails if there is one.
"""

import concurrent.futures
import json
import pathlib
import shlex
import subprocess
import sys

# What g++ knows and clang refuses.
ONLY_GNU = ("-fno-sanitize-recover", "--param", "-Wno-maybe-uninitialized")


def flags_of(command):
    """The flags of a compile command, without its compiler, output and source."""
    flags, skip = [], False
    for word in shlex.split(command["command"])[1:]:
        if skip or word in ("-c", command["file"]) or word.startswith(ONLY_GNU):
            skip = False
            continue
        if word in ("-o", "-MF", "-MT", "-MQ"):
            skip = True
            continue
        flags.append(word)
    return flags


def check(compiler, extra, command):
    words = [*compiler, *flags_of(command), *extra, "-fsyntax-only", command["file"]]
    done = subprocess.run(words, cwd=command["directory"], capture_output=True, text=True,
                          check=False)
    return done.returncode, done.stdout + done.stderr


def main(words):
    compiler, database, jobs = shlex.split(words[0]), words[1], int(words[2])
    split = words.index("--")
    extra, sources = words[3:split], words[split + 1:]
    commands = {}
    for command in json.loads(pathlib.Path(database).read_text(encoding="utf-8")):
        commands.setdefault(command["file"], command)
    root = pathlib.Path.cwd()
    chosen = [commands[str(root / source)] for source in sources]
    refused = 0
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for source, (status, text) in zip(
                sources, pool.map(lambda command: check(compiler, extra, command), chosen)):
            if status != 0:
                refused += 1
                print(f"{source}: refused\n{text}")
    print(f"{len(sources)} sources compiled, {refused} refused")
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
