#!/usr/bin/env python3
"""Compares the cpu backend with PyTorch, onnxruntime, ggml and direct calls of oneDNN: all do the
same work on the same numbers, in one run, in turn. Each peer is a process of its own. The figure of
a row is the median over the rounds of (time of the peer / time of Backplane); above 1 Backplane is
faster.

The last columns say how near the row is to the limit of this machine: the time that its bytes need
at the bandwidth of memory, or its operations at the f32 peak of the processor, over the time taken.
"""

import argparse
import collections
import datetime
import fnmatch
import json
import math
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
PYTHON = ROOT / ".deps/peers/bin/python"
WORKER = ROOT / "build/release/bin/peers_worker"
IN_PYTHON = ("PyTorch", "onnxruntime")
# "ggml repacked" puts weights into its own order beforehand.
PEERS = (*IN_PYTHON, "oneDNN", "ggml", "ggml repacked")
USUAL = PEERS[:3]
SHORT = {"ggml repacked": "ggml r."}
# What --quantized measures, with the same scales and zero points in one group of names.
QUANTIZED = "linear f32 by q*;matmul_scaled f32*x4096x4096*groups*;matmul_scaled i8*x4096x4096*"
PAUSE_SECONDS = 0.01  # The threads of the previous peer go to sleep within it.


class PeerError(Exception):
    pass


class Peer:
    """A process that answers lines; worker.cpp lists them. It runs on as many processors as it may
    use threads, because a setting of the library alone would not limit every library."""

    def __init__(self, name, command, threads, malloc=None):
        self.name = name
        counts = {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
        if malloc and name in IN_PYTHON:
            counts["LD_PRELOAD"] = str(malloc)
        processors = sorted(os.sched_getaffinity(0))[:threads]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            start_new_session=True,  # Ctrl-C ends this program, which then ends its peers.
            env=os.environ | counts, preexec_fn=lambda: os.sched_setaffinity(0, processors))

    def ask(self, line):
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline().rstrip("\n")
        except BrokenPipeError:
            answer = ""
        if answer == "" and self.process.poll() is not None:
            raise PeerError(f"{self.name} ended with code {self.process.returncode} at '{line}'")
        if answer.startswith("error\t"):
            raise PeerError(answer[6:])
        return answer

    def cases(self):
        """Returns {name: (bytes, flops)}."""
        self.process.stdin.write("list\n")
        self.process.stdin.flush()
        result = {}
        while line := self.process.stdout.readline().rstrip("\n"):
            name, size_bytes, flops = line.split("\t")
            result[name] = (float(size_bytes), float(flops))
        return result

    def close(self):
        self.process.stdin.close()
        self.process.wait(timeout=30)


def start(threads, wanted, malloc):
    commands = {"Backplane": [str(WORKER), "backplane"], "oneDNN": [str(WORKER), "onednn"],
                "ggml": [str(WORKER), "ggml"], "ggml repacked": [str(WORKER), "ggml-repacked"],
                "PyTorch": [str(PYTHON), str(HERE / "torch_peer.py"), str(threads)],
                "onnxruntime": [str(PYTHON), str(HERE / "onnxruntime_peer.py"), str(threads)]}
    return {name: Peer(name, commands[name], threads, malloc)
            for name in ("Backplane", *wanted)}


def is_same(ours, theirs):
    """Returns whether two means of absolute values can be results of the same work; NaN agrees."""
    return math.isnan(ours) or math.isnan(theirs) or \
        abs(ours - theirs) <= 0.02 * max(abs(ours), abs(theirs))


def measure(name, peers, have, options):
    """Returns {peer: seconds of a call in each round}, and {peer: why it is missing}."""
    ready, missing, checks = [], {}, {}
    for peer in peers.values():
        if name not in have[peer.name]:
            missing[peer.name] = "has no such case"
            continue
        try:
            peer.ask(f"prepare {name}")
            checks[peer.name] = float(peer.ask("check"))
            ready.append(peer)
        except PeerError as error:
            missing[peer.name] = str(error)
            if peer.name == "Backplane":
                return {}, missing
    for peer in list(ready):
        if not is_same(checks["Backplane"], checks[peer.name]):
            missing[peer.name] = (f"mean |y| is {checks[peer.name]:g}, that of Backplane "
                                  f"{checks['Backplane']:g}")
            ready.remove(peer)
    seconds = {peer.name: [] for peer in ready}
    for round_number in range(options.rounds):
        shift = round_number % len(ready)
        for peer in ready[shift:] + ready[:shift]:
            time.sleep(PAUSE_SECONDS)
            seconds[peer.name].append(float(peer.ask(f"run {options.ms}")))
    return seconds, missing


