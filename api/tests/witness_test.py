#!/usr/bin/env python3
"""Proves that witness.py fails on each kind of break, and on no addition.

usage: witness_test.py COMPILER INCLUDE_DIR HOST_INCLUDE_DIR
"""
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "compat"))
import future  # pylint: disable=wrong-import-position

COMPILER, INCLUDE, HOST_INCLUDE = sys.argv[1:4]


@unittest.skipIf(shutil.which("abidiff") is None, "abidiff is not installed")
class Witness(unittest.TestCase):
    """The headers of now stand for a released minor. The headers of a later minor are written from
    them."""

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.root = pathlib.Path(scratch.name)
        self.released = self.root / "released"
        for folder in (INCLUDE, HOST_INCLUDE):
            shutil.copytree(folder, self.released / "0.2/include", dirs_exist_ok=True)

        self.later = self.root / "later"

    def write_later(self, *breaks: str, append: bool = True):
        future.generate(self.released / "0.2/include", self.later, "0.9", append, breaks)

    def compare(self) -> subprocess.CompletedProcess:
        command = [sys.executable, HERE / "witness.py", COMPILER, self.released, self.later]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def assert_broken(self, what: str, *words: str):
        self.write_later(what)
        result = self.compare()
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        for word in words:
            self.assertIn(word, result.stdout)

    def test_accepts_the_same_types(self):
        self.write_later(append=False)
        result = self.compare()
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def test_accepts_what_is_appended(self):
        self.write_later()
        result = self.compare()
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def test_a_member_that_moved(self):
        self.assert_broken("move-member:bp_allocate_desc.alignment_bytes", "bp_allocate_desc")

    def test_a_member_of_another_type_of_the_same_size(self):
        self.assert_broken("retype:bp_allocate_desc.size_bytes", "uint64_t size_bytes", "double")

    def test_a_member_of_half_its_size(self):
        self.assert_broken("narrow:bp_device_properties.heap_count", "heap_count")

    def test_a_slot_that_went(self):
        self.assert_broken("remove-member:bp_allocator_ops.address", "address")

    def test_a_slot_that_came_before_another(self):
        self.assert_broken("insert:bp_stream_ops.query", "inserted")

    def test_a_slot_with_other_parameters(self):
        self.assert_broken("retype-slot:bp_stream_ops.synchronize", "double")

    def test_a_frozen_struct_that_grew(self):
        self.assert_broken("grow-frozen:bp_scalar", "bp_scalar", "appended")

    def test_a_function_of_the_library_that_went(self):
        self.write_later()
        header = self.later / "backplane/host.h"
        text = header.read_text(encoding="utf-8")
        function = "BP_API bp_status bp_cache_empty(const bp_target* target);"
        self.assertIn(function, text)
        header.write_text(text.replace(function, ""), encoding="utf-8")
        result = self.compare()
        self.assertEqual(result.returncode, 1)
        self.assertIn("bp_cache_empty", result.stdout)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
