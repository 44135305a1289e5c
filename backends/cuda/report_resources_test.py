"""Tests of report_resources.py, on notes as ptxas writes them."""

import contextlib
import io
import pathlib
import tempfile
import unittest

import report_resources

NOTES = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z4copyPf' for 'sm_80'
ptxas info    : Function properties for _Z4copyPf
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 12 registers, used 0 barriers, 376 bytes cmem[0]
ptxas info    : Compiling entry function '_Z4sortPf' for 'sm_90'
ptxas info    : Function properties for _Z4sortPf
    64 bytes stack frame, 8 bytes spill stores, 16 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 64 bytes cumulative stack size, 1024 bytes smem
"""

SASS = """\
\t\tFunction : _Z4gemmPf
        /*0000*/                   LDC R1, c[0x0][0x28] ;          /* 0x00000a00ff017b82 */
        /*0010*/              @!P0 HMMA.16816.F32.BF16 R4, R8, R12, R4 ;
        /*0020*/                   FFMA R0, R1, R2, R3 ;
\t\tFunction : _Z4sortPf
        /*0000*/                   STL.64 [R1], R2 ;
        /*0010*/               @P1 LDL R3, [R1+0x8] ;
"""
USAGE = """\
 Function _Z4gemmPf:
  REG:128 STACK:0 SHARED:32768 LOCAL:0 CONSTANT[0]:560 TEXTURE:0 SURFACE:0 SAMPLER:0
"""


class ParseSass(unittest.TestCase):
    def test_counts_tensor_cores_and_local_memory(self):
        functions = report_resources.parse_sass(SASS)
        self.assertEqual(functions["_Z4gemmPf"], {"tensor": 1, "local": 0, "ffma": 1, "all": 3})
        self.assertEqual(functions["_Z4sortPf"], {"tensor": 0, "local": 2, "ffma": 0, "all": 2})

    def test_reads_resources(self):
        usage = report_resources.parse_resources(USAGE)
        self.assertEqual(usage["_Z4gemmPf"],
                         {"registers": 128, "stack_bytes": 0, "shared_bytes": 32768})

    def test_a_kernel_with_local_memory_fails_by_name(self):
        counts = {"registers": 32, "stack_bytes": 8, "shared_bytes": 0, "source": "sort.cu",
                  "architecture": "sm_90", "tensor": 0, "ffma": 0, "all": 2}
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            status = report_resources.print_sass([dict(counts, kernel="bad", local=2)], 256)
            good = report_resources.print_sass([dict(counts, kernel="good", local=0)], 256)
        self.assertEqual((status, good), (1, 0))
        self.assertIn("FAILED: sort.cu: bad uses local memory", text.getvalue())
        self.assertNotIn("FAILED: sort.cu: good", text.getvalue())

    def test_admits_the_stack_of_a_kernel_that_a_file_names(self):
        counts = {"registers": 32, "stack_bytes": 16, "shared_bytes": 0, "source": "sort.cu",
                  "architecture": "sm_90", "tensor": 0, "ffma": 0, "all": 2, "local": 2}
        text = io.StringIO()

        def status(kernel, *admitted):
            with contextlib.redirect_stdout(text):
                return report_resources.print_sass([dict(counts, kernel=kernel)], 256, admitted)

        self.assertEqual(status("wide<128>", (16, "sort.cu", "<128>")), 0)
        self.assertEqual(status("wide<64>", (16, "sort.cu", "<128>")), 1)
        self.assertEqual(status("wide<128>", (8, "sort.cu", "<128>")), 1)
        self.assertEqual(status("wide<128>", (16, "topk.cu", "<128>")), 1)

    def test_reads_a_file_of_admitted_kernels(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "admitted"
            path.write_text("# A comment.\n\n16 sort.cu <128> It is the widest one.\n")
            self.assertEqual(report_resources.read_admitted(path), [(16, "sort.cu", "<128>")])
            path.write_text("16 sort.cu\n")
            with self.assertRaisesRegex(SystemExit, "BYTES SOURCE WORD REASON"):
                report_resources.read_admitted(path)

    def test_compiles_for_one_architecture_as_a_release_does(self):
        command = ["nvcc", "-O2", "-Ofc=max", "-g", "--generate-code=arch=compute_80,code=[sm_80]",
                   "-c", "a.cu", "-o", "a.o"]
        self.assertEqual(report_resources.optimised(command, "sm_90"),
                         ["nvcc", "-c", "a.cu", "-o", "a.o", "-O2",
                          "--generate-code=arch=compute_80,code=[sm_90]"])


class Occupancy(unittest.TestCase):
    def test_follows_the_calculator(self):
        share = report_resources.occupancy
        self.assertEqual(share("sm_90", 32, 0, 256), 1)  # Nothing limits it.
        self.assertEqual(share("sm_90", 128, 0, 256), 0.25)  # 16 warps have registers.
        self.assertEqual(share("sm_90", 168, 0, 128), 0.1875)  # 12 warps.
        self.assertEqual(share("sm_80", 32, 100 << 10, 256), 0.125)  # One block has memory.
        self.assertEqual(share("sm_120", 32, 0, 1024), 32 / 48)


class ParseNotes(unittest.TestCase):
    def test_reads_each_kernel(self):
        copy, sort = report_resources.parse_notes(NOTES)
        self.assertEqual((copy["kernel"], copy["architecture"]), ("_Z4copyPf", "sm_80"))
        self.assertEqual((copy["registers"], copy["stack_bytes"], copy["spill_bytes"]), (12, 0, 0))
        self.assertEqual((sort["architecture"], sort["registers"]), ("sm_90", 255))
        self.assertEqual((sort["stack_bytes"], sort["spill_bytes"]), (64, 24))
        self.assertEqual(sort["shared_bytes"], 1024)

    def test_finds_nothing_in_other_text(self):
        self.assertEqual(report_resources.parse_notes("nvcc warning : something\n"), [])


if __name__ == "__main__":
    unittest.main()
