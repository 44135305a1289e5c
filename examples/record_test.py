#!/usr/bin/env python3
"""Records a training of 03_train_digits on a few digits, and replays it on the backend that it ran
on, which gives the same bits again. It also replays it on others, where oracles judge each launch.

  record_test.py TRAIN_DIGITS BP_CONFORMANCE DIGITS_CSV RECORDED_ON [OTHER...]
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

TRAIN, CONFORMANCE, DIGITS = sys.argv[1:4]
RECORDED_ON, OTHERS = sys.argv[4], sys.argv[5:]
KEPT = 60  # The digits that the test uses, and the line with the names of the columns.


def run(*words, **variables):
    done = subprocess.run(words, capture_output=True, text=True, check=False,
                          env={**os.environ, **variables})
    assert done.returncode == 0, f"{words}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def record(folder):
    data = folder / "digits.csv"
    lines = pathlib.Path(DIGITS).read_text().splitlines(keepends=True)
    # The digits of the file come in turn, so these lines have all ten.
    data.write_text("".join(lines[:KEPT + 1]))
    recording = folder / "recording"
    run(TRAIN, "--epochs", "1", "--data", str(data), "--out", str(folder / "w.safetensors"),
        BACKPLANE_LAYERS="record",
        BACKPLANE_LAYER_OPTIONS=f"record.dir={recording},record.outputs=1")
    return recording


def replay(folder, recording, backend, *options):
    """Returns the outcome of each launch and of each read."""
    out = folder / pathlib.Path(backend).stem
    run(CONFORMANCE, "replay", backend, str(recording), "--out", str(out), "-q", *options)
    finals = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
    return [line["status"] for line in finals if line["case"] != "replay.end"]


def main():
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        recording = record(folder)
        lines = [json.loads(line) for line in (recording / "stream.jsonl").read_text().splitlines()]
        calls = [line.get("call") for line in lines]
        launches, reads = calls.count("kernel.launch"), calls.count("memory.copy_to_host")
        assert launches > 20 and reads > 2, (launches, reads)
        assert "unrecorded" not in calls
        # The runtime never unloads a backend, so the end of the process ends the recording.
        assert calls[-1] == "end" and lines[-1]["launches"] == launches, lines[-1]
        statuses = replay(folder, recording, RECORDED_ON)
        assert statuses == ["Pass"] * (launches + reads), statuses
        for backend in OTHERS:
            # Results may differ by rounding on other backends.
            statuses = replay(folder, recording, backend, "--seed-weights")
            assert len(statuses) == launches + reads and "Fail" not in statuses, statuses
            assert statuses.count("Pass") > launches / 2, statuses


main()
