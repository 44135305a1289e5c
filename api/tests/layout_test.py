#!/usr/bin/env python3
"""Proves that layout.py fails where it must: on a moved, renamed or resized member."""
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
INCLUDE = HERE.parent / "include"


def run(folder: pathlib.Path) -> subprocess.CompletedProcess:
    command = [sys.executable, HERE / "layout.py", "cc", HERE / "layout.golden", folder]
    return subprocess.run(command, capture_output=True, text=True, check=False)


class Layout(unittest.TestCase):
    def change(self, header: str, old: str, new: str) -> subprocess.CompletedProcess:
        with tempfile.TemporaryDirectory() as scratch:
            folder = pathlib.Path(scratch)
            shutil.copytree(INCLUDE / "backplane", folder / "backplane")
            path = folder / "backplane" / header
            text = path.read_text()
            self.assertIn(old, text)
            path.write_text(text.replace(old, new, 1))
            return run(folder)

    def test_accepts_the_headers_as_they_are(self):
        result = run(INCLUDE)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def test_sees_a_member_that_moved(self):
        result = self.change("stream.h", "  bp_stream_flags flags;\n  int32_t priority;",
                             "  int32_t priority;\n  bp_stream_flags flags;")
        self.assertEqual(result.returncode, 1)
        self.assertIn("BROKEN: extensible bp_stream_desc.priority", result.stdout)

    def test_sees_a_member_that_was_renamed(self):
        result = self.change("tensor.h", "uint64_t bits;", "uint64_t value;")
        self.assertIn("BROKEN: frozen bp_scalar.bits", result.stdout)

    def test_sees_a_frozen_struct_that_grew(self):
        result = self.change("tensor.h", "uint64_t bits;", "uint64_t bits; uint64_t more;")
        self.assertIn("BROKEN: frozen bp_scalar size 24", result.stdout)

    def test_asks_for_a_review_of_an_appended_member(self):
        result = self.change("stream.h", "  int32_t priority;",
                             "  int32_t priority; uint64_t appended;")
        self.assertEqual(result.returncode, 1)
        self.assertNotIn("BROKEN", result.stdout)
        self.assertIn("not in layout.golden", result.stdout)

    def test_refuses_a_struct_of_no_kind(self):
        result = self.change("tensor.h", "/* Part of a buffer. Frozen. */",
                             "typedef struct bp_new {\n  uint64_t x;\n} bp_new;\n")
        self.assertIn("bp_new is not on the list of frozen structs", result.stderr)

    def test_refuses_a_frozen_struct_that_left_the_list(self):
        result = self.change("base.h", " bp_launch,\n", "\n")
        self.assertIn("bp_launch is not on the list of frozen structs", result.stderr)

    def test_refuses_a_name_on_the_list_that_is_no_struct(self):
        result = self.change("base.h", "is: bp_struct_header", "is: bp_nothing, bp_struct_header")
        self.assertIn("names what no header defines: bp_nothing", result.stderr)

    def test_refuses_an_extensible_struct_on_the_list(self):
        result = self.change("base.h", "is: bp_struct_header", "is: bp_host, bp_struct_header")
        self.assertIn("bp_host is on the list of frozen structs", result.stderr)


if __name__ == "__main__":
    unittest.main()
