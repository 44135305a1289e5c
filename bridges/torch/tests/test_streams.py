"""Streams, events, threads, and deterministic algorithms."""

import threading

import torch


def test_work_of_two_streams_is_ordered_by_an_event():
    first, second = torch.Stream(device="bp"), torch.bp.Stream()
    with first:
        assert torch.bp.current_stream() == first
        x = torch.rand(256, 256, device="bp")
        y = x @ x
        event = first.record_event()
    assert torch.bp.current_stream() == torch.bp.default_stream()
    second.wait_event(event)
    with torch.bp.stream(second):
        z = y.sum()
        y.record_stream(second)
    second.synchronize()
    torch.testing.assert_close(z.cpu(), (x.cpu() @ x.cpu()).sum(), rtol=1e-4, atol=1e-2)
    assert event.query() and second.query()


def test_events_take_the_time():
    begin, end = torch.bp.Event(enable_timing=True), torch.bp.Event(enable_timing=True)
    begin.record()
    x = torch.rand(512, 512, device="bp")
    x @ x
    end.record()
    end.synchronize()
    assert begin.elapsed_time(end) > 0


def test_threads_have_streams_of_their_own():
    problems = []

    def work(number):
        try:
            with torch.Stream(device="bp"):
                x = torch.full((32, 32), float(number), device="bp")
                for _ in range(20):
                    x = (x @ x).mul(1 / 32 / number)
                assert abs(x.mean().item() - number) < 1e-3 * number
        except Exception as error:  # noqa: BLE001 - the main thread shows it.
            problems.append(error)

    threads = [threading.Thread(target=work, args=(number + 1,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []


def test_deterministic_algorithms_repeat():
    x = torch.rand(10_000, device="bp")
    index = torch.randint(7, (10_000,), device="bp")
    torch.use_deterministic_algorithms(True)
    try:
        sums = [torch.zeros(7, device="bp").scatter_add_(0, index, x).tolist() for _ in range(3)]
    finally:
        torch.use_deterministic_algorithms(False)
    assert sums[0] == sums[1] == sums[2]


def test_the_current_device_is_of_the_thread():
    assert torch.bp.current_device() == 0
    with torch.bp.device(0):
        assert torch.empty(1, device="bp").device.index == 0
    assert torch.accelerator.current_accelerator().type == "bp"
    assert torch.accelerator.device_count() == torch.bp.device_count()
