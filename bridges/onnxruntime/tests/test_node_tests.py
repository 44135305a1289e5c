"""ONNX's own tests of operators, on the device of the other tests; see node_tests.py.

BACKPLANE_ORT_EVERY is n to run each n-th test (1).
"""

import os
import re
import subprocess
import sys

from conftest import HAS_ASSIGNMENT, HERE, LIBRARY, find_device

import pytest


def test_no_result_is_wrong():
    if not HAS_ASSIGNMENT:
        pytest.skip("this ONNX Runtime does not tell which nodes a provider has")
    device = find_device().ep_metadata["backplane.device"]
    command = [sys.executable, str(HERE / "node_tests.py"), LIBRARY, "--device", device,
               "--every", os.environ.get("BACKPLANE_ORT_EVERY", "1")]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(re.search(r"(\d+) device", done.stdout)[1]) > 0
