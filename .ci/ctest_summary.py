"""Prints why tests of a CTest JUnit report were skipped, what failed tests printed last, then
"N passed, N failed, N skipped".

The exit status is 1 if a test failed or none passed.
"""

import re
import sys
import xml.etree.ElementTree as ElementTree

# GoogleTest prints this above a case that skipped itself: "file:line: Skipped", then the reason.
SELF_SKIP = re.compile(r"^\S+:\d+: Skipped\n(.*)$", re.MULTILINE)

# The first line of a report of a sanitizer.
SANITIZER = re.compile(r"ERROR: \w+Sanitizer|WARNING: ThreadSanitizer|: runtime error: ")


def outcome(case):
    """Returns passed, failed or skipped. A test that did not start, such as without its program, is
    failed, except for those that the build disables."""
    if case.get("status") == "disabled":
        return "skipped"
    skipped = case.find("skipped")
    if skipped is not None:
        return "skipped" if skipped.get("message", "").startswith("SKIP_") else "failed"
    return "passed" if case.get("status") == "run" and case.find("failure") is None else "failed"


def reason(case):
    """Returns the last line that a skipped test printed, else what CTest knows about it."""
    if case.get("status") == "disabled":
        return "BACKPLANE_LONG_TESTS of the build does not select it"
    lines = [line.strip() for line in (case.findtext("system-out") or "").splitlines()]
    lines = [line for line in lines if line]
    return lines[-1] if lines else case.find("skipped").get("message") or "no reason given"


def last_words(case, count=15):
    """Returns the last lines that a test printed, indented. Of the report of a sanitizer, which
    ends with the frames that say least, it returns the first lines."""
    lines = [line.rstrip() for line in (case.findtext("system-out") or "").splitlines()]
    lines = [line for line in lines if line]
    begin = next((i for i, line in enumerate(lines) if SANITIZER.search(line)), len(lines) - count)
    return ["    " + line[:200] for line in lines[max(begin, 0):][:count]]


def main(path):
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        kind = outcome(case)
        counts[kind] += 1
        if kind == "skipped":
            print(f"skipped: {case.get('name')}: {reason(case)}")
        for text in SELF_SKIP.findall(case.findtext("system-out") or ""):
            print(f"skipped inside {case.get('name')}: {text.strip() or 'no reason given'}")
        if kind == "failed":
            print("\n".join([f"failed: {case.get('name')}", *last_words(case)]))
    print(", ".join(f"{count} {kind}" for kind, count in counts.items()))
    return 1 if counts["failed"] or not counts["passed"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
