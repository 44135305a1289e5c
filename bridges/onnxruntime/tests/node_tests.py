"""Runs ONNX's own tests of operators through ONNX Runtime on one device of a plugin.

usage: node_tests.py LIBRARY [--device backplane.cpu:0] [--list OUTCOME] [--match TEXT] [--every N]
           [--option KEY=VALUE]    an option of the provider, such as backplane.programs=1

The data come from the `onnx` package. Each test is also run by ONNX Runtime's CPU provider alone,
so that a test which ONNX Runtime itself cannot run is told apart. The outcomes are:

  device    every node runs on the device, and the result is right
  mixed     some nodes run on the device, and the result is right
  cpu       no node runs on the device
  both      the result, or the refusal, is that of the CPU provider alone, and not what ONNX expects
  not run   ONNX Runtime's CPU provider cannot run the model, and neither can the device
  wrong     the device's result is not what ONNX expects, and the CPU provider's is
  failed    the run fails with the device, and does not without
  crashed   the process ended

The status is 1 if a test is wrong, failed or crashed.
"""

import argparse
import collections
import ctypes
import json
import subprocess
import sys
import warnings

import numpy as np

OPTIONS = {}  # Those of the provider.

# The first run goes op by op, the second one records, the third one replays.
RUNS = 3
# The bits of elements of which a byte has several, the first one in its low bits.
PACKED = {"int4": 4, "uint4": 4, "int2": 2, "uint2": 2, "float4_e2m1fn": 4}
PROVIDER = "BackplaneExecutionProvider"
# Of operators that draw random numbers only shapes and dtypes are compared.
RANDOM = {"Bernoulli", "Dropout", "Multinomial", "RandomNormal", "RandomNormalLike",
          "RandomUniform", "RandomUniformLike"}
BAD = ("wrong", "failed", "crashed")


def load_tests():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import onnx.backend.test.loader as loader

        return loader.load_model_tests(kind="node")


def to_arrays(values):
    """The values of a data set, some of which are messages of ONNX."""
    import onnx

    return [onnx.numpy_helper.to_array(v) if isinstance(v, onnx.TensorProto) else v for v in values]


