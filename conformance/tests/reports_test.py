#!/usr/bin/env python3
"""Tests what bp-conformance prints and writes about runs on a mock backend, and what it reads back.

  reports_test.py BP_CONFORMANCE PLUGIN_FOLDER [unittest arguments]
"""
import json
import pathlib
import xml.etree.ElementTree

import mock_run
from mock_run import CASES, EVENT_CASE, QUIET_CASE, STREAM_CASE, Folder, plugin, run


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
        self.assertIn("during the unload of the plugin", unload.stderr)
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
        # The mock lists f32 but has no memory for it, and does not list i32.
        self.assertRegex(done.stdout, r"(?m)^add f32 +W\d+/\d+ +W\d+ ")
        self.assertRegex(done.stdout, r"(?m)^ +i32 +- ")
        self.assertTrue(all(len(line) <= 100 for line in done.stdout.splitlines()))
        written = json.loads(path.read_text())
        self.assertEqual(sum(cell.get("refused", 0) for cell in written["cells"]),
                         written["total"]["refused"])
        self.assertEqual({cell["dtype"] for cell in written["cells"]}, {"f32", "i32"})
        self.assertTrue(written["is_complete"])
        done = run("coverage", plugin("none"), "-k", "op.add.f32.*:op.add.i32.*", "--tier", "smoke",
                   "--sample", "2")
        self.assertIn("4 cases: ", done.stdout)  # Two of each dtype.
        by_rank = run("coverage", plugin("none"), "-k", "op.add.f32.*", "--tier", "smoke", "--by",
                      "rank")
        self.assertRegex(by_rank.stdout, r"(?m)^op +rank 0 +rank 1 ")
        done = run("coverage", plugin("none"), "--case", STREAM_CASE)
        self.assertEqual(done.returncode, 5)
        self.assertIn("no selected case is a call of an op", done.stderr)


if __name__ == "__main__":
    mock_run.main()
