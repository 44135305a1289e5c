"""A plugin of pytest that skips tests of array-api-tests, and expects failures, each with a reason.

skips.txt and fails.txt have lines `part of a test's name : reason`. ` @ DEVICE` behind the part is
for runs on that device alone, and ` @ *` for those on any device but the host. The suite's own
options take whole names. BACKPLANE_TEST_DEVICE names the device of the run.
"""

import os
import pathlib

import pytest

import backplane

if "BACKPLANE_TEST_DEVICE" in os.environ:
    backplane.set_default_device(os.environ["BACKPLANE_TEST_DEVICE"])


def _rows(name):
    for line in pathlib.Path(__file__).with_name(name).read_text(encoding="utf-8").split("\n"):
        if line.strip() and not line.startswith("#"):
            part, reason = line.split(" : ", 1)
            part, _, device = part.partition(" @ ")
            on = os.environ.get("BACKPLANE_TEST_DEVICE")
            if device in ("", on) or (device == "*" and on):
                yield part.strip(), reason.strip()


def pytest_collection_modifyitems(items):
    skips, fails = list(_rows("skips.txt")), list(_rows("fails.txt"))
    for item in items:
        for part, reason in skips:
            if part in item.nodeid:
                item.add_marker(pytest.mark.skip(reason=f"does not apply: {reason}"))
        for part, reason in fails:
            if part in item.nodeid:
                item.add_marker(pytest.mark.xfail(reason=reason, strict=False))
