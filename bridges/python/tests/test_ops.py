"""Functions of ops: arguments, outputs, defaults, and what bad input gives."""

import inspect

import pytest

import backplane as bp
from backplane import ops


def floats(*values):
    return bp.asarray(list(values), dtype="f32")


def loaded_devices():
    """Loads what the manifests name until there is a device that is not the first one."""
    for manifest in bp.manifests():
        try:
            devices = [d for d in bp.load(manifest["name"])["devices"] if not d.is_host]
        except bp.Error:
            continue
        if devices:
            return devices
    return []


def test_every_op_has_a_function_with_a_signature_and_a_text():
    names = ops.names()
    assert len(names) >= 230
    for name in names:
        function = ops.get(name)
        assert inspect.signature(function) is not None
        assert len(function.__doc__) > 20


def test_inputs_are_broadcast_and_cast():
    a = bp.asarray([[1], [2]], dtype="i32")
    assert ops.add(a, floats(0.5, 1.5)).tolist() == [[1.5, 2.5], [2.5, 3.5]]
    assert ops.add(a, 1).dtype == "i32"
    assert ops.div(a, 2).tolist() == [[0.5], [1.0]]
    assert ops.sub(1, floats(0.25)).tolist() == [0.75]
    assert ops.where(bp.asarray([True, False]), 1, floats(5)).tolist() == [1, 5]


def test_an_axis_may_count_from_the_end():
    x = bp.asarray([[1.0, 2.0], [3.0, 4.0]])
    assert ops.sum(x, axes=-1).tolist() == [3, 7]
    assert ops.sum(x).item() == 10
    assert ops.softmax(x, axis=-1).shape == (2, 2)
    with pytest.raises(bp.InvalidArgument, match=r"softmax: axis is 2; allowed: -2 <= axis < 2"):
        ops.softmax(x, axis=2)


def test_optional_outputs_are_made_where_asked_for():
    x = floats(3, 1, 2)
    assert ops.topk(x, k=2, axis=0).tolist() == [3, 2]
    y, indices = ops.topk(x, k=2, axis=0, indices=True)
    assert indices.tolist() == [0, 2] and indices.dtype == "i64"
    assert ops.topk(x, k=2, axis=0, indices=True, indices_dtype="i32")[1].dtype == "i32"


def test_an_output_may_be_given():
    x, y = floats(1, 2), bp.zeros([2])
    before = y.version
    assert ops.add(x, x, y=y).tolist() == [2, 4]
    assert y.tolist() == [2, 4] and y.version == before + 1
    with pytest.raises(bp.InvalidArgument, match="add"):
        ops.add(x, x, y=bp.zeros([3]))


def test_lists_are_filled_up_for_the_rank():
    x = bp.ones([1, 1, 4, 4])
    assert ops.avg_pool(x, kernel_size=2).shape == (1, 1, 2, 2)
    assert ops.avg_pool(x, kernel_size=[2, 4], stride=1).shape == (1, 1, 3, 1)


def test_outputs_of_a_chosen_shape_and_dtype():
    x = ops.fill(7, shape=[2, 3], dtype="i16")
    assert x.shape == (2, 3) and x.dtype == "i16" and x.tolist() == [[7] * 3] * 2
    assert ops.arange(start=1, step=2, shape=[3], dtype="i64").tolist() == [1, 3, 5]
    assert ops.sum(floats(1, 2), dtype="f64").dtype == "f64"


def test_random_ops_take_parts_of_one_sequence(device):
    def drawn():
        return [ops.uniform(shape=[8], **device.draw(8)).tolist(),
                ops.randint(low=0, high=1000, shape=[8], **device.draw(8)).tolist(),
                ops.randperm(shape=[8], **device.draw(8)).tolist(),
                ops.dropout(bp.ones([8]), p=0.5, **device.draw(8)).tolist()]
    bp.manual_seed(5)
    first, second = drawn(), drawn()
    assert first != second and sorted(first[2]) == list(range(8))
    bp.manual_seed(5)
    assert drawn() == first


