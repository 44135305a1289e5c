"""Models on the device: partitions, shapes, recorded runs, threads."""

import threading

import numpy as np
import onnxruntime as ort
import pytest
from conftest import expect_counts, make_model, open_session
from onnx import TensorProto, helper

F32, I64 = np.float32, np.int64
RNG = np.random.default_rng(0)


def rows(n):
    return RNG.standard_normal((n, 8)).astype(F32)


def assert_near(given, expected):
    np.testing.assert_allclose(given, expected, rtol=1e-5, atol=1e-5)


@pytest.fixture(scope="module")
def linear():
    """relu(x @ w + b) of (rows, 8), as a model and as a function."""
    w, b = RNG.standard_normal((8, 5)).astype(F32), RNG.standard_normal(5).astype(F32)
    model = make_model([("MatMul", ["x", "w"], ["m"]), ("Add", ["m", "b"], ["s"]),
                        ("Relu", ["s"], ["y"])],
                       {"x": (F32, ["n", 8])}, {"y": (F32, ["n", 5])}, {"w": w, "b": b})
    return model, lambda x: np.maximum(x @ w + b, 0)


def test_one_partition_has_the_whole_model(linear):
    session = open_session(linear[0])
    expect_counts(session, (1, 3, 0))


def test_shapes_may_change_between_runs(linear):
    model, expected = linear
    session = open_session(model)
    for n in (3, 3, 3, 4, 0, 3, 4, 4, 1, 0, 0):
        x = rows(n)
        assert_near(session.run(None, {"x": x})[0], expected(x))


@pytest.mark.parametrize("programs", ["0", "1"])
@pytest.mark.parametrize("graphs", ["0", "1", "2"])
def test_recorded_shapes_are_bounded(linear, graphs, programs):
    model, expected = linear
    session = open_session(model, {"backplane.graphs": graphs, "backplane.programs": programs})
    for n in (1, 2, 3) * 4 + (1, 1, 1):
        x = rows(n)
        assert_near(session.run(None, {"x": x})[0], expected(x))


def test_what_depends_on_values_is_not_replayed():
    model = make_model([("Reshape", ["x", "shape"], ["y"])],
                       {"x": (F32, [6]), "shape": (I64, [2])}, {"y": (F32, ["a", "b"])})
    session = open_session(model)
    expect_counts(session, (1, 1, 0))
    x = np.arange(6, dtype=F32)
    for shape in ([2, 3], [2, 3], [3, 2], [6, 1], [-1, 2]):
        y, = session.run(None, {"x": x, "shape": np.array(shape)})
        np.testing.assert_array_equal(y, x.reshape(shape))


def test_random_numbers_differ_in_each_run():
    model = make_model([("RandomNormalLike", ["x"], ["y"])], {"x": (F32, [4])}, {"y": (F32, [4])})
    session = open_session(model)
    expect_counts(session, (1, 1, 0))
    drawn = {tuple(session.run(None, {"x": np.zeros(4, F32)})[0]) for _ in range(5)}
    assert len(drawn) == 5


def test_threads_share_a_session(linear):
    model, expected = linear
    session = open_session(model)
    wrong = []

    def work(seed):
        rng = np.random.default_rng(seed)
        for _ in range(20):
            x = rng.standard_normal((1 + seed % 3, 8)).astype(F32)
            if not np.allclose(session.run(None, {"x": x})[0], expected(x), rtol=1e-5, atol=1e-5):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_sessions_live_beside_each_other(linear):
    model, expected = linear
    sessions = [open_session(model) for _ in range(3)]
    x = rows(2)
    del sessions[1]
    for session in sessions * 3:
        assert_near(session.run(None, {"x": x})[0], expected(x))


