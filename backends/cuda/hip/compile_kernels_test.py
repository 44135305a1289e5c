"""Tests what compile_kernels.py reads: the list of sources, and the remarks of the compiler. It
needs no compiler."""
import contextlib
import io
import os
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import compile_kernels

LISTS = """
set(cuda_kernel_sources
  kernels/add.cu
  # A remark.
  kernels/matmul.cpp
  kernels/mma.cu
)
set(cuda_kernel_sources_of_nvidia
  kernels/mma.cu
)
set(cuda_emitted_kernel_sources
  one.cu
  list.hpp
)
set(cuda_emitted_reduction_parts two.cuh two.def)
"""
REMARK = "map.cuh:62:1: remark: {} [-Rpass-analysis=kernel-resource-usage]\n"
USAGE = "".join(map(REMARK.format, (
    "Function Name: first", "    SGPRs: 70", "    VGPRs: 19", "    ScratchSize [bytes/lane]: 16",
    "    VGPRs Spill: 2", "    LDS Size [bytes/block]: 2048",
    "Function Name: second", "    VGPRs: 7", "    ScratchSize [bytes/lane]: 0")))


class Lists(unittest.TestCase):
    def test_keeps_all_device_code_that_is_not_left_out(self):
        kept, emitted, left_out = compile_kernels.read_sources(LISTS)
        self.assertEqual(kept, ["fill_pattern.cu", "kernels/add.cu"])
        self.assertEqual(left_out, ["kernels/mma.cu"])
        self.assertEqual(emitted["emit_cuda.py"], ["one.cu", "list.hpp"])
        self.assertEqual(emitted["emit_reductions.py"], ["two.cuh", "two.def"])

    def test_refuses_to_leave_out_what_is_no_source(self):
        with self.assertRaisesRegex(SystemExit, "kernels/gone.cu"):
            compile_kernels.read_sources(
                LISTS.replace("_of_nvidia\n  kernels/mma.cu", "_of_nvidia\n  kernels/gone.cu"))

    def test_names_a_list_that_is_missing(self):
        with self.assertRaisesRegex(SystemExit, "cuda_kernel_sources_of_nvidia"):
            compile_kernels.read_sources(LISTS.replace("_of_nvidia", "_of_none"))


class Remarks(unittest.TestCase):
    def test_reads_what_each_kernel_takes(self):
        first, second = compile_kernels.parse_remarks(USAGE)
        self.assertEqual(first, {"kernel": "first", "registers": 19, "scratch_bytes": 16,
                                 "spilled_registers": 2, "shared_bytes": 2048})
        self.assertEqual((second["registers"], second["scratch_bytes"]), (7, 0))


class Runs(unittest.TestCase):
    """Each test has a program in place of hipcc, and emits nothing."""

    def setUp(self):
        patch = mock.patch.object(compile_kernels, "emit", return_value=[])
        patch.start()
        self.addCleanup(patch.stop)

    def run_with(self, script, only="fill_pattern"):
        with tempfile.TemporaryDirectory() as scratch:
            hipcc = Path(scratch) / "hipcc"
            hipcc.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
            os.chmod(hipcc, 0o755)
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                code = compile_kernels.main(
                    [f"{scratch}/out", "--hipcc", str(hipcc), "--only", only])
        return code, out.getvalue()

    def test_passes_where_each_architecture_passes(self):
        code, text = self.run_with("exit 0")
        self.assertEqual(code, 0)
        self.assertIn("2 passed, 0 failed, 8 skipped", text)
        self.assertIn("skipped  kernels/sdpa_mma.cu: ", text)

    def test_fails_where_one_architecture_fails(self):
        code, text = self.run_with('case $1 in *gfx1100) echo "a.cu:1: error: no"; exit 1;; esac')
        self.assertEqual(code, 1)
        self.assertIn("1 passed, 1 failed", text)
        self.assertIn("a.cu:1: error: no", text)

    def test_fails_on_a_warning_and_without_words(self):
        self.assertEqual(self.run_with('echo "a.cu:1: warning: maybe"')[0], 1)
        self.assertEqual(self.run_with("exit 3")[0], 1)

    def test_fails_where_nothing_is_compiled(self):
        self.assertEqual(self.run_with("exit 0", only="no such source")[0], 1)

    def test_names_a_compiler_that_is_missing(self):
        with tempfile.TemporaryDirectory() as scratch:
            with self.assertRaisesRegex(SystemExit, "no-hipcc is not installed"):
                compile_kernels.main([scratch, "--hipcc", "no-hipcc"])


if __name__ == "__main__":
    sys.exit(unittest.main())
