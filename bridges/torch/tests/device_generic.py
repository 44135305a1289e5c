#!/usr/bin/env python3
"""Runs PyTorch's own device-generic tests on bp, and judges what fails.

  device_generic.py TESTS [--plugin NAME] [--files FILE,...] [-k EXPRESSION]

TESTS is the folder `test` of PyTorch's sources. They are not in its wheel; Debian's source package
"pytorch" has them. Tests of another release than the installed one serve too: what fails on bp is
run on PyTorch's CPU, and what fails there as well is no failure of bp. The rest must be listed in
device_differences.txt, with the reason.

The status is 0 if nothing else failed, and 1 otherwise.
"""

import argparse
import fnmatch
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

import pytest

HERE = pathlib.Path(__file__).parent
FILES = ("test_torch", "test_view_ops", "test_autograd", "test_serialization", "test_indexing",
         "test_shape_ops", "test_tensor_creation_ops", "test_type_promotion")
# Tensors of 2^31 elements need more memory than a test may take.
NOT_LARGE = "not large"


def pytest_configure():
    """This file is also the plugin of pytest that loads bp before PyTorch lists its devices."""
    import torch
    import torch_backplane

    torch.set_num_threads(1)
    torch_backplane.load(os.environ["BACKPLANE_TORCH_PLUGIN"])
    torch_backplane.set_fallback("count")
    allow_missing_names()


@pytest.fixture(autouse=True)
def own_failures():
    """A wrong index fails the stream later: the failure ends with the test that made it."""
    yield
    import torch

    try:
        torch.bp.synchronize()
    except RuntimeError as error:
        print(f"behind the test: {error}")


def allow_missing_names():
    """The tests of release 2.6 import two helpers, for other devices, that 2.15 lacks.

    Another name that is missing ends the run with an error of pytest.
    """
    from torch.testing._internal import common_cuda, common_mkldnn

    if not hasattr(common_cuda, "tf32_is_not_fp32"):
        common_cuda.tf32_is_not_fp32 = lambda: False
    if not hasattr(common_mkldnn, "bf32_on_and_off"):
        common_mkldnn.bf32_on_and_off = lambda *_, **__: lambda function: function


def run(tests, files, expression, plugin):
    """Returns the outcome of each test: {"test_torch.Class.test_x_bp": "passed"}."""
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.xml"
        path = os.pathsep.join([str(HERE), str(tests), os.environ.get("PYTHONPATH", "")])
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "--tb=line", "--noconftest", "-p",
             "device_generic", "-p", "no:cacheprovider", f"--junitxml={report}",
             "-k", expression, *[f"{file}.py" for file in files]],
            cwd=tests, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
            env={**os.environ, "PYTHONPATH": path, "BACKPLANE_TORCH_PLUGIN": plugin,
                 "PYTHONDONTWRITEBYTECODE": "1"})
        if done.returncode not in (0, 1) or not report.exists():
            sys.exit(f"pytest broke off with status {done.returncode}:\n{done.stdout[-3000:]}")
        return outcomes(report)


def outcomes(report):
    result = {}
    for case in xml.etree.ElementTree.parse(report).iter("testcase"):
        name = case.get("classname") + "." + case.get("name")
        kinds = {child.tag for child in case}
        if kinds & {"failure", "error"}:
            result[name] = "failed"
        else:
            result[name] = "skipped" if "skipped" in kinds else "passed"
    return result


def on_cpu(name):
    """The same test of PyTorch's CPU, as pytest names it."""
    module, group, test = name.split(".")
    group = re.sub("(BP|PRIVATEUSE1)$", "CPU", group)
    return f"{module}.py::{group}::{re.sub('_bp(?=_|$)', '_cpu', test, count=1)}"


def differences():
    """The known ones: pairs of a pattern and a reason."""
    reason, known = "", []
    for line in (HERE / "device_differences.txt").read_text().splitlines():
        if line.startswith("#"):
            reason = line[1:].strip()
        elif line.strip():
            known.append((line.strip(), reason))
    return known


def fail_on_cpu(tests, failed, plugin):
    """Those of `failed` whose counterpart on PyTorch's CPU fails too, or does not exist."""
    collected = run(tests, sorted({name.split(".")[0] for name in failed}),
                    " or ".join(sorted({on_cpu(name).split("::")[2] for name in failed})), plugin)
    passed = {name for name, outcome in collected.items() if outcome == "passed"}
    return {name for name in failed
            if on_cpu(name).replace(".py::", ".").replace("::", ".") not in passed}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("tests", type=pathlib.Path, help="the folder `test` of PyTorch's sources")
    parser.add_argument("--plugin", default="cpu", help="a plugin: a name or a path (cpu)")
    parser.add_argument("--files", default=",".join(FILES), help="the test files")
    parser.add_argument("-k", default=NOT_LARGE, dest="expression", help="an expression of pytest")
    options = parser.parse_args()
    files = options.files.split(",")
    missing = [file for file in files if not (options.tests / f"{file}.py").exists()]
    if missing:
        parser.error(f"{options.tests} has no {missing[0]}.py")

    found = run(options.tests.resolve(), files, f"_bp and ({options.expression})", options.plugin)
    failed = {name for name, outcome in found.items() if outcome == "failed"}
    of_release = fail_on_cpu(options.tests.resolve(), failed, options.plugin) if failed else set()
    reasons = {}
    for name in sorted(failed - of_release):
        reason = next((why for pattern, why in differences() if fnmatch.fnmatch(name, pattern)), "")
        reasons.setdefault(reason, []).append(name)
    new = reasons.pop("", [])
    for reason, names in sorted(reasons.items()):
        print(f"{len(names):5}  {reason}")
    if of_release:
        print(f"{len(of_release):5}  fail or are skipped on PyTorch's CPU too")
    for name in new:
        print(f"failed: {name}")
    count = list(found.values()).count
    print(f"{count('skipped'):5}  are skipped by PyTorch on this device")
    skipped = count("skipped") + len(failed) - len(new)
    print(f"{count('passed')} passed, {len(new)} failed, {skipped} skipped")
    sys.exit(bool(new))


if __name__ == "__main__":
    main()
