"""Bad input and failures: ONNX Runtime's exception has a sentence, and later work goes on."""

import numpy as np
import onnxruntime as ort
import pytest
from conftest import (LIBRARY, PROVIDER, expect_counts, find_device, make_model, open_session,
                      run_program)

F32, I64 = np.float32, np.int64
SUM = make_model([("Add", ["x", "x"], ["y"])], {"x": (F32, ["n"])}, {"y": (F32, ["n"])})
OPEN = """
    import numpy as np, onnxruntime as ort
    from conftest import *
    pytest_configure()
    model = make_model([("Add", ["x", "x"], ["y"])], {"x": (np.float32, ["n"])},
                       {"y": (np.float32, ["n"])})
"""


def test_an_unknown_option_is_named_with_what_is_allowed():
    with pytest.raises(Exception, match="no option 'backplane.graph'; allowed: backplane.graphs"):
        open_session(SUM, {"backplane.graph": "1"})


@pytest.mark.parametrize("value", ["-1", "x", "1025", ""])
def test_a_value_that_is_not_allowed(value):
    with pytest.raises(Exception, match=f"backplane.graphs is '{value}'; allowed: a number from 0"):
        open_session(SUM, {"backplane.graphs": value})


def test_a_choice_of_another_kind_is_told():
    with pytest.raises(Exception, match="backplane.programs is 'yes'; allowed: 0 or 1"):
        open_session(SUM, {"backplane.programs": "yes"})


def test_two_devices_in_one_session():
    devices = [d for d in ort.get_ep_devices() if d.ep_name == PROVIDER]
    options = ort.SessionOptions()
    options.log_severity_level = 4
    if len(devices) < 2:
        devices = devices * 2
    options.add_provider_for_devices(devices[:2], {})
    with pytest.raises(Exception, match="2 devices are given .*; allowed: one for each session"):
        ort.InferenceSession(SUM, options, enable_fallback=0)


def test_an_index_out_of_range_is_told_and_later_runs_work():
    model = make_model([("Gather", ["x", "i"], ["y"])], {"x": (F32, [3]), "i": (I64, [1])},
                       {"y": (F32, [1])})
    session = open_session(model)
    expect_counts(session, (1, 1, 0))
    x = np.arange(3, dtype=F32)
    for index in (1, 7, 2, 7, 0, 2):
        feed = {"x": x, "i": np.array([index])}
        if index < 3:
            assert session.run(None, feed)[0] == index
        else:
            with pytest.raises(Exception, match="7"):
                session.run(None, feed)
        assert session.get_providers()[0] == PROVIDER


def test_shapes_that_do_not_fit_name_the_node():
    model = make_model([("Add", ["x", "y"], ["z"])], {"x": (F32, ["n"]), "y": (F32, ["m"])},
                       {"z": (F32, ["k"])})
    session = open_session(model)
    with pytest.raises(Exception, match="Add of the default domain.*"):
        session.run(None, {"x": np.zeros(2, F32), "y": np.zeros(3, F32)})
    assert session.run(None, {"x": np.ones(2, F32), "y": np.ones(1, F32)})[0].tolist() == [2, 2]


def test_without_fallback_a_missing_operator_is_an_error():
    model = make_model([("MaxRoiPool", ["x", "regions"], ["y"], {"pooled_shape": [2, 2]})],
                       {"x": (F32, [1, 1, 4, 4])}, {"y": (F32, [1, 1, 2, 2])},
                       {"regions": np.array([[0, 0, 0, 3, 3]], F32)})
    assert open_session(model).run(None, {"x": np.ones((1, 1, 4, 4), F32)})[0].shape == (1, 1, 2, 2)
    with pytest.raises(Exception, match="fallback|CPU EP"):
        open_session(model, entries={"session.disable_cpu_ep_fallback": "1"})


def test_the_log_says_which_operator_is_not_on_the_device_and_why():
    status, text = run_program("""
        import numpy as np, onnxruntime as ort
        from conftest import *
        pytest_configure()
        pool = ("MaxRoiPool", ["x", "regions"], ["y"], {"pooled_shape": [2, 2]})
        model = make_model([pool], {"x": (np.float32, [1, 1, 4, 4])},
                           {"y": (np.float32, [1, 1, 2, 2])},
                           {"regions": np.array([[0, 0, 0, 3, 3]], np.float32)})
        options = ort.SessionOptions()
        options.log_severity_level = 1
        options.add_provider_for_devices([find_device()], {})
        ort.InferenceSession(model, options)
    """)
    assert status == 0, text
    assert "Backplane: 0 of 1 nodes run on" in text
    assert "not there: 1 x MaxRoiPool (" in text and "there is no such operator" in text


