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
         numpy.dtype("float64"): TensorProto.DOUBLE, numpy.dtype("bool"): TensorProto.BOOL,
         numpy.dtype("int32"): TensorProto.INT32, numpy.dtype("int8"): TensorProto.INT8,
         numpy.dtype("uint8"): TensorProto.UINT8, numpy.dtype("float16"): TensorProto.FLOAT16}
SQUARE, MANY, ODD = (4096, 1024), 1 << 22, 1000003


def x(shape, s=0, dtype="float32"):
    return input_values(numpy, shape, s).astype(dtype)


def positive(shape, s=0):
    """Returns numbers from 0.5 to 2.5."""
    return x(shape, s) + numpy.float32(1)


def near_one(shape):
    return x(shape) * numpy.float32(0.01) + numpy.float32(1)


def i(shape, n, s=0, dtype="int64"):
    shape = (shape,) if isinstance(shape, int) else shape
    return index_values(numpy, shape, n, s).astype(dtype)


def session(op, inputs, constants, attributes, outputs):
    """Returns a model of one node. A constant that is None is an input that is not given."""
    names = [f"x{n}" for n in range(len(inputs))]
    all_names = names + ["" if v is None else f"c{n}" for n, v in enumerate(constants)]
    graph = helper.make_graph(
        [helper.make_node(op, all_names, outputs, **attributes)], "case",
        [helper.make_tensor_value_info(n, TYPES[v.dtype], v.shape) for n, v in zip(names, inputs)],
        [helper.make_empty_tensor_value_info(outputs[0])],
        [onnx.numpy_helper.from_array(v, f"c{n}") for n, v in enumerate(constants)
         if v is not None])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
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


def scalar(value, dtype="float32"):
    return numpy.array(value, dtype=dtype)


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


def more_elementwise():
    for name, op in (("erf", "Erf"), ("sin", "Sin"), ("sigmoid", "Sigmoid"), ("mish", "Mish"),
                     ("softplus", "Softplus"), ("hardswish", "HardSwish")):
        case(f"{name} f32 4194304", op, lambda: (x(MANY),))
    case("floor f32 1000003", "Floor", lambda: (x(ODD),))
    for name, op in (("exp", "Exp"), ("tanh", "Tanh")):
        case(f"{name} f64 1048576", op, lambda: (x(1 << 20, 0, "float64"),))
    case("maximum f32 1000003", "Max", lambda: (x(ODD), x(ODD, 1)))
    case("add f64 1048576", "Add", lambda: (x(1 << 20, 0, "float64"), x(1 << 20, 1, "float64")))
    case("div f32 4194304", "Div", lambda: (x(MANY), positive(MANY, 1)))
    case("fmod f32 1048576", "Mod", lambda: (x(1 << 20), positive(1 << 20, 1)), fmod=1)
    case("pow f32 1048576", "Pow", lambda: (positive(1 << 20), x(1 << 20, 1)))
    for name, op, dtype, size in (
            ("add i32 4194304", "Add", "int32", MANY), ("mul i64 1000003", "Mul", "int64", ODD),
            ("remainder i64 1000003", "Mod", "int64", ODD),
            ("bitwise_xor i32 4194304", "BitwiseXor", "int32", MANY)):
        case(name, op, lambda size=size, dtype=dtype: (
            i(size, size, 0, dtype), i(size, 1000, 1, dtype) + scalar(1, dtype)))
    case("lt f32 into bool 4194304", "Less", lambda: (x(MANY), x(MANY, 1)))
    case("eq i64 into bool 1000003", "Equal", lambda: (i(ODD, 7), i(ODD, 5)))
    case("logical_and bool 16777216", "And",
         lambda: (x(1 << 24) < numpy.float32(0.2), x(1 << 24, 1) < numpy.float32(0.7)))
    case("clamp f32 4194304", "Clip", lambda: (x(MANY),), [scalar(0.1), scalar(0.9)])
    case("mul f32 4194304 by a number", "Mul", lambda: (x(MANY),), [scalar(0.3)])
    case("add f32 1000003x3 + 3", "Add", lambda: (x((ODD, 3)), x(3, 1)))


