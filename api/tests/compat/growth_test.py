#!/usr/bin/env python3
"""Proves that growth.py turns red if operators grow as they must not.

usage: growth_test.py COMPILER BACKEND_DIR --old ... (the arguments of growth.py behind SCRATCH_DIR)
"""
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ARGUMENTS = sys.argv[1:]


def run(arguments: list[str], *options: str) -> subprocess.CompletedProcess:
    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, "-B", HERE / "growth.py", scratch, *arguments, *options]
        if "--claim-whole" not in options:
            command.append("--skip-tables")
        return subprocess.run(command, capture_output=True, text=True, check=False)


def cell(line: str) -> list[str]:
    """Returns the words that name the cell of a red line."""
    return line.split(": ")[1].replace(",", "").split()


def side(number: int) -> int:
    """Returns where the side is in the arguments: it has a label, headers, and two libraries."""
    return [i for i, word in enumerate(ARGUMENTS) if word in ("--old", "--new")][number] + 1


class Growth(unittest.TestCase):
    def red_lines(self, result: subprocess.CompletedProcess, *words: str) -> list[str]:
        """Returns the lines that are red. Some of them have the words."""
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        red = [line for line in result.stdout.splitlines() if line.startswith("RED: ")]
        for each in words:
            self.assertTrue(any(each in line for line in red), result.stdout)
        return red

    def assert_red(self, *options: str, words: str | tuple[str, ...]):
        """Breaks the new side of each pair. Its lines, and no others, are red in both."""
        words = (words,) if isinstance(words, str) else words
        red = self.red_lines(run(ARGUMENTS, *options), *words)
        labels = [ARGUMENTS[side(number)] for number in (1, 3)]
        of_pairs = [[line for line in red if label in cell(line)] for label in labels]
        for label, lines in zip(labels, of_pairs, strict=True):
            for each in words:
                self.assertTrue(any(each in line for line in lines), f"{label}: {red}")
        self.assertEqual(sum(map(len, of_pairs)), len(red), red)

    def test_kernels_that_were_only_compiled_again(self):
        self.assert_red("--claim-all", words=(
            "softmax.window: expected '^served by softmax\\+$', got: served by softmax",
            "sort.keys program: expected '^served by sort\\+$', got: served by sort",
            "blur.radius: expected '^served by acme.blur\\+$', got: served by acme.blur",
            "second blur.radius: expected '^served by acme.blur\\+$', got: served by acme.blur"))

    def test_a_table_that_is_shorter_than_it_says(self):
        red = self.red_lines(run(ARGUMENTS, "--claim-whole"), "shorter tables: FAILED: ")
        self.assertEqual([line for line in red if ", shorter tables: " not in line], [])

    def test_a_member_that_came_before_another(self):
        self.assert_red("--break", "insert:bp_sort_args.x", words="sort: x is NULL")

    def test_a_value_of_another_number(self):
        self.assert_red("--break", "renumber:BP_GELU_APPROXIMATION_SIGMOID",
                        words="gelu: approximation is 77")

    def test_a_library_under_another_version(self):
        arguments = ARGUMENTS.copy()
        arguments[side(2) + 2] = ARGUMENTS[side(0) + 2]  # Major 1 gets the library of major 0.
        first, second = ARGUMENTS[side(2)], ARGUMENTS[side(3)]
        red = self.red_lines(
            run(arguments), f"host {first}, kernels {first}: FAILED", f"host {first}, kernels now:",
            f"host {first}, backends {second}, {first}: FAILED",
            f"recording of caller {second}, host {first}: there is none")
        for line in red:
            self.assertIn(f"host {first}", line)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
