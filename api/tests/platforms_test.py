#!/usr/bin/env python3
"""Proves what base.h does on targets that the project does not build on.

usage: platforms_test.py COMPILER_C INCLUDE_DIR
"""
import pathlib
import subprocess
import sys
import tempfile
import unittest

C, INCLUDE = sys.argv[1:3]
BIG_ENDIAN = ["-U__BYTE_ORDER__", "-D__BYTE_ORDER__=__ORDER_BIG_ENDIAN__"]


class Platforms(unittest.TestCase):
    def preprocess(self, *flags: str, text: str = "") -> subprocess.CompletedProcess:
        """Preprocesses base.h, and then `text`."""
        return subprocess.run([C, "-E", "-P", "-w", *flags, f"-I{INCLUDE}", "-x", "c", "-"],
                              input=f'#include "backplane/base.h"\n{text}\n', capture_output=True,
                              text=True, check=False)

    def assert_refuses(self, words: str, *flags: str):
        result = self.preprocess(*flags)
        self.assertNotEqual(result.returncode, 0)
        self.assertIn(words, result.stderr)

    def last_line(self, text: str, *flags: str) -> str:
        result = self.preprocess(*flags, text=text)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout.splitlines()[-1]

    def test_takes_this_target(self):
        self.assertEqual(self.preprocess().returncode, 0)

    def test_refuses_pointers_of_32_bits(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "stdint.h").write_text(
                "#include_next <stdint.h>\n#undef UINTPTR_MAX\n#define UINTPTR_MAX UINT32_MAX\n",
                encoding="utf-8")
            self.assert_refuses("needs a target whose pointers have 64 bits", f"-I{folder}")

    def test_refuses_big_endian_targets(self):
        self.assert_refuses("needs a little-endian target", *BIG_ENDIAN)

    def test_refuses_targets_of_unknown_byte_order(self):
        self.assert_refuses("needs a little-endian target", "-U__BYTE_ORDER__")

    def test_takes_windows_whose_compilers_do_not_say_the_byte_order(self):
        self.assertEqual(self.preprocess("-D_WIN32", "-U__BYTE_ORDER__").returncode, 0)

    def test_functions_of_the_library_are_imported_and_entries_are_exported(self):
        windows = ["-D_WIN32"]
        self.assertEqual(self.last_line("BP_API", *windows), "__declspec(dllimport)")
        self.assertEqual(self.last_line("BP_EXPORT", *windows), "__declspec(dllexport)")
        windows.append("-DBP_BUILDING_BACKPLANE")
        self.assertEqual(self.last_line("BP_API", *windows), "__declspec(dllexport)")
        self.assertEqual(self.last_line("BP_EXPORT", *windows), "__declspec(dllexport)")

    def test_functions_are_visible_elsewhere(self):
        for flags in ([], ["-DBP_BUILDING_BACKPLANE"]):
            self.assertIn("visibility", self.last_line("BP_API", *flags))
            self.assertIn("visibility", self.last_line("BP_EXPORT", *flags))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
