#!/usr/bin/env python3
"""Runs 04_train_gpt as a user would, on a tiny model. Checks that it learns, that an interrupted
run continues bit for bit, also after a kill, what it writes, what it says if a file takes no bytes,
and that it refuses wrong options. If it is given the name of a device, the test compares the losses
on it with the losses on the default device instead, and those of a captured step with those of
eager steps. With "same" and options for the device's backend, the test compares the device with
itself without the options: eager steps and a captured one give the same losses, bit for bit, or
nearly the same where tensors lie in tiles."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

PROGRAM = sys.argv[1]
TINY = ("--layers 2 --width 32 --heads 2 --context 32 --batch 4 --steps 60 --warmup 5 --lr 0.005 "
        "--eval-batches 2 --sample 40 --dropout 0.1").split()


def run(*arguments, expect=0, stdout=subprocess.PIPE):
    result = subprocess.run([PROGRAM, *TINY, *arguments], stdout=stdout, stderr=subprocess.PIPE,
                            text=True, check=False)
    if result.returncode != expect:
        sys.exit(f"{arguments}: exit {result.returncode}, not {expect}\n"
                 f"{result.stdout}{result.stderr}")
    return result


def losses(path, first=1):
    """Returns the losses of a log, which has each step from `first` on once."""
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines[0] == "step,loss,lr", lines[0]
    rows = [line.split(",") for line in lines[1:]]
    assert [int(row[0]) for row in rows] == list(range(first, first + len(rows))), lines
    return [float(row[1]) for row in rows]


def kill(log, *arguments):
    """Starts a run that takes hours, and kills it once its log has 12 rows."""
    with subprocess.Popen([PROGRAM, *TINY, *arguments], stdout=subprocess.DEVNULL) as process:
        try:
            while not log.exists() or log.read_bytes().count(b"\n") < 13:
                assert process.poll() is None, f"{arguments}: exit {process.returncode}"
                time.sleep(0.01)
        finally:
            process.kill()


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


def check_kill(scratch):
    """Checks that a killed run leaves its log, and that the run which continues it has each step
    once."""
    log, straight = scratch / "killed.csv", scratch / "straight.csv"
    long = ("--steps", "1000000", "--sample", "0")
    saved = (*long, "--save-every", "5", "--checkpoint", f"{scratch}/killed.safetensors", "--log")
    kill(log, *saved, str(log))
    assert log.read_text(encoding="utf-8").endswith("\n"), "the last line is cut"
    last = len(losses(log))
    assert last >= 12, last
    with log.open("a", encoding="utf-8") as file:  # A later step, and a line that was cut.
        file.write(f"{last + 1},9.5,0.1\n{last + 2},9")
    end = last + 10
    resumed = run(*saved, str(log), "--stop", str(end), "--resume").stdout
    done = int(re.search(r"continues behind step (\d+)", resumed)[1])
    assert 10 <= done <= last, (done, last)
    run(*long, "--log", str(straight), "--stop", str(end))
    assert len(losses(straight)) == end
    assert log.read_bytes() == straight.read_bytes(), "the log of the resumed run is another one"

    further = ("--stop", str(end + 1), "--resume")
    other = scratch / "other.csv"
    for text, problem in (("a letter\n", "the first line is not 'step,loss,lr'"),
                          ("a letter", "the first line is not 'step,loss,lr'"),
                          ("step,loss,lr\n1,2,3\n1,2,3\n",
                           "'1,2,3' is not a row of a step behind step 1")):
        other.write_text(text, encoding="utf-8")
        failed = run(*saved, str(other), *further, expect=1).stderr
        assert f"{other}: {problem}" in failed, failed
        assert other.read_text(encoding="utf-8") == text, "a file that is refused was changed"
    full = run(*saved, "/dev/full", *further, expect=1).stderr
    assert "/dev/full: cannot be written: No space left on device" in full, full
    for number, text in enumerate(("", "step,lo")):  # A kill can cut the header too.
        other.write_text(text, encoding="utf-8")
        run(*saved, str(other), "--stop", str(end + 1 + number), "--resume")
        assert len(losses(other, first=end + 1 + number)) == 1


def check_full_disk():
    full = run("--steps", "2", "--sample", "0", "--log", "/dev/full", expect=1).stderr
    assert "/dev/full: cannot be written: No space left on device" in full, full
    for arguments in (["--help"], ["--steps", "1", "--sample", "0"]):
        with open("/dev/full", "wb") as output:
            full = run(*arguments, expect=1, stdout=output).stderr
        assert "standard output: cannot be written: No space left on device" in full, full


def check_fallback():
    """Checks that a device that lacks the ops runs them on the host, with the same results."""
    tails = [run("--steps", "4", "--sample", "0", *device).stdout.splitlines()[-2]
             for device in ([], ["--device", "acme.template"])]
    assert tails[0] == tails[1] and tails[0].startswith("validation loss"), tails


def check_capture(scratch, is_exact, *device):
    """Checks that replays of a captured step give the losses of eager steps while the data, the
    rate and the dropout change. The validations are eager, and stand between replays. On an exact
    device the weights and the state of the optimizer are the same too, bit for bit. Other devices
    compute the corrections of AdamW with other roundings if the number of the step is a tensor."""
    stem = scratch / "capture"
    files, curves = {}, []
    for name, more in (("eager", []), ("replayed", ["--capture"])):
        done = run("--stop", "14", "--sample", "0", "--clip", "0.5", "--eval-every", "5",
                   "--log", f"{stem}.{name}.csv", "--checkpoint", f"{stem}.{name}.safetensors",
                   *device, *more)
        kind = "captured nodes" if more else "launches"
        assert re.search(rf" steps/s of \d+ {kind}, \d+ launches/s", done.stdout), done.stdout
        files[name] = [pathlib.Path(f"{stem}.{name}.{end}").read_bytes()
                       for end in ("csv", "safetensors")]
        curves.append(losses(pathlib.Path(f"{stem}.{name}.csv")))
    assert len(curves[0]) == 14
    assert all(abs(a / b - 1) <= 1e-5 for a, b in zip(*curves, strict=True)), curves
    if is_exact:
        assert files["eager"] == files["replayed"], "the replays gave other losses or weights"


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
    fifo = scratch / "fifo"
    os.mkfifo(fifo)
    for path in (fifo, scratch, "/dev/zero"):
        refused = run("--data", str(path), expect=1).stderr
        assert f"{path}: it is not a regular file" in refused, refused


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


def check_same(scratch, device, options):
    short = ("--stop", "5", "--sample", "0", "--device", device, "--log")
    logs = {}
    for name, given, more in (("plain", "", []), ("other", options, []),
                              ("captured", options, ["--capture"])):
        os.environ["BACKPLANE_OPTIONS"] = given
        done = run(*short, f"{scratch}/{name}.csv", *more).stdout
        logs[name] = pathlib.Path(f"{scratch}/{name}.csv").read_bytes()
        is_tiled = given.endswith("layouts=only")
        assert ("with conversions to layouts" in done) == is_tiled, done
        assert ("as programs of one op" in done) == ("kernels=no" in given), done
    assert logs["plain"].count(b"\n") == 1 + 5, logs
    if is_tiled:
        # Kernels get contiguous copies of tiles, also where the plain run gives them a transposed
        # view. oneDNN may sum in another order then, which depends on the processor.
        plain, other = (losses(scratch / f"{name}.csv") for name in ("plain", "other"))
        assert all(abs(a / b - 1) <= 1e-6 for a, b in zip(plain, other, strict=True)), logs
    else:
        assert logs["plain"] == logs["other"], "the losses are other ones"
    assert logs["other"] == logs["captured"], "the losses of the captured step are other ones"


with tempfile.TemporaryDirectory() as folder:
    if sys.argv[3:4] == ["same"]:
        check_same(pathlib.Path(folder), sys.argv[2], sys.argv[4])
    elif len(sys.argv) > 2:
        compare_losses(pathlib.Path(folder), sys.argv[2])
        check_capture(pathlib.Path(folder), "exact" in sys.argv[3:], "--device", sys.argv[2])
    else:
        check_training(pathlib.Path(folder))
        check_capture(pathlib.Path(folder), True)
        check_kill(pathlib.Path(folder))
        check_full_disk()
        check_refusals(pathlib.Path(folder))
        check_fallback()