def row_of(name, threads, seconds, missing, cost, ceilings):
    ours = seconds["Backplane"]
    bandwidth, peak = ceilings
    size_bytes, flops = cost
    limit = max(size_bytes / bandwidth, flops / peak)
    ratios = {peer: statistics.median(t / o for t, o in zip(theirs, ours))
              for peer, theirs in seconds.items() if peer != "Backplane"}
    return {"case": name, "threads": threads, "seconds": {p: statistics.median(s) for p, s in
                                                          seconds.items()},
            "ratios": ratios, "missing": missing, "bytes": size_bytes, "flops": flops,
            "limit_seconds": limit, "limit": "bytes" if size_bytes / bandwidth >= flops / peak else
            "flops", "of_limit": limit / statistics.median(ours)}


def text_of(seconds):
    return f"{seconds * 1e9:.0f} ns" if seconds < 1e-6 else \
        f"{seconds * 1e6:.1f} us" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms"


def line_of(row, wanted):
    cells = [f"{row['ratios'][p]:7.2f}" if p in row["ratios"] else f"{'-':>7}" for p in wanted]
    seconds, unit = row["seconds"]["Backplane"], "GB/s" if row["limit"] == "bytes" else "GF/s"
    speed = row[row["limit"]] / seconds * 1e-9
    return (f"{row['case']:46} {row['threads']}  {text_of(seconds):>9} "
            f"{speed:6.1f} {unit} {' '.join(cells)}   {row['of_limit']:5.0%}")


def head(wanted):
    return (f"{'case':46} t  {'Backplane':>9} {'':11} "
            f"{' '.join(f'{SHORT.get(p, p)[:7]:>7}' for p in wanted)}   limit")


def markdown_lines(rows, wanted):
    """Returns a table of medians for a page of results, each peer with its ratio."""
    yield f"| case | threads | Backplane | {' | '.join(wanted)} | part of the limit |"
    yield "|---" * (len(wanted) + 4) + "|"
    for row in rows:
        cells = [f"{text_of(row['seconds'][p])} ({row['ratios'][p]:.2f})" if p in row["ratios"]
                 else "" for p in wanted]
        yield (f"| {row['case']} | {row['threads']} | {text_of(row['seconds']['Backplane'])} | "
               f"{' | '.join(cells)} | {row['of_limit']:.2f} ({row['limit']}) |")


def geometric_mean(values):
    return math.exp(statistics.fmean(map(math.log, values)))


def summary_lines(rows):
    for peer in PEERS:
        ratios = {f"{r['case']} ({r['threads']})": r["ratios"][peer] for r in rows
                  if peer in r["ratios"]}
        if ratios:
            worst = min(ratios, key=ratios.get)
            slower = sum(v < 0.9 for v in ratios.values())
            yield (f"against {peer}: {len(ratios)} rows, geometric mean "
                   f"{geometric_mean(ratios.values()):.2f}, {slower} below 0.90; "
                   f"least {ratios[worst]:.2f}: {worst}")
    best = [min(r["ratios"].values()) for r in rows if r["ratios"]]
    if best:
        yield f"against the best of them in each row: geometric mean {geometric_mean(best):.2f}"
    reasons = collections.Counter(
        (peer, why) for r in rows for peer, why in r["missing"].items() if "no such" not in why)
    for (peer, why), count in reasons.items():
        yield f"{peer} left out {count} time{'s' * (count > 1)}: {why}"


def setup():
    # Without oneDNN there is no cpu backend to compare.
    subprocess.run([str(ROOT / ".ci/setup")], check=True)
    subprocess.run([str(HERE.parent / "setup")], check=True)
    subprocess.run([str(HERE.parent / "setup"), "ggml"], check=True)
    subprocess.run(["cmake", "--preset", "release"], check=True, cwd=ROOT)
    subprocess.run(["cmake", "--build", "--preset", "release", "--target", "peers_worker",
                    "backplane_cpu"], check=True, cwd=ROOT)


