"""Times a model on a device of Backplane and on ONNX Runtime's CPU provider, in turn.

usage: bench.py LIBRARY [--model minilm] [--device backplane.cpu:0] [--threads 2]
                [--repetitions 30]

The model is all-MiniLM-L6-v2, or for --model quantised a chain of 12 products of its sizes, whose
factors have 8 bits: QuantizeLinear and DequantizeLinear stand before each product.

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
from onnx import TensorProto, helper, numpy_helper

WARM_UP = 4


def build_quantised():
    """Six times a product to the inner width and one back, with a Relu between them."""
    rng = np.random.default_rng(0)
    nodes, constants, x = [], [], "x"

    def constant(name, value):
        constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    for i in range(2 * minilm.LAYERS):
        shape = (minilm.WIDTH, minilm.INNER) if i % 2 == 0 else (minilm.INNER, minilm.WIDTH)
        pair = [constant(f"scale{i}", np.float32(0.03)), constant(f"zero{i}", np.uint8(128))]
        weight = [constant(f"codes{i}", rng.integers(-127, 128, shape).astype(np.int8)),
                  constant(f"scales{i}", rng.uniform(5e-4, 15e-4, shape[1]).astype(np.float32))]
        nodes += [helper.make_node("QuantizeLinear", [x, *pair], [f"q{i}"]),
                  helper.make_node("DequantizeLinear", [f"q{i}", *pair], [f"x{i}"]),
                  helper.make_node("DequantizeLinear", weight, [f"w{i}"], axis=1),
                  helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"p{i}"]),
                  helper.make_node("Relu", [f"p{i}"], [f"y{i}"])]
        x = f"y{i}"
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", minilm.WIDTH])
            for name in ("x", x)]
    graph = helper.make_graph(nodes, "quantised", ends[:1], ends[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return model.SerializeToString()


def minilm_feeds():
    for batch, tokens in ((1, 16), (1, 128), (8, 64)):
        ids = np.random.default_rng(1).integers(1, minilm.VOCABULARY, (batch, tokens))
        yield f"{batch} x {tokens} tokens", {"input_ids": ids, "attention_mask": np.ones_like(ids),
                                             "token_type_ids": np.zeros_like(ids)}


def quantised_feeds():
    for rows in (16, 128, 512):
        x = np.random.default_rng(1).standard_normal((rows, minilm.WIDTH)).astype(np.float32)
        yield f"{rows} rows", {"x": x}


def times_of(session, feed):
    wall, processor = time.perf_counter(), time.process_time()
    session.run(None, feed)
    return 1e3 * (time.perf_counter() - wall), 1e3 * (time.process_time() - processor)


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("library")
    parser.add_argument("--model", choices=("minilm", "quantised"), default="minilm")
    parser.add_argument("--device")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repetitions", type=int, default=30)
    arguments = parser.parse_args()
    ort.register_execution_provider_library("backplane", arguments.library)
    device = embed.choose_device(arguments.device)
    if arguments.model == "minilm":
        files = minilm.package_files()
        model = minilm.build(files and minilm.read_safetensors(files["model.safetensors"]))
        feeds = minilm_feeds()
    else:
        model, feeds = build_quantised(), quantised_feeds()
    sessions = (embed.open_session(model, arguments.threads, device),
                embed.open_session(model, arguments.threads))
    print(f"onnxruntime {ort.__version__}, {arguments.threads} threads, "
          f"{device.ep_metadata['backplane.device']} / CPUExecutionProvider")
    for name, feed in feeds:
        kept = ([], [])
        for i in range(WARM_UP + arguments.repetitions):
            for session, times in zip(sessions, kept):
                measured = times_of(session, feed)
                if i >= WARM_UP:
                    times.append(measured)
        ours, theirs = ([statistics.median(column) for column in zip(*times)] for times in kept)
        print(f"{name}: wall {ours[0]:.2f} / {theirs[0]:.2f} ms, "
              f"processor {ours[1]:.2f} / {theirs[1]:.2f} ms")


if __name__ == "__main__":
    main()
