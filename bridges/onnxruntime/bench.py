"""Times all-MiniLM-L6-v2 on a device of Backplane and on ONNX Runtime's CPU provider, in turn.

usage: bench.py LIBRARY [--device backplane.cpu:0] [--threads 2] [--repetitions 30]

It prints the medians of the wall time of a run, and of the processor time of the process in it. On
a machine that others use too, only the latter can be compared, with one thread. The threads of the
plugin are an option of the plugin: BACKPLANE_OPTIONS=cpu.threads=2.
"""

import argparse
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "examples" / "09_onnxruntime"))

import embed
import minilm
import numpy as np
import onnxruntime as ort

WARM_UP = 4


def times_of(session, feed):
    wall, processor = time.perf_counter(), time.process_time()
    session.run(None, feed)
    return 1e3 * (time.perf_counter() - wall), 1e3 * (time.process_time() - processor)


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("library")
    parser.add_argument("--device")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repetitions", type=int, default=30)
    arguments = parser.parse_args()
    ort.register_execution_provider_library("backplane", arguments.library)
    device = embed.choose_device(arguments.device)
    files = minilm.package_files()
    model = minilm.build(files and minilm.read_safetensors(files["model.safetensors"]))
    sessions = (embed.open_session(model, arguments.threads, device),
                embed.open_session(model, arguments.threads))
    print(f"onnxruntime {ort.__version__}, {arguments.threads} threads, "
          f"{device.ep_metadata['backplane.device']} / CPUExecutionProvider")
    for batch, tokens in ((1, 16), (1, 128), (8, 64)):
        ids = np.random.default_rng(1).integers(1, minilm.VOCABULARY, (batch, tokens))
        feed = {"input_ids": ids, "attention_mask": np.ones_like(ids),
                "token_type_ids": np.zeros_like(ids)}
        kept = ([], [])
        for i in range(WARM_UP + arguments.repetitions):
            for session, times in zip(sessions, kept):
                measured = times_of(session, feed)
                if i >= WARM_UP:
                    times.append(measured)
        ours, theirs = ([statistics.median(column) for column in zip(*times)] for times in kept)
        print(f"{batch} x {tokens} tokens: wall {ours[0]:.2f} / {theirs[0]:.2f} ms, "
              f"processor {ours[1]:.2f} / {theirs[1]:.2f} ms")


if __name__ == "__main__":
    main()
