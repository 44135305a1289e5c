"""Memory shared with numpy and other libraries, and values of Python."""

import array
import copy
import gc
import pickle

import pytest

import backplane as bp

numpy = pytest.importorskip("numpy")

DTYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
          "float16", "float32", "float64"]


@pytest.mark.parametrize("name", DTYPES)
def test_numpy_and_back_without_a_copy(on_host, name):
    a = numpy.arange(6).reshape(2, 3).astype(name)
    x = bp.from_dlpack(a)
    assert x.shape == (2, 3) and x.numpy().dtype == name
    assert numpy.shares_memory(a, x.numpy()) and numpy.shares_memory(a, numpy.from_dlpack(x))
    assert (x.numpy() == a).all()


def test_views_share_memory_with_their_strides(on_host):
    a = numpy.arange(24, dtype="f4").reshape(4, 6)
    for view in (a[::2, 1:4], a[::-1], a.T, a[2, 3]):
        x = bp.asarray(view)
        assert numpy.array_equal(x.numpy(), view) and x.tolist() == view.tolist()
    x = bp.asarray(a[::-1])
    x[0, 0] = 99
    assert a[3, 0] == 99


def test_memory_lives_as_long_as_its_users(on_host):
    x = bp.asarray(numpy.full(1000, 7, "f4"))
    gc.collect()
    assert bp.ops.sum(x).item() == 7000
    a = bp.full([1000], 3.0).numpy()
    gc.collect()
    assert a.sum() == 3000


def test_a_capsule_that_nobody_takes_is_ended(on_host):
    freed = []

    class Array(numpy.ndarray):
        def __del__(self):
            freed.append(1)

    a = numpy.zeros(3, "f4").view(Array)
    x = bp.from_dlpack(a)
    capsule = x.__dlpack__(max_version=(1, 0))
    del a, x, capsule
    gc.collect()
    bp.synchronize(on_host)
    bp.zeros([1])
    assert freed == [1]


def test_a_capsule_is_taken_once(on_host):
    capsule = bp.zeros([2]).__dlpack__()
    numpy_like = type("T", (), {"__dlpack__": lambda self, **k: capsule,
                                "__dlpack_device__": lambda self: (1, 0)})()
    assert bp.from_dlpack(numpy_like).shape == (2,)
    with pytest.raises(BufferError, match="taken before"):
        bp.from_dlpack(numpy_like)


def test_copies_where_they_are_asked_for(on_host):
    a = numpy.zeros(3, "f4")
    assert not numpy.shares_memory(bp.from_dlpack(a, copy=True).numpy(), a)
    assert numpy.shares_memory(bp.from_dlpack(a, copy=False).numpy(), a)
    x = bp.zeros([3])
    assert not numpy.shares_memory(numpy.from_dlpack(x, copy=True), x.numpy())
    assert not numpy.shares_memory(x.numpy(copy=True), x.numpy())


def test_memory_that_nobody_may_write_to_is_copied(on_host):
    a = numpy.zeros(3, "f4")
    a.flags.writeable = False
    x = bp.from_dlpack(a)
    x[0] = 1
    assert a[0] == 0 and x[0].item() == 1
    with pytest.raises(BufferError, match="lets nobody write"):
        bp.from_dlpack(a, copy=False)


def test_the_buffer_protocol(on_host):
    x = bp.asarray([[1.0, 2.0], [3.0, 4.0]])
    view = memoryview(x)
    assert view.shape == (2, 2) and view.format == "f" and view.tolist() == x.tolist()
    view[0, 0] = 5
    assert x[0, 0].item() == 5
    assert memoryview(x.transpose(0, 1)).strides == (4, 8)
    with pytest.raises(BufferError, match="contiguous"):
        array.array("f").frombytes(x.transpose(0, 1))  # It takes rows alone.


def test_what_cannot_be_shared_says_why(device):
    x = bp.asarray([1.0, 2.0])
    x.requires_grad = True
    with pytest.raises(BufferError, match="detach"):
        memoryview(x)
    for taken in (x.__dlpack__, lambda: bp.from_dlpack(x)):
        with pytest.raises(BufferError, match="detach"):
            taken()
    assert x.detach().numpy().tolist() == [1, 2]
    y = bp.asarray([1.0]).to("bf16")
    assert y.numpy().dtype == "float32" and y.tolist() == [1]
    if device.is_host:
        with pytest.raises(BufferError, match="bf16"):
            memoryview(y)
    else:
        with pytest.raises(BufferError, match="not that of the process"):
            memoryview(x.detach())
        with pytest.raises(ValueError, match="copy=False"):
            x.detach().numpy(copy=False)


