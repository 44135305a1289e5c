"""Helpers of the tests of the command line: the program, backends that misbehave, and a folder."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM = ""
PLUGINS = pathlib.Path()
TIMEOUT = "2"  # The seconds of a time limit. A case that ends by itself takes some milliseconds.
# The mock backend passes these cases: it accepts NULL in destroy() of streams and of events.
STREAM_CASE = "stream.destroy_accepts_null"
EVENT_CASE = "event.destroy_accepts_null"
QUIET_CASE = "stream.default_stream_is_one_and_stays"
CASES = (STREAM_CASE, EVENT_CASE)


def plugin(name):
    return str(PLUGINS / f"mock_{name}.so")


def run_words(words, environment=None, **settings):
    """Returns the finished process. A hang of the tool itself fails the test."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("BACKPLANE_")}
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.run(words, text=True, timeout=120, env=inherited | (environment or {}),
                          check=False, **(streams | settings))


def run(*arguments, environment=None, text=None):
    """Runs the program with these arguments."""
    return run_words([PROGRAM, *arguments], environment, input=text)


class Folder(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.out = pathlib.Path(self.folder.name) / "out"

    def run_mock(self, *flags, cases=CASES, code=1):
        """Runs cases on the mock; returns the statuses of results.jsonl and the process."""
        named = [word for case in cases for word in ("--case", case)]
        done = run("run", plugin("none"), *named, "--out", str(self.out), "--timeout", TIMEOUT,
                   *flags)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def lines(self):
        text = (self.out / "results.jsonl").read_text()
        return [json.loads(line) for line in text.splitlines()]

    def status(self, case):
        """Returns the last status that was logged for a case."""
        found = [line["status"] for line in self.lines() if line["case"] == case]
        self.assertTrue(found, f"{case} has no result")
        return found[-1]

    def option(self, **behaviour):
        return [word for key, value in behaviour.items() for word in ("--option", f"{key}={value}")]


def main():
    """Runs the tests of the script. Its arguments: BP_CONFORMANCE PLUGIN_FOLDER [unittest's]."""
    global PROGRAM, PLUGINS  # pylint: disable=global-statement
    PROGRAM, PLUGINS = sys.argv[1], pathlib.Path(sys.argv[2]).resolve()
    unittest.main(module="__main__", argv=sys.argv[:1] + sys.argv[3:], verbosity=2)