def more_movement():
    for name, source, target, size in (
            ("f32 to f16", "float32", "float16", MANY), ("f16 to f32", "float16", "float32", MANY),
            ("f32 to i32", "float32", "int32", MANY), ("f32 to f64", "float32", "float64", MANY)):
        case(f"cast {name} {size}", "Cast",
             lambda source=source, size=size: (x(size, 0, source),), to=TYPES[numpy.dtype(target)])
    case("cast i64 to f32 1000003", "Cast", lambda: (i(ODD, 1000),), to=TensorProto.FLOAT)
    case("cast u8 to f32 4194304", "Cast", lambda: (i(MANY, 256, 0, "uint8"),),
         to=TensorProto.FLOAT)
    for name, shape, amounts, mode in (
            ("32x64x56x56, 1 on each side", (32, 64, 56, 56), (0, 0, 1, 1, 0, 0, 1, 1), "constant"),
            ("4096x1000, 12 on each side", (4096, 1000), (0, 12, 0, 12), "constant"),
            ("16x64x2048, reflected 3", (16, 64, 2048), (0, 0, 3, 0, 0, 3), "reflect")):
        case(f"pad f32 {name}", "Pad", lambda shape=shape: (x(shape),), axes(*amounts), mode=mode)
    case("tile f32 1024x512 8 times, axis 1", "Tile", lambda: (x((1024, 512)),), axes(1, 8))
    case("tril f32 16x512x512", "Trilu", lambda: (x((16, 512, 512)),), upper=0)
    case("copy f32 4096x1 expanded to 4096x1024", "Expand", lambda: (x((4096, 1)),), axes(*SQUARE))
    case("scatter f32 4096x1024, axis 1", "ScatterElements",
         lambda: (x(SQUARE), i(SQUARE, 1024), x(SQUARE, 1)), axis=1)
    case("scatter_reduce sum f32 65536x64 into 4096x64, axis 0", "ScatterElements",
         lambda: (x((4096, 64)), numpy.broadcast_to(i((65536, 1), 4096), (65536, 64)),
                  x((65536, 64), 1)), axis=0, reduction="add")
    for name, shape, rows, reduction in (
            ("4096x1024, 1024 rows", SQUARE, 1024, "none"),
            ("4096x64, 65536 rows added", (4096, 64), 65536, "add")):
        case(f"index_put f32 {name}", "ScatterND", lambda shape=shape, rows=rows: (
            x(shape), i((rows, 1), 4096), x((rows, shape[1]), 1)), reduction=reduction)
    case("one_hot i64 8192 of 1000", "OneHot", lambda: (i(8192, 1000),),
         [scalar(1000, "int64"), numpy.array([0, 1], dtype=numpy.int64)])
    case("masked_select f32 4194304, a quarter", "Compress", lambda: (x(MANY), x(MANY, 1) < 0))
    case("nonzero bool 1024x1024, a quarter", "NonZero", lambda: (x((1024, 1024)) < 0,))


def more_reductions():
    case("sum f32 1000003x3, axis 1", "ReduceSum", lambda: (x((ODD, 3)),), axes(1), keepdims=0)
    case("sum f32 8x64x56x56, axes 0, 2 and 3", "ReduceSum", lambda: (x((8, 64, 56, 56)),),
         axes(0, 2, 3), keepdims=0)
    case("sum i64 1000003", "ReduceSum", lambda: (i(ODD, 1000),), axes(0), keepdims=0)
    case("prod f32 4096x1024, axis 1", "ReduceProd", lambda: (near_one(SQUARE),), axes(1),
         keepdims=0)
    case("amin f32 4194304", "ReduceMin", lambda: (x(MANY),), axes(0), keepdims=0)
    case("argmin f32 4096x1024, axis 0", "ArgMin", lambda: (x(SQUARE),), axis=0, keepdims=0)
    for axis in (0, 1):
        case(f"norm f32 4096x1024, axis {axis}", "ReduceL2", lambda: (x(SQUARE),), axes(axis),
             keepdims=0)
        case(f"cumsum f32 4096x1024, axis {axis}", "CumSum", lambda: (x(SQUARE),),
             [scalar(axis, "int64")])
    case("cumsum f32 1000003", "CumSum", lambda: (x(ODD),), [scalar(0, "int64")])
    case("cumsum i64 1000003", "CumSum", lambda: (i(ODD, 1000),), [scalar(0, "int64")])
    case("topk f32 1x128256, 50", "TopK", lambda: (x((1, 128256)),), axes(50), ("y", "places"),
         axis=1)


