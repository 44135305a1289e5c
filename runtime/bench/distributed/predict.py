#!/usr/bin/env python3
"""Compares steps that bp-simulate predicts with steps of real processes of this machine. Model a
gives the network: one bandwidth and one latency for each number of ranks, fitted to all its
strategies. Models b and c are predicted with them. The figures are means of the steps of a run, and
the simulated step against the measured one.

  predict.py build/release
"""

import argparse
import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile

MODELS = {
    "a": {"layers": 4, "width": 256, "batch": 8},
    "b": {"layers": 4, "width": 384, "batch": 16},
    "c": {"layers": 8, "width": 128, "batch": 8},
}
STRATEGIES = ["ddp", "fsdp", "pp", "2d"]
FITTED = "a"
BANDWIDTHS = [1e8, 2e8, 4e8, 8e8, 1.5e9, 3e9, 6e9, 12e9]
LATENCIES = [1e-6, 1e-5, 3e-5, 1e-4, 3e-4, 6e-4, 1e-3, 1.5e-3]
NETWORK = "nodes: {}\nnetwork: {{shape: switch, bandwidth: {}, latency_s: {}}}\n"


def run(*command):
    # Threads of OpenMP that spin would disturb each other, since a rank that records uses two.
    variables = os.environ | {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                            check=False, env=variables)
    if result.returncode != 0:
        sys.exit(f"{command}: exit code {result.returncode}\n{result.stdout}{result.stderr}")
    return result.stdout


def record(o, base, ranks, model, strategy):
    sizes = itertools.chain(*([f"--{name}", value] for name, value in MODELS[model].items()))
    run(o.build / "bin/bp-launch", "-n", ranks, o.build / "bin/11_train_gpt_distributed",
        "--heads", 4, "--context", 128, *sizes, "--steps", o.steps, "--eval-every", o.steps,
        "--eval-batches", 1, "--strategy", strategy, "--record-schedule", base)
    return [f"{base}.{rank}" for rank in range(ranks)]


def replay(o, scratch, files, bandwidth, latency):
    network = scratch / "network.yaml"
    network.write_text(NETWORK.format(len(files), bandwidth, latency), encoding="utf-8")
    report = json.loads(run(o.build / "bin/bp-simulate", network, "--json", "--recorded", *files))
    return report["measured_s"], report["step_s"] / report["measured_s"] - 1


def fit(o, scratch, recordings):
    """Returns the network with the smallest largest error."""
    def largest_error(network):
        return max(abs(replay(o, scratch, files, *network)[1]) for files in recordings)
    return min(itertools.product(BANDWIDTHS, LATENCIES), key=largest_error)


def compare(o, scratch, ranks):
    """Prints the table of one number of ranks, and returns the predicted errors."""
    files = {(model, strategy): record(o, scratch / f"{model}.{strategy}.{ranks}", ranks, model,
                                       strategy)
             for model in MODELS for strategy in STRATEGIES}
    network = fit(o, scratch, [files[FITTED, strategy] for strategy in STRATEGIES])
    print(f"{ranks} ranks, fitted to model {FITTED}: {network[0] / 1e6:.0f} MB/s, "
          f"{network[1] * 1e6:.0f} us")
    errors = []
    for model in MODELS:
        cells = []
        for strategy in STRATEGIES:
            measured, error = replay(o, scratch, files[model, strategy], *network)
            cells.append(f"{strategy} {measured * 1e3:.0f} ms {error * 100:+.1f} %")
            if model != FITTED:
                errors.append(abs(error))
        print(f"  {model}: " + ", ".join(cells), flush=True)
    return errors


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path, help="the folder of a build, as build/release")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4], help="default: 2 4")
    parser.add_argument("--steps", type=int, default=16, help="of each run; default: 16")
    o = parser.parse_args()
    for program in ("bp-launch", "bp-simulate", "11_train_gpt_distributed"):
        if not (o.build / "bin" / program).exists():
            parser.error(f"{o.build} has no bin/{program}; build it first, with preset release")
    with tempfile.TemporaryDirectory() as folder:
        errors = [error for ranks in o.ranks for error in compare(o, pathlib.Path(folder), ranks)]
    within = sum(error <= 0.15 for error in errors)
    print(f"{within} of {len(errors)} predictions are within 15 %, the largest error is "
          f"{max(errors) * 100:.1f} %")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("interrupted; what was printed so far stands")
