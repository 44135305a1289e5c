#!/usr/bin/env python3
"""Builds backends that each break one rule of growth: the cases abi.* must fail, and say why.

usage: growth_test.py PROGRAM COMPILER INCLUDE_DIR BACKEND_DIR

The sources of the backend and the headers are copied, changed in one place, and built.
"""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

PROGRAM, COMPILER, INCLUDE, BACKEND = sys.argv[1:5]


class Growth(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.root = pathlib.Path(scratch.name)
        shutil.copytree(INCLUDE, self.root / "include")
        shutil.copytree(BACKEND, self.root / "backend")

    def change(self, path: str, old: str, new: str):
        file = self.root / path
        text = file.read_text(encoding="utf-8")
        self.assertIn(old, text, path)
        file.write_text(text.replace(old, new, 1), encoding="utf-8")

    def run_cases(self) -> dict[str, dict]:
        """Returns the last result of each case by its id."""
        plugin, out = self.root / "libmutant.so", self.root / "out"
        sources = sorted((self.root / "backend").glob("**/*.c"))
        subprocess.run([COMPILER, "-std=gnu11", "-w", "-shared", "-fPIC", "-fvisibility=hidden",
                        f"-I{self.root}/include", f"-I{self.root}/backend", *sources, "-o", plugin],
                       check=True)
        subprocess.run([PROGRAM, "run", plugin, "--filter", "abi.*", "--retries", "0", "--out", out,
                        "--quiet"], capture_output=True, check=False)
        lines = (out / "results.jsonl").read_text(encoding="utf-8").splitlines()
        return {r["case"]: r for r in map(json.loads, lines) if "case" in r and "status" in r}

    def assert_killed(self, case: str, status: str, *words: str):
        results = self.run_cases()
        self.assertIn(case, results)
        result = results[case]
        self.assertEqual(result["status"], status, result)
        for word in words:
            self.assertIn(word, json.dumps(result))

    def test_the_backend_as_it_is_passes(self):
        results = self.run_cases()
        wrong = {case: r for case, r in results.items()
                 if r["status"] not in ("Pass", "NotSupported")}
        self.assertEqual(wrong, {})
        self.assertGreater(sum(r["status"] == "Pass" for r in results.values()), 8)

    def test_one_that_ignores_the_tail_of_a_request(self):
        self.change("include/backplane/base.h", "[i] != 0) return", "[i] == 0x77) return")
        self.assert_killed("abi.size.stream.create", "Fail", "8 bytes longer, these not zero",
                           "expected 7 (incompatible)")

    def test_one_that_refuses_longer_offers(self):
        self.change("backend/backend.c", "bp_struct_read(r, first,",
                    "r->struct_size > sizeof(known) ? BP_INCOMPATIBLE : bp_struct_read(r, first,")
        self.assert_killed("abi.size.bp_registrar", "Fail", "8 bytes longer")

    def test_one_that_compares_sizes_for_equality(self):
        self.change("backend/memory.c", "if (bp_struct_read(desc,",
                    "if (desc->struct_size != sizeof(d) || bp_struct_read(desc,")
        self.assert_killed("abi.size.allocator.allocate", "Fail", "8 bytes longer, these zero",
                           "expected 0 (ok)")

    def test_one_that_reads_less_than_was_released(self):
        self.change("include/backplane/base.h", "if (size_bytes < first_size_bytes)",
                    "if (first_size_bytes == 0)")
        self.assert_killed("abi.size.stream.create", "Fail", "struct_size 0")

    def test_one_that_skips_what_must_be_understood(self):
        self.change("include/backplane/base.h", "& BP_STRUCT_MUST_UNDERSTAND) == 0) continue",
                    "& BP_STRUCT_MUST_UNDERSTAND) != 1) continue")
        self.assert_killed("abi.size.event.create", "Fail", "a link that must be understood")

    def test_one_that_reads_structs_of_any_size(self):
        self.change("include/backplane/base.h", "if (size_bytes > most_bytes)",
                    "if (most_bytes == 0)")
        self.assert_killed("abi.size.stream.create", "Crash")

    def test_one_that_follows_chains_of_any_length(self):
        self.change("include/backplane/base.h", "if (++count > most_links)",
                    "if (++count > most_links && most_links == 0)")
        self.assert_killed("abi.size.stream.create", "Fail", "65 links")

    def test_one_that_refuses_every_link(self):
        self.change("include/backplane/base.h", "& BP_STRUCT_MUST_UNDERSTAND) == 0) continue",
                    "& BP_STRUCT_MUST_UNDERSTAND) == 1) continue")
        self.assert_killed("abi.size.event.create", "Fail", "a link of an unknown type")

    def test_one_that_takes_a_table_for_as_long_as_its_own(self):
        self.change("backend/backend.c", "bp_struct_read(r, first, &known, sizeof(known), NULL)",
                    "(memcpy(&known, r, sizeof(known)), known.add_ops ? BP_OK : BP_INTERNAL)")
        self.change("backend/backend.c", "#include <stdlib.h>",
                    "#include <stdlib.h>\n#include <string.h>")
        self.assert_killed("abi.size.bp_registrar", "Fail", "shorter than its first release")

    def test_one_that_writes_behind_the_size_of_the_caller(self):
        self.change("backend/backend.c", "out_reply->abi_major = ",
                    "((volatile uint64_t*)out_reply)[5] = 1;\n  out_reply->abi_major = ")
        self.assert_killed("abi.size.bp_entry_reply", "Crash")

    def test_one_that_writes_an_out_parameter_and_fails(self):
        self.change("backend/stream.c", "if (desc != NULL && bp_struct_read",
                    "*out_stream = NULL;\n  if (desc != NULL && bp_struct_read")
        self.assert_killed("abi.size.stream.create", "Fail", "the out parameter after a failure")

    def test_one_that_offers_less_than_was_released(self):
        self.change("backend/kernels/add.c", ".struct_size = sizeof(bp_kernel)",
                    ".struct_size = 56")
        self.assert_killed("abi.offers_are_whole", "Fail",
                           "bp_kernel: struct_size is 56, its first release has 192")

    def test_one_that_changes_what_it_was_given(self):
        self.change("backend/memory.c", "  if (problem != NULL) return invalid(i, problem);",
                    "  if (problem != NULL) return invalid(i, problem);\n"
                    "  ((bp_allocate_desc*)desc)->alignment_bytes = 1;")
        self.assert_killed("abi.size.allocator.allocate", "Fail", "was written to")

    def test_one_that_serves_only_its_own_minor(self):
        self.change("include/backplane/backend.h", "minor <= request->abi_minor;",
                    "minor == request->abi_minor;")
        self.assert_killed("abi.newer_host_is_served", "Fail")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