def more_norms():
    image, halves = (8, 64, 56, 56), (64,)
    case("softmax f32 100000x10", "Softmax", lambda: (x((100000, 10)),), axis=1)
    case("layer_norm f32 1x4096", "LayerNormalization",
         lambda: (x((1, 4096)), x(4096, 1), x(4096, 2)), axis=-1, epsilon=1e-5)
    case("rms_norm f32 4096x1024", "RMSNormalization", lambda: (x(SQUARE), x(1024, 1)), axis=-1,
         epsilon=1e-5)
    case("group_norm f32 8x64x56x56, 32 groups", "GroupNormalization",
         lambda: (x(image), x(halves, 1), x(halves, 2)), num_groups=32, epsilon=1e-5)
    case("instance_norm f32 8x64x56x56", "InstanceNormalization",
         lambda: (x(image), x(halves, 1), x(halves, 2)), epsilon=1e-5)
    case("batch_norm_inference f32 8x64x56x56", "BatchNormalization",
         lambda: (x(image), x(halves, 3), x(halves, 4), x(halves, 1), positive(halves, 2)),
         epsilon=1e-5)


def more_products():
    case("matmul f64 1x2048x2048", "MatMul",
         lambda: (x((1, 2048), 0, "float64"), x((2048, 2048), 1, "float64")))
    for name, a, b in (("4096x16x4096", (4096, 16), (16, 4096)),
                       ("16x65536x16", (16, 65536), (65536, 16)),
                       ("100003x3x3", (100003, 3), (3, 3)),
                       ("512 of 32x32x32", (512, 32, 32), (512, 32, 32)),
                       ("4096 of 4x4x4", (4096, 4, 4), (4096, 4, 4))):
        case(f"matmul f32 {name}", "MatMul", lambda a=a, b=b: (x(a), x(b, 1)))
    for name, shift in (("1024^3, b transposed", {"transB": 1}),
                        ("1024^3 + addend", {})):
        case(f"matmul f32 {name}", "Gemm",
             lambda shift=shift: (x((1024, 1024)), x((1024, 1024), 1)) +
             (() if shift else (x((1024, 1024), 2),)), **shift)
    case("matmul i8 1024^3 into i32", "MatMulInteger",
         lambda: (i((1024, 1024), 100, 0, "int8"), i((1024, 1024), 90, 1, "int8")))


