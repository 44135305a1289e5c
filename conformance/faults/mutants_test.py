#!/usr/bin/env python3
"""The kill matrix: each mutant must fail a case for the reason that the table expects, and each
benign mutant must fail none.

usage: mutants_test.py BP_CONFORMANCE MUTANT_PLUGIN GOOD_PLUGIN
"""
import collections
import json
import pathlib
import subprocess
import sys
import tempfile

BINARY = "op.add.*:op.sub.*:op.mul.*:op.div.*:op.maximum.*"
UNARY = "op.neg.*:op.exp.*:op.log.*:op.sqrt.*:op.relu.*"

# Mutant, cases that run, the cause that names it; None: a right suite passes it.
TABLE = [
    ("1", "op.matmul.*", "tail"),
    ("1:subtle", "op.matmul.*", "tail"),
    ("2", "op.matmul.*", "stride"),
    ("10", BINARY, "broadcast"),
    ("11", BINARY, "offset"),
    ("11:subtle", BINARY, "offset"),
    ("13", UNARY, "canary"),
    ("15", UNARY, "unwritten"),
    ("benign_reverse_sum", "op.sum.*", None),
    ("benign_extra_workspace", "op.matmul.*", None),
]


def run(program, plugin, good, mutant, cases):
    """(causes and statuses of the failing cases, the number of cases)."""
    with tempfile.TemporaryDirectory() as scratch:
        out = pathlib.Path(scratch, "out")
        command = [program, "run", plugin, "--tier", "smoke", "--filter", cases, "--retries", "0",
                   "--waivers", "/dev/null", "--out", str(out),
                   "--option", f"mutant={mutant}", "--option", f"wrap={good}"]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode not in (0, 1):
            sys.exit(f"mutant {mutant}: exit {result.returncode}\n{result.stdout}{result.stderr}")
        lines = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
    failing = [line for line in lines if line["status"] in ("Fail", "Crash", "Timeout")]
    return failing, len(lines)


def main():
    program, plugin, good = sys.argv[1:4]
    survivors = 0
    print(f"{'mutant':24} {'cases':>6} {'failed':>6}  verdict   causes")
    for mutant, cases, expected in TABLE:
        failing, count = run(program, plugin, good, mutant, cases)
        causes = collections.Counter(line.get("cause") or line["status"] for line in failing)
        is_right = not failing if expected is None else causes[expected] > 0
        verdict = "passed" if expected is None else "killed"
        survivors += not is_right
        print(f"{mutant:24} {count:6} {len(failing):6}  {verdict if is_right else 'WRONG':8}  "
              + ", ".join(f"{cause} {n}" for cause, n in causes.most_common()))
        if not is_right:
            for line in failing[:5]:
                print(f"    {line['case']}: {line.get('cause')}: {line.get('message')}")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
