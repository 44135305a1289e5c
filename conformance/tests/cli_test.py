#!/usr/bin/env python3
"""Drives bp-conformance over backends that misbehave: each is one clear line and the right exit
code, and every report is complete.

  cli_test.py BP_CONFORMANCE PLUGIN_FOLDER [unittest arguments]
"""
import concurrent.futures
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import xml.etree.ElementTree

PROGRAM = ""
PLUGINS = pathlib.Path()
TIMEOUT = "2"  # Seconds; what ends by itself takes some milliseconds.
# What the mock backend has: streams of which a NULL can be destroyed, and events likewise.
STREAM_CASE = "stream.destroy_accepts_null"
EVENT_CASE = "event.destroy_accepts_null"
QUIET_CASE = "stream.default_stream_is_one_and_stays"
CASES = (STREAM_CASE, EVENT_CASE)


def plugin(name):
    return str(PLUGINS / f"mock_{name}.so")


def run(*arguments, environment=None, text=None):
    """The finished process. A hang of the tool itself fails the test."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("BACKPLANE_")}
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=120,
                          env=inherited | (environment or {}), input=text, check=False)


def in_parallel(work, items):
    """The results in the order of the items. Most of the time is spent in waiting."""
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        return list(pool.map(work, items))


class Folder(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.out = pathlib.Path(self.folder.name) / "out"

    def run_mock(self, *flags, cases=CASES, code=1):
        """Runs cases on the mock; the statuses of results.jsonl and the finished process."""
        named = [word for case in cases for word in ("--case", case)]
        done = run("run", plugin("none"), *named, "--out", str(self.out), "--timeout", TIMEOUT,
                   *flags)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def lines(self):
        text = (self.out / "results.jsonl").read_text()
        return [json.loads(line) for line in text.splitlines()]

    def status(self, case):
        """The last status that was logged for a case."""
        found = [line["status"] for line in self.lines() if line["case"] == case]
        self.assertTrue(found, f"{case} has no result")
        return found[-1]

    def option(self, **behaviour):
        return [word for key, value in behaviour.items() for word in ("--option", f"{key}={value}")]


class WhatDoesNotLoad(Folder):
    EXPECTED = {
        "segfault": "died of signal 11 (SIGSEGV) while loading",
        "hang": "no end after 2 s while loading",
        "hang_hard": "no end after 2 s while loading",
        "flood": "no end after 2 s while loading; it printed",
        "exit": "the process exited with code 0 while loading",
        "major": "ABI",
        "nothing": "BP_OK",
        "no_symbol": "bp_backend_entry",
    }

    def expect_refusal(self, done, words):
        self.assertEqual(done.returncode, 3, done.stdout + done.stderr)
        self.assertEqual(done.stdout, "")
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertIn(words, done.stderr)

    def test_is_one_line_and_code_3_for_every_verb(self):
        trials = [(name, verb) for name, words in self.EXPECTED.items()
                  for verb in ("run", "info", "list", "coverage")
                  # To wait for a deadline once is enough.
                  if verb == "run" or "no end after" not in words]
        done = in_parallel(lambda trial: run(trial[1], plugin(trial[0]), "--timeout", TIMEOUT),
                           trials)
        for (name, verb), finished in zip(trials, done):
            with self.subTest(plugin=name, verb=verb):
                self.expect_refusal(finished, self.EXPECTED[name])

    def test_is_refused_for_a_bare_path_too(self):
        self.expect_refusal(run(plugin("no_symbol")), "bp_backend_entry")

    def test_includes_files_that_are_no_library_or_are_not_there(self):
        text = pathlib.Path(self.folder.name) / "text.so"
        text.write_text("not a library\n")
        self.expect_refusal(run(str(text)), "text.so")
        self.expect_refusal(run(str(text) + ".so"), "no such file")
        self.expect_refusal(run("no_such_name"), "no_such_name")

    def test_includes_a_backend_that_greets_in_place_of_the_worker(self):
        self.expect_refusal(run("info", plugin("none"), "--option", "load=lie:hello"),
                            "a HELLO that cannot be read")

    def test_includes_a_device_that_is_not_there(self):
        self.expect_refusal(run("info", plugin("none"), "--device", "7"), 'no device "7"')


class CasesThatMisbehave(Folder):
    def test_a_crash_and_a_hang_still_yield_a_complete_report(self):
        done = self.run_mock(*self.option(stream="segfault", event="hang"),
                             cases=(*CASES, QUIET_CASE))
        self.assertEqual(self.status(STREAM_CASE), "Crash")
        self.assertEqual(self.status(EVENT_CASE), "Timeout")
        self.assertIn("2 failed", done.stdout.splitlines()[-1])
        self.assertIn("1 crashed (isolated),  1 hung", done.stdout)
        self.assertIn(f"--case {STREAM_CASE} --seed 0x5eed --option stream=segfault", done.stdout)
        summary = json.loads((self.out / "summary.json").read_text())
        self.assertEqual(summary["failed"], 2)
        self.assertEqual(summary["exit_code"], 1)
        suites = xml.etree.ElementTree.parse(self.out / "junit.xml").getroot()
        self.assertEqual(sum(1 for _ in suites.iter("testcase")), 3)
        self.assertTrue((self.out / "repro" / STREAM_CASE / "case.json").exists())

    # What the backend does in a case, the one status of that case, and words of the report.
    MISBEHAVIOR = (
        ("segfault", "Crash", "SIGSEGV"), ("abort", "Crash", "SIGABRT"),
        ("exit", "Crash", "code 0"), ("exit_7", "Crash", "code 7"),
        ("pthread_exit", "Crash", "SIGABRT"), ("close", "Crash", "code 1"),
        ("crash_between", "Crash", "(SIGSEGV) after the end of the case"),
        ("throw", "Fail", "thrown by the mock"),
        ("hang_hard", "Timeout", "no end after 2 s"), ("flood", "Timeout", "no end after 2 s"),
        ("print", "Fail", "bytes to standard streams: hello from a backend"),
        ("chdir", "Fail", "the working directory was changed to /"),
        ("round", "Fail", "the rounding mode was changed"),
        ("flush", "Fail", "flush"), ("locale", "Fail", "locale"),
        ("handler", "Fail", "the handler of signal SIGUSR1 was changed"),
        ("lie:partial", "Crash", "a record that is cut"),
        ("lie:unknown", "Crash", "a record of unknown type 99"),
        ("lie:huge", "Crash", "a record of 4294967295 bytes"),
        ("lie:text", "Crash", "not a JSON object"), ("lie:list", "Crash", "not a JSON object"),
        ("lie:number", "Crash", "a record for another case"),
        ("lie:begin_twice", "Crash", "a record out of order"),
        ("lie:bare_end", "Crash", "an END that cannot be read"),
        ("lie:other_case", "Crash", "a record for another case"),
        ("lie:close", "Crash", "code 1 after the end of the case"),
    )

    def test_each_misbehavior_has_its_one_status_and_spoils_nothing_else(self):
        cases = (STREAM_CASE, EVENT_CASE, QUIET_CASE)

        def trial(row):
            how, status, _ = row
            # The rounds of a hang take their time; that they repeat is tested elsewhere.
            retries = ("--retries", "0") if status == "Timeout" else ()
            named = [word for case in cases for word in ("--case", case)]
            return run("run", plugin("none"), *named, "--out", self.folder_of(how), "--timeout",
                       TIMEOUT, *self.option(stream=how), *retries)

        for (how, status, words), done in zip(self.MISBEHAVIOR,
                                              in_parallel(trial, self.MISBEHAVIOR)):
            with self.subTest(how=how):
                self.out = pathlib.Path(self.folder_of(how))
                self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
                self.assertEqual(self.status(STREAM_CASE), status, done.stdout)
                self.assertIn(words, done.stdout)
                self.assertEqual(self.status(EVENT_CASE), "Pass")
                self.assertEqual(self.status(QUIET_CASE), "Pass")
                self.assertIn("2 passed, 1 failed", done.stdout.splitlines()[-1])
                if status == "Fail" and how != "throw":
                    self.assertIn("ENTRY-4", done.stdout)

    def folder_of(self, how):
        return os.path.join(self.folder.name, how.replace(":", "_"))

    def test_a_worker_that_ends_before_the_first_case_is_charged_to_load(self):
        done = self.run_mock(*self.option(load="lie:close"))
        self.assertEqual(self.status("load"), "Crash")
        self.assertEqual(self.status(STREAM_CASE), "Skip")
        self.assertIn("before the first case began", done.stdout)

    def test_a_second_end_is_found_at_the_next_case_and_its_sender_named(self):
        done = self.run_mock(*self.option(stream="lie:end_twice"))
        self.assertEqual(self.status(EVENT_CASE), "Fail")
        self.assertIn(f"passes alone, fails after {STREAM_CASE}: the worker sent a record for "
                      "another case", done.stdout)

    def test_a_flood_is_kept_to_64_kib(self):
        self.run_mock(*self.option(stream="flood"), "--retries", "0")
        line = next(x for x in self.lines() if x["case"] == STREAM_CASE)
        self.assertEqual(len(line["output"]), 65536)
        self.assertGreater(line["output_bytes"], 65536)

    def test_a_process_that_was_left_behind_does_not_hold_the_run(self):
        start = time.monotonic()
        self.run_mock(*self.option(stream="fork"), code=0)
        self.assertLess(time.monotonic() - start, 60)
        self.assertEqual(self.status(STREAM_CASE), "Pass")

    def test_a_crash_at_the_end_belongs_to_unload(self):
        done = self.run_mock(*self.option(shutdown="segfault"))
        self.assertEqual(self.status("unload"), "Crash")
        self.assertEqual(self.status(STREAM_CASE), "Pass")
        self.assertIn("while unloading", done.stdout)

    def test_a_case_that_fails_only_after_another_names_it(self):
        poisoned = "stream.new_stream_is_idle"
        done = self.run_mock(*self.option(event="poison"),
                             cases=(STREAM_CASE, EVENT_CASE, QUIET_CASE, poisoned))
        self.assertEqual(self.status(EVENT_CASE), "Pass")
        self.assertIn(f"passes alone, fails after {EVENT_CASE}: ", done.stdout)
        repro = next(line for line in done.stdout.splitlines() if "repro:" in line)
        self.assertIn(f"--case {EVENT_CASE} --case {poisoned} --seed", repro)
        # The repro line repeats the failure.
        words = repro.split("bp-conformance", 1)[1].split()
        self.assertEqual(run(*words, "--out", str(self.out)).returncode, 1)
        self.assertIn("order", {line.get("cause") for line in self.lines()})

    def test_a_case_that_needs_two_predecessors_to_fail_names_both_and_no_other(self):
        poisoned = "stream.new_stream_is_idle"
        others = [line for line in run("list", "-k", "device.*").stdout.split()]
        cases = (*others[:2], STREAM_CASE, *others[2:4], EVENT_CASE, QUIET_CASE, poisoned)
        done = self.run_mock(*self.option(stream="half", event="other_half"), cases=cases)
        self.assertIn(f"passes alone, fails after {STREAM_CASE}, {EVENT_CASE}: ", done.stdout)

    def test_a_death_after_the_end_of_all_cases_is_not_lost(self):
        self.run_mock(*self.option(stream="crash_later", shutdown="nap"))
        self.assertEqual(self.status("unload"), "Crash")
        self.assertEqual(self.status(STREAM_CASE), "Pass")

    def test_isolation_and_jobs_give_the_same_results(self):
        for flags in (("--isolate", "case"), ("--isolate", "none"), ("--jobs", "3"),
                      ("--batch", "1"), ("--shuffle",)):
            with self.subTest(flags=flags):
                self.run_mock(*self.option(stream="segfault"), *flags, cases=(*CASES, QUIET_CASE))
                self.assertEqual(self.status(STREAM_CASE), "Crash")
                self.assertEqual(self.status(EVENT_CASE), "Pass")
                self.assertEqual(len({x["case"] for x in self.lines()}), 3)


    def test_what_had_not_begun_at_a_death_runs_again_in_halves(self):
        others = run("list", "-k", "device.*:abi.*").stdout.split()[:8]
        self.run_mock(*self.option(stream="segfault"), "--retries", "0",
                      cases=(*others[:2], STREAM_CASE, *others[2:]))
        workers = [line["pid"] for line in self.lines() if line["case"] not in ("load", "unload")]
        batches = [workers.count(pid) for pid in dict.fromkeys(workers)]
        # The death is the third of nine cases; then half of the six that are left, and the rest.
        self.assertEqual(batches, [3, 3, 3])

    def test_at_most_20_failures_of_one_signature_are_confirmed(self):
        out = str(self.out)
        done = run(plugin("none"), "-k", "op.add.f32.random.*", "--tier", "smoke", "--out", out)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        failed = {line["case"] for line in self.lines() if line["status"] == "Fail"}
        confirmed = {line["case"] for line in self.lines() if line.get("attempt") == 2}
        self.assertGreater(len(failed), 25)
        self.assertEqual(len(confirmed), 20)


class Limits(Folder):
    def test_fail_fast_skips_the_rest_with_a_reason(self):
        done = self.run_mock(*self.option(event="segfault"), "--fail-fast",
                             cases=(EVENT_CASE, STREAM_CASE))
        self.assertEqual(self.status(STREAM_CASE), "Skip")
        self.assertIn("--fail-fast", done.stdout)

    def test_max_crashes_ends_the_run(self):
        self.run_mock(*self.option(event="segfault"), "--max-crashes", "1", "--batch", "1",
                      cases=(EVENT_CASE, STREAM_CASE))
        self.assertEqual(self.status(STREAM_CASE), "Skip")

    NAMED = ("--case", EVENT_CASE, "--case", STREAM_CASE)

    def wait_for_a_result(self):
        log = self.out / "results.jsonl"
        deadline = time.monotonic() + 60
        while not (log.exists() and log.read_text()) and time.monotonic() < deadline:
            time.sleep(0.05)

    def test_a_run_that_was_killed_goes_on_where_it_was(self):
        flags = (plugin("none"), *self.NAMED, "--option", "stream=hang")
        with subprocess.Popen([PROGRAM, *flags, "--out", str(self.out), "--timeout", "60"],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            self.wait_for_a_result()
            process.kill()
        worker = self.lines()[0]["pid"]
        with open(self.out / "results.jsonl", "a", encoding="utf-8") as log:
            log.write('{"case": "stream.des')  # As a write that was cut leaves it.
        resumed = ("--resume", str(self.out), "--timeout", "2")
        for other in (("--seed", "7"), ("--option", "event=print"), ("--case", QUIET_CASE)):
            done = run(*flags, *resumed, *other)
            self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
            self.assertIn("repeat its flags: bp-conformance", done.stderr)
        done = run(*flags, *resumed)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertEqual([line["case"] for line in self.lines()],
                         [EVENT_CASE, STREAM_CASE, STREAM_CASE])
        self.assertEqual(self.status(STREAM_CASE), "Timeout")
        self.assertEqual(done.stdout.splitlines()[-1], "1 passed, 1 failed, 0 skipped")
        self.assertFalse(os.path.exists(f"/proc/{worker}"))
        # Everything is settled now: nothing runs again.
        self.assertEqual(run(*flags, *resumed).returncode, 1)
        self.assertEqual(len(self.lines()), 3)

    def test_what_cannot_be_resumed_is_code_2(self):
        for folder, words in ((self.out, "is not a folder"),
                              (pathlib.Path(self.folder.name), "holds no results.jsonl")):
            done = run(plugin("none"), "--case", EVENT_CASE, "--resume", str(folder))
            self.assertEqual(done.returncode, 2)
            self.assertIn(words, done.stderr)

    def test_an_interruption_leaves_partial_results_and_code_130(self):
        process = subprocess.Popen(
            [PROGRAM, plugin("none"), *self.NAMED, "--out", str(self.out), "--timeout", "60",
             "--option", "stream=hang"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.wait_for_a_result()
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130)
        self.assertIn("INTERRUPTED", out)
        self.assertEqual(self.status(EVENT_CASE), "Pass")
        self.assertTrue((self.out / "summary.json").exists())

    def test_a_case_that_does_not_repeat_is_a_flake(self):
        for flags in (("--repeat", "2", "--retries", "0"), ("--isolate", "case")):
            with self.subTest(flags=flags):
                mark = pathlib.Path(self.folder.name) / flags[0]
                self.run_mock(*self.option(stream=f"first:{mark}"), *flags)
                self.assertEqual(self.status(STREAM_CASE), "Flake")


class Waivers(Folder):
    def write(self, text):
        path = pathlib.Path(self.folder.name) / "waivers.yaml"
        path.write_text(text)
        return str(path)

    def test_a_broken_case_is_waived_and_named(self):
        path = self.write(f"- {{case: {STREAM_CASE}, kind: broken, reason: known, issue: 3}}\n")
        done = self.run_mock(*self.option(stream="segfault"), "--waivers", path, code=0)
        self.assertEqual(self.status(STREAM_CASE), "Waived")
        self.assertIn("PASSED WITH WAIVERS", done.stdout)

    def test_a_stale_waiver_fails_the_run(self):
        path = self.write(f"- {{case: {STREAM_CASE}, kind: broken, reason: known, issue: 3}}\n")
        self.run_mock("--waivers", path)
        self.assertEqual(self.status(STREAM_CASE), "XPass")

    def test_a_draft_is_refused_until_it_has_a_reason(self):
        path = str(pathlib.Path(self.folder.name) / "draft.yaml")
        self.run_mock(*self.option(stream="segfault"), "--write-waivers", path)
        done = self.run_mock("--waivers", path, code=2)
        self.assertIn("no reason", done.stderr)


class CommandLine(Folder):
    def expect(self, code, words, *arguments, **keywords):
        done = run(*arguments, **keywords)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.assertIn(words, done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)

    def test_what_is_wrong_is_code_2(self):
        self.expect(2, "--nonsense", "run", plugin("none"), "--nonsense")
        self.expect(2, "not KEY=VALUE", plugin("none"), "--option", "key")
        self.expect(2, "not I/N", plugin("none"), "--shard", "3")
        self.expect(2, "1 <= I <= N", plugin("none"), "--shard", "3/2")
        self.expect(2, "not a number", plugin("none"), "--seed", "0xzz")
        self.expect(2, "selected twice", plugin("none"), "--case", STREAM_CASE, "--case",
                    STREAM_CASE)
        self.expect(2, "PLUGIN", "run")
        self.expect(2, "cannot be read", plugin("none"), "--waivers", "/no/such/file")

    def test_what_matches_nothing_is_code_5(self):
        self.expect(5, "matches no case", plugin("none"), "-k", "nothing.*")
        self.expect(5, "no case of this id", plugin("none"), "--case", "nothing")
        self.expect(5, "no header has this tag", "explain", "NOTHING-1")

    def test_a_case_list_is_read_from_standard_input(self):
        done = run(plugin("none"), "--caselist", "-", "--out", str(self.out),
                   text=f"# a comment\n{STREAM_CASE}\n")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(self.status(STREAM_CASE), "Pass")

    def test_the_environment_sets_flags_is_echoed_and_gives_way(self):
        arguments = (plugin("none"), "--case", STREAM_CASE, "--out", str(self.out))
        variables = {"BACKPLANE_CONFORMANCE_SEED": "7"}
        done = run(*arguments, environment=variables)
        self.assertIn("seed 0x7 ", done.stdout)
        self.assertIn("BACKPLANE_CONFORMANCE_SEED=7", done.stdout)
        done = run(*arguments, "--seed", "9", environment=variables)
        self.assertIn("seed 0x9 ", done.stdout)
        self.expect(2, "BACKPLANE_CONFORMANCE_SEEED", *arguments,
                    environment={"BACKPLANE_CONFORMANCE_SEEED": "7"})

    def test_help_and_version_are_code_0(self):
        self.assertEqual(run("--help").returncode, 0)
        self.assertIn("--filter", run("run", "--help").stdout)
        self.assertEqual(run("--version").returncode, 0)
        self.assertEqual(run().returncode, 2)


class Outputs(Folder):
    def test_every_format_ends_well(self):
        done = self.run_mock("--format", "tap", code=0)
        self.assertTrue(done.stdout.startswith("TAP version 14\n1..2\n"))
        done = self.run_mock("--format", "jsonl", code=0)
        self.assertEqual(len([json.loads(x) for x in done.stdout.splitlines()]), 2)
        done = self.run_mock("--format", "plain", code=0)
        self.assertIn(STREAM_CASE, done.stdout)
        done = self.run_mock("-q", code=0)
        self.assertEqual(len(done.stdout.splitlines()), 2)
        self.assertEqual(done.stdout.splitlines()[-1], "2 passed, 0 failed, 0 skipped")

    def test_a_missed_budget_is_code_7(self):
        self.run_mock("--budget", "0.000001", code=7)

    def test_extra_files_are_written(self):
        junit = pathlib.Path(self.folder.name) / "j.xml"
        summary = pathlib.Path(self.folder.name) / "s.json"
        self.run_mock("--junit", str(junit), "--json", str(summary), code=0)
        xml.etree.ElementTree.parse(junit)
        self.assertEqual(json.loads(summary.read_text())["passed"], 2)

    def test_a_report_from_a_stored_run_is_that_of_the_run(self):
        done = self.run_mock(*self.option(stream="segfault"), "--write-waivers",
                             str(pathlib.Path(self.folder.name) / "w.yaml"))
        names = ("junit.xml", "report.html", "report.md")
        first = {name: (self.out / name).read_text() for name in names}
        for name in names:
            (self.out / name).unlink()
        again = run("report", str(self.out))
        self.assertEqual(again.returncode, 1, again.stderr)
        self.assertEqual(again.stdout.splitlines()[-1], done.stdout.splitlines()[-1])
        self.assertIn("repro: bp-conformance run", again.stdout)
        self.assertIn("--option stream=segfault", again.stdout)
        for name in names:
            self.assertEqual((self.out / name).read_text(), first[name])
        self.assertIn("<!DOCTYPE html>", first["report.html"])
        self.assertIn("| Crash | 1 |", first["report.md"])
        extra = pathlib.Path(self.folder.name) / "x.md"
        self.assertEqual(run("report", str(self.out), "--md", str(extra), "-q").returncode, 1)
        self.assertEqual(extra.read_text(), first["report.md"])
        self.assertEqual(run("report", self.folder.name).returncode, 2)

    def saved(self, case):
        return self.out / "repro" / case / "case.json"

    def change_saved(self, case, change):
        described = json.loads(self.saved(case).read_text())
        change(described)
        self.saved(case).write_text(json.dumps(described))

    def test_a_saved_failure_is_repeated_without_its_flags(self):
        self.run_mock(*self.option(stream="segfault"), "--seed", "7")
        for folder in (self.out, self.out / "repro", self.saved(STREAM_CASE).parent):
            done = run("repro", str(folder))
            self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
            self.assertIn(f"{STREAM_CASE}\n  then  Crash", done.stdout)
            self.assertEqual(done.stdout.splitlines()[-1], "repeats: the same cause")
            self.assertEqual(done.stderr, "")

    def test_a_saved_failure_may_pass_or_have_another_cause(self):
        self.run_mock(*self.option(stream="segfault"))
        for options, code, words in (([["stream", "print"]], 1, "fails, but with another cause"),
                                     ([], 0, "passes now")):
            def change(described, options=options):
                described["session"]["options"] = options
            self.change_saved(STREAM_CASE, change)
            done = run("repro", str(self.out))
            self.assertEqual(done.returncode, code, done.stdout + done.stderr)
            self.assertEqual(done.stdout.splitlines()[-1], words)

    def test_a_saved_failure_runs_behind_the_cases_that_it_needs(self):
        poisoned = "stream.new_stream_is_idle"
        self.run_mock(*self.option(event="poison"),
                      cases=(STREAM_CASE, EVENT_CASE, QUIET_CASE, poisoned))
        done = run("repro", str(self.saved(poisoned).parent))
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertEqual(done.stdout.splitlines()[-1], "repeats: the same cause")

        def forget(described):
            del described["before"]
        self.change_saved(poisoned, forget)
        self.assertEqual(run("repro", str(self.saved(poisoned).parent)).returncode, 0)

    def test_several_saved_failures_are_listed_and_one_is_asked_for(self):
        self.run_mock(*self.option(stream="segfault", event="print"))
        done = run("repro", str(self.out))
        self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
        self.assertEqual(done.stdout.splitlines(),
                         sorted(str(self.saved(case).parent) for case in CASES))
        self.assertIn("holds 2 saved failures", done.stderr)

    def test_what_is_no_saved_failure_is_code_2(self):
        self.run_mock(*self.option(shutdown="segfault"))
        unload = run("repro", str(self.out))
        self.assertEqual(unload.returncode, 2, unload.stdout)
        self.assertIn("belongs to the unloading of the plugin", unload.stderr)
        self.assertEqual(run("repro", self.folder.name).returncode, 2)
        for text in ("", "[]", "{}", '{"case": 1}'):
            self.saved("unload").write_text(text)
            done = run("repro", str(self.out))
            self.assertEqual(done.returncode, 2, text)
            self.assertIn(str(self.saved("unload")), done.stderr)

    def test_a_plugin_that_changed_or_is_gone_is_named(self):
        copy = pathlib.Path(self.folder.name) / "copy.so"
        copy.write_bytes(pathlib.Path(plugin("none")).read_bytes())
        flags = ("--case", STREAM_CASE, "--out", str(self.out), *self.option(stream="segfault"))
        self.assertEqual(run("run", str(copy), *flags).returncode, 1)
        with copy.open("ab") as file:
            file.write(b"x")
        done = run("repro", str(self.out))
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn(f"warning: {copy} has changed since", done.stderr)
        copy.unlink()
        done = run("repro", str(self.out))
        self.assertEqual(done.returncode, 3, done.stdout)
        self.assertIn(f"{copy}, is not there any more", done.stderr)

    def test_a_diff_names_what_changed(self):
        self.run_mock(code=0)
        good, self.out = self.out, self.out.with_name("other")
        self.run_mock(*self.option(stream="print"))
        for before, after, strict, code, words in (
                (good, self.out, (), 1, "Pass -> Fail: wrote"),
                (self.out, good, (), 0, "0 new failures, 1 fixed, "),
                (self.out, good, ("--strict",), 1, "FIXED  1"),
                (good, good, ("--strict",), 0, "2 as before")):
            done = run("diff", str(before), str(after), *strict)
            self.assertEqual(done.returncode, code, done.stdout + done.stderr)
            self.assertIn(words, done.stdout)
        done = run("diff", str(good), self.folder.name)
        self.assertEqual(done.returncode, 2)
        self.assertIn("holds no results.jsonl", done.stderr)

    def test_list_and_info_and_explain_print(self):
        self.assertIn(STREAM_CASE + "\n", run("list").stdout)
        self.assertIn("+ " + STREAM_CASE, run("list", plugin("none")).stdout)
        self.assertGreater(int(run("list", "--count").stdout), 1500)
        self.assertTrue(json.loads(run("list", "--json", "-k", STREAM_CASE).stdout)[0]["tags"])
        self.assertIn("stream", run("list", "--tree").stdout)
        self.assertIn("device test.mock:0: Mock", run("info", plugin("none")).stdout)
        self.assertEqual(json.loads(run("info", plugin("none"), "--json").stdout)["plugin"]["name"],
                         "test.mock")
        self.assertEqual(run("info").returncode, 0)
        probed = json.loads(run("info", plugin("none"), "--probe", "--json").stdout)
        self.assertEqual(probed["probes"], [])  # The mock has no kernel.
        self.assertIn(STREAM_CASE, run("explain", "STREAM-5").stdout)
        self.assertEqual(run("explain", "stream-5").stdout, run("explain", "STREAM-5").stdout)

    def test_layers_are_listed_and_report(self):
        done = run("info", plugin("none"), "--layers", "leak,trace", "--layer-options",
                   f"trace.file={self.folder.name}/trace.json")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("  layers leak,trace\n", done.stdout)
        trace = json.loads((pathlib.Path(self.folder.name) / "trace.json").read_text())
        self.assertIn("device.properties", {event["name"] for event in trace})
        self.assertIn("  layers none\n", run("info", plugin("none")).stdout)
        self.assertIn("  layers leak\n", run("info", plugin("none"), environment={
            "BACKPLANE_LAYERS": "leak"}).stdout)

    def test_a_layer_that_does_not_exist_is_one_line(self):
        done = run("info", plugin("none"), "--layers", "laek")
        self.assertEqual(done.returncode, 3)
        self.assertIn("there is no layer 'laek'; there are ", done.stderr)

    def test_coverage_prints_a_table_and_writes_every_cell(self):
        path = pathlib.Path(self.folder.name) / "c.json"
        done = run("coverage", plugin("none"), "-k", "op.add.f32.*:op.add.i32.*", "--tier", "smoke",
                   "--json", str(path))
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"(?m)^op +dense +permute +bcast")
        # The mock lists f32, and has no memory for it; i32 it does not list.
        self.assertRegex(done.stdout, r"(?m)^add f32 +W\d+/\d+ +W\d+ ")
        self.assertRegex(done.stdout, r"(?m)^ +i32 +- +- ")
        self.assertTrue(all(len(line) <= 100 for line in done.stdout.splitlines()))
        written = json.loads(path.read_text())
        self.assertEqual(sum(cell.get("refused", 0) for cell in written["cells"]),
                         written["total"]["refused"])
        self.assertEqual({cell["dtype"] for cell in written["cells"]}, {"f32", "i32"})
        by_rank = run("coverage", plugin("none"), "-k", "op.add.f32.*", "--tier", "smoke", "--by",
                      "rank")
        self.assertRegex(by_rank.stdout, r"(?m)^op +rank 0 +rank 1 ")
        done = run("coverage", plugin("none"), "--case", STREAM_CASE)
        self.assertEqual(done.returncode, 5)
        self.assertIn("no selected case is a call of an op", done.stderr)


if __name__ == "__main__":
    PROGRAM, PLUGINS = sys.argv[1], pathlib.Path(sys.argv[2]).resolve()
    unittest.main(argv=sys.argv[:1] + sys.argv[3:], verbosity=2)
