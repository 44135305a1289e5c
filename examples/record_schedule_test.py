#!/usr/bin/env python3
"""Records steps of 11_train_gpt_distributed, and replays them with bp-simulate: on a fast network
the step takes what was computed, and on a slow one what its calls take. The report of a replay has
all calls and bytes of the recording."""
import collections
import json
import pathlib
import subprocess
import sys
import tempfile

LAUNCH, DISTRIBUTED, SIMULATE, PART = sys.argv[1:]
TINY = "--layers 2 --width 32 --heads 2 --context 32 --batch 8 --steps 4 --eval-batches 1".split()
NETWORK = "nodes: {}\nnetwork: {{shape: switch, bandwidth: {}, latency_s: 0}}\n"


def run(*command, expect=0):
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    if result.returncode != expect:
        sys.exit(f"{command}: exit {result.returncode}\n{result.stdout}{result.stderr}")
    return result.stdout + result.stderr


def record(base, count, strategy, *options):
    run(LAUNCH, "-n", str(count), DISTRIBUTED, *TINY, "--strategy", strategy, *options,
        "--record-schedule", str(base))
    return [pathlib.Path(f"{base}.{rank}") for rank in range(count)]


def replay(scratch, files, bandwidth):
    network = scratch / "network.yaml"
    network.write_text(NETWORK.format(len(files), bandwidth), encoding="utf-8")
    text = run(SIMULATE, str(network), "--json", "--recorded", *map(str, files))
    return json.loads(text)


def calls_of(path):
    """Returns the calls of each step of a file, and its groups."""
    steps, groups = [], {}
    for event in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
        if event["event"] == "step":
            steps.append([])
        elif event["event"] == "call":
            steps[-1].append(event)
        elif event["event"] == "group":
            groups[event["group"]] = event["ranks"]
    return steps, groups


def check_calls(report, files):
    """The report has the means of all steps but the first one, over all ranks."""
    counts, sizes = collections.Counter(), collections.Counter()
    for path in files:
        for event in (event for step in calls_of(path)[0][1:] for event in step):
            counts[event["call"]] += 1
            sizes[event["call"]] += event["bytes"]
    assert set(report["calls"]) == set(counts), (report, counts)
    for kind, calls in report["calls"].items():
        assert abs(calls["count"] * 3 - counts[kind]) < 1e-6, (kind, calls, counts)
        assert abs(calls["bytes"] * 3 - sizes[kind]) < 1e-6 * max(sizes[kind], 1), (kind, calls)
    assert counts["send"] == counts["receive"] and sizes["send"] == sizes["receive"], counts


def check(scratch, count, strategy, kinds, *options, parts=()):
    files = record(scratch / strategy, count, strategy, *options)
    for path in files:
        steps, groups = calls_of(path)
        assert len(steps) == 4, path
        found = {event["call"] for step in steps for event in step}
        assert kinds <= found, (strategy, found)
        used = {tuple(groups[event["group"]]) for step in steps for event in step}
        assert set(parts[int(path.suffix[1:])] if parts else ()) <= used, (strategy, used)
    fast, slow = replay(scratch, files, 1e15), replay(scratch, files, 1e3)
    check_calls(fast, files)
    # With so slow a network the calls follow each other, and computing hides little of them.
    assert 0 < fast["compute_s"] <= fast["step_s"], fast
    assert fast["communication_s"] < 1e-6 * slow["communication_s"], (fast, slow)
    assert slow["step_s"] > slow["communication_s"] > 1, slow
    print(f"{strategy}: {fast['step_s']:.4f} s, on a slow network {slow['step_s']:.1f} s")


def check_parts(scratch):
    """Pipelines, and groups that have some of the ranks."""
    check(scratch, 4, "pp", {"send", "receive", "all_reduce"}, "--layers", "4")
    tensor, pipe = [(0, 1), (0, 1), (2, 3), (2, 3)], [(0, 2), (1, 3), (0, 2), (1, 3)]
    for strategy, kinds in (("2d", {"all_gather", "reduce_scatter"}), ("3d", {"send", "receive"})):
        check(scratch, 4, strategy, kinds, parts=list(zip(tensor, pipe)))


def main():
    with tempfile.TemporaryDirectory() as folder:
        scratch = pathlib.Path(folder)
        if PART == "parts":
            check_parts(scratch)
            return
        check(scratch, 2, "ddp", {"all_reduce"})
        check(scratch, 2, "fsdp", {"all_gather", "reduce_scatter"})
        check(scratch, 2, "cp", {"send", "receive"})
        check(scratch, 2, "ep", {"all_to_all"})
        text = run(LAUNCH, "-n", "2", DISTRIBUTED, *TINY, "--strategy", "ps",
                   "--record-schedule", str(scratch / "ps"), expect=1)
        assert "--record-schedule is for other strategies than ps" in text, text
        text = run(LAUNCH, "-n", "1", DISTRIBUTED, *TINY, "--record-schedule",
                   str(scratch / "none" / "file"), expect=1)
        assert "--record-schedule" in text and "cannot be written" in text, text


main()
