#!/usr/bin/env python3
"""Runs 03_train_digits as a user would: two short runs of one seed, a run that is killed, files
that take no bytes, and wrong options. If it is given the name of a device, the test compares the
device with the default one instead; most ops that the device lacks run on the default one. If it is
also given options for the device's backend, the device must have run every op as programs of its
compiler; with "tiled" behind the options it must have converted tensors to layouts, and its losses
must be those of the device without the options, but for the rounding of sums. With "learns" in
place of the options the sums of the device may differ in their last bits: its losses must follow
those of the default device for an epoch, and it must reach 97 % by itself."""
import json
import os
import re
import subprocess
import sys
import tempfile
import time

PROGRAM = sys.argv[1]


def run(*arguments, expect=0, stdout=subprocess.PIPE):
    result = subprocess.run([PROGRAM, *arguments], stdout=stdout, stderr=subprocess.PIPE, text=True,
                            check=False)
    if result.returncode != expect:
        sys.exit(f"{arguments}: exit {result.returncode}, not {expect}\n"
                 f"{result.stdout}{result.stderr}")
    return result


def accuracy_of(text):
    """Returns the line of the accuracy. The line behind it says where the ops ran."""
    *_, line, report = text.splitlines()
    compiled = r"( \(\d+ as programs of one op\))?"
    laid_out = r"( \(\d+ with conversions to layouts\))?"
    served = (rf"\S+: \d+ launches: \d+ native{compiled}{laid_out}, \d+ decomposed, "
              r"\d+ on the host")
    assert re.fullmatch(served, report), report
    return line


def compare_with(device):
    with tempfile.TemporaryDirectory() as scratch:
        runs = [run("--epochs", "2", "--out", f"{scratch}/w.safetensors", *more).stdout
                for more in ([], ["--device", device])]
    assert runs[1].startswith(f"{device}:0: "), runs[1]
    lines = [accuracy_of(text) for text in runs]
    assert lines[0] == lines[1] and lines[0].startswith("test accuracy "), lines


def losses(path):
    with open(path, encoding="utf-8") as file:
        lines = file.read().splitlines()
    assert lines[0] == "step,loss", lines[0]
    return [float(line.split(",")[1]) for line in lines[1:]]


def check_learning(device):
    """Compares runs of the same seed, split, weights, order and dropout masks, which differ only in
    the order of sums. Training is chaotic: the rounding errors grow tenfold in some 15 steps, from
    1e-7 of the loss in the first step to 8e-7 at the end of the first epoch and 1e-4 at the end of
    the second, on lavapipe. So the first epoch is compared, and the last one must have learned."""
    with tempfile.TemporaryDirectory() as scratch:
        out = ("--out", f"{scratch}/w.safetensors", "--log")
        run("--epochs", "1", *out, f"{scratch}/default.csv")
        lines = run("--epochs", "8", "--device", device, *out, f"{scratch}/other.csv").stdout
        ours, theirs = losses(f"{scratch}/default.csv"), losses(f"{scratch}/other.csv")
    assert len(ours) == 23 and len(theirs) == 8 * 23, (len(ours), len(theirs))
    furthest = max(abs(a / b - 1) for a, b in zip(ours, theirs))
    print(f"losses of {len(ours)} steps differ by at most {furthest:.1e} of them; allowed: 1e-05")
    assert furthest <= 1e-5, list(zip(ours, theirs))
    accuracy = float(re.search(r"^test accuracy (\S+) %", lines, re.MULTILINE)[1])
    assert accuracy >= 97, lines
    print(lines)


def numbers_of(log):
    """Returns the numbers of all rows behind the header."""
    with open(log, encoding="utf-8") as file:
        return [float(number) for line in file.read().splitlines()[1:]
                for number in line.split(",")]


def check_conversions(device, options):
    """Compares the device with itself without the options. Kernels get contiguous copies of
    tiles, also where the plain run gives them a transposed view, and a library may round otherwise
    then."""
    with tempfile.TemporaryDirectory() as scratch:
        out = ("--out", f"{scratch}/w.safetensors", "--device", device, "--epochs", "1", "--log")
        run(*out, f"{scratch}/plain.csv")
        os.environ["BACKPLANE_OPTIONS"] = options
        explained = run(*out, f"{scratch}/tiled.csv", "--explain").stdout
        plain, tiled = (numbers_of(f"{scratch}/{name}.csv") for name in ("plain", "tiled"))
    assert all(abs(a - b) <= 1e-6 * abs(a) for a, b in zip(plain, tiled, strict=True)), (plain,
                                                                                         tiled)
    converted = r" launches: \d+ native \(\d+ with conversions to layouts\), "
    assert re.search(rf"^  matmul|linear:.*{converted}", explained, re.MULTILINE), explained
    assert "so tensors by strides are converted for each call" in explained, explained


