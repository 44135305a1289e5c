#!/usr/bin/env python3
"""Measures what one call on four floats costs, beside numpy and torch where they are installed.

usage: bench/overhead.py [--calls N] [--device NAME]

Each row is the median of 9 runs of N calls, and the least of them, in nanoseconds. The rows take
turns, so that all see the same machine.
"""

import argparse
import importlib
import time

import backplane as bp


def rows_of_backplane():
    x, y = bp.ones([4]), bp.ones([4])
    leaf = bp.ones([4])
    leaf.requires_grad = True
    add = bp.ops.add
    return [
        ("backplane: ops.add(x, y)", lambda: add(x, y)),
        ("backplane: x + y", lambda: x + y),
        ("backplane: x + 1", lambda: x + 1),
        ("backplane: x.view(2, 2)", lambda: x.view(2, 2)),
        ("backplane: ops.add(leaf, y), recorded", lambda: add(leaf, y)),
    ]


def rows_of_numpy(numpy):
    a = numpy.ones(4, "f4")
    rows = [("numpy: a + a", lambda: a + a)]
    if bp.default_device().is_host:
        rows.append(("backplane: from_dlpack(a)", lambda: bp.from_dlpack(a)))
    return rows


def rows_of_torch(torch):
    torch.set_num_threads(1)
    p, q = torch.ones(4), torch.ones(4)
    leaf = torch.ones(4, requires_grad=True)
    return [
        ("torch: torch.add(p, q)", lambda: torch.add(p, q)),
        ("torch: p + q", lambda: p + q),
        ("torch: p + 1", lambda: p + 1),
        ("torch: p.view(2, 2)", lambda: p.view(2, 2)),
        ("torch: torch.add(leaf, q), recorded", lambda: torch.add(leaf, q)),
    ]


def time_of(call, count):
    begin = time.perf_counter_ns()
    for _ in range(count):
        call()
    return (time.perf_counter_ns() - begin) / count


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=20000)
    parser.add_argument("--device", help="such as npu:0 (default: the first of class host)")
    options = parser.parse_args()
    if options.device:
        bp.set_default_device(options.device)
    rows = rows_of_backplane()
    for name, make in (("numpy", rows_of_numpy), ("torch", rows_of_torch)):
        try:
            rows += make(importlib.import_module(name))
        except ImportError:
            print(f"{name} is not installed")
    times = {name: [] for name, _ in rows}
    for _ in range(9):
        for name, call in rows:
            times[name].append(time_of(call, options.calls))
    print(f"{bp.default_device()}, {options.calls} calls in each run, ns: median, least")
    for name, _ in rows:
        found = sorted(times[name])
        print(f"{name:40} {found[len(found) // 2]:8.0f} {found[0]:8.0f}")


if __name__ == "__main__":
    main()
