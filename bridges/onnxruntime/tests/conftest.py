"""What the tests run on: BACKPLANE_ORT_LIBRARY is the library, BACKPLANE_ORT_DEVICE a device.

The device is a name such as "backplane.sim:0"; without the variable it is the first one that the
library offers. BACKPLANE_ORT_PLUGINS chooses the plugins, as it does for users. With
BACKPLANE_ORT_INCOMPLETE=1 a test is skipped whose model the plugin does not take as a complete one
does.
"""

import os
import pathlib
import subprocess
import sys
import textwrap

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

LIBRARY = os.environ["BACKPLANE_ORT_LIBRARY"]
DEVICE = os.environ.get("BACKPLANE_ORT_DEVICE")
PROVIDER = "BackplaneExecutionProvider"
HERE = pathlib.Path(__file__).parent
EXAMPLE = HERE.parents[2] / "examples" / "09_onnxruntime"
HAS_ASSIGNMENT = hasattr(ort.InferenceSession, "get_provider_graph_assignment_info")

sys.path.insert(0, str(EXAMPLE))


def find_device():
    devices = [d for d in ort.get_ep_devices() if d.ep_name == PROVIDER]
    found = [d for d in devices if DEVICE in (None, d.ep_metadata["backplane.device"])]
    assert found, f"no device '{DEVICE}'"
    return found[0]


def pytest_configure():
    ort.set_default_logger_severity(4)
    ort.register_execution_provider_library("backplane", LIBRARY)


def pytest_report_header():
    return f"onnxruntime {ort.__version__}, {find_device().ep_metadata['backplane.device']}"


def make_model(nodes, inputs, outputs, constants=None, opset=17):
    """A model of nodes such as ("Add", ["a", "b"], ["c"], {}). Inputs and outputs map a name to its
    type and shape, constants to arrays."""
    types = {np.dtype(t): helper.np_dtype_to_tensor_dtype(np.dtype(t))
             for t in (np.float32, np.float16, np.float64, np.int64, np.int32, np.uint8, np.bool_)}

    def info(name, kind):
        return helper.make_tensor_value_info(name, types.get(np.dtype(kind[0])), kind[1])

    made = [node if not isinstance(node, tuple)
            else helper.make_node(node[0], node[1], node[2], **(node[3] if len(node) > 3 else {}))
            for node in nodes]
    graph = helper.make_graph(made, "test", [info(n, k) for n, k in inputs.items()],
                              [info(n, k) for n, k in outputs.items()],
                              [numpy_helper.from_array(v, n) for n, v in (constants or {}).items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)],
                             ir_version=8).SerializeToString()


def open_session(model, provider_options=None, entries=None, on_cpu=False):
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    for key, value in (entries or {}).items():
        options.add_session_config_entry(key, value)
    if HAS_ASSIGNMENT:
        options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    if on_cpu:
        return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    options.add_provider_for_devices([find_device()], provider_options or {})
    return ort.InferenceSession(model, options, enable_fallback=0)


def counts_of(session):
    """How many partitions there are, how many nodes they have, and how many nodes others have."""
    if not HAS_ASSIGNMENT:
        pytest.skip("this ONNX Runtime does not tell which nodes a provider has")
    partitions = ours = others = 0
    for part in session.get_provider_graph_assignment_info():
        if part.ep_name == PROVIDER:
            partitions, ours = partitions + 1, ours + len(part.get_nodes())
        else:
            others += len(part.get_nodes())
    return partitions, ours, others


def expect_counts(session, expected):
    """Fails unless the partitions and nodes are as expected, or (1, None, 0) for a whole model."""
    found = counts_of(session)
    if all(want in (None, have) for want, have in zip(expected, found)):
        return
    if os.environ.get("BACKPLANE_ORT_INCOMPLETE") == "1":
        pytest.skip(f"the plugin lacks kernels: {found}")
    pytest.fail(f"partitions, nodes in them, and other nodes are {found}, not {expected}")


def run_program(code, **variables):
    """Runs a program of its own with these environment variables; returns status and output."""
    prelude = f"import sys; sys.path[:0] = [{str(HERE)!r}]\n"
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **variables}
    done = subprocess.run([sys.executable, "-c", prelude + textwrap.dedent(code)], check=False,
                          capture_output=True, text=True, timeout=300, env=environment)
    return done.returncode, done.stdout + done.stderr
