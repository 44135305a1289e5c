"""Runs the cases that ONNX has in onnxruntime. Each case is a model of one node, whose inputs and
output are bound beforehand. peers.py talks to this process: onnxruntime_peer.py THREADS
"""

import sys

import numpy
import onnx
import onnxruntime
from onnx import TensorProto, helper

from protocol import index_values, input_values, serve

CASES = {}
THREADS = int(sys.argv[1])
TYPES = {numpy.dtype("float32"): TensorProto.FLOAT, numpy.dtype("int64"): TensorProto.INT64,
         numpy.dtype("float64"): TensorProto.DOUBLE, numpy.dtype("bool"): TensorProto.BOOL}


def x(shape, s=0):
    return input_values(numpy, shape, s)


def i(shape, n, s=0):
    return index_values(numpy, shape, n, s)


def session(op, inputs, constants, attributes, outputs):
    names = [f"x{n}" for n in range(len(inputs))]
    all_names = names + [f"c{n}" for n in range(len(constants))]
    graph = helper.make_graph(
        [helper.make_node(op, all_names, outputs, **attributes)], "case",
        [helper.make_tensor_value_info(n, TYPES[v.dtype], v.shape) for n, v in zip(names, inputs)],
        [helper.make_empty_tensor_value_info(outputs[0])],
        [onnx.numpy_helper.from_array(v, f"c{n}") for n, v in enumerate(constants)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    options.inter_op_num_threads = 1
    # Threads that spin would use the time of the peer that runs next.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(model.SerializeToString(), options,
                                        providers=["CPUExecutionProvider"])


def case(name, op, make, constants=(), outputs=("y",), **attributes):
    def prepare():
        inputs = [numpy.ascontiguousarray(v) for v in make()]
        run_session = session(op, inputs, list(constants), attributes, list(outputs))
        binding = run_session.io_binding()
        for n, value in enumerate(inputs):
            binding.bind_ortvalue_input(f"x{n}", onnxruntime.OrtValue.ortvalue_from_numpy(value))
        binding.bind_output(outputs[0], "cpu")

        def run():
            run_session.run_with_iobinding(binding)

        def mean_abs():
            y = binding.copy_outputs_to_cpu()[0]
            return float(numpy.abs(y.astype(numpy.float64)).mean())
        return run, mean_abs
    CASES[name] = prepare


def axes(*values):
    return [numpy.array(values, dtype=numpy.int64)]


def elementwise_and_movement():
    n, square = 1 << 22, (4096, 1024)
    for name, size in (("16777216", 1 << 24), ("1000003", 1000003), ("64", 64)):
        case(f"add f32 {name}", "Add", lambda size=size: (x(size), x(size, 1)))
    case("add f32 4096x1024 + 1024", "Add", lambda: (x(square), x(1024, 1)))
    case("mul f32 4096x1024 * 4096x1", "Mul", lambda: (x(square), x((4096, 1), 1)))
    case("gelu f32 16777216", "Gelu", lambda: (x(1 << 24),))
    for name, op in (("exp", "Exp"), ("tanh", "Tanh"), ("relu", "Relu")):
        case(f"{name} f32 4194304", op, lambda: (x(n),))
    case("copy f32 transposed 4096x1024", "Transpose", lambda: (x(square),), perm=[1, 0])
    case("copy f32 8x512x12x64 to heads", "Transpose", lambda: (x((8, 512, 12, 64)),),
         perm=[0, 2, 1, 3])
    case("cat f32 8 of 1024x128, axis 1", "Concat",
         lambda: [x((1024, 128), s) for s in range(8)], axis=1)
    case("cat f32 4 of 1000x333, axis 0", "Concat",
         lambda: [x((1000, 333), s) for s in range(4)], axis=0)
    case("gather f32 4096x1024, axis 1", "GatherElements", lambda: (x(square), i(square, 1024)),
         axis=1)
    case("index_select f32 4096x1024, 2048 rows", "Gather", lambda: (x(square), i((2048,), 4096)))
    case("embedding f32 32000x512, 8192", "Gather", lambda: (x((32000, 512)), i((8192,), 32000)))
    case("where f32 4096x1024", "Where",
         lambda: (x(square, 2) < 0, x(square), x(square, 1)))


def reductions_and_norms():
    square = (4096, 1024)
    case("sum f32 16777216", "ReduceSum", lambda: (x(1 << 24),), axes(0), keepdims=0)
    for axis in (0, 1):
        case(f"sum f32 4096x1024, axis {axis}", "ReduceSum", lambda: (x(square),), axes(axis),
             keepdims=0)
    case("mean f32 64x128x512, axis 1", "ReduceMean", lambda: (x((64, 128, 512)),), axes(1),
         keepdims=0)
    for axis in (0, 1):
        case(f"logsumexp f32 4096x1024, axis {axis}", "ReduceLogSumExp", lambda: (x(square),),
             axes(axis), keepdims=0)
    case("amax f32 4096x1024, axis 0", "ReduceMax", lambda: (x(square),), axes(0), keepdims=0)
    case("argmax f32 4096x1024, axis 1", "ArgMax", lambda: (x(square),), axis=1, keepdims=0)
    case("topk f32 4096x1024, 10", "TopK", lambda: (x(square),), axes(10), ("y", "places"), axis=1)
    case("softmax f32 4096x1024", "Softmax", lambda: (x(square),), axis=1)
    case("softmax f32 1023x999", "Softmax", lambda: (x((1023, 999)),), axis=1)
    case("softmax f32 4096x1024, axis 0", "Softmax", lambda: (x(square),), axis=0)
    case("log_softmax f32 4096x1024", "LogSoftmax", lambda: (x(square),), axis=1)
    case("layer_norm f32 4096x1024", "LayerNormalization",
         lambda: (x(square), x(1024, 1), x(1024, 2)), axis=-1, epsilon=1e-5)


def products_and_convolutions():
    for name, a, b in (
            ("1024^3", (1024, 1024), (1024, 1024)),
            ("1023x1025x1021", (1023, 1025), (1025, 1021)),
            ("128^3", (128, 128), (128, 128)),
            ("8x4096x4096", (8, 4096), (4096, 4096)),
            ("4096x4096x1", (4096, 4096), (4096, 1)),
            ("1x4096x4096", (1, 4096), (4096, 4096)),
            ("64 of 128x64x128", (64, 128, 64), (64, 64, 128))):
        case(f"matmul f32 {name}", "MatMul", lambda a=a, b=b: (x(a), x(b, 1)))
    for rows, size in ((4, 1024), (8, 4096), (64, 1024)):
        case(f"matmul f32 {rows}x{size}x{size}, b constant", "MatMul",
             lambda rows=rows, size=size: (x((rows, size)),), [x((size, size), 1)])
    case("matmul f64 512^3", "MatMul",
         lambda: (x((512, 512)).astype("float64"), x((512, 512), 1).astype("float64")))
    for name, a, w, stride, padding in (
            ("8x3x224x224, 64 of 7x7, stride 2", (8, 3, 224, 224), (64, 3, 7, 7), 2, 3),
            ("8x64x56x56, 64 of 3x3", (8, 64, 56, 56), (64, 64, 3, 3), 1, 1),
            ("8x256x56x56, 64 of 1x1", (8, 256, 56, 56), (64, 256, 1, 1), 1, 0),
            ("8x128x28x28, 128 of 3x3", (8, 128, 28, 28), (128, 128, 3, 3), 1, 1),
            ("8x512x7x7, 512 of 3x3", (8, 512, 7, 7), (512, 512, 3, 3), 1, 1),
            ("8x3x224x224, 64 of 7x7, stride 2, weight constant",
             (8, 3, 224, 224), (64, 3, 7, 7), 2, 3),
            ("1x128x28x28, 128 of 3x3, weight constant",
             (1, 128, 28, 28), (128, 128, 3, 3), 1, 1),
            ("1x512x7x7, 512 of 3x3, weight constant",
             (1, 512, 7, 7), (512, 512, 3, 3), 1, 1)):
        case(f"convolution f32 {name}", "Conv", lambda a=a: (x(a),), [x(w, 1)],
             strides=[stride, stride], pads=[padding] * 4)
    case("max_pool f32 8x64x112x112, 3x3, stride 2", "MaxPool", lambda: (x((8, 64, 112, 112)),),
         kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    case("avg_pool f32 8x64x56x56, 2x2", "AveragePool", lambda: (x((8, 64, 56, 56)),),
         kernel_shape=[2, 2], strides=[2, 2])


if __name__ == "__main__":
    elementwise_and_movement()
    reductions_and_norms()
    products_and_convolutions()
    serve(CASES)
