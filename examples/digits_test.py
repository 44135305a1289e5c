#!/usr/bin/env python3
"""Runs 03_train_digits as a user would: two short runs of one seed, and wrong options. Given the
name of a device, compares it with the default one instead: most of what it lacks runs there."""
import re
import subprocess
import sys
import tempfile

PROGRAM = sys.argv[1]


def run(*arguments, expect=0):
    result = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, check=False)
    if result.returncode != expect:
        sys.exit(f"{arguments}: exit {result.returncode}, not {expect}\n"
                 f"{result.stdout}{result.stderr}")
    return result


def compare_with(device):
    with tempfile.TemporaryDirectory() as scratch:
        runs = [run("--epochs", "2", "--out", f"{scratch}/w.safetensors", *more).stdout
                for more in ([], ["--device", device])]
    assert runs[1].startswith(f"{device}:0: "), runs[1]
    lines = [text.splitlines()[-1] for text in runs]
    assert lines[0] == lines[1] and lines[0].startswith("test accuracy "), lines


def main():
    with tempfile.TemporaryDirectory() as scratch:
        lines = [run("--epochs", "6", "--seed", "3", "--out", f"{scratch}/{i}.safetensors")
                 .stdout.splitlines()[-1] for i in range(2)]
        accuracy = float(re.fullmatch(r"test accuracy (\S+) % \(\d+ of 360\)", lines[0])[1])
        assert lines[0] == lines[1], f"the same seed gave {lines}"
        assert accuracy > 90, lines[0]
        weights = [open(f"{scratch}/{i}.safetensors", "rb").read() for i in range(2)]
        assert weights[0] == weights[1], "the same seed gave other weights"

        no_folder = run("--epochs", "1", "--out", f"{scratch}/none/w.safetensors", expect=1)
        assert "cannot be written" in no_folder.stderr, no_folder.stderr
    assert "usage:" in run("--help").stdout
    assert "--epochs is 'x'" in run("--epochs", "x", expect=2).stderr
    assert "unknown option" in run("--frobnicate", "1", expect=2).stderr
    unknown = run("--device", "acme", expect=1)
    assert "acme" in unknown.stderr, unknown.stderr
    missing = run("--data", "/nonexistent.csv", expect=1)
    assert "/nonexistent.csv: cannot be read" in missing.stderr, missing.stderr


if len(sys.argv) > 2:
    compare_with(sys.argv[2])
else:
    main()