def environment():
    model = "unknown"
    if pathlib.Path("/proc/cpuinfo").exists():
        lines = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        names = [line.split(": ")[1] for line in lines if line.startswith("model name")]
        model = names[0] if names else model
        flags = next((line for line in lines if line.startswith("flags")), "")
        model += " (AVX-512)" if "avx512f" in flags else " (AVX2)" if "avx2" in flags else ""
    ask = ("import torch, onnxruntime, numpy; "
           "print(torch.__version__, onnxruntime.__version__, numpy.__version__)")
    python = str(PYTHON) if PYTHON.exists() else sys.executable
    versions = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=False)
    return {"date": datetime.date.today().isoformat(), "processor": model, "cores": os.cpu_count(),
            "system": platform.platform(), "torch_onnxruntime_numpy": versions.stdout.split()}


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--setup", action="store_true",
                        help="install the peers and build the worker, then end")
    parser.add_argument("-k", "--filter", help="glob of cases, several joined by ;")
    parser.add_argument("--quantized", action="store_true",
                        help="products with a quantised weight beside oneDNN and ggml, as a table "
                             "of medians")
    parser.add_argument("--threads", default="1,2", help="thread counts to measure with")
    parser.add_argument("--rounds", type=int, default=7, help="turns of each peer, an odd number")
    parser.add_argument("--ms", type=int, default=60, help="milliseconds of a turn")
    parser.add_argument("--peers", help=f"which peers, joined by ,: {', '.join(PEERS)}")
    parser.add_argument("--malloc", type=pathlib.Path, metavar="LIBRARY",
                        help="allocator that PyTorch and onnxruntime load, in place of malloc() of "
                             "the system")
    parser.add_argument("--json", type=pathlib.Path, help="write all figures here")
    parser.add_argument("--list", action="store_true", help="name the cases, and end")
    options = parser.parse_args()
    if options.filter is None:
        options.filter = QUANTIZED if options.quantized else "*"
    usual = PEERS[2:] if options.quantized else USUAL
    options.peers = [p.strip() for p in options.peers.split(",") if p.strip()] \
        if options.peers is not None else list(usual)
    if options.malloc and not options.malloc.is_file():
        parser.error(f"--malloc: '{options.malloc}' is not a file; on Debian, "
                     "libtcmalloc-minimal4 has libtcmalloc_minimal.so.4")
    for peer in options.peers:
        if peer not in PEERS:
            parser.error(f"--peers: there is no '{peer}'; there are {', '.join(PEERS)}")
    return options


def run(options, rows):
    """Appends a row for each case, so that an interrupted run keeps those that it has."""
    wanted = options.peers
    for threads in map(int, options.threads.split(",")):
        peers = start(threads, wanted, options.malloc)
        try:
            have = {name: peer.cases() for name, peer in peers.items()}
            if options.list:
                print("\n".join(have["Backplane"]))
                return
            names = [n for n in have["Backplane"]
                     if any(fnmatch.fnmatchcase(n, g) for g in options.filter.split(";"))]
            if not names:
                raise PeerError(f"no case matches '{options.filter}'; --list names them")
            ceilings = tuple(map(float, peers["Backplane"].ask(f"ceilings {threads}").split("\t")))
            print(f"\n{threads} thread{'s' * (threads > 1)}: memory {ceilings[0] * 1e-9:.1f} GB/s "
                  f"(read and written), f32 peak {ceilings[1] * 1e-9:.0f} GF/s")
            print(head(wanted), flush=True)
            for number, name in enumerate(names, 1):
                if sys.stderr.isatty():
                    print(f"\r{number}/{len(names)} {name:60}", end="\r", file=sys.stderr)
                seconds, missing = measure(name, peers, have, options)
                if not seconds:
                    print(f"{name:46} {threads}  Backplane cannot: {missing['Backplane']}")
                    continue
                rows.append(row_of(name, threads, seconds, missing, have["Backplane"][name],
                                   ceilings))
                print(line_of(rows[-1], wanted), flush=True)
        finally:
            for peer in peers.values():
                peer.close()


def main():
    options = parse()
    if options.setup:
        setup()
        return 0
    for needed in (WORKER, PYTHON) if set(options.peers) & set(IN_PYTHON) else (WORKER,):
        if not needed.exists():
            print(f"{needed.relative_to(ROOT)} is missing: run {pathlib.Path(__file__).name} "
                  "--setup", file=sys.stderr)
            return 2
    rows, is_complete = [], True
    try:
        run(options, rows)
    except (PeerError, ValueError) as error:
        print(f"peers: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\npeers: interrupted; what follows is of the rows so far", file=sys.stderr)
        is_complete = False
    lines = list(summary_lines(rows))
    print("", *lines, sep="\n")
    if options.quantized:
        print("", *markdown_lines(rows, options.peers), sep="\n")
    if options.json:
        facts = environment() | {"malloc": str(options.malloc or "")}
        document = {"environment": facts, "is_complete": is_complete, "rows": rows,
                    "summary": lines}
        options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 0 if is_complete else 130


if __name__ == "__main__":
    sys.exit(main())