def test_a_plugin_that_does_not_load(tmp_path):
    fake = tmp_path / "libfake.so"
    fake.write_bytes(b"no library")
    for name, words in ((str(fake), "libfake.so"), ("no_such_plugin", "no_such_plugin")):
        status, text = run_program(f"""
            import onnxruntime as ort
            ort.register_execution_provider_library("b", {LIBRARY!r})
        """, BACKPLANE_ORT_PLUGINS=name)
        assert status == 1 and "BACKPLANE_ORT_PLUGINS: plugin '" in text and words in text, text


def test_a_device_that_is_lost():
    status, text = run_program(OPEN + """
    session = open_session(model)
    for _ in range(3):
        try: print("got", session.run(None, {"x": np.ones(2, np.float32)})[0])
        except Exception as error: print("caught", error)
    try: open_session(model)
    except Exception as error: print("caught", error)
    print("end")
    """, BACKPLANE_LAYERS="fault", BACKPLANE_LAYER_OPTIONS="fault.lost=kernel.launch@2")
    assert status == 0, text
    assert "device lost" in text and "Falling back" not in text, text
    assert text.splitlines()[-1] == "end", text


def test_out_of_device_memory():
    if ".sim:" not in find_device().ep_metadata["backplane.device"]:
        pytest.skip("the size of memory is an option of sim")
    status, text = run_program(OPEN + """
    session = open_session(model)
    try: session.run(None, {"x": np.ones(1 << 22, np.float32)})
    except Exception as error: print("caught", error)
    print("got", session.run(None, {"x": np.ones(2, np.float32)})[0])
    """, BACKPLANE_OPTIONS="sim.capacity_bytes=1048576")
    assert status == 0 and "out of memory" in text and "got [2. 2.]" in text, text
    assert "Falling back" not in text


def test_the_interpreter_may_end_with_open_sessions():
    status, text = run_program(OPEN + """
    session = open_session(model)
    session.run(None, {"x": np.ones(2, np.float32)})
    print("end")
    """)
    assert status == 0 and text.splitlines()[-1] == "end", text


def test_the_library_can_be_registered_again():
    status, text = run_program(f"""
        import onnxruntime as ort
        for name in ("a", "b", "a"):
            ort.register_execution_provider_library(name, {LIBRARY!r})
            count = len([d for d in ort.get_ep_devices() if d.ep_name == {PROVIDER!r}])
            ort.unregister_execution_provider_library(name)
            assert count >= 1 and not any(d.ep_name == {PROVIDER!r} for d in ort.get_ep_devices())
    """)
    assert status == 0, text


def test_what_a_trial_could_not_know_runs_on_the_host_and_is_logged():
    """The template of plugins has few kernels, and whether a Range is legal depends on values."""
    status, text = run_program("""
        import numpy as np, onnxruntime as ort
        from conftest import LIBRARY, PROVIDER, make_model
        try: ort.register_execution_provider_library("b", LIBRARY)
        except Exception as error: sys.exit("SKIP " + str(error))
        device = next(d for d in ort.get_ep_devices() if d.ep_name == PROVIDER)
        kind = (np.float32, [])
        model = make_model([("Range", ["a", "b", "c"], ["y"])], {"a": kind, "b": kind, "c": kind},
                           {"y": (np.float32, ["n"])})
        options = ort.SessionOptions()
        options.log_severity_level = 2
        options.add_provider_for_devices([device], {})
        session = ort.InferenceSession(model, options)
        feed = {"a": np.float32(1), "b": np.float32(4), "c": np.float32(1)}
        for _ in range(3):
            print(session.run(None, {n: np.array(v) for n, v in feed.items()})[0].tolist())
    """, BACKPLANE_ORT_PLUGINS="template", BACKPLANE_ORT_DEVICE="")
    if "SKIP" in text:
        pytest.skip("the package has no template of plugins")
    assert status == 0 and text.count("[1.0, 2.0, 3.0]") == 3, text
    assert "does not compute Range" in text and "the library computes it on the host" in text, text
