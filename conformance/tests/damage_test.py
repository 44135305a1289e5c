#!/usr/bin/env python3
"""Runs bp-conformance with damaged files, full disks, signals, and other runs beside it: no result
may be lost silently, and each error must say what was wrong and where.

  damage_test.py BP_CONFORMANCE PLUGIN_FOLDER [unittest arguments]
"""
import json
import os
import pathlib
import resource
import signal
import subprocess
import time

import mock_run
from mock_run import CASES, EVENT_CASE, STREAM_CASE, TIMEOUT, Folder, plugin, run, run_words

DEEP = "[" * 100_000 + "]" * 100_000


class FullDisks(Folder):
    def words(self, *flags):
        named = [word for case in CASES for word in ("--case", case)]
        return [mock_run.PROGRAM, "run", plugin("none"), *named, "--out", str(self.out),
                "--timeout", TIMEOUT, *flags]

    def test_standard_output_that_takes_nothing_is_code_4(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            for words in (self.words(), self.words("--format", "jsonl"), self.words("-q"),
                          [mock_run.PROGRAM, "list"], [mock_run.PROGRAM, "--help"],
                          [mock_run.PROGRAM, "info", plugin("none")],
                          [mock_run.PROGRAM, "explain", "STREAM-5"]):
                with self.subTest(words=words[1:]):
                    done = run_words(words, stdout=full)
                    self.assertEqual(done.returncode, 4, done.stderr)
                    self.assertIn("standard output could not be written", done.stderr)
        self.assertEqual(self.status(STREAM_CASE), "Pass")

    def run_limited(self, most_bytes, *flags):
        """Runs the program with a limit on the bytes of each file."""
        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))
        done = run_words(self.words(*flags), preexec_fn=limit, restore_signals=False)
        self.assertEqual(done.returncode, 4, done.stdout + done.stderr)
        return done

    def test_a_log_that_takes_no_more_ends_the_run_with_code_4_and_a_verdict(self):
        done = self.run_limited(16384, "--repeat", "1000")
        self.assertIn(f"{self.out}/results.jsonl: cannot be written: File too large", done.stderr)
        self.assertIn("verdict: ", done.stdout)
        self.assertTrue((self.out / "summary.json").exists())
        whole = (self.out / "results.jsonl").read_text().rpartition("\n")[0].splitlines()
        self.assertTrue(all(json.loads(line)["status"] == "Pass" for line in whole))

    def test_a_file_that_takes_no_more_is_absent_and_none_is_cut(self):
        done = self.run_limited(300)
        self.assertIn("info.json: ", done.stderr)
        self.assertFalse((self.out / "info.json").exists())
        self.assertEqual([path.name for path in self.out.iterdir()], [])

    def test_each_file_that_cannot_be_written_is_named_and_the_verdict_printed(self):
        for flags in (("--junit", "/dev/full/x"), ("--json", "/no/such/folder/x"),
                      ("--html", "/no/such/folder/x"), ("--md", "/no/such/folder/x"),
                      ("--write-waivers", "/no/such/folder/x")):
            with self.subTest(flags=flags):
                done = run_words(self.words(*flags))
                self.assertEqual(done.returncode, 4, done.stdout + done.stderr)
                self.assertIn(flags[1], done.stderr)
                self.assertIn("verdict: CLEAN", done.stdout)
                self.assertTrue((self.out / "summary.json").exists())


class LongIds(Folder):
    def test_of_a_saved_failure_are_read(self):
        self.run_mock(*self.option(event="print"))
        saved = json.loads((self.out / "repro" / EVENT_CASE / "case.json").read_text())
        saved["case"] = "x" * 400
        folder = pathlib.Path(self.folder.name) / "saved"
        folder.mkdir()
        (folder / "case.json").write_text(json.dumps(saved))
        done = run("repro", str(folder))
        self.assertEqual(done.returncode, 5, done.stderr)
        self.assertIn("the suite has no case of this id any more", done.stderr)

    def test_name_no_folder_of_shrink_that_is_too_long(self):
        done = run("shrink", plugin("none"), "--case", "x" * 400)
        self.assertEqual(done.returncode, 5, done.stderr)

    def test_a_name_of_a_backend_may_be_as_long_as_it_likes(self):
        done = run("new", "a" * 100_000 + ".b", self.folder.name + "/new")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("of at most 100 bytes", done.stderr)