def pack(array):
    """The bytes of an array whose elements are smaller than a byte."""
    bits = PACKED[array.dtype.name]
    codes = np.require(array, requirements="C").view(np.uint8).ravel() & ((1 << bits) - 1)
    codes = np.pad(codes, (0, -len(codes) % (8 // bits))).reshape(-1, 8 // bits)
    return (codes << np.arange(0, 8, bits)).sum(axis=1).astype(np.uint8)


def unpack(data, like):
    """The array of the shape and the dtype of `like` whose bytes are `data`."""
    bits = PACKED[like.dtype.name]
    codes = np.frombuffer(data, np.uint8)[:, None] >> np.arange(0, 8, bits) & ((1 << bits) - 1)
    codes = codes.ravel()[:like.size].astype(np.uint8)
    if like.dtype.name.startswith("int"):  # ml_dtypes keeps the sign in all bits of a byte.
        codes = codes | np.where(codes >> (bits - 1), 256 - (1 << bits), 0).astype(np.uint8)
    return codes.view(like.dtype).reshape(like.shape)


def to_value(ort, array, onnx_type):
    """An OrtValue of an array. A dtype that numpy lacks goes by its bits."""
    array = np.require(array, requirements="C")
    if array.dtype.name in PACKED:
        value = ort.OrtValue.ortvalue_from_shape_and_type(array.shape, onnx_type)
        data = pack(array)
        ctypes.memmove(value.data_ptr(), data.ctypes.data, data.size)
        return value
    if array.dtype.type.__module__ == "ml_dtypes":
        bits = array.view({1: np.uint8, 2: np.uint16}[array.dtype.itemsize])
        return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, onnx_type)
    return ort.OrtValue.ortvalue_from_numpy(array)


def to_array(value, expected):
    """The array of an OrtValue; for a dtype that numpy lacks, with the dtype of `expected`."""
    if not isinstance(expected, np.ndarray) or expected.dtype.type.__module__ != "ml_dtypes":
        return value.numpy()
    count = int(np.prod(value.shape()))
    if expected.dtype.name in PACKED:
        size = (count * PACKED[expected.dtype.name] + 7) // 8
        if value.shape() != list(expected.shape):
            return np.empty(value.shape(), expected.dtype)
        return unpack(ctypes.string_at(value.data_ptr(), size), expected)
    elements = np.frombuffer(
        ctypes.string_at(value.data_ptr(), count * expected.dtype.itemsize), expected.dtype)
    return elements.reshape(value.shape())


def is_plain(values):
    """Whether all values are tensors of numbers."""
    return all(isinstance(v, (np.ndarray, np.generic)) and v.dtype.kind not in "OSU"
               for v in values)


def run(ort, model, inputs, types, expected, device):
    """The outputs of each run, and the numbers of nodes on the device and of all nodes."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    if device is not None:
        options.add_provider_for_devices([device], OPTIONS)
        session = ort.InferenceSession(model, options)
    else:
        session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    names = [info.name for info in session.get_inputs()]
    if is_plain(inputs) and is_plain(expected):
        feed = {n: to_value(ort, a, t) for n, a, t in zip(names, inputs, types)}
        wanted = [o.name for o in session.get_outputs()]
        runs = [[to_array(value, e) for value, e in zip(made, expected)]
                for made in (session.run_with_ort_values(wanted, feed) for _ in range(RUNS))]
    else:
        runs = [session.run(None, dict(zip(names, inputs))) for _ in range(RUNS)]
    ours = total = 0
    for part in session.get_provider_graph_assignment_info():
        count = len(part.get_nodes())
        total += count
        ours += count if part.ep_name == PROVIDER else 0
    return runs, ours, total


def agrees(got, expected, test):
    if isinstance(expected, (list, tuple)):
        return len(got) == len(expected) and all(agrees(a, b, test) for a, b in zip(got, expected))
    if expected is None or got is None:
        return expected is None and got is None
    expected = np.asarray(expected)
    got = np.asarray(got)
    if expected.dtype.kind in "OSU":
        return np.array_equal(np.asarray(got, object), np.asarray(expected, object))
    if got.dtype != expected.dtype and got.dtype.itemsize == expected.dtype.itemsize:
        got = got.view(expected.dtype)
    if got.shape != expected.shape or got.dtype != expected.dtype:
        return False
    name = expected.dtype.name
    if expected.dtype.type.__module__ == "ml_dtypes":
        got, expected = got.astype(np.float32), expected.astype(np.float32)
    # Operators that are written out as functions round each step to 16 bits, in an order that is
    # not specified: two units in the last place are allowed.
    ulps = {"float16": 2**-9, "bfloat16": 2**-6}.get(name, 0)
    return np.allclose(got, expected, rtol=max(test.rtol, ulps), atol=test.atol, equal_nan=True)


def outcome_of(ort, test, device):
    model = test.model.SerializeToString()
    inputs, expected = map(to_arrays, test.data_sets[0])
    types = [i.type.tensor_type.elem_type for i in test.model.graph.input]
    alone = None
    reason = ""
    try:
        alone = run(ort, model, inputs, types, expected, None)[0][0]
    except Exception as error:
        reason = str(error)
    try:
        runs, count, total = run(ort, model, inputs, types, expected, device)
    except Exception as error:
        return ("not run" if alone is None else "failed"), str(error)
    wrong = [made for made in runs if not agrees(made, expected, test)]
    is_right, ours = not wrong, (wrong or runs)[0]
    if any(n.op_type in RANDOM for n in test.model.graph.node):
        is_right = all(a.shape == b.shape and a.dtype == b.dtype for a, b in zip(ours, expected))
    if is_right:
        kind = "device" if count == total and total > 0 else "mixed" if count else "cpu"
        return kind, f"{count} of {total}"
    if count == 0:
        return "cpu", "the CPU provider alone is not right either"
    # Where neither provider is within ONNX's bound, they must agree as far as rounding allows.
    is_same = alone is not None and not agrees(alone, expected, test) and all(
        a.shape == b.shape and np.allclose(a, b, rtol=1e-3, atol=1e-5 * np.abs(b).max(initial=1))
        for a, b in zip(ours, alone))
    text = f"expected {np.asarray(expected[0]).ravel()[:6]}, got {np.asarray(ours[0]).ravel()[:6]}"
    return ("both" if is_same else "wrong"), text + (f"; the CPU alone: {reason}" if reason else "")


def worker(arguments):
    import onnxruntime as ort

    ort.set_default_logger_severity(4)
    ort.register_execution_provider_library("backplane", arguments.library)
    devices = [d for d in ort.get_ep_devices()
               if d.ep_name == PROVIDER and d.ep_metadata["backplane.device"] == arguments.device]
    if not devices:
        sys.exit(f"no device '{arguments.device}'")
    tests = load_tests()
    for number in range(arguments.begin, len(tests)):
        test = tests[number]
        if number % arguments.every or arguments.match not in test.name:
            continue
        print(json.dumps(["begin", number, test.name]), flush=True)
        outcome, text = outcome_of(ort, test, devices[0])
        print(json.dumps(["end", number, test.name, outcome, text]), flush=True)


def run_workers(arguments):
    """Runs the tests in a process, and in another one behind each test that ends it."""
    results, begin = [], 0
    while begin is not None:
        command = [sys.executable, __file__, *sys.argv[1:], "--begin", str(begin)]
        running = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        begin, open_test = None, None
        for line in running.stdout:
            entry = json.loads(line)
            open_test = entry if entry[0] == "begin" else None
            if entry[0] == "end":
                results.append(entry[2:])
        status = running.wait()
        if open_test is not None:
            results.append([open_test[2], "crashed", f"status {status}"])
            begin = open_test[1] + 1
        elif status != 0:
            sys.exit(f"the worker ended with status {status}")
    return results


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("library")
    parser.add_argument("--device", default="backplane.cpu:0")
    parser.add_argument("--list", action="append", default=[])
    parser.add_argument("--match", default="")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--option", action="append", default=[])
    parser.add_argument("--begin", type=int, default=None)
    arguments = parser.parse_args()
    OPTIONS.update(option.split("=", 1) for option in arguments.option)
    if arguments.begin is not None:
        return worker(arguments)
    results = run_workers(arguments)
    for name, outcome, text in results:
        if outcome in BAD or outcome in arguments.list:
            print(f"{outcome}: {name}: {text[:700]}")
    counts = collections.Counter(outcome for _, outcome, _ in results)
    print(f"{arguments.device}: {len(results)} tests: "
          + ", ".join(f"{count} {outcome}" for outcome, count in counts.most_common()))
    return 1 if any(counts[bad] for bad in BAD) else 0


if __name__ == "__main__":
    sys.exit(main())
