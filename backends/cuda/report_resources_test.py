"""Tests of report_resources.py, on notes as ptxas writes them."""

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