class Expressions(Folder):
    def test_that_nest_or_run_on_are_refused_or_end(self):
        for expression in ("(" * 100_000, "(" * 50_000 + ")" * 50_000, "(a{1000}){1000}", "a)"):
            with self.subTest(expression=expression[:20]):
                done = run("list", "--regex", expression)
                self.assertEqual(done.returncode, 2, done.stderr[:300])
                self.assertIn("--regex", done.stderr)
                self.assertLess(len(done.stderr), 500)
        self.assertEqual(run("list", "--regex", "(.*)*(.*)*(.*)*(.*)*#").returncode, 5)
        self.assertEqual(run("list", "--regex", r"stream\.destroy_accepts_null|nothing").stdout,
                         STREAM_CASE + "\n")


class DamagedResults(Folder):
    def setUp(self):
        super().setUp()
        self.run_mock(*self.option(stream="segfault"), "--retries", "0")
        self.whole = {name: (self.out / name).read_text()
                      for name in ("results.jsonl", "info.json", "summary.json")}

    def refuse(self, name, text, words, verbs=("report", "diff", "resume")):
        (self.out / name).write_text(text)
        for verb in verbs:
            folder = str(self.out)
            words_of = {"report": ("report", folder), "diff": ("diff", folder, folder),
                        "resume": ("run", plugin("none"), "--case", STREAM_CASE, "--resume",
                                   folder)}
            done = run(*words_of[verb])
            self.assertEqual(done.returncode, 2, f"{verb} {name}: {done.stdout}{done.stderr}"[:600])
            self.assertIn(words, done.stderr)
            self.assertIn(str(self.out / name), done.stderr)
            self.assertNotIn("json.exception", done.stderr)
            self.assertEqual(done.stderr.count("\n"), 1)
        (self.out / name).write_text(self.whole[name])

    def test_a_line_of_results_is_named(self):
        first, second = self.whole["results.jsonl"].splitlines(True)[:2]
        line = json.loads(second)
        for change, words in (({"case": 7}, '"case" is the number 7; a text is needed'),
                              ({"status": "Passed"}, '"status" is "Passed"'),
                              ({"status": None}, '"status" is null; a text is needed'),
                              ({"message": []}, '"message" is a list of 0'),
                              ({"notes": "x"}, '"notes" is a text; a list is needed'),
                              ({"details": {"a": 1}}, '"a" is the number 1'),
                              ({"metrics": 1}, '"metrics" is the number 1'),
                              ({"attempt": 1e300}, '"attempt" is the number 1e+300; an integer'),
                              ({"attempt": -1}, '"attempt" is the number -1'),
                              ({"wall_ms": "x"}, '"wall_ms" is a text; a number'),
                              ({"wall_ms": 1e300}, '"wall_ms" is the number 1e+300'),
                              ({"tags": [1]}, '"tags" is a list with the number 1'),
                              ({"final": 1}, '"final" is the number 1; true or false')):
            self.refuse("results.jsonl", first + json.dumps(line | change) + "\n", words)
            self.refuse("results.jsonl", first + json.dumps(line | change) + "\n",
                        "results.jsonl:2: ", verbs=("report",))
        del line["status"]
        self.refuse("results.jsonl", first + json.dumps(line) + "\n", 'there is no "status"')
        self.refuse("results.jsonl", first + second[:20] + "\n",
                    "results.jsonl:2: the text is not valid JSON")
        self.refuse("results.jsonl", first + "[1]\n", "not a JSON object, but a list of 1")
        self.refuse("results.jsonl", first + DEEP + "\n", "nests deeper than")
        self.refuse("results.jsonl", '{"case":"x","status":"Pass","wall_ms":1e999}\n',
                    "has a number that fits no double")

    def test_a_member_of_the_other_files_is_named(self):
        info = json.loads(self.whole["info.json"])
        target = info["targets"][0]
        for change, words in (({"plugin": 1}, '"plugin" is the number 1; an object'),
                              ({"plugin": {"name": 1}}, 'plugin: "name" is the number 1'),
                              ({"sha256": 1}, '"sha256" is the number 1'),
                              ({"target": 5}, '"target" is 5'),
                              ({"targets": 5}, '"targets" is the number 5; a list'),
                              ({"targets": [target | {"heaps": 5}]}, '"heaps" is the number 5'),
                              ({"targets": [target | {"heaps": [{}]}]}, 'no "size_bytes"'),
                              ({"targets": [target | {"dtypes": [5]}]}, '"dtypes" is a list with'),
                              ({"targets": [target | {"kernels": [5]}]}, "kernels[0]: not a JSON"),
                              ({"log": [5]}, '"log" is a list with the number 5'),
                              ({"run": {"seed": "x"}}, 'run: "seed" is a text; an integer'),
                              ({"run": {"repro_flags": {}}}, '"repro_flags" is an object'),
                              ({"run": []}, "run: not a JSON object")):
            self.refuse("info.json", json.dumps(info | change), words)
        self.refuse("info.json", DEEP, "nests deeper than")
        self.refuse("info.json", self.whole["info.json"][:100], "the text is not valid JSON")
        self.refuse("summary.json", '{"wall_seconds":"x"}', '"wall_seconds" is a text')
        self.refuse("summary.json", "{", "summary.json:1: the text is not valid JSON")

    def test_a_saved_failure_is_named(self):
        path = self.out / "repro" / STREAM_CASE / "case.json"
        saved = json.loads(path.read_text())
        for change, words in (({"seed": 7}, '"seed" is the number 7'),
                              ({"seed": "0x1ffffffffffffffffff"}, '"seed" is "0x1ff'),
                              ({"before": "x"}, '"before" is a text'),
                              ({"seen": []}, "seen: not a JSON object"),
                              ({"session": []}, '"session" is a list of 0'),
                              ({"session": saved["session"] | {"timeout_seconds": 1e300}},
                               '"timeout_seconds" is the number 1e+300'),
                              ({"session": saved["session"] | {"options": [["x"]]}},
                               '"options" is a list with a list of 1'),
                              ({"session": saved["session"] | {"canary_bytes": 1 << 40}},
                               '"canary_bytes" is the number')):
            path.write_text(json.dumps(saved | change))
            done = run("repro", str(path.parent))
            self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
            self.assertIn(words, done.stderr)
            self.assertIn(str(path), done.stderr)
        for text in (DEEP, "{", "[]"):
            path.write_text(text)
            self.assertEqual(run("repro", str(path.parent)).returncode, 2)
            self.assertEqual(run("run", plugin("none"), "--shrunk", str(path)).returncode, 2)

    def test_a_pipe_in_the_place_of_a_file_is_refused(self):
        path = self.out / "info.json"
        path.unlink()
        os.mkfifo(path)
        done = run("report", str(self.out))
        self.assertEqual(done.returncode, 2)
        self.assertIn("it is a FIFO", done.stderr)

    def test_other_files_that_nest_deep_are_refused(self):
        path = pathlib.Path(self.folder.name) / "deep"
        for text in (DEEP, "- {case: " + "{a: " * 50_000):
            path.write_text(text)
            done = run("run", plugin("none"), "--case", STREAM_CASE, "--waivers", str(path))
            self.assertEqual(done.returncode, 2, done.stderr[:300])
            self.assertIn(str(path), done.stderr)
        path.write_text(DEEP)
        for words in (("perf", plugin("none"), "--baseline", str(path)),
                      ("replay", plugin("none"), str(path))):
            done = run(*words)
            self.assertEqual(done.returncode, 2, done.stderr[:300])
            self.assertIn("nests deeper than", done.stderr)
        path.write_text('{"schema":"x","cases":[{"id":"a","median_s":1},{"id":"a","median_s":2}]}')
        done = run("perf", plugin("none"), "--baseline", str(path))
        self.assertEqual(done.returncode, 2)
        self.assertIn('cases[1]: "id" is "a", as in an entry before', done.stderr)