def check_programs(device, options):
    with tempfile.TemporaryDirectory() as scratch:
        os.environ.update(BACKPLANE_OPTIONS=options, BACKPLANE_LAYERS="trace",
                          BACKPLANE_LAYER_OPTIONS=f"trace.file={scratch}/%b.json")
        run("--epochs", "1", "--out", f"{scratch}/w.safetensors", "--device", device)
        with open(f"{scratch}/{device}.json", encoding="utf-8") as file:
            events = json.load(file)
    kernels = {event["name"] for event in events if event.get("cat") == "kernel"}
    assert kernels == {"program", "program.workspace_size"}, kernels


def check_kill():
    """Checks that a run which would take hours leaves its log if it is killed."""
    with tempfile.TemporaryDirectory() as scratch:
        log = f"{scratch}/losses.csv"
        with subprocess.Popen([PROGRAM, "--epochs", "1000000", "--log", log, "--out",
                               f"{scratch}/w.safetensors"],
                              stdout=subprocess.DEVNULL) as process:
            try:
                while not os.path.exists(log) or len(open(log, "rb").readlines()) < 4:
                    assert process.poll() is None, f"exit {process.returncode}"
                    time.sleep(0.01)
            finally:
                process.kill()
        with open(log, encoding="utf-8") as file:
            text = file.read()
        assert text.endswith("\n"), "the last line is cut"
        steps = [int(line.split(",")[0]) for line in text.splitlines()[1:]]
        assert len(losses(log)) >= 3 and steps == list(range(1, len(steps) + 1)), text


def check_full_disk():
    with tempfile.TemporaryDirectory() as scratch:
        short = ("--epochs", "1", "--out", f"{scratch}/w.safetensors")
        full = run(*short, "--log", "/dev/full", expect=1).stderr
        assert "/dev/full: cannot be written: No space left on device" in full, full
        for arguments in (["--help"], short):
            with open("/dev/full", "wb") as output:
                full = run(*arguments, expect=1, stdout=output).stderr
            assert "standard output: cannot be written: No space left on device" in full, full


def main():
    with tempfile.TemporaryDirectory() as scratch:
        lines = [accuracy_of(run("--epochs", "6", "--seed", "3",
                                 "--out", f"{scratch}/{i}.safetensors").stdout)
                 for i in range(2)]
        accuracy = float(re.fullmatch(r"test accuracy (\S+) % \(\d+ of 360\)", lines[0])[1])
        assert lines[0] == lines[1], f"the same seed gave {lines}"
        assert accuracy > 90, lines[0]
        weights = [open(f"{scratch}/{i}.safetensors", "rb").read() for i in range(2)]
        assert weights[0] == weights[1], "the same seed gave other weights"

        explained = run("--epochs", "1", "--out", f"{scratch}/w.safetensors", "--explain",
                        "--device", "acme.template").stdout
        assert re.search(r"^  relu: \d+ launches: 0 native, ", explained, re.MULTILINE), explained

        no_folder = run("--epochs", "1", "--out", f"{scratch}/none/w.safetensors", expect=1)
        assert "cannot be written" in no_folder.stderr, no_folder.stderr
    assert "usage:" in run("--help").stdout
    assert "--epochs is 'x'" in run("--epochs", "x", expect=2).stderr
    assert "unknown option" in run("--frobnicate", "1", expect=2).stderr
    unknown = run("--device", "acme", expect=1)
    assert "acme" in unknown.stderr, unknown.stderr
    missing = run("--data", "/nonexistent.csv", expect=1)
    assert "/nonexistent.csv: cannot be read" in missing.stderr, missing.stderr
    no_log = run("--log", "/nonexistent/losses.csv", expect=1)
    assert "/nonexistent/losses.csv: cannot be written" in no_log.stderr, no_log.stderr


if len(sys.argv) == 2:
    main()
    check_kill()
    check_full_disk()
elif len(sys.argv) == 3:
    compare_with(sys.argv[2])
elif sys.argv[3] == "learns":
    check_learning(sys.argv[2])
elif sys.argv[4:] == ["tiled"]:
    check_conversions(*sys.argv[2:4])
else:
    os.environ["BACKPLANE_OPTIONS"] = sys.argv[3]
    compare_with(sys.argv[2])
    check_programs(*sys.argv[2:])
