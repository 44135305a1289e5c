"""Prints the size of the template backend and of the public C headers against their budgets, and
the largest functions of the tree. The exit status is 1 if a budget is exceeded."""

import re
import subprocess
import sys

TEMPLATE_BUDGET = 680
HEADER_BUDGET = 3600  # What backends include, without ops.h, which is generated.
HOST_HEADER_BUDGET = 1250  # What programs include.
LARGEST = 5

# A line that opens a block but no function: types, namespaces, and blocks inside a body.
NO_FUNCTION = re.compile(
    r"^\s*(namespace|class|struct|union|enum|extern|typedef"
    r"|if|else|for|while|switch|do|try|catch|case)\b"
)


def tracked(*patterns):
    """Returns the tracked files that match one of the patterns of git."""
    output = subprocess.run(
        ["git", "ls-files", "-z", "--", *patterns], check=True, capture_output=True, text=True
    )
    return [name for name in output.stdout.split("\0") if name]


def lines_of(path):
    with open(path, encoding="utf-8") as file:
        return file.read().splitlines()


def goes_on(lines, number):
    """Returns whether the line continues a signature, or a constructor's list, that begins above
    it."""
    return lines[number].lstrip().startswith(": ") or lines[number - 1].endswith((",", "("))


def functions(path):
    """Yields (lines, path, first line number, name) of each function with a body of its own lines.

    It relies on the formatter: a function ends at the first line that is its indentation and "}".
    """
    yield from functions_in(lines_of(path), path)


def functions_in(lines, path):
    """Yields the same for the lines of a file."""
    end = -1
    for number, line in enumerate(lines):
        if number <= end or not line.endswith("{") or "=" in line.split("(")[0]:
            continue
        begin = number
        while begin > 0 and goes_on(lines, begin):
            begin -= 1
        signature = lines[begin]
        name = re.search(r"([~\w:]+)\(", signature)
        if not name or NO_FUNCTION.match(signature):
            continue
        indent = signature[: len(signature) - len(signature.lstrip())]
        end = next((i for i in range(number + 1, len(lines)) if lines[i] == indent + "}"), number)
        yield end - begin + 1, path, begin + 1, name.group(1)


def budget(what, paths, limit):
    """Prints the number of lines of the files against the limit, and returns whether it is within
    it."""
    count = sum(len(lines_of(path)) for path in paths)
    print(f"{what}: {count} of {limit} lines in {len(paths)} files")
    return count <= limit


def main():
    headers = [path for path in tracked("api/include/*.h") if not path.endswith("/ops.h")]
    within = [
        budget("backends/template", tracked("backends/template"), TEMPLATE_BUDGET),
        budget("public C headers of backends", headers, HEADER_BUDGET),
        budget("public C headers of hosts", tracked("registry/include/*.h"), HOST_HEADER_BUDGET),
    ]
    found = [row for path in tracked("*.c", "*.cpp", "*.h", "*.hpp") for row in functions(path)]
    print(f"largest of {len(found)} functions:")
    for count, path, line, name in sorted(found, reverse=True)[:LARGEST]:
        print(f"  {count:4} {path}:{line} {name}")
    return 0 if all(within) else 1


if __name__ == "__main__":
    sys.exit(main())