def test_values_of_python():
    assert bp.asarray(True).dtype == "bool" and bp.asarray(3).dtype == "i64"
    assert bp.asarray([1, 2.5]).dtype == "f32" and bp.asarray(2**63).dtype == "u64"
    assert bp.asarray([]).shape == (0,) and bp.asarray([[], []]).shape == (2, 0)
    assert bp.asarray([[1, 2], [3, 4]], dtype="u16").tolist() == [[1, 2], [3, 4]]
    assert bp.asarray([1.5, -2], dtype="bf16").tolist() == [1.5, -2]
    assert bp.asarray(array.array("h", [1, 2])).dtype == "i16"
    assert bp.asarray(b"\x01\x02").dtype == "u8"
    assert bp.asarray([bp.asarray(1), bp.asarray(2)]).tolist() == [1, 2]
    assert bp.asarray(numpy.float64(2.5)).dtype == "f64"


@pytest.mark.parametrize("value, text", [
    ([[1, 2], [3]], "one length"),
    ([1, [2]], "beside"),
    ("text", "allowed: numbers"),
    ([None], "allowed: numbers"),
    (1j, "allowed: numbers"),
    (numpy.array(["a"]), "format|dtype"),
])
def test_values_that_are_no_tensor(value, text):
    with pytest.raises((TypeError, ValueError, BufferError), match=text):
        bp.asarray(value)


def test_asarray_says_when_it_must_copy():
    x = bp.asarray([1.0])
    assert bp.asarray(x) is x and bp.asarray(x, copy=True) is not x
    with pytest.raises(ValueError, match="copy"):
        bp.asarray([1.0], copy=False)
    with pytest.raises(ValueError, match="copy"):
        bp.asarray(x, dtype="f64", copy=False)


def test_pickles():
    x = bp.asarray([[1, 2], [3, 4]], dtype="i32")
    y = pickle.loads(pickle.dumps(x))
    assert y.tolist() == x.tolist() and y.dtype is x.dtype
    assert pickle.loads(pickle.dumps(x.device)) == x.device


def test_copies_stay_on_their_device(device):
    x = bp.asarray([1.0, 2.0])
    x.requires_grad = True
    y = copy.deepcopy({"w": x})["w"]
    assert y.device == x.device and y.requires_grad and y.is_leaf and y.tolist() == x.tolist()
    with bp.no_grad():
        y.fill_(0)
    assert x.tolist() == [1, 2]


def test_numbers_of_numpy_are_numbers():
    x = bp.asarray([1.0, 2.0])
    for two in (numpy.float32(2), numpy.float64(2), numpy.int64(2), numpy.uint8(2)):
        assert (x * two).tolist() == [2, 4] and (two * x).tolist() == [2, 4]
        assert bp.ops.mul(x, two).dtype == "f32"
    assert (bp.asarray([True]) & numpy.bool_(True)).tolist() == [True]
    with pytest.raises(TypeError):
        x + numpy.ones(2, "f4")
    with pytest.raises(TypeError):
        numpy.ones(2, "f4") + x


def test_torch_and_back_without_a_copy(on_host):
    torch = pytest.importorskip("torch")
    t = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    x = bp.from_dlpack(t)
    x[0, 0] = 42
    assert t[0, 0] == 42
    back = torch.from_dlpack(bp.ops.add(x, x))
    assert back[0, 0] == 84
    h = bp.from_dlpack(torch.ones(2, dtype=torch.bfloat16))
    assert h.dtype == "bf16" and torch.from_dlpack(h).dtype == torch.bfloat16


def test_jax_and_back_without_a_copy(on_host):
    jax = pytest.importorskip("jax")
    a = jax.numpy.arange(6.0).reshape(2, 3)
    x = bp.from_dlpack(a)
    assert x.numpy().ctypes.data == numpy.asarray(a).ctypes.data
    y = bp.ops.add(x, x)
    back = jax.dlpack.from_dlpack(y)
    assert numpy.asarray(back).ctypes.data == y.numpy().ctypes.data
    assert back.tolist() == [[0, 2, 4], [6, 8, 10]]
