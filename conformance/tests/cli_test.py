#!/usr/bin/env python3
"""Runs bp-conformance over backends that misbehave: each must give one clear line and the right
exit code, and every report must be complete.

  cli_test.py BP_CONFORMANCE PLUGIN_FOLDER [unittest arguments]
"""
import concurrent.futures
import json
import os
import pathlib
import signal
import subprocess
import time
import unittest
import xml.etree.ElementTree

import mock_run
from mock_run import CASES, EVENT_CASE, QUIET_CASE, STREAM_CASE, TIMEOUT, Folder, plugin, run


def in_parallel(work, items):
    """Returns the results in the order of the items. Most of the time is spent in waiting."""
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        return list(pool.map(work, items))


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
                  # One wait for a deadline is enough.
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

    # Each row has what the backend does in a case, the only possible status of that case, and words
    # of the report.
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
            # The confirmation of a hang takes long; another test checks it.
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
        self.run_mock(*self.option(stream="fork"))
        self.assertLess(time.monotonic() - start, 60)
        self.assertEqual(self.status(STREAM_CASE), "Pass")
        self.assertEqual(self.status("unload"), "Fail")

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
        # The repro line must repeat the failure.
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
        # The process dies in the third of nine cases. Then half of the remaining six cases run, and
        # then the rest.
        self.assertEqual(batches, [3, 3, 3])

    def test_at_most_20_failures_of_one_signature_are_confirmed(self):
        out = str(self.out)
        done = run(plugin("none"), "-k", "op.add.f32.random.*", "--tier", "smoke", "--out", out)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        failed = {line["case"] for line in self.lines() if line["status"] == "Fail"}
        confirmed = {line["case"] for line in self.lines() if line.get("attempt") == 2}
        self.assertGreater(len(failed), 25)
        self.assertEqual(len(confirmed), 20)


class LostDevices(Folder):
    def test_leave_the_rest_of_the_batch_to_another_process(self):
        self.run_mock("--layers", "fault", "--layer-options", "fault.lost=stream.destroy@1",
                      "--retries", "0")  # The case runs first.
        self.assertEqual([line["case"] for line in self.lines()], list(CASES))
        self.assertEqual(self.status(STREAM_CASE), "Fail")
        self.assertEqual(self.status(EVENT_CASE), "Pass")


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
        words = [mock_run.PROGRAM, *flags, "--out", str(self.out), "--timeout", "60"]
        with subprocess.Popen(words,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            self.wait_for_a_result()
            process.kill()
        worker = self.lines()[0]["pid"]
        with open(self.out / "results.jsonl", "a", encoding="utf-8") as log:
            log.write('{"case": "stream.des')  # A write that was cut leaves such a line.
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
        # Every case is settled now, so no case runs again.
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
            [mock_run.PROGRAM, plugin("none"), *self.NAMED, "--out", str(self.out),
             "--timeout", "60", "--option", "stream=hang"],
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
        self.expect(2, "allowed: KEY=VALUE", plugin("none"), "--option", "key")
        self.expect(2, "allowed: I/N, such as 1/4", plugin("none"), "--shard", "3")
        self.expect(2, "allowed: I/N with I from 1 to N", plugin("none"), "--shard", "3/2")
        self.expect(2, "allowed: a number from 0", plugin("none"), "--seed", "0xzz")
        self.expect(2, "selected twice", plugin("none"), "--case", STREAM_CASE, "--case",
                    STREAM_CASE)
        self.expect(2, "PLUGIN", "run")
        self.expect(2, "cannot be read", plugin("none"), "--waivers", "/no/such/file")

    def test_what_matches_nothing_is_code_5(self):
        self.expect(5, "matches no case", plugin("none"), "-k", "nothing.*")
        self.expect(5, "no case of this id", plugin("none"), "--case", "nothing")
        self.expect(5, "this is no tag", "explain", "NOTHING-1")

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


if __name__ == "__main__":
    mock_run.main()
