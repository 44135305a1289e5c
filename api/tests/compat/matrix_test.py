#!/usr/bin/env python3
"""Proves that the matrix turns red if a minor breaks what the rules forbid to break.

usage: matrix_test.py COMPILER INCLUDE_DIR RELEASED_DIR BACKEND_DIR
"""
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ARGUMENTS = sys.argv[1:5]


def run(*options: str) -> subprocess.CompletedProcess:
    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, HERE / "matrix.py", *ARGUMENTS, scratch, *options]
        return subprocess.run(command, capture_output=True, text=True, check=False)


class Matrix(unittest.TestCase):
    def assert_red(self, what: str, *words: str):
        """Checks that the table with this break is red, with a reason in these words, and only in
        cells where hosts and backends of the broken headers meet others."""
        result = run("--break", what)
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        reasons = [line for line in result.stdout.splitlines() if line.startswith("RED:")]
        self.assertGreaterEqual(len(reasons), 2, result.stdout)
        for word in words:
            self.assertIn(word, result.stdout)
        for reason in reasons:
            self.assertRegex(reason, r"(backend|host) (future|1\.1)")

    def test_is_green_without_a_break(self):
        result = run()
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn(" 0 red", result.stdout)

    def test_a_member_that_moved(self):
        self.assert_red("move-member:bp_allocate_desc.alignment_bytes",
                        "a range leaves its buffer",
                        "bp_allocate_desc.size_bytes is at 16 size 8 for now, at 24 size 8")

    def test_a_member_of_a_record_that_moved(self):
        self.assert_red("move-member:bp_activity.bytes", "a record was lost",
                        "bp_activity.bytes is at 72 size 8 for now, at 64 size 8 for future")

    def test_a_member_of_another_type(self):
        self.assert_red("retype:bp_allocate_desc.size_bytes", "FAILED: allocate")

    def test_a_member_that_went(self):
        self.assert_red("remove-member:bp_device_properties.subgroup_size",
                        "bp_device_properties.subgroup_size is at", "gone for future")

    def test_a_slot_that_went(self):
        self.assert_red("remove-member:bp_allocator_ops.address",
                        "bp_allocator_ops.map is at 56 size 8 for now, at 48 size 8 for future")

    def test_a_slot_that_came_before_another(self):
        self.assert_red("insert:bp_stream_ops.query", "FAILED: ",
                        "bp_stream_ops.query is at 48 size 8 for now, at 56 size 8 for future")

    def test_a_slot_with_other_parameters(self):
        self.assert_red("retype-slot:bp_stream_ops.synchronize", "does not compile")

    def test_a_frozen_struct_that_grew(self):
        self.assert_red("grow-frozen:bp_buffer_ref",
                        "bp_launch is size 72 for now, size 80 for future")

    def test_a_member_that_was_renamed(self):
        self.assert_red("rename:bp_tensor.strides", "does not compile",
                        "bp_tensor.strides is at 24 size 8 for now, gone for future")

    def test_a_constant_of_another_value(self):
        self.assert_red("renumber:BP_STRUCT_HEAP", "a heap has another struct_type")

    def test_an_unknown_break_is_no_break(self):
        result = run("--break", "move-member:bp_heap.no_such_member")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("has no member 'no_such_member'", result.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
