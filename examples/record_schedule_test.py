#!/usr/bin/env python3
"""Records steps of 11_train_gpt_distributed, and replays them with bp-simulate: on a fast network
the step takes what was computed, and on a slow one what its calls take."""
import json
import pathlib
import subprocess
import sys
import tempfile

LAUNCH, DISTRIBUTED, SIMULATE = sys.argv[1:]
TINY = "--layers 2 --width 32 --heads 2 --context 32 --batch 8 --steps 4 --eval-batches 1".split()
NETWORK = "nodes: {}\nnetwork: {{shape: switch, bandwidth: {}, latency_s: 0}}\n"


def run(*command, expect=0):
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    if result.returncode != expect:
        sys.exit(f"{command}: exit {result.returncode}\n{result.stdout}{result.stderr}")
    return result.stdout + result.stderr


def record(base, count, strategy):
    run(LAUNCH, "-n", str(count), DISTRIBUTED, *TINY, "--strategy", strategy,
        "--record-schedule", str(base))
    return [pathlib.Path(f"{base}.{rank}") for rank in range(count)]


def replay(scratch, files, bandwidth):
    network = scratch / "network.yaml"
    network.write_text(NETWORK.format(len(files), bandwidth), encoding="utf-8")
    text = run(SIMULATE, str(network), "--json", "--recorded", *map(str, files))
    return json.loads(text)


def check(scratch, strategy, kinds):
    files = record(scratch / strategy, 2, strategy)
    for path in files:
        events = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        assert sum(event["event"] == "step" for event in events) == 4, path
        found = {event["call"] for event in events if event["event"] == "call"}
        assert kinds <= found, (strategy, found)
    fast, slow = replay(scratch, files, 1e15), replay(scratch, files, 1e3)
    # With so slow a network the calls follow each other, and computing hides little of them.
    assert 0 < fast["compute_s"] <= fast["step_s"], fast
    assert fast["communication_s"] < 1e-6 * slow["communication_s"], (fast, slow)
    assert slow["step_s"] > slow["communication_s"] > 1, slow
    print(f"{strategy}: {fast['step_s']:.4f} s, on a slow network {slow['step_s']:.1f} s")


def main():
    with tempfile.TemporaryDirectory() as folder:
        scratch = pathlib.Path(folder)
        check(scratch, "ddp", {"all_reduce"})
        check(scratch, "fsdp", {"all_gather", "reduce_scatter"})
        text = run(LAUNCH, "-n", "4", DISTRIBUTED, *TINY, "--strategy", "2d",
                   "--record-schedule", str(scratch / "2d"), expect=1)
        assert "has 2 of 4 ranks; allowed: strategies whose groups have all of them" in text, text
        text = run(LAUNCH, "-n", "1", DISTRIBUTED, *TINY, "--record-schedule",
                   str(scratch / "none" / "file"), expect=1)
        assert "--record-schedule" in text and "cannot be written" in text, text


main()
