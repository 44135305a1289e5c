#!/usr/bin/env python3
"""Runs `bp-conformance perf` over a good backend, over the same backend broken on purpose, and over
one without kernels. Tests what perf measures, finds, compares and refuses.

  perf_test.py BP_CONFORMANCE MUTANTS GOOD_PLUGIN MOCK_PLUGIN [unittest arguments]
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM = MUTANTS = GOOD = MOCK = ""
# Each call has two sets and 20 runs, because the test does not depend on the speed.
QUICK = ("--cache-bytes", "1K", "--min-time", "0.001")


def words_of(plugin, *flags):
    """Returns the command, with the options of QUICK that `flags` do not set themselves."""
    words = [PROGRAM, "perf", plugin, *flags]
    for flag, value in zip(QUICK[::2], QUICK[1::2]):
        if flag not in flags:
            words += [flag, value]
    return words


def inherited():
    return {k: v for k, v in os.environ.items() if not k.startswith("BACKPLANE_")}


class Perf(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def perf(self, *flags, plugin=None, codes=(0,)):
        done = subprocess.run(
            words_of(plugin or GOOD, "--out", str(self.folder / "out"), *flags),
            capture_output=True, text=True, timeout=600, env=inherited(), check=False)
        self.assertIn(done.returncode, codes, done.stdout + done.stderr)
        return done

    def mutant(self, name, filter_of, codes=(1,)):
        return self.perf("--option", f"mutant={name}", "--option", f"wrap={GOOD}", "-k", filter_of,
                         plugin=MUTANTS, codes=codes)

    def document(self):
        return json.loads((self.folder / "out" / "perf.json").read_text())

    def case(self, name):
        return next(case for case in self.document()["cases"] if case["id"] == name)


class AGoodBackend(Perf):
    def test_has_ceilings_and_graded_cases(self):
        done = self.perf("-k", "perf.add.dense.f32:perf.matmul.square512.f32")
        self.assertIn("ceilings  copy", done.stdout)
        self.assertTrue(done.stdout.endswith("2 measured, 0 failed, 0 skipped\n"), done.stdout)
        document = self.document()
        self.assertEqual(document["schema"], "backplane-perf-2")
        for name in ("copy_bytes_per_s", "read_bytes_per_s", "write_bytes_per_s",
                     "update_bytes_per_s", "launch_s"):
            self.assertGreater(document["ceilings"][name], 0, name)
        self.assertEqual(list(document["ceilings"]["flops_per_s"]), ["f32"])
        add, product = (self.case(f"perf.{name}.f32") for name in ("add.dense", "matmul.square512"))
        self.assertEqual(add["bytes_read"], 2 * 4 * 2 ** 20)
        self.assertEqual(add["bytes_written"], 4 * 2 ** 20)
        self.assertEqual(product["flops"], 2 * 512 ** 3)
        for case in (add, product):
            self.assertEqual(case["status"], "Pass")
            self.assertGreaterEqual(case["runs"], 20)
            self.assertGreaterEqual(case["sets"], 2)
            self.assertAlmostEqual(case["fraction"], case["roof_s"] / case["median_s"])
            self.assertIn(case["grade"], ("A", "B", "C", "D", "F", "A or B", "B or C", "C or D",
                                          "D or F", "none"))
            # If the machine is so busy that no group of launches was quiet, nothing is known.
            if case["uncertainty"] is not None and case["uncertainty"] <= 0.5:
                self.assertLess(case["fraction_least"], case["fraction"])
                self.assertGreater(case["fraction_most"], case["fraction"])
        summary = document["summary"]
        graded = sum(summary["grades"].values()) + summary["between"] + summary["ungraded"]
        self.assertEqual(graded, 2)

    def test_rotates_through_sets_that_exceed_the_cache_twice(self):
        self.perf("-k", "perf.softmax.axis1.f32", "--cache-bytes", "20M")
        case = self.case("perf.softmax.axis1.f32")
        self.assertEqual(case["set_bytes"], 8 * 2 ** 20)
        self.assertGreaterEqual(case["sets"] * case["set_bytes"], 40 * 2 ** 20)

    def test_says_how_steady_the_machine_and_the_grades_were(self):
        done = self.perf("-k", "perf.fill.*:perf.adamw_step.*", "--runs", "2")
        self.assertIn("run 2 of 2", done.stdout)
        self.assertIn("of 2 rows changed their grade", done.stdout)
        self.assertRegex(done.stdout, r"not graded \d")
        self.assertRegex(done.stdout, r"machine  [0-9.]+ times slower beside the calls")
        document = self.document()
        rows = document["stability"]["rows"]
        self.assertEqual(document["stability"]["runs"], 2)
        self.assertEqual(sorted(row["id"] for row in rows),
                         ["perf.adamw_step.two_tensors.f32", "perf.fill.dense.f32"])
        for row in rows:
            self.assertEqual(len(row["grades"]), 2)
            self.assertIn(self.case(row["id"])["fraction"], row["fractions"])
        # The step writes parameters and both averages where it read them, and only reads the
        # gradients.
        step = self.case("perf.adamw_step.two_tensors.f32")
        self.assertEqual(step["bytes_updated"], 3 * 2 * 4 * 2 ** 18)
        self.assertGreater(step["copy_yardstick_s"], 0)
        self.assertTrue((self.folder / "out" / "results.2.jsonl").exists())

    def test_compares_with_a_baseline(self):
        self.perf("-k", "perf.fill.*:perf.relu.dense.f32")
        stored = self.folder / "before.json"
        before = self.document()
        # The call is so much slower that the noise of the machine cannot hide it.
        for case in before["cases"]:
            if case["id"] == "perf.relu.dense.f32":
                case.update(median_s=case["median_s"] * 1000, uncertainty=0)
            if case["id"] == "perf.fill.dense.f32":
                case["id"] = "perf.fill.former.f32"
        stored.write_text(json.dumps(before))
        done = self.perf("-k", "perf.fill.*:perf.relu.dense.f32", "--baseline", str(stored),
                         "--max-regress", "50%")
        comparison = self.document()["comparison"]
        # Other tests may make the machine too busy for a grade. The report must then say so.
        uncertainty = self.case("perf.relu.dense.f32")["uncertainty"]
        is_clear = uncertainty is not None and uncertainty <= 0.5
        faster = [change["id"] for change in comparison["improvements"]]
        self.assertEqual(faster, ["perf.relu.dense.f32"] if is_clear else [])
        self.assertEqual(comparison["unclear"], [] if is_clear else ["perf.relu.dense.f32"])
        self.assertEqual(comparison["fresh"], ["perf.fill.dense.f32"])
        self.assertEqual(comparison["regressions"], [])
        self.assertIn("faster 1" if is_clear else "1 were too noisy to compare", done.stdout)

    def test_is_not_compared_with_another_device(self):
        self.perf("-k", "perf.fill.*")
        other = self.document()
        other["device"]["description"] = "Another"
        stored = self.folder / "other.json"
        stored.write_text(json.dumps(other))
        done = self.perf("-k", "perf.fill.*", "--baseline", str(stored), codes=(2,))
        self.assertIn("its device is Another", done.stderr)


class ABrokenBackend(Perf):
    def test_that_is_wrong_fails_and_counts_for_nothing(self):
        done = self.mutant("1", "perf.matmul.odd.f32")
        self.assertIn("WRONG", done.stdout)
        case = self.case("perf.matmul.odd.f32")
        self.assertEqual(case["status"], "Fail")
        self.assertNotIn("grade", case)

    def test_that_caches_results_by_content_fails_for_no_other_reason(self):
        # All results are right, and other work on the machine can hide the difference in time. So
        # timing_test.cpp tests that the cache is found, with a kernel that sleeps.
        done = self.mutant("40:subtle", "perf.matmul.square512.f32", codes=(0, 1))
        if done.returncode == 1:
            case = self.case("perf.matmul.square512.f32")
            self.assertEqual(case.get("cause"), "cached", done.stdout)

    def test_that_dies_leaves_a_complete_report(self):
        process = subprocess.Popen(
            words_of(GOOD, "--out", str(self.folder / "out"), "--min-time", "0.3", "-k",
                     "perf.fill.*:perf.relu.dense.f32"),
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=inherited())
        # The line of the first call says that the worker has loaded the backend. The second call
        # lasts 0.3 s at least. If the worker has not begun it, its death counts for the first
        # call, and the second one runs in another worker.
        for line in process.stdout:
            if line.startswith(("perf.fill.", "perf.relu.")):
                break
        time.sleep(0.1)
        children = pathlib.Path(f"/proc/{process.pid}/task").glob("*/children")
        workers = [int(word) for child in children for word in child.read_text().split()]
        self.assertEqual(len(workers), 1)
        os.kill(workers[0], 9)
        out = process.communicate(timeout=120)[0]
        self.assertEqual(process.returncode, 1, out)
        statuses = [case["status"] for case in self.document()["cases"]
                    if not case["id"].startswith("perf.ceiling.")]
        self.assertEqual(sorted(statuses), ["Crash", "Pass"])


class ABackendWithoutMemoryAndKernels(Perf):
    def test_fails_in_words_and_gives_its_reasons(self):
        done = self.perf("-k", "perf.add.dense.f32", plugin=MOCK, codes=(1,))
        self.assertIn("Fail: memory.allocate: unsupported: the mock has no memory", done.stdout)
        self.assertIn("NotSupported: test.mock: has no kernel for this op", done.stdout)
        self.assertTrue(done.stdout.endswith("0 measured, 5 failed, 1 skipped\n"), done.stdout)
        self.assertEqual(self.case("perf.add.dense.f32")["status"], "NotSupported")


class TheCommandLine(Perf):
    def test_lists_what_there_is(self):
        listed = self.perf("--list").stdout.split()
        self.assertGreater(len(listed), 60)
        self.assertEqual(len(listed), len(set(listed)))
        chosen = self.perf("--list", "-k", "perf.sort.*").stdout.split()
        self.assertIn("perf.sort.axis1.f32", chosen)
        self.assertNotIn("perf.topk.axis1_k16.f32", chosen)

    def test_refuses_what_it_cannot_read(self):
        for flags in (("--cache-bytes", "0"), ("--cache-bytes", "5 apples"),
                      ("--max-regress", "much"), ("--baseline", str(self.folder / "nothing"))):
            with self.subTest(flags=flags):
                done = subprocess.run([PROGRAM, "perf", GOOD, *flags], capture_output=True,
                                      text=True, timeout=60, env=inherited(), check=False)
                self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
                self.assertIn(flags[0], done.stderr)
        self.perf("-k", "perf.nothing.*", codes=(5,))


if __name__ == "__main__":
    PROGRAM, MUTANTS, GOOD, MOCK = sys.argv[1:5]
    unittest.main(argv=sys.argv[:1] + sys.argv[5:])
