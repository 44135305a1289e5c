#!/usr/bin/env python3
"""Compares a backend on an accelerator with PyTorch on the same device: both do the same work on
the same numbers, in one run, in turn. A ratio is the time of PyTorch over the time of Backplane, as
the median over the rounds; above 1 Backplane is faster. A row whose results disagree has a text in
place of a ratio.

Rows whose names have a word of OPTIONS run on another process of Backplane, whose backend was given
the option of that word.
"""

import argparse
import json
import math
import os
import pathlib
import queue
import signal
import statistics
import subprocess
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent


class PeerError(Exception):
    pass


class Peer:
    """A process that answers lines, each within a time limit."""

    def __init__(self, name, command, deadline):
        self.name, self.deadline, self.lines = name, deadline, queue.Queue()
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, start_new_session=True)
        threading.Thread(target=self.collect, daemon=True).start()

    def collect(self):
        for line in self.process.stdout:
            self.lines.put(line.rstrip("\n"))
        self.lines.put(None)

    def read(self):
        """Returns a line, or None if the process has ended."""
        try:
            return self.lines.get(timeout=max(0.001, self.deadline - time.monotonic()))
        except queue.Empty:
            self.kill()
            raise PeerError(f"{self.name} did not answer in time") from None

    def kill(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()

    def ask(self, line):
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
            answer = self.read()
        except BrokenPipeError:
            answer = None
        if answer is None:
            raise PeerError(f"{self.name} ended with code {self.process.wait()} at '{line}'")
        if answer.startswith("error\t"):
            raise PeerError(answer[6:])
        return answer

    def cases(self):
        """Returns {name: (bytes, flops)}."""
        self.process.stdin.write("list\n")
        self.process.stdin.flush()
        result = {}
        while line := self.read():
            name, size_bytes, flops = line.split("\t")
            result[name] = (float(size_bytes), float(flops))
        return result

    def close(self):
        try:
            self.process.stdin.close()
            self.process.wait(timeout=min(20, max(0.5, self.deadline - time.monotonic())))
        except (BrokenPipeError, subprocess.TimeoutExpired):
            self.kill()


def is_same(ours, theirs):
    """Returns whether two means of absolute values can be results of the same work."""
    return abs(ours - theirs) <= 0.02 * max(abs(ours), abs(theirs)) + 1e-6


def measure(name, ours, theirs, options):
    """Returns the row of a case; `theirs` may be None."""
    row = {"case": name, "seconds": {}, "ratio": None, "missing": ""}
    ours.ask(f"prepare {name}")
    peers = {"Backplane": ours}
    if theirs is not None:
        try:
            theirs.ask(f"prepare {name}")
            mine, other = float(ours.ask("check")), float(theirs.ask("check"))
            if is_same(mine, other):
                peers["PyTorch"] = theirs
            else:
                row["missing"] = f"mean |y| is {other:g} in PyTorch, and {mine:g} in Backplane"
        except PeerError as error:
            row["missing"] = str(error)
    samples = {peer: [] for peer in peers}
    for number in range(options.rounds):
        order = list(peers.items())
        for peer, process in order if number % 2 == 0 else order[::-1]:
            samples[peer].append(float(process.ask(f"run {options.ms}")))
    row["seconds"] = {peer: statistics.median(s) for peer, s in samples.items()}
    if "PyTorch" in samples:
        row["ratio"] = statistics.median(
            t / o for t, o in zip(samples["PyTorch"], samples["Backplane"]))
    return row


def text_of(seconds):
    return f"{seconds * 1e6:.1f} us" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms"


def line_of(row):
    seconds = row["seconds"]["Backplane"]
    speed = f"{row['flops'] / seconds * 1e-12:7.1f} TF/s" if row["flops"] > row["bytes"] * 50 \
        else f"{row['bytes'] / seconds * 1e-9:7.0f} GB/s"
    ratio = "      -" if row["ratio"] is None else f"{row['ratio']:7.2f}"
    return f"{row['case']:44} {text_of(seconds):>10} {speed} {ratio}  {row['missing']}".rstrip()


def head():
    return f"{'case':44} {'Backplane':>10} {'':12} {'PyTorch':>7}"


def summary_of(rows):
    ratios = [r["ratio"] for r in rows if r["ratio"] is not None]
    if not ratios:
        return f"{len(rows)} rows, none with PyTorch"
    mean = math.exp(statistics.fmean(map(math.log, ratios)))
    return (f"{len(rows)} rows, {len(ratios)} with PyTorch: geometric mean {mean:.2f}, "
            f"least {min(ratios):.2f}")


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worker", type=pathlib.Path, required=True, help="device_worker")
    parser.add_argument("--plugin", type=pathlib.Path, required=True, help="the backend")
    parser.add_argument("--device", required=True, help="its device, as in cuda:0")
    parser.add_argument("--option", action="append", default=[], help="KEY=VALUE for the backend")
    parser.add_argument("--torch-peer", default=[sys.executable, str(HERE / "torch_peer.py")],
                        nargs="*", help="the command of the peer; none: Backplane alone")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each peer")
    parser.add_argument("--ms", type=int, default=60, help="milliseconds of a turn")
    parser.add_argument("--seconds", type=float, default=240, help="for all of it")
    parser.add_argument("--json", type=pathlib.Path, help="write all figures here")
    return parser.parse_args()


def write(options, document):
    """Writes the rows so far, after each row, so that a run that is ended keeps them."""
    if options.json:
        options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


# The options of the backend that rows need, by a word of their names.
OPTIONS = {"tf32": "tf32=yes", "cudnn": "attention=cudnn"}


def option_of(case):
    """Returns the option that a row needs, or "" if it needs none."""
    return next((OPTIONS[word] for word in case.split() if word in OPTIONS), "")


def start(option, options, deadline):
    worker = [str(options.worker), str(options.plugin), options.device, *options.option]
    if option:
        return Peer(f"Backplane with {option}", [*worker, option], deadline)
    return Peer("Backplane", worker, deadline)


def run(options, deadline, peers):
    for option in ("", *OPTIONS.values()):
        peers[option] = start(option, options, deadline)
    if options.torch_peer:
        peers["PyTorch"] = Peer("PyTorch", options.torch_peer, deadline)
    document = {"device": peers[""].ask("name"), "rows": []}
    try:
        document["peer"] = peers["PyTorch"].ask("name") if "PyTorch" in peers else "none"
    except PeerError as error:
        document["peer"] = f"none: {error}"
        peers.pop("PyTorch").close()
    print(f"{document['device']} against PyTorch: {document['peer']}")
    print(head(), flush=True)
    for name, (size_bytes, flops) in peers[""].cases().items():
        ours = option_of(name)
        try:
            row = measure(name, peers[ours], peers.get("PyTorch"), options)
        except PeerError as error:
            if time.monotonic() >= deadline:
                raise
            print(f"{name:44} Backplane cannot: {error}", flush=True)
            document["rows"].append({"case": name, "failed": str(error)})
            peers[ours].kill()  # Its device may be lost. The next case gets a new process.
            peers[ours] = start(ours, options, deadline)
            continue
        row |= {"bytes": size_bytes, "flops": flops}
        document["rows"].append(row)
        print(line_of(row), flush=True)
        write(options, document)
    return document


def main():
    options = parse()
    deadline, peers = time.monotonic() + options.seconds, {}
    try:
        document = run(options, deadline, peers)
    except PeerError as error:
        print(f"compare: {error}", file=sys.stderr)
        return 1
    finally:
        for peer in peers.values():
            peer.close()
    failed = [row for row in document["rows"] if "failed" in row]
    document["summary"] = summary_of([r for r in document["rows"] if "failed" not in r])
    print(document["summary"] + (f"; {len(failed)} failed" if failed else ""))
    write(options, document)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
