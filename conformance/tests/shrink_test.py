#!/usr/bin/env python3
"""Shrinks failures of broken backends, compiles the C files that result, and runs them on the
broken and on the good backend.

  shrink_test.py BP_CONFORMANCE MUTANT GOOD LIBRARY CC C_FLAGS SOURCE_ROOT [unittest arguments]
"""
import concurrent.futures
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM = MUTANT = GOOD = LIBRARY = COMPILER = ""
C_FLAGS = []
ROOT = pathlib.Path()

# Each row has the mutant, a pattern whose first case it fails, the shapes of the smallest call, and
# words of its C program.
TRIALS = (
    # The mutant drops the products behind the last whole tile of K.
    ("1", "op.matmul.f32.random.m48k17n48.dense", {"a": [1, 1], "b": [1, 1], "y": [1, 1]}, "y: "),
    # The mutant reads a broadcast operand as if it were dense.
    ("10", "op.add.f32.random.1x257.broadcastn_b_*", {"a": [2]}, "y: element 1 "),
    # The mutant ignores the offset of a view.
    ("11", "op.mul.f64.random.5x7.dense", {}, "y: element 0 "),
    # The mutant writes one vector past the end.
    ("13", "op.neg.f32.random.257.dense", {"x": []}, "which is no element of an output"),
    # The mutant does not write the tail.
    ("15", "op.relu.f32.random.17.dense", {"x": [1], "y": [1]}, "y: element 0 "),
)


def run(*words):
    return subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)


def first_case(pattern):
    return run(PROGRAM, "list", "-k", pattern).stdout.split()[0]


def shrink(folder, mutant, case):
    return run(PROGRAM, "shrink", MUTANT, "--case", case, "--option", f"mutant={mutant}",
               "--option", f"wrap={GOOD}", "--out", folder, "-q")


def compile_program(folder):
    program = str(pathlib.Path(folder, "repro"))
    done = run(COMPILER, "-std=c11", "-Wall", "-Wextra", "-Werror", *C_FLAGS,
               f"-I{ROOT}/api/include", f"-I{ROOT}/registry/include", program + ".c", LIBRARY,
               f"-Wl,-rpath,{pathlib.Path(LIBRARY).parent}", "-lm", "-o", program)
    return program, done


class Shrinking(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = scratch.name

    def expect(self, done, code, words=""):
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.assertIn(words, done.stdout + done.stderr)

    def expect_repetition(self, folder, good_words):
        """Checks that the line and the C file find the failure, and nothing in the good backend."""
        program, compiled = compile_program(folder)
        self.expect(compiled, 0)
        self.expect(run(program), 1, good_words)
        self.expect(run(program, GOOD), 0, "every element is right")
        self.expect(run(program, folder + "/no_such.so"), 2, "load: ")
        shrunk = ("--shrunk", folder + "/shrunk.json", "--out", folder + "/out")
        self.expect(run(PROGRAM, "run", GOOD, *shrunk), 0, "1 passed")

    def test_the_smallest_call_fails_alone_and_in_c(self):
        cases = [first_case(pattern) for _, pattern, _, _ in TRIALS]
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            shrunk = list(pool.map(
                lambda row, case: shrink(f"{self.folder}/{row[0]}", row[0], case), TRIALS, cases))
        for (mutant, _, shapes, words), case, done in zip(TRIALS, cases, shrunk):
            with self.subTest(mutant=mutant):
                folder = f"{self.folder}/{mutant}"
                self.expect(done, 0, case)
                described = json.loads(pathlib.Path(folder, "shrunk.json").read_text())
                found = {x["name"]: x["shape"] for x in described["tensors"]}
                self.assertEqual({name: found[name] for name in shapes}, shapes)
                self.assertLess(pathlib.Path(folder, "repro.c").read_text().count("\n"), 300)
                repro = next(x for x in done.stdout.splitlines() if x.startswith("repro: "))
                again = run(PROGRAM, *repro.split()[2:], "--out", folder + "/again")
                self.expect(again, 1, "0 passed, 1 failed")
                self.assertIn("--shrunk", again.stdout)
                self.expect_repetition(folder, words)

    def test_what_does_not_fail_or_is_no_call_is_refused(self):
        good = (PROGRAM, "shrink", GOOD, "--out", self.folder, "-q", "--case")
        self.expect(run(*good, "op.neg.f32.random.257.dense"), 5, "nothing to shrink")
        self.expect(run(*good, "op.none"), 5, "no case of this id")
        self.expect(run(*good, "stream.new_stream_is_idle"), 2, "not a single call of an op")
        path = pathlib.Path(self.folder, "no.json")
        path.write_text("{}")
        shrunk = (PROGRAM, "run", GOOD, "--shrunk")
        self.expect(run(*shrunk, str(path)), 2, "there is no \"case\"")
        self.expect(run(*shrunk, "/no/such"), 2, "a file that shrink wrote")


if __name__ == "__main__":
    PROGRAM, MUTANT, GOOD, LIBRARY, COMPILER = sys.argv[1:6]
    C_FLAGS, ROOT = sys.argv[6].split(), pathlib.Path(sys.argv[7])
    unittest.main(argv=sys.argv[:1] + sys.argv[8:], verbosity=2)