class TwoRuns(Folder):
    def begin(self, *flags):
        words = [mock_run.PROGRAM, "run", plugin("none"), "--case", EVENT_CASE, "--case",
                 STREAM_CASE, "--option", "stream=hang", "--timeout", "60", *flags]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        log = self.out / "results.jsonl"
        deadline = time.monotonic() + 60
        while not (log.exists() and log.read_text()) and time.monotonic() < deadline:
            time.sleep(0.05)
        return process

    def test_do_not_share_a_folder_and_the_second_names_the_first(self):
        process = self.begin("--out", str(self.out))
        before = (self.out / "results.jsonl").read_text()
        for words in (("run", plugin("none"), "--case", EVENT_CASE, "--out", str(self.out)),
                      ("run", plugin("none"), "--case", EVENT_CASE, "--resume", str(self.out)),
                      ("perf", plugin("none"), "--out", str(self.out))):
            done = run(*words)
            self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
            self.assertRegex(done.stderr, rf"(process {process.pid} \(.*\)|another process) writes "
                                          "to this folder")
        self.assertEqual((self.out / "results.jsonl").read_text(), before)
        process.kill()
        process.wait()
        done = run("run", plugin("none"), "--case", EVENT_CASE, "--out", str(self.out))
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_hangup_and_a_termination_leave_a_summary_and_code_130(self):
        for number in (signal.SIGHUP, signal.SIGTERM):
            with self.subTest(signal=number):
                self.out = self.out.with_name(number.name)
                process = self.begin("--out", str(self.out))
                process.send_signal(number)
                out, _ = process.communicate(timeout=60)
                self.assertEqual(process.returncode, 130)
                self.assertIn("INTERRUPTED", out)
                self.assertTrue((self.out / "summary.json").exists())


if __name__ == "__main__":
    mock_run.main()
