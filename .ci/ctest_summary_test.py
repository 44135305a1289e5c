"""Tests of ctest_summary.py: each way in which CTest reports a result counts as that result."""

import contextlib
import io
import os
import tempfile
import unittest

import ctest_summary

REPORT = """<testsuite>
<testcase name="a" status="run"><system-out>fine</system-out></testcase>
<testcase name="b" status="fail"><failure message=""/><system-out>wrong</system-out></testcase>
<testcase name="c" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/>
<system-out>looking
no accelerator

</system-out></testcase>
<testcase name="d" status="notrun"><skipped message="Unable to find executable"/></testcase>
<testcase name="e" status="run"><system-out>[ RUN      ] X.Y
x_test.cpp:5: Skipped
no timer

[  SKIPPED ] X.Y (0 ms)
</system-out></testcase>
<testcase name="f" status="disabled"><system-out>Disabled</system-out></testcase>
</testsuite>"""


def summary(report):
    """Returns the exit code and the printed lines for the text of a report."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "ctest.xml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(report)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            status = ctest_summary.main(path)
    return status, printed.getvalue().splitlines()


class CtestSummary(unittest.TestCase):
    def test_counts_and_gives_reasons(self):
        status, lines = summary(REPORT)
        self.assertEqual(status, 1)
        self.assertEqual(lines[-1], "2 passed, 2 failed, 2 skipped")
        self.assertIn("skipped: c: no accelerator", lines)
        self.assertIn("skipped inside e: no timer", lines)
        self.assertIn("skipped: f: BACKPLANE_LONG_TESTS of the build does not select it", lines)

    def test_a_test_that_could_not_start_is_failed(self):
        self.assertIn("failed: d", summary(REPORT)[1])

    def test_a_failed_test_is_followed_by_what_it_printed(self):
        lines = summary(REPORT)[1]
        self.assertEqual(lines[lines.index("failed: b") + 1], "    wrong")

    def test_the_report_of_a_sanitizer_is_read_from_its_beginning(self):
        frames = "".join(f"    #{i} in f{i}\n" for i in range(40))
        lines = summary('<testsuite><testcase name="s" status="fail"><failure message=""/>'
                        f"<system-out>[ RUN ] X.Y\n=1=ERROR: AddressSanitizer: heap\n{frames}"
                        "</system-out></testcase></testsuite>")[1]
        self.assertEqual(lines[1], "    =1=ERROR: AddressSanitizer: heap")
        self.assertEqual(lines[15], "        #13 in f13")
        self.assertEqual(lines[16], "0 passed, 1 failed, 0 skipped")

    def test_nothing_passed_is_a_failure(self):
        self.assertEqual(summary("<testsuite/>"), (1, ["0 passed, 0 failed, 0 skipped"]))


if __name__ == "__main__":
    unittest.main()
