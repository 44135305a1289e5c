#!/usr/bin/env python3
"""Proves that growth.py turns red if operators grow as they must not.

usage: growth_test.py COMPILER BACKEND_DIR --now ... (the arguments of growth.py behind SCRATCH_DIR)
"""
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ARGUMENTS = sys.argv[1:]


def run(*options: str) -> subprocess.CompletedProcess:
    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, "-B", HERE / "growth.py", scratch, *ARGUMENTS, *options]
        return subprocess.run(command, capture_output=True, text=True, check=False)


class Growth(unittest.TestCase):
    def assert_red(self, *options: str, words: str | tuple[str, ...]):
        result = run(*options)
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        red = [line for line in result.stdout.splitlines() if line.startswith("RED: ")]
        for each in [words] if isinstance(words, str) else words:
            self.assertTrue(any(each in line for line in red), result.stdout)
        for line in red:
            self.assertIn("grown", line)

    def test_kernels_that_were_only_compiled_again(self):
        self.assert_red("--claim-all", words=(
            "softmax.window: expected '^served by softmax\\+$', got: served by softmax",
            "sort.keys program: expected '^served by sort\\+$', got: served by sort",
            "blur.radius: expected '^served by acme.blur\\+$', got: served by acme.blur",
            "second blur.radius: expected '^served by acme.blur\\+$', got: served by acme.blur"))

    def test_a_member_that_came_before_another(self):
        self.assert_red("--break", "insert:bp_sort_args.x", words="sort: x is NULL")

    def test_a_value_of_another_number(self):
        self.assert_red("--break", "renumber:BP_GELU_APPROXIMATION_SIGMOID",
                        words="gelu: approximation is 77")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
