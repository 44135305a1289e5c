"""Has what peers in Python share with peers_worker; worker.cpp describes the lines."""

import statistics
import sys
import time


def input_values(numpy, shape, s=0):
    """Returns the numbers that every peer works on."""
    i = numpy.arange(int(numpy.prod(shape, dtype=numpy.int64)), dtype=numpy.int64)
    values = ((7919 * i + 104729 * s) % 2003 - 501).astype(numpy.float32) / numpy.float32(1001)
    return values.reshape(shape)


def index_values(numpy, shape, n, s=0):
    i = numpy.arange(int(numpy.prod(shape, dtype=numpy.int64)), dtype=numpy.int64)
    return ((7919 * i + 104729 * s) % n).reshape(shape)


def median_seconds(run, budget_seconds):
    begin = time.perf_counter()
    run()
    once = time.perf_counter() - begin
    group = int(min(max(1e-4 / max(once, 1e-9), 1), 1e5))
    samples = []
    while len(samples) < 3 or time.perf_counter() - begin < budget_seconds:
        start = time.perf_counter()
        for _ in range(group):
            run()
        samples.append((time.perf_counter() - start) / group)
    return statistics.median(samples)


def serve(cases):
    """Answers lines. cases[NAME]() gives (run, mean_abs), and mean_abs NaN if there is no mean."""
    run = mean_abs = None
    for line in sys.stdin:
        verb, _, argument = line.strip().partition(" ")
        try:
            if verb == "list":
                answer = "".join(f"{name}\t0\t0\n" for name in cases)
            elif verb == "prepare":
                run = mean_abs = None
                run, mean_abs = cases[argument]()
                run()
                run()
                answer = "ok"
            elif verb == "check":
                answer = f"{mean_abs():.9g}"
            elif verb == "run":
                answer = f"{median_seconds(run, float(argument) * 1e-3):.9g}"
            else:
                answer = f"error\tunknown verb '{verb}'"
        except Exception as error:  # A peer that cannot run a case reports it and goes on.
            answer = f"error\t{type(error).__name__}: {str(error).splitlines()[0][:200]}"
        print(answer, flush=True)
