#!/usr/bin/env python3
"""Trains with the layer diff between two devices, each way round. Each launch must give the same
result on the other device, within the bound of its op. Then one launch is made wrong, and the layer
must name it.

  diff_test.py TRAIN_DIGITS TRAIN_GPT DIGITS_CSV FIRST SECOND
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

TRAIN_DIGITS, TRAIN_GPT, DIGITS = sys.argv[1:4]
DEVICES = sys.argv[4:6]
KEPT = 60  # The digits that the test uses, and the line with the names of the columns.
TINY = ("--layers 1 --width 32 --heads 2 --context 16 --batch 2 --steps 2 --warmup 1 "
        "--eval-batches 1 --sample 0 --dropout 0.1").split()


def run(words, layers, options, expect=0):
    done = subprocess.run(words, capture_output=True, text=True, check=False,
                          env={**os.environ, "BACKPLANE_LAYERS": layers, "BACKPLANE_LOG": "info",
                               "BACKPLANE_LAYER_OPTIONS": options})
    assert done.returncode == expect, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stderr


def check_agreement(words, device, other):
    log = run([*words, "--device", device], "diff", f"diff.backend={other}")
    counts = re.search(rf"{device}/diff: (\d+) launches were compared with {other}:\d+, "
                       r"(\d+) differ, (\d+) were not compared", log)
    assert counts, log
    compared, differing, skipped = (int(count) for count in counts.groups())
    assert compared > 100 and differing == 0 and skipped == 0, log
    print(f"{device} and {other}: {compared} launches, all alike")


def check_wrong_launch(words, device, other):
    """Flips a bit in the first element of the second linear, in its exponent or its sign."""
    words = [*words, "--device", device]
    options = f"diff.backend={other},fault.corrupt=kernel.launch/linear*@2"
    log = run(words, "diff,fault", options)
    said = re.search(r"/diff: (launch \d+, linear): y of kernel \S+ is not what \S+ gives: "
                     r"element \[0(?:, 0)*\]: \S+ and \S+ are \S+ apart, allowed are \S+; "
                     r"1 of \d+ elements differ", log)
    assert said, log
    assert f"1 differ, 0 were not compared; the first that differs is {said[1]}" in log, log
    stopped = run(words, "diff,fault", options + ",diff.fail=1", expect=1)
    assert f"internal: layer diff: {said[1]}: y of kernel" in stopped, stopped
    print(said[0])


def main():
    probe = subprocess.run([TRAIN_DIGITS, "--device", DEVICES[0], "--data", "/nonexistent.csv"],
                           capture_output=True, text=True, check=False)
    if "found no device; its log says" in probe.stderr:
        print(probe.stderr)
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        data = folder / "digits.csv"
        lines = pathlib.Path(DIGITS).read_text(encoding="utf-8").splitlines(keepends=True)
        data.write_text("".join(lines[:KEPT + 1]), encoding="utf-8")
        digits = [TRAIN_DIGITS, "--epochs", "3", "--data", str(data), "--out", f"{folder}/w"]
        gpt = [TRAIN_GPT, *TINY]
        for device, other in (DEVICES, reversed(DEVICES)):
            check_agreement(digits, device, other)
            check_agreement(gpt, device, other)
        check_wrong_launch(gpt, *DEVICES)


main()