def test_an_operator_that_is_missing_splits_the_model():
    """A MaxRoiPool runs on ONNX Runtime's CPU, between two partitions."""
    pool = ("MaxRoiPool", ["a", "regions"], ["b"], {"pooled_shape": [4, 4]})
    nodes = [("Mul", ["x", "x"], ["a"]), pool, ("Add", ["b", "one"], ["c"]),
             ("Add", ["x", "one"], ["d"])]
    model = make_model(nodes, {"x": (F32, [1, 1, 8, 8])},
                       {"c": (F32, [1, 1, 4, 4]), "d": (F32, [1, 1, 8, 8])},
                       {"regions": np.array([[0, 0, 0, 7, 7]], F32), "one": np.ones(1, F32)})
    session, alone = open_session(model), open_session(model, on_cpu=True)
    for _ in range(3):
        x = rows(8).reshape(1, 1, 8, 8)
        for given, expected in zip(session.run(None, {"x": x}), alone.run(None, {"x": x})):
            np.testing.assert_allclose(given, expected, rtol=1e-5, atol=1e-6)
    expect_counts(session, (2, 3, 1))


def test_products_of_quantised_factors():
    """The products multiply the codes; the weight is one that the partition has apart."""
    w = RNG.integers(-127, 128, (300, 400)).astype(np.int8)
    scale = RNG.uniform(0.01, 0.02, 400).astype(F32)
    nodes = [("QuantizeLinear", ["x", "s", "z"], ["q"]),
             ("DequantizeLinear", ["q", "s", "z"], ["a"]),
             ("DequantizeLinear", ["w", "scale"], ["b"], {"axis": 1}),
             ("MatMul", ["a", "b"], ["y"])]
    model = make_model(nodes, {"x": (F32, ["n", 300])}, {"y": (F32, ["n", 400])},
                       {"w": w, "scale": scale, "s": F32(0.02), "z": np.uint8(128)})
    session, alone = open_session(model), open_session(model, on_cpu=True)
    expect_counts(session, (1, 4, 0))
    for count in (1, 3, 3, 3, 40, 40, 1):
        x = RNG.standard_normal((count, 300)).astype(F32)
        expected, = alone.run(None, {"x": x})
        given, = session.run(None, {"x": x})
        np.testing.assert_allclose(given, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


def test_large_constants_and_unused_outputs():
    w = RNG.standard_normal((300, 200)).astype(F32)
    model = make_model([("MatMul", ["x", "w"], ["y"]), ("TopK", ["y", "k"], ["best", "places"])],
                       {"x": (F32, ["n", 300])}, {"best": (F32, ["n", 1])},
                       {"w": w, "k": np.array([1])})
    session = open_session(model)
    x = RNG.standard_normal((2, 300)).astype(F32)
    for _ in range(3):
        best, = session.run(None, {"x": x})
        np.testing.assert_allclose(best, (x @ w).max(1, keepdims=True), rtol=1e-4)


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int32, np.uint8, np.bool_])
def test_dtypes_cross_the_border(dtype):
    model = make_model([("Identity", ["x"], ["y"]), ("Concat", ["x", "x"], ["z"], {"axis": 0})],
                       {"x": (dtype, ["n"])}, {"y": (dtype, ["n"]), "z": (dtype, ["m"])})
    session = open_session(model)
    for n in (3, 3, 3, 0):
        x = RNG.integers(0, 2, n).astype(dtype)
        y, z = session.run(None, {"x": x})
        np.testing.assert_array_equal(y, x)
        np.testing.assert_array_equal(z, np.concatenate([x, x]))


def branch(name, op):
    """A graph that reads `x` and the constant `two` from outside."""
    output = helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
    return helper.make_graph([helper.make_node(op, ["x", "two"], [name])], name, [], [output])


def test_branches_run_on_the_device():
    node = helper.make_node("If", ["is_sum"], ["y"], then_branch=branch("sum", "Add"),
                            else_branch=branch("product", "Mul"))
    model = make_model([node], {"x": (F32, ["n"]), "is_sum": (np.bool_, [])}, {"y": (F32, ["n"])},
                       {"two": np.full(1, 2, F32)})
    session = open_session(model)
    if int(ort.__version__.split(".")[1]) >= 27:  # Older ones hide what the graphs need.
        expect_counts(session, (1, None, None))
    x = np.arange(3, dtype=F32)
    for is_sum in (True, False, True, True, False):
        y, = session.run(None, {"x": x, "is_sum": np.array(is_sum)})
        np.testing.assert_array_equal(y, x + 2 if is_sum else x * 2)
