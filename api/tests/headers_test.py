#!/usr/bin/env python3
"""Proves that headers.py fails where it must.

usage: headers_test.py COMPILER_C COMPILER_CXX INCLUDE_DIR HOST_INCLUDE_DIR
"""
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
C, CXX, INCLUDE, HOST_INCLUDE = sys.argv[1:5]


class Headers(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        (self.folder / "backplane").mkdir()

    def check(self, *folders: pathlib.Path) -> subprocess.CompletedProcess:
        command = [sys.executable, HERE / "headers.py", C, CXX, *folders]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def check_with(self, text: str) -> subprocess.CompletedProcess:
        """Writes nine headers of one struct each, and one of `text`."""
        for i in range(9):
            (self.folder / f"backplane/good{i}.h").write_text(
                f"#ifndef G{i}\n#define G{i}\ntypedef struct g{i} {{\n  int x;\n}} g{i};\n#endif\n")
        (self.folder / "backplane/odd.h").write_text(text)
        return self.check(self.folder)

    def assert_fails(self, text: str, standard: str):
        result = self.check_with(text)
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        self.assertIn(f"odd.h as {standard}:", result.stdout)
        self.assertNotIn("good", result.stdout)

    def test_accepts_headers_that_compile(self):
        result = self.check_with("#ifndef ODD\n#define ODD\nextern int odd;\n#endif\n")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn("10 headers, 4 standards, 0 failures", result.stdout)

    def test_a_header_without_a_guard(self):
        self.assert_fails("typedef struct odd {\n  int x;\n} odd;\n", "c11")

    def test_a_header_that_needs_another(self):
        self.assert_fails("#ifndef ODD\n#define ODD\nuint32_t odd(void);\n#endif\n", "c17")

    def test_padding_without_a_name(self):
        self.assert_fails("#ifndef ODD\n#define ODD\ntypedef struct odd {\n  char c;\n  int x;\n"
                          "} odd;\n#endif\n", "c++20")

    def test_a_word_of_another_language(self):
        self.assert_fails("#ifndef ODD\n#define ODD\nextern int class;\n#endif\n", "c++17")

    def test_a_slot_with_the_name_of_a_macro(self):
        self.assert_fails("#ifndef ODD\n#define ODD\ntypedef struct odd {\n  int (*free)(void*);\n"
                          "} odd;\n#endif\n", "c11 with macros")

    def test_headers_that_went(self):
        for name in ("base.h", "backend.h"):
            shutil.copy(pathlib.Path(INCLUDE, "backplane", name), self.folder / "backplane")
        self.assertEqual(self.check(self.folder).returncode, 1)

    def test_a_compiler_that_is_not_installed_is_a_skip(self):
        command = [sys.executable, HERE / "headers.py", "no-such-cc", CXX, INCLUDE, HOST_INCLUDE]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, 77)
        self.assertIn("SKIPPED: no-such-cc is not installed", result.stdout)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
