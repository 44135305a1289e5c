"""torch.profiler and the older torch.autograd.profiler show the times of the device."""

import json
import threading

import pytest
import torch
from torch.profiler import ProfilerActivity, profile, record_function

BOTH = [ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]
DEVICE = torch._C._autograd.DeviceType.PrivateUse1


def on_device(profiled):
    """The records of the device, without the spans of record_function()."""
    events = [event for event in profiled.events() if event.device_type == DEVICE]
    return [event for event in events if not event.is_user_annotation]


@pytest.fixture(scope="module", autouse=True)
def recorded_device():
    """The tests need a plugin with a profiler; of others the first test tells."""
    x = torch.rand(4, device="bp")
    with profile(activities=BOTH) as profiled:
        x + x
    return bool(on_device(profiled))


@pytest.fixture
def needs_records(recorded_device):
    if not recorded_device:
        pytest.skip("the plugin has no profiler")


def test_a_device_without_a_profiler_is_named(recorded_device, capfd):
    x = torch.rand(4, device="bp")
    with profile(activities=BOTH):
        x + x
    text = capfd.readouterr().err
    assert recorded_device != ("The work of bp:0 is not in this profile" in text), text


def test_operators_have_the_times_of_their_kernels(needs_records):
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU()).to("bp")
    x = torch.rand(32, 64, device="bp")
    with profile(activities=BOTH) as profiled:
        model(x).sum().backward()
    kernels = on_device(profiled)
    averages = {event.key: event for event in profiled.key_averages()
                if event.device_type != DEVICE}
    # The backward pass runs in a thread of its own.
    for name in ("aten::addmm", "aten::relu", "aten::sum", "aten::mm", "aten::threshold_backward"):
        assert averages[name].self_device_time_total > 0, name
    assert averages["aten::linear"].device_time_total >= averages[
        "aten::addmm"].self_device_time_total
    # Each kernel belongs to one operator: no time is lost or counted twice.
    total = sum(event.self_device_time_total for event in averages.values())
    assert total == pytest.approx(sum(event.time_range.elapsed_us() for event in kernels), rel=1e-3)
    assert "Self BP" in profiled.key_averages().table()


def test_copies_are_shown(needs_records):
    x = torch.rand(1 << 16)
    with profile(activities=BOTH) as profiled:
        x.to("bp").add(1).cpu()
    averages = {event.key: event for event in profiled.key_averages()}
    assert any("copy" in event.name for event in on_device(profiled))
    assert averages["aten::copy_"].device_time_total > 0


def read(profiled, path):
    """The records of a Chrome trace: those of the device, its spans, and operators by number."""
    path = str(path / "trace.json")
    profiled.export_chrome_trace(path)
    with open(path) as file:
        events = json.load(file)["traceEvents"]
    complete = [event for event in events if event["ph"] == "X"]
    device = [event for event in complete if event["cat"] in ("kernel", "gpu_memcpy", "gpu_memset")]
    spans = [event for event in complete if event["cat"] == "gpu_user_annotation"]
    ops = {event["args"]["External id"]: event for event in complete if event["cat"] == "cpu_op"}
    return device, spans, ops, events


def test_times_line_up_with_those_of_the_host(needs_records, tmp_path):
    x = torch.rand(128, 128, device="bp")
    with profile(activities=BOTH) as profiled:
        for _ in range(20):
            (x @ x).relu()
        with record_function("waits"):
            torch.bp.synchronize()
    device, _, ops, events = read(profiled, tmp_path)
    [wait] = [event for event in events if event.get("cat") == "user_annotation"]
    assert len(device) == 40
    error_us = 100
    for event in device:
        op = ops[event["args"]["External id"]]
        assert op["name"] in ("aten::mm", "aten::relu")
        assert event["ts"] >= op["ts"] - error_us
        assert event["ts"] + event["dur"] <= wait["ts"] + wait["dur"] + error_us
    names = {event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert "bp:0 stream 0" in names


def test_a_range_has_a_span_on_each_stream(needs_records, tmp_path):
    x = torch.rand(64, 64, device="bp")
    other = torch.bp.Stream()
    with profile(activities=BOTH) as profiled, record_function("mine"):
        y = x @ x
        with torch.bp.stream(other):
            x.relu()
            x.exp()
        y.sqrt()
    device, spans, _, _ = read(profiled, tmp_path)
    assert len({event["tid"] for event in device}) == 2
    assert sorted(span["name"] for span in spans) == ["mine", "mine"]
    for span in spans:
        own = [event for event in device if event["tid"] == span["tid"]]
        assert len(own) == 2
        assert span["ts"] == pytest.approx(min(event["ts"] for event in own), abs=0.01)


def test_threads_have_their_own_operators(needs_records):
    x = torch.rand(64, 64, device="bp")

    def work(name):
        for _ in range(50):
            getattr(torch, name)(x)

    with profile(activities=BOTH) as profiled:
        threads = [threading.Thread(target=work, args=(name,)) for name in ("exp", "log1p")]
        for thread in threads:
            thread.start()
        work("sin")
        for thread in threads:
            thread.join()
    names = [event.name for event in on_device(profiled)]
    # Operators of threads that PyTorch does not observe have no numbers, but are recorded.
    assert names.count("exp") == names.count("log1p") == names.count("sin") == 50
    averages = {event.key: event for event in profiled.key_averages()}
    assert [kernel.name for event in profiled.events() if event.name == "aten::sin"
            for kernel in event.kernels] == ["sin"] * 50
    assert averages["aten::sin"].self_device_time_total > 0


def test_one_profile_after_the_other(needs_records):
    x = torch.rand(8, device="bp")
    with record_function("outer"):
        first = profile(activities=BOTH)
        first.__enter__()
        record = record_function("never ended within")
        record.__enter__()
        x.exp()
        first.__exit__(None, None, None)
        with profile(activities=BOTH) as second:
            x.sin()
        record.__exit__(None, None, None)
    assert [event.name for event in on_device(first)] == ["exp"]
    assert [event.name for event in on_device(second)] == ["sin"]
    assert not [event for event in second.events() if event.is_user_annotation]


def test_a_schedule_keeps_its_steps(needs_records):
    x = torch.rand(8, device="bp")
    found = []
    schedule = torch.profiler.schedule(wait=1, warmup=1, active=2, repeat=2)
    with profile(activities=BOTH, schedule=schedule,
                 on_trace_ready=lambda own: found.append(len(on_device(own)))) as profiled:
        for _ in range(8):
            x.exp()
            profiled.step()
    assert found == [2, 2]


def test_a_profile_of_the_cpu_has_no_records_of_the_device():
    x = torch.rand(8, device="bp")
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        x.exp()
    assert on_device(profiled) == []
    assert any(event.name == "aten::exp" for event in profiled.events())


def test_the_older_profiler_takes_the_times_by_events():
    x = torch.rand(128, 128, device="bp")
    with torch.autograd.profiler.profile(use_device="bp") as profiled:
        for _ in range(5):
            x @ x
    [own] = [event for event in profiled.key_averages() if event.key == "aten::mm"]
    assert own.count == 5 and own.device_time_total > 0


def test_a_replay_is_shown(needs_records):
    x = torch.rand(64, 64, device="bp")
    x @ x
    torch.bp.synchronize()
    graph = torch.bp.Graph()
    with torch.bp.graph(graph):
        (x @ x).relu()
    with profile(activities=BOTH) as profiled:
        graph.replay()
    assert len(on_device(profiled)) == 2