def test_lists_of_tensors_are_written_in_place():
    p, g, m, v = (floats(1, 2), floats(0.5, 0.5), bp.zeros([2]), bp.zeros([2]))
    before = p.version
    assert ops.adamw_step([p], [g], [m], [v], lr=0.1, step=1, beta1=0.9, beta2=0.99, eps=1e-8,
                          weight_decay=0.0) is None
    assert p.version == before + 1
    assert p.tolist() == pytest.approx([0.9, 1.9], abs=1e-5)


@pytest.mark.parametrize("call, type_, text", [
    (lambda x: ops.softmax(x), TypeError, "axis is missing"),
    (lambda x: ops.softmax(x, axs=1), TypeError, "there is no argument 'axs'"),
    (lambda x: ops.softmax(x, 0, axis=0), TypeError, "axis was given twice"),
    (lambda x: ops.softmax(x, 0, 1), TypeError, "allowed: up to 2"),
    (lambda x: ops.softmax([1.0], axis=0), TypeError, "x is a list; allowed: a backplane.Tensor"),
    (lambda x: ops.softmax(x, axis=0.5), TypeError, "axis is a float; allowed: an integer"),
    (lambda x: ops.add(1, 2), TypeError, "the inputs are numbers"),
    (lambda x: ops.gelu(x, approximation="tan"), ValueError, "'tan'; allowed: 'none', 'tanh'"),
    (lambda x: ops.add(x, bp.zeros([2])), ValueError, r"b has the shape \(2,\)"),
    (lambda x: ops.matmul(x, x), bp.InvalidArgument, "matmul"),
    (lambda x: ops.exp(bp.asarray([1])), bp.InvalidArgument, "exp: x is i64; allowed: "),
    (lambda x: ops.sum(x, dtype="f99"), bp.InvalidArgument, "no dtype"),
    (lambda x: ops.cat(x, axis=0), TypeError, "xs is a backplane"),
    (lambda x: ops.add(x, 2**70), OverflowError, "64 bits"),
    (lambda x: ops.fill(1, dtype="f32"), TypeError, "shape is missing, or y"),
    (lambda x: ops.fill(1, y=x, dtype="i32"), bp.InvalidArgument, "y is f32 .* leave that out"),
    (lambda x: ops.fill(1, y=x, shape=[4]), bp.InvalidArgument, "y is f32 .* leave that out"),
    (lambda x: ops.sum(x, y=bp.zeros([]), dtype="f64"), bp.InvalidArgument, "leave that out"),
    (lambda x: ops.fill(1, shape=[1] * 9), bp.InvalidArgument, "9 extents; allowed: up to 8"),
    (lambda x: ops.fill(1, shape=[-1]), bp.InvalidArgument, "at least 0"),
    (lambda x: ops.no_such_op(x), AttributeError, "there is no op 'no_such_op'"),
])
def test_bad_input_names_what_was_wrong(call, type_, text):
    with pytest.raises(type_, match=text):
        call(floats(1, 2, 3))


def test_an_error_has_the_status_of_the_library():
    with pytest.raises(bp.Error) as caught:
        ops.exp(bp.asarray([1]))
    assert caught.value.status == 1 and isinstance(caught.value, ValueError)


def test_a_failure_on_the_device_is_an_exception_until_it_is_cleared(device):
    """Where the device can keep the failure, every later call has it; else the call itself had."""
    x = floats(1, 2, 3)
    with pytest.raises(bp.Error):
        ops.index_select(x, bp.asarray([9]), axis=0).tolist()
    try:
        assert ops.add(x, x).tolist() == [2, 4, 6]
    except bp.Error as error:
        assert isinstance(error, (bp.StreamFailed, bp.DataFailure))
    bp.clear_failure(device)
    assert ops.add(x, x).tolist() == [2, 4, 6]


def test_tensors_of_two_devices_are_refused(device):
    others = [d for d in bp.devices() if d != device] or loaded_devices()
    if not others:
        pytest.skip(f"no manifest names a backend with another device than {device}")
    x, y = floats(1), bp.asarray([1.0], device=others[0])
    with pytest.raises(bp.InvalidArgument, match="allowed: one device"):
        ops.add(x, y)
    with pytest.raises(bp.InvalidArgument, match="allowed: one device"):
        ops.fill(1, y=x, device=others[0])
    with pytest.raises(bp.InvalidArgument, match="allowed: one device"):
        ops.cat([x, y], axis=0)
    assert ops.add(x, y.to(device)).tolist() == [2]
