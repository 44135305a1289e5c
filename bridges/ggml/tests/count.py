#!/usr/bin/env python3
"""Counts the results that test-backend-ops printed, by op.

usage: count.py LOG [--ops] [--failed]

A test is supported if the device ran it. Tests that ggml's CPU backend does not compute are not
counted, because nothing could be compared.
"""
import collections
import re
import sys

# The text of an error stands before the test, so a line need not begin with it.
RESULT = re.compile(r" ([A-Z][A-Z0-9_]+)\(([^()]*)\): (OK|FAIL|not supported.*)\s*$")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def read(path):
    counts = collections.defaultdict(collections.Counter)
    failed = []
    for line in open(path, errors="replace"):
        match = RESULT.search(COLOUR.sub("", line))
        if not match:
            continue
        op, _, result = match.groups()
        if result == "OK":
            counts[op]["passed"] += 1
        elif result == "FAIL":
            counts[op]["failed"] += 1
            failed.append(line.strip())
        else:
            counts[op]["no reference" if "CPU]" in result else "unsupported"] += 1
    return counts, failed


def main():
    counts, failed = read(sys.argv[1])
    total = collections.Counter()
    for op in sorted(counts):
        total.update(counts[op])
        if "--ops" in sys.argv:
            row = counts[op]
            print(f"{op:24} {row['passed']:5} passed {row['failed']:4} failed "
                  f"{row['unsupported']:5} unsupported")
    if failed and "--failed" in sys.argv:
        print("\n".join(failed))
    ran = total["passed"] + total["failed"]
    everything = ran + total["unsupported"]
    share = 100 * ran / everything if everything else 0
    print(f"supported {ran} of {everything} ({share:.1f} %)")
    print(f"{total['passed']} passed, {total['failed']} failed, {total['unsupported']} skipped")
    return 1 if total["failed"] or not total["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())
