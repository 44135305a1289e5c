"""examples/06_from_python learns, and saves what it learned."""

import pathlib
import re
import subprocess
import sys

PROGRAM = pathlib.Path(__file__).parents[3] / "examples" / "06_from_python" / "train_digits.py"


def run(*arguments):
    return subprocess.run([sys.executable, PROGRAM, *arguments], capture_output=True, text=True,
                          timeout=300, check=False)


def test_it_learns(device, tmp_path):
    done = run("--device", device.name, "--epochs", "2", "--out", tmp_path / "digits.safetensors")
    assert done.returncode == 0, done.stderr
    accuracy = re.search(r"accuracy: ([0-9.]+) %", done.stdout)
    assert float(accuracy[1]) > 85, done.stdout
    assert (tmp_path / "digits.safetensors").stat().st_size > 100_000


def test_a_device_that_does_not_exist_is_named(tmp_path):
    done = run("--device", "no_such_device", "--out", tmp_path / "digits.safetensors")
    assert done.returncode != 0 and "no_such_device" in done.stderr
