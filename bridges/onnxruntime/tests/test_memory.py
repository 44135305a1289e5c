"""Tensors that stay on the device between runs. A device of class host has none of its own."""

import numpy as np
import onnxruntime as ort
import pytest
from conftest import find_device, make_model, open_session, run_program

F32 = np.float32
SUM = make_model([("Add", ["x", "y"], ["z"])], {"x": (F32, ["n"]), "y": (F32, ["n"])},
                 {"z": (F32, ["n"])})


@pytest.fixture
def place():
    """Where the tensors of the device are: type, number, vendor."""
    info = find_device().memory_info(ort.OrtDeviceMemoryType.DEFAULT)
    if info is None:
        pytest.skip("the tensors of this device are those of the host")
    return "gpu", info.device_id, info.device_vendor_id


def put(array, place):
    return ort.OrtValue.ortvalue_from_numpy(array, *place)


def run_bound(session, inputs, output):
    binding = session.io_binding()
    for name, value in inputs.items():
        binding.bind_ortvalue_input(name, value)
    binding.bind_ortvalue_output("z", output)
    session.run_with_iobinding(binding)
    return binding


def test_values_go_there_and_come_back(place):
    for array in (np.arange(5, dtype=F32), np.ones((2, 3), np.int64), np.array([True, False])):
        value = put(array, place)
        assert value.device_name() != "cpu"
        np.testing.assert_array_equal(value.numpy(), array)


def test_a_result_is_the_input_of_the_next_run(place):
    session = open_session(SUM)
    x = np.arange(4, dtype=F32)
    step, total = put(x, place), put(np.zeros(4, F32), place)
    for _ in range(6):
        result = put(np.zeros(4, F32), place)
        binding = run_bound(session, {"x": total, "y": step}, result)
        total = result
    np.testing.assert_array_equal(total.numpy(), x * 6)
    np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], x * 6)


def test_one_input_is_on_the_host(place):
    session = open_session(SUM)
    x = np.arange(3, dtype=F32)
    for scale in (1, 2, 3):
        binding = session.io_binding()
        binding.bind_ortvalue_input("x", put(x, place))
        binding.bind_cpu_input("y", x * scale)
        binding.bind_output("z")
        session.run_with_iobinding(binding)
        np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], x * (1 + scale))


def test_tensors_of_another_device_are_refused():
    """The library offers both devices; a session of the one gets a tensor of the other."""
    devices = [d for d in ort.get_ep_devices() if d.ep_name == find_device().ep_name]
    infos = [d.memory_info(ort.OrtDeviceMemoryType.DEFAULT) for d in devices]
    if len(devices) < 2 or infos[0] is None or infos[1] is None:
        pytest.skip("the plugin has no two devices with memory of their own")
    session = open_session(SUM)
    other = ("gpu", infos[1].device_id, infos[1].device_vendor_id)
    x = put(np.ones(2, F32), other)
    with pytest.raises(Exception, match="."):
        run_bound(session, {"x": x, "y": x}, x)
    assert session.run(None, {"x": np.ones(2, F32), "y": np.ones(2, F32)})[0].tolist() == [2, 2]


def test_addresses_may_be_synthetic(place):
    if ".sim:" not in find_device().ep_metadata["backplane.device"]:
        pytest.skip("memory without addresses is an option of sim")
    status, text = run_program("""
        import numpy as np, onnxruntime as ort
        from conftest import *
        pytest_configure()
        model = make_model([("Add", ["x", "x"], ["y"])], {"x": (np.float32, ["n"])},
                           {"y": (np.float32, ["n"])})
        session = open_session(model)
        for n in (1, 2, 3, 3, 3, 0):
            assert session.run(None, {"x": np.ones(n, np.float32)})[0].tolist() == [2] * n
        print("end")
    """, BACKPLANE_OPTIONS="sim.addresses=no")
    assert status == 0 and "end" in text, text
