#!/usr/bin/env python3
"""Checks the tagged sentences of the headers against the cases of the suite.

Fails if a tag occurs twice; if a tag without a case is not in conformance/untestable.yaml; if an
entry of that file has a case by now, has a tag that is gone, or gives no reason; if a case cites an
unknown tag; and if the suite is empty.

  check_tags.py --program build/dev/bin/bp-conformance
"""
import argparse
import json
import pathlib
import subprocess
import sys

import yaml

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import emit_tags  # noqa: E402  The table is read by the same rules.


def read_untestable(text):
    """Returns {tag: entry} of untestable.yaml, and the problems of its entries."""
    problems, entries = [], {}
    for entry in yaml.safe_load(text) or []:
        tag = entry.get("tag", "")
        known = set(entry) <= {"tag", "reason", "kind", "step"}
        is_pending = entry.get("kind") == "pending" and isinstance(entry.get("step"), int)
        has_reason = bool(entry.get("reason")) and "kind" not in entry
        if not tag or not known or not (is_pending or has_reason):
            problems.append(f"untestable.yaml: {entry}: a tag with either a reason, or with "
                            "kind: pending and a step, is allowed")
        elif tag in entries:
            problems.append(f"untestable.yaml: {tag} is listed twice")
        entries[tag] = entry
    return entries, problems


def check(tags, cases, untestable, finished_step):
    """Returns the problems as texts."""
    problems = []
    cited = {tag for case in cases for tag in case["tags"]}
    if not cases:
        problems.append("the suite is empty")
    for case in cases:
        for tag in case["tags"]:
            if tag not in tags:
                problems.append(f"{case['id']} cites {tag}, which no header has")
        if not case["tags"]:
            problems.append(f"{case['id']} cites no tag")
    for tag in tags:
        if tag not in cited and tag not in untestable:
            problems.append(f"{tag} has no case, and untestable.yaml does not say why")
    for tag, entry in untestable.items():
        if tag not in tags:
            problems.append(f"untestable.yaml: {tag} is in no header any more")
        elif tag in cited:
            problems.append(f"untestable.yaml: {tag} has a case by now")
        elif entry.get("kind") == "pending" and entry.get("step", 0) <= finished_step:
            problems.append(f"untestable.yaml: {tag} is pending for step {entry['step']}, "
                            "which is finished")
    return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--program", required=True, help="bp-conformance")
    parser.add_argument("--finished-step", type=int, default=0,
                        help="pending entries up to this step fail")
    arguments = parser.parse_args()
    root = HERE.parent / "api" / "include"
    headers = sorted(str(path.relative_to(root)) for path in (root / "backplane").glob("*.h"))
    rows = emit_tags.read_tags(root, headers)
    listed = subprocess.run([arguments.program, "list", "--json"], capture_output=True, text=True,
                            check=True)
    cases = json.loads(listed.stdout)
    text = (HERE / "untestable.yaml").read_text(encoding="utf-8")
    untestable, problems = read_untestable(text)
    problems += check({row["tag"] for row in rows}, cases, untestable, arguments.finished_step)
    for problem in sorted(problems):
        print(problem, file=sys.stderr)
    if problems:
        sys.exit(1)
    print(f"{len(rows)} tags, {len(cases)} cases, {len(untestable)} tags without a case")


if __name__ == "__main__":
    main()
