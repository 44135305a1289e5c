#!/usr/bin/env python3
"""Compares all-reduce of f32 between two processes of this machine, and a step of data-parallel
and fully sharded training, with Gloo alone and with PyTorch over its own Gloo: in one run, in turn,
as medians of the rounds. A ratio is the time of the peer over the time of Backplane: above 1
Backplane is faster. Each rank has one thread.

  compare.py build/release                 # after runtime/bench/setup, which installs PyTorch
  compare.py build/release --device vulkan # staged over the groups of cpu
  compare.py build/release --group mpi     # over MPI, and beside MPI alone; mpirun starts all ranks
  compare.py build/release --group-option shared_memory=0   # by messages, as between machines
"""

import argparse
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
SIZES = [1 << shift for shift in range(10, 29, 2)]
STRATEGIES = {"ddp": "data-parallel training", "fsdp": "fully sharded training"}
MODEL = {"layers": 4, "width": 256, "heads": 4, "context": 128, "batch": 8}


# Open MPI refuses more processes than processors, and binds the threads of each to one processor.
MPI_SETTINGS = {"OMPI_MCA_rmaps_base_oversubscribe": "1",
                "OMPI_MCA_hwloc_base_binding_policy": "none"}


def launch(o, *command, launcher=None):
    launcher = launcher or ("mpirun" if o.group == "mpi" else o.build / "bin/bp-launch")
    words = [launcher, "-n", o.ranks, *command]
    result = subprocess.run([str(word) for word in words], capture_output=True, text=True,
                            check=False, env=os.environ | MPI_SETTINGS | {"OMP_NUM_THREADS": "1"})
    if result.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}: exit code {result.returncode}\n{result.stderr}")
    return re.sub(r"(?m)^\[\d+\] ", "", result.stdout + result.stderr)


def seconds_by_size(text):
    rows = re.findall(r"(?m)^(\d+) ([\d.e+-]+)$", text)
    return {int(size): float(seconds) for size, seconds in rows}


def ours(o):
    return seconds_by_size(launch(o, o.build / "bin/distributed_rank", o.device, o.transport,
                                  o.group, *o.group_option, "--", *SIZES))


def gloo(o):
    with tempfile.TemporaryDirectory() as folder:
        return seconds_by_size(launch(o, o.build / "bin/gloo_rank", folder, *SIZES,
                                      launcher=o.build / "bin/bp-launch"))


def mpi(o):
    return seconds_by_size(launch(o, o.build / "bin/mpi_rank", *SIZES))


def pytorch(o):
    return seconds_by_size(launch(o, o.python, HERE / "torch_rank.py", "allreduce", *SIZES,
                                  launcher=o.build / "bin/bp-launch"))


def our_step(o, strategy):
    settings = [f"--{name}={value}" for name, value in MODEL.items()]
    words = [word for setting in settings for word in setting.split("=")]
    text = launch(o, o.build / "bin/11_train_gpt_distributed", "--device", o.device, *words,
                  "--strategy", strategy, "--steps", o.steps, "--eval-every", o.steps,
                  "--eval-batches", 1,
                  *(["--transport", o.transport] if o.transport else []),
                  *(["--group", o.group] if o.group else []))
    return float(re.search(r"a step takes ([\d.]+) ms", text)[1]) / 1e3


def torch_step(o, strategy):
    text = launch(o, o.python, HERE / "torch_rank.py", strategy, o.steps,
                  *(f"{name}={value}" for name, value in MODEL.items()),
                  launcher=o.build / "bin/bp-launch")
    return float(re.findall(r"(?m)^([\d.e+-]+)$", text)[-1])  # PyTorch may warn behind it.


def say_table(o, peers, rounds):
    factor = 2 * (o.ranks - 1) / o.ranks
    print(f"{'bytes':>10} {'us':>10} {'busbw GB/s':>10}  " +
          "  ".join(f"{name + ' us':>12} {'ratio':>6}" for name in peers))
    for size in SIZES:
        own = statistics.median(r["Backplane"][size] for r in rounds)
        line = f"{size:10} {own * 1e6:10.1f} {factor * size / own / 1e9:10.3f}  "
        for name in peers:
            other = statistics.median(r[name][size] for r in rounds)
            ratio = statistics.median(r[name][size] / r["Backplane"][size] for r in rounds)
            line += f"{other * 1e6:12.1f} {ratio:6.2f}  "
        print(line.rstrip())


def say_steps(o, strategy, has_torch):
    steps = [(our_step(o, strategy), torch_step(o, strategy) if has_torch else None)
             for _ in range(o.rounds)]
    own = statistics.median(mine for mine, _ in steps)
    print(f"step of {STRATEGIES[strategy]}, {o.ranks} ranks: {own * 1e3:.1f} ms", end="")
    if has_torch:
        other = statistics.median(theirs for _, theirs in steps)
        ratio = statistics.median(theirs / mine for mine, theirs in steps)
        print(f", PyTorch {other * 1e3:.1f} ms, ratio {ratio:.2f}", end="")
    print(flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path, help="the folder of a build, as build/release")
    parser.add_argument("--device", default="cpu", help="default: cpu")
    parser.add_argument("--transport", default="", help="the device that carries staged calls")
    parser.add_argument("--group", default="", help="the table of process groups, such as mpi")
    parser.add_argument("--group-option", action="append", default=[], metavar="KEY=VALUE",
                        help="an option of the groups of all-reduce, such as shared_memory=0; "
                             "it may be repeated, and no step of training is then measured")
    parser.add_argument("--ranks", type=int, default=2, help="default: 2")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each peer; default: 3")
    parser.add_argument("--steps", type=int, default=40, help="of training; default: 40")
    parser.add_argument("--python", default=ROOT / ".deps/peers/bin/python",
                        help="the Python that has PyTorch; default: that of runtime/bench/setup")
    o = parser.parse_args()
    for program in ("bp-launch", "distributed_rank", "11_train_gpt_distributed"):
        if not (o.build / "bin" / program).exists():
            parser.error(f"{o.build} has no bin/{program}; build it first, with preset release")
    peers = {"Backplane": ours}
    if (o.build / "bin/gloo_rank").exists():
        peers["Gloo"] = gloo
    if o.group == "mpi":
        peers["MPI"] = mpi
    has_torch = pathlib.Path(o.python).exists()
    if has_torch:
        peers["PyTorch"] = pytorch
    else:
        print("PyTorch is missing: runtime/bench/setup installs it")
    rounds = [{name: measure(o) for name, measure in peers.items()} for _ in range(o.rounds)]
    say_table(o, [name for name in peers if name != "Backplane"], rounds)
    for strategy in STRATEGIES if not o.group_option else ():
        say_steps(o, strategy, has_torch)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("interrupted; what was printed so far stands")
