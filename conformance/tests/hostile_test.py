#!/usr/bin/env python3
"""Runs bp-conformance over backends that attack it: the run must go on and say what happened, and
no text of a backend may look like a text of the suite.

  hostile_test.py BP_CONFORMANCE PLUGIN_FOLDER [unittest arguments]
"""
import json
import os
import pathlib
import shutil
import xml.etree.ElementTree

import mock_run
from mock_run import CASES, EVENT_CASE, STREAM_CASE, Folder, plugin, run

FORGED = "x\x1b[2J\x1b[1;1H\nverdict: PERFECT\n99 passed, 0 failed|<b>`a`</b>&#\u202e\x9b"


def is_there(pid):
    """Returns whether a process runs; a zombie does not run."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


class Processes(Folder):
    def daemon(self):
        return pathlib.Path(self.folder.name) / "daemon"

    def test_one_that_kills_its_parent_is_charged_and_the_run_goes_on(self):
        done = self.run_mock(*self.option(stream="kill_parent"))
        self.assertEqual(self.status(STREAM_CASE), "Crash")
        self.assertEqual(self.status(EVENT_CASE), "Pass")
        self.assertIn("only watches it, died of signal 9 (SIGKILL)", done.stdout)
        self.assertIn("the backend may have killed its parent", done.stdout)
        self.assertEqual(done.stdout.splitlines()[-1], "1 passed, 1 failed, 0 skipped")
        worker = self.lines()[0]["pid"]
        self.assertFalse(is_there(worker))

    def test_one_that_stops_its_parent_does_not_hold_the_run(self):
        self.run_mock(*self.option(stream="stop_parent"), code=0)
        self.assertEqual(self.status(STREAM_CASE), "Pass")
        self.assertEqual(self.status(EVENT_CASE), "Pass")

    def test_a_process_of_a_session_of_its_own_is_killed_and_fails_the_run(self):
        done = self.run_mock(*self.option(stream=f"daemon:{self.daemon()}"))
        self.assertFalse(is_there(self.daemon().read_text().strip()))
        self.assertEqual(self.status("unload"), "Fail")
        self.assertIn("the backend left 1 process (bp-worker) behind", done.stdout)

    def test_a_process_that_is_left_by_a_crash_is_killed_and_reported(self):
        done = self.run_mock(*self.option(stream=f"daemon:{self.daemon()}", event="segfault"),
                             "--retries", "0")
        self.assertFalse(is_there(self.daemon().read_text().strip()))
        self.assertIn("also: the worker left 1 process (bp-worker) behind", done.stdout)

    def test_a_process_that_is_left_and_a_dead_parent_together_leave_nothing(self):
        self.run_mock(*self.option(stream=f"daemon:{self.daemon()}", event="kill_parent"),
                      "--retries", "0")
        self.assertFalse(is_there(self.daemon().read_text().strip()))

    def test_a_child_of_the_shell_that_became_the_suite_is_left_alone(self):
        words = ["run", plugin("none"), "--case", STREAM_CASE, "--option", "stream=kill_parent",
                 "--out", str(self.out)]
        mark = pathlib.Path(self.folder.name) / "sleeper"
        script = f'sleep 1000 >/dev/null 2>&1 & echo $! > {mark}; exec "$0" "$@"'
        done = mock_run.run_words(["sh", "-c", script, mock_run.PROGRAM, *words])
        pid = int(mark.read_text())
        self.assertTrue(is_there(pid), done.stdout + done.stderr)
        os.kill(pid, 9)


class Texts(Folder):
    def assert_clean(self, text, lines=("\nverdict: PERFECT", "\n99 passed")):
        for forbidden in ("\x1b", "\x9b", "\u202e", *lines):
            self.assertNotIn(forbidden, text)

    def run_forged(self, *flags, code=1):
        done = self.run_mock(*self.option(say=FORGED, version=FORGED), *flags, code=code,
                             cases=(STREAM_CASE, "stream.new_stream_is_idle"))
        self.assertEqual(self.status(STREAM_CASE), "Pass")
        return done

    def test_reach_the_terminal_without_escapes_and_forge_no_line(self):
        for flags in ((), ("--format", "plain"), ("--format", "tap"), ("-v",), ("-q",)):
            with self.subTest(flags=flags):
                done = self.run_forged(*flags)
                self.assert_clean(done.stdout)
                self.assert_clean(done.stderr)
        self.assert_clean(run("report", str(self.out)).stdout)
        self.assert_clean(run("repro", str(self.out)).stdout)
        self.assert_clean(run("info", plugin("none"), *self.option(version=FORGED)).stdout)
        self.assert_clean(run("diff", str(self.out), str(self.out), "-v").stdout)

    def test_the_line_that_repeats_a_failure_is_clean_and_repeats_it(self):
        shown = self.run_forged().stdout
        repro = next(line for line in shown.splitlines() if "repro:" in line).split("repro: ")[1]
        self.assertNotIn("\x1b", repro)
        words = repro.replace("bp-conformance", mock_run.PROGRAM, 1)
        done = mock_run.run_words(["bash", "-c", f"{words} --out {self.out}"])
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("PERFECT", done.stdout)

    def test_what_is_printed_is_cleaned_where_it_is_shown(self):
        done = self.run_mock(*self.option(stream="print_forged"))
        self.assert_clean(done.stdout)
        self.assert_clean(run("repro", str(self.out)).stdout)

    def test_are_escaped_for_each_document(self):
        self.run_forged()
        self.assert_clean((self.out / "report.md").read_text())
        for name in ("summary.json", "info.json", "results.jsonl"):
            self.assertNotIn("\x1b", (self.out / name).read_text())
        for name in ("report.html", "junit.xml"):  # Line breaks have no meaning in these files.
            self.assert_clean((self.out / name).read_text(), lines=())
        page = (self.out / "report.md").read_text()
        code = "    bp-conformance run "  # The lines that repeat failures are code.
        self.assertNotIn("<b>", "".join(x for x in page.splitlines() if not x.startswith(code)))
        row = next(line for line in page.splitlines() if line.startswith("| STREAM"))
        self.assertEqual(row.replace("\\|", "").count("|"), 5)
        self.assertNotIn("<b>`a`", (self.out / "report.html").read_text())
        xml.etree.ElementTree.parse(self.out / "junit.xml")
        tap = self.run_forged("--format", "tap").stdout
        for line in tap.splitlines():
            self.assertRegex(line, r"^(TAP version 14|1\.\.\d+|(not )?ok \d+ - [^#]*( # SKIP .*)?"
                                   r"|  .*)$")

    def test_a_file_of_results_from_elsewhere_is_cleaned_too(self):
        self.run_mock(code=0)
        lines = self.lines()
        for line in lines:
            line |= {"case": line["case"] + FORGED, "status": "Fail", "message": FORGED,
                     "cause": FORGED, "notes": [FORGED], "output": FORGED}
        log = self.out / "results.jsonl"
        log.write_text("".join(json.dumps(line) + "\n" for line in lines))
        done = run("report", str(self.out), "-v")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assert_clean(done.stdout)
        self.assert_clean((self.out / "report.md").read_text())
        for name in ("report.html", "junit.xml"):
            self.assert_clean((self.out / name).read_text(), lines=())

    def test_an_error_that_quotes_them_is_one_clean_line(self):
        done = run("run", plugin("none"), "--case", FORGED)
        self.assertEqual(done.returncode, 5)
        self.assert_clean(done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1)


class PathsThatAreNoText(Folder):
    """Linux lets a path have any bytes; JSON has text alone."""

    def test_name_a_plugin_that_runs_and_whose_failure_repeats(self):
        path = os.fsencode(self.folder.name) + b"/\xff\xfe.so"
        shutil.copy(plugin("none"), path)
        shown = run("info", path, "--json")
        self.assertEqual(shown.returncode, 0, shown.stderr)
        self.assertEqual(pathlib.PurePath(json.loads(shown.stdout)["plugin"]["path"]).name,
                         "\ufffd\ufffd.so")
        done = run("run", path, "--case", STREAM_CASE, "--out", str(self.out),
                   "--option", b"say=\x80", *self.option(stream="segfault"))
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        for name in ("info.json", "summary.json"):
            json.loads((self.out / name).read_text(encoding="utf-8"))
        again = run("repro", str(self.out))
        self.assertEqual(again.returncode, 1, again.stdout + again.stderr)
        self.assertIn("Crash", again.stdout)


class Records(Folder):
    def test_that_nest_deep_or_have_wrong_types_are_charged(self):
        for how, words in (("lie:deep", "nests deeper than"),
                           ("lie:types", '"status" is a list of 0; a text is needed')):
            with self.subTest(how=how):
                done = self.run_mock(*self.option(stream=how), "--retries", "0")
                self.assertEqual(self.status(STREAM_CASE), "Crash")
                self.assertEqual(self.status(EVENT_CASE), "Pass")
                self.assertIn(words, done.stdout)
        self.assertEqual(CASES, (STREAM_CASE, EVENT_CASE))


if __name__ == "__main__":
    mock_run.main()
