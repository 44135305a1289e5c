#!/usr/bin/env python3
"""Runs `bp-conformance dist` over a good backend, over the same backend broken on purpose, and over
backends without groups between processes. Tests what dist finds, skips and writes.

  dist_test.py BP_CONFORMANCE MUTANTS GOOD_PLUGIN LOCAL_PLUGIN MOCK_PLUGIN [unittest arguments]

GOOD_PLUGIN has groups between processes, and LOCAL_PLUGIN has groups in one process, or is "".
"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM = MUTANTS = GOOD = LOCAL = MOCK = ""
# The groups of two ranks, and little time for calls that wait on purpose.
SMALL = ("--ranks", "2", "--tier", "smoke", "--fault-timeout", "0.5", "--grace", "10")


def words_of(plugin, *flags):
    """Returns the command, with the options of SMALL that `flags` do not set themselves."""
    words = [PROGRAM, "dist", plugin, "--quiet", *flags]
    for flag, value in zip(SMALL[::2], SMALL[1::2]):
        if flag not in flags:
            words += [flag, value]
    return words


def inherited():
    return {k: v for k, v in os.environ.items() if not k.startswith("BACKPLANE_")}


class Dist(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.json = pathlib.Path(folder.name) / "dist.json"

    def dist(self, plugin, *flags, code=0):
        done = subprocess.run(
            words_of(plugin, "--json", str(self.json), *flags),
            capture_output=True, text=True, timeout=300, env=inherited(), check=False)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def mutant(self, name, *flags):
        self.dist(MUTANTS, "--option", f"mutant={name}", "--option", f"wrap={GOOD}", *flags,
                  code=1)
        # On a busy machine a rank may be ended before it tells that it failed.
        return [result for result in self.document()["results"]
                if result["outcome"] in ("Fail", "Timeout")]

    def document(self):
        return json.loads(self.json.read_text())

    def counts(self, section):
        return {count["group"]: count for count in self.document()["counts"]
                if count["section"] == section}


class AGoodBackend(Dist):
    def test_passes_values_and_faults(self):
        done = self.dist(GOOD)
        self.assertIn("verdict: PASS", done.stdout)
        values = self.counts("values")
        for group in ("all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter",
                      "all_to_all", "gather", "scatter", "send, receive", "barrier", "rank",
                      "split", "left behind"):
            self.assertGreater(values[group]["passed"], 0, group)
        faults = self.counts("faults")
        for group in ("late", "absent", "stopped", "dead", "dead_in_call", "other_count",
                      "other_dtype", "other_reduction", "other_kind", "other_root", "other_order",
                      "other_world_size", "never_comes", "abort"):
            self.assertGreater(faults[group]["passed"], 0, group)

    def test_is_timed(self):
        done = self.dist(GOOD, "--no-values", "--no-faults", "--bandwidth", "--max-bytes", "4K")
        self.assertIn("out-of-place", done.stdout)
        rows = self.document()["bandwidth"]
        calls = {row["call"] for row in rows}
        self.assertEqual(calls, {"all_reduce sum f32", "all_gather f32", "reduce_scatter sum f32",
                                 "broadcast f32", "all_to_all f32", "send f32"})
        for row in rows:
            self.assertEqual(row["out_of_place"]["wrong"], 0)
            self.assertGreater(row["out_of_place"]["algorithm_bytes_per_s"], 0)

    def test_of_one_fault(self):
        self.dist(GOOD, "--no-values", "--fault", "dead,late")
        self.assertEqual(set(self.counts("faults")), {"dead", "late"})

    def test_ends_when_interrupted(self):
        process = subprocess.Popen(words_of(GOOD), stdout=subprocess.PIPE, text=True,
                                   env=inherited())
        self.addCleanup(process.stdout.close)
        process.stdout.readline()
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        output = process.communicate(timeout=60)[0]
        self.assertEqual(process.returncode, 130, output)
        self.assertIn("verdict: INTERRUPTED", output)


class ABrokenBackend(Dist):
    def found(self, name, group, part, *flags):
        failures = self.mutant(name, *flags)
        texts = [result["group"] + ": " + result["name"] + ": " + result["text"]
                 for result in failures if result["group"] == group]
        self.assertTrue(any(part in text for text in texts), f"{texts} of {failures[:5]}")

    def test_that_ends_even_parts_early(self):
        self.found("84:count", "all_to_all", "it was not written", "--no-faults")

    def test_that_takes_two_ranks_as_roots_alone(self):
        self.found("84:root", "broadcast", "rank", "--no-faults", "--ranks", "3")

    def test_that_tells_ranks_in_reverse(self):
        self.found("84:rank", "rank", "rank() of the group is rank 1 of 2, expected rank 0 of 2",
                   "--no-faults")

    def test_that_ignores_the_keys_of_split(self):
        self.found("84", "split", "a group that was split", "--no-faults", "--ranks", "3")

    def test_that_ignores_the_timeout_of_a_call(self):
        self.found("84:timeout", "absent", "rank 0", "--no-values", "--fault", "absent",
                   "--grace", "1")


class OtherBackends(Dist):
    def test_without_groups_between_processes_are_skipped(self):
        if not LOCAL:
            self.skipTest("there is no such backend")
        done = self.dist(LOCAL, "--ranks", "1,2", "--no-faults")
        self.assertIn("the table makes no groups of 2 ranks in as many processes", done.stdout)
        self.assertGreater(self.counts("values")["all_reduce"]["passed"], 0)

    def test_have_staged_groups(self):
        if not LOCAL:
            self.skipTest("there is no such backend")
        self.dist(LOCAL, "--transport", GOOD, "--fault", "late,absent,dead,abort")
        self.assertGreater(self.counts("values")["all_reduce"]["passed"], 0)
        self.assertEqual(set(self.counts("faults")), {"late", "absent", "dead", "abort"})

    def test_without_groups_run_nothing(self):
        done = self.dist(MOCK, code=5)
        self.assertIn("verdict: NOTHING RAN", done.stdout)

    def test_that_do_not_load_are_told(self):
        done = self.dist("./no_such_plugin.so", code=3)
        self.assertIn("does not load", done.stderr)

    def test_that_hang_are_killed(self):
        hang = pathlib.Path(MOCK).with_name("mock_hang.so")
        done = self.dist(str(hang), "--load-timeout", "2", code=3)
        self.assertIn("it was in the load of the backend for 2", done.stderr)
        self.assertIn("and was killed", done.stderr)

    def test_that_crash_are_told(self):
        crash = pathlib.Path(MOCK).with_name("mock_segfault.so")
        done = self.dist(str(crash), code=3)
        self.assertIn("died of signal 11 (SIGSEGV)", done.stderr)

    def test_without_the_table_are_told(self):
        done = self.dist(GOOD, "--table", "no_such_table", code=3)
        self.assertIn('there is no table "no_such_table"', done.stderr)


class ALauncher(Dist):
    def test_starts_all_ranks(self):
        script = self.json.with_name("launch")
        script.write_text('count=$1; shift\nfor i in $(seq $count); do "$@" & done\nwait\n')
        self.dist(GOOD, "--no-values", "--fault", "late,dead,stopped,abort", "--launcher",
                  f"sh {script} {{}}")
        for group in ("late", "dead", "stopped", "abort"):  # The backend may have several tables.
            passed = sum(count["passed"] for count in self.document()["counts"]
                         if (count["section"], count["group"]) == ("faults", group))
            self.assertGreater(passed, 0, group)

    def test_that_fails_is_told(self):
        done = self.dist(GOOD, "--no-faults", "--launcher", "false {}", code=1)
        self.assertIn("the process ended", done.stdout)

    def test_that_does_not_exist_is_told(self):
        done = self.dist(GOOD, "--no-faults", "--launcher", "no_such_launcher {}", code=3)
        self.assertIn("the launcher no_such_launcher", done.stderr)


class CommandLine(Dist):
    def test_refuses_a_launcher_without_a_number(self):
        done = self.dist(GOOD, "--launcher", "mpirun", code=2)
        self.assertIn("--launcher is 'mpirun'; allowed: a command that has {}", done.stderr)

    def test_refuses_a_fault_that_there_is_not(self):
        done = self.dist(GOOD, "--fault", "flood", code=2)
        self.assertIn("--fault is 'flood'; allowed: late, absent,", done.stderr)

    def test_refuses_sizes_in_the_wrong_order(self):
        done = self.dist(GOOD, "--min-bytes", "2K", "--max-bytes", "1K", code=2)
        self.assertIn("--min-bytes is 2K and --max-bytes is 1K", done.stderr)


if __name__ == "__main__":
    PROGRAM, MUTANTS, GOOD, LOCAL, MOCK = sys.argv[1:6]
    unittest.main(argv=sys.argv[:1] + sys.argv[6:])