def more_convolutions():
    for name, a, w, more in (
            ("8x256x56x56, 512 of 1x1, stride 2", (8, 256, 56, 56), (512, 256, 1, 1),
             {"strides": [2, 2]}),
            ("1x64x57x61, 64 of 3x3", (1, 64, 57, 61), (64, 64, 3, 3), {"pads": [1] * 4}),
            ("8x64x56x56, 64 of 3x3, dilation 2", (8, 64, 56, 56), (64, 64, 3, 3),
             {"pads": [2] * 4, "dilations": [2, 2]}),
            ("8x256x28x28, 256 of 3x3, 32 groups", (8, 256, 28, 28), (256, 8, 3, 3),
             {"pads": [1] * 4, "group": 32}),
            ("8x144x56x56, 144 of 3x3, depthwise", (8, 144, 56, 56), (144, 1, 3, 3),
             {"pads": [1] * 4, "group": 144}),
            ("8x256x1024, 256 of 3", (8, 256, 1024), (256, 256, 3), {"pads": [1] * 2}),
            ("1x512x3000, 512 of 3, stride 2", (1, 512, 3000), (512, 512, 3),
             {"pads": [1] * 2, "strides": [2]}),
            ("2x16x16x56x56, 32 of 3x3x3", (2, 16, 16, 56, 56), (32, 16, 3, 3, 3),
             {"pads": [1] * 6})):
        case(f"convolution f32 {name}", "Conv", lambda a=a: (x(a),), [x(w, 1)], **more)
    case("convolution_transpose f32 8x128x14x14, 64 of 4x4, stride 2", "ConvTranspose",
         lambda: (x((8, 128, 14, 14)),), [x((128, 64, 4, 4), 1)], strides=[2, 2], pads=[1] * 4)


def pools_and_positions():
    image, half = (8, 64, 56, 56), (8, 64, 28, 28)
    case("avg_pool f32 8x64x56x56, 3x3, stride 1", "AveragePool", lambda: (x(image),),
         kernel_shape=[3, 3], pads=[1] * 4, count_include_pad=1)
    case("max_pool f32 16x64x2049, 2", "MaxPool", lambda: (x((16, 64, 2049)),), kernel_shape=[2],
         strides=[2])
    case("adaptive_avg_pool f32 8x2048x7x7 to 1x1", "GlobalAveragePool",
         lambda: (x((8, 2048, 7, 7)),))
    for name, mode, more in (
            ("nearest", "nearest", {"coordinate_transformation_mode": "asymmetric",
                                    "nearest_mode": "floor"}),
            ("bilinear", "linear", {"coordinate_transformation_mode": "half_pixel"})):
        case(f"interpolate {name} f32 8x64x28x28 to 56x56", "Resize", lambda: (x(half),),
             [None, numpy.array([1, 1, 2, 2], dtype=numpy.float32)], mode=mode, **more)
    case("interpolate bilinear f32 8x3x333x500 to 224x224", "Resize",
         lambda: (x((8, 3, 333, 500)),),
         [None, None, numpy.array([8, 3, 224, 224], dtype=numpy.int64)], mode="linear")


def attention_and_codes():
    for name, q, k, is_causal in (
            ("8x1024x64, causal", (1, 8, 1024, 64), (1, 8, 1024, 64), 1),
            ("8x1024x64", (1, 8, 1024, 64), (1, 8, 1024, 64), 0),
            ("8x12x197x64", (8, 12, 197, 64), (8, 12, 197, 64), 0),
            ("32 over 8 heads x512x128, causal", (1, 32, 512, 128), (1, 8, 512, 128), 1),
            ("32x1x128 over 4096 keys", (1, 32, 1, 128), (1, 32, 4096, 128), 0),
            ("32x1x128 over 4096 keys of 8 heads", (1, 32, 1, 128), (1, 8, 4096, 128), 0)):
        case(f"attention f32 {name}", "Attention",
             lambda q=q, k=k: (x(q), x(k, 1), x(k, 2)), is_causal=is_causal)
    step = numpy.full(4096, 1.5 / 127, dtype=numpy.float32)
    zero = numpy.zeros(4096, dtype=numpy.int8)
    case("quantize f32 to i8 4096x1024, per row", "QuantizeLinear", lambda: (x(SQUARE),),
         [step, zero], axis=0)
    case("dequantize i8 to f32 4096x1024, per row", "DequantizeLinear",
         lambda: (numpy.rint(x(SQUARE) / step[0]).astype(numpy.int8),), [step, zero], axis=0)


if __name__ == "__main__":
    elementwise_and_movement()
    reductions_and_norms()
    products_and_convolutions()
    more_elementwise()
    more_movement()
    more_reductions()
    more_norms()
    more_products()
    more_convolutions()
    pools_and_positions()
    attention_and_codes()
    serve(CASES)
