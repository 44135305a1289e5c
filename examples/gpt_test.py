#!/usr/bin/env python3
"""Runs 04_train_gpt as a user would, on a tiny model. Checks that it learns, that an interrupted
run continues bit for bit, what it writes, and that it refuses wrong options. If it is given the
name of a device, the test compares the losses on it with the losses on the default device
instead."""
import pathlib
import re
import subprocess
import sys
import tempfile

PROGRAM = sys.argv[1]
TINY = ("--layers 2 --width 32 --heads 2 --context 32 --batch 4 --steps 60 --warmup 5 --lr 0.005 "
        "--eval-batches 2 --sample 40 --dropout 0.1").split()


def run(*arguments, expect=0):
    result = subprocess.run([PROGRAM, *TINY, *arguments], capture_output=True, text=True,
                            check=False)
    if result.returncode != expect:
        sys.exit(f"{arguments}: exit {result.returncode}, not {expect}\n"
                 f"{result.stdout}{result.stderr}")
    return result


def losses(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines[0] == "step,loss,lr", lines[0]
    return [float(line.split(",")[1]) for line in lines[1:]]


def check_training(scratch):
    whole, parts = scratch / "whole", scratch / "parts"
    straight = run("--checkpoint", f"{whole}.safetensors", "--log", f"{whole}.csv")
    interrupted = ["--checkpoint", f"{parts}.safetensors", "--log", f"{parts}.csv"]
    run(*interrupted, "--stop", "23", "--sample", "0")
    resumed = run(*interrupted, "--resume")
    assert "continues behind step 23" in resumed.stdout, resumed.stdout

    curve = losses(pathlib.Path(f"{whole}.csv"))
    assert len(curve) == 60 and curve[-1] < 0.8 * curve[0], curve
    for kind in ("safetensors", "csv"):
        ours, theirs = (pathlib.Path(f"{p}.{kind}").read_bytes() for p in (whole, parts))
        assert ours == theirs, f"the resumed run wrote another {kind}"
    # The last line is left out, because the two runs have launched different numbers of ops.
    tails = [r.stdout[r.stdout.index("validation loss"):].rstrip("\n").rpartition("\n")[0] + "\n"
             for r in (straight, resumed)]
    assert tails[0] == tails[1], tails
    assert re.search(r": \d+ launches: \d+ native", straight.stdout.splitlines()[-1])
    written = tails[0].split("\n", 1)[1]
    assert len(written) == 1 + 40 + 1, repr(written)

    other = run(*interrupted, "--resume", "--width", "64", expect=1)
    assert "width is '32', and here '64'" in other.stderr, other.stderr


def check_fallback():
    """Checks that a device that lacks the ops runs them on the host, with the same results."""
    tails = [run("--steps", "4", "--sample", "0", *device).stdout.splitlines()[-2]
             for device in ([], ["--device", "acme.template"])]
    assert tails[0] == tails[1] and tails[0].startswith("validation loss"), tails


def check_refusals(scratch):
    assert "usage:" in run("--help").stdout
    assert "--steps is 'x'; allowed: whole numbers from 0" in run("--steps", "x", expect=2).stderr
    assert "--lr is '-1'" in run("--lr", "-1", expect=2).stderr
    assert "unknown option" in run("--frobnicate", "1", expect=2).stderr
    assert "--resume needs --checkpoint" in run("--resume", expect=2).stderr
    assert "cannot be read" in run("--data", "/nonexistent.txt", expect=1).stderr
    assert "head_count is 5" in run("--heads", "5", expect=1).stderr
    assert "the prompt has the character" in run("--prompt", "#", expect=1).stderr
    assert "acme" in run("--device", "acme", expect=1).stderr
    short = scratch / "short.txt"
    short.write_text("abc\n" * 50, encoding="utf-8")
    assert "needs more than 340" in run("--data", str(short), expect=1).stderr


def compare_losses(scratch, device):
    """Compares runs of the same seed, weights and dropout masks, which differ only in the order of
    sums."""
    curves = []
    for name, more in (("default", []), ("other", ["--device", device])):
        run("--steps", "30", "--sample", "0", "--log", f"{scratch}/{name}.csv", *more)
        curves.append(losses(scratch / f"{name}.csv"))
    furthest = max(abs(a / b - 1) for a, b in zip(*curves, strict=True))
    print(f"losses of 30 steps differ by at most {furthest:.1e} of them; allowed: 1e-04")
    assert len(curves[0]) == 30 and furthest <= 1e-4, curves


with tempfile.TemporaryDirectory() as folder:
    if len(sys.argv) > 2:
        compare_losses(pathlib.Path(folder), sys.argv[2])
    else:
        check_training(pathlib.Path(folder))
        check_refusals(pathlib.Path(folder))
        check_fallback()
