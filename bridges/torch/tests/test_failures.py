"""Bad input and failures: each gives PyTorch's exception with a sentence, and the rest goes on."""

import os
import subprocess
import sys
import textwrap

import pytest
import torch
from conftest import PLUGIN

import torch_backplane


def run(code, prelude="import torch, torch_backplane\n", timeout=120, **variables):
    """Runs a program of its own with these environment variables; gives its exit code and what it
    printed."""
    prelude = f"PLUGIN = {PLUGIN!r}\n{prelude}"
    done = subprocess.run([sys.executable, "-c", prelude + textwrap.dedent(code)], check=False,
                          capture_output=True, text=True, timeout=timeout,
                          env=os.environ | variables)
    return done.returncode, done.stdout + done.stderr


def test_another_pytorch_is_named_at_import():
    code = ("import torch; torch.__version__ = '1.2.3'\n"
            "try: import torch_backplane\n"
            "except ImportError as error: print(error)")
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert "and this is PyTorch 1.2.3. Install torch==" in done.stdout


def test_another_package_with_the_place_of_the_device():
    code = ("import torch; torch.utils.rename_privateuse1_backend('npu')\n"
            "try: import torch_backplane\n"
            "except ImportError as error: print(error)")
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert 'The device "npu" of another package' in done.stdout


def test_plugins_that_do_not_load(tmp_path):
    with pytest.raises(RuntimeError, match="no_such_plugin"):
        torch_backplane.load("no_such_plugin")
    fake = tmp_path / "libfake.so"
    fake.write_bytes(b"no library")
    with pytest.raises(RuntimeError, match="libfake.so"):
        torch_backplane.load(str(fake))
    assert torch_backplane.load(PLUGIN) == torch_backplane.load(PLUGIN)


def test_without_a_plugin_there_is_no_device():
    status, text = run("""
        assert not torch.bp.is_available() and torch.bp.device_count() == 0
        try: torch.ones(1, device="bp")
        except RuntimeError as error: print(error)
    """)
    assert status == 0 and "no device is loaded" in text


def test_tensors_of_two_devices():
    x = torch.ones(3, device="bp")
    with pytest.raises(RuntimeError, match="same device"):
        x + torch.ones(3)
    with pytest.raises(RuntimeError, match="same device"):
        torch.mm(torch.ones(2, 2, device="bp"), torch.ones(2, 2))
    with pytest.raises(RuntimeError, match="no device bp:99"):
        torch.ones(1, device="bp:99")
    if torch.bp.device_count() > 1:
        y = torch.ones(3, device="bp:1")
        with pytest.raises(RuntimeError, match="same device"):
            x + y
        assert (x.to("bp:1") + y).tolist() == [2, 2, 2]


def test_out_of_memory():
    with pytest.raises(torch.OutOfMemoryError, match="out of memory"):
        torch.empty(1 << 50, dtype=torch.uint8, device="bp")
    assert torch.ones(2, device="bp").sum().item() == 2


def test_an_index_out_of_range_raises_at_the_next_wait():
    x, index = torch.rand(3, 2, device="bp"), torch.tensor([0, 7], device="bp")
    torch_backplane.reset_fallbacks()
    with pytest.raises(RuntimeError, match="embedding.*7"):
        y = torch.embedding(x, index) + 1
        torch.bp.synchronize()
    assert torch_backplane.fallbacks() == {}
    assert (x + 1).sum().item() > 6
    with pytest.raises(RuntimeError, match="gather"):
        torch.gather(x, 1, torch.full((3, 1), 9, device="bp")).cpu()
    with pytest.raises(RuntimeError):
        torch.nn.functional.cross_entropy(x, torch.tensor([0, 9, 1], device="bp")).item()
    assert torch_backplane.fallbacks() == {}


def test_the_cpu_computes_what_the_device_does_not():
    a = torch.rand(3, 3)
    torch.testing.assert_close(torch.linalg.inv(a.to("bp")).cpu(), torch.linalg.inv(a))
    counts = torch_backplane.fallbacks()
    assert any("linalg" in name for name in counts)
    torch_backplane.set_fallback("error")
    try:
        with pytest.raises(NotImplementedError, match="is not computed on the device"):
            torch.linalg.inv(a.to("bp"))
    finally:
        torch_backplane.set_fallback("count")
    with pytest.raises(ValueError, match='"sometimes"'):
        torch_backplane.set_fallback("sometimes")


def test_a_fallback_warns_once():
    status, text = run("""
        torch_backplane.load(PLUGIN)
        for _ in range(3): torch.linalg.inv(torch.eye(3).to("bp"))
    """)
    assert status == 0
    warnings = [line for line in text.splitlines() if "PyTorch's CPU computes " in line]
    assert warnings
    assert len(warnings) == len({line.split("computes ")[1].split(": ")[0] for line in warnings})


def test_the_interpreter_ends_with_work_in_flight():
    status, text = run("""
        torch_backplane.load(PLUGIN)
        x = torch.rand(400, 400, device="bp")
        keep = []
        for _ in range(20): x = (x @ x).div(400); keep.append(x)
        stream = torch.Stream(device="bp")
        with stream: keep.append(x @ x)
        events = [stream.record_event()]
    """)
    assert (status, text) == (0, "")


def test_a_child_of_fork_is_told():
    status, text = run("""
        import os
        torch_backplane.load(PLUGIN)
        x = torch.ones(3, device="bp")
        child = os.fork()
        if child == 0:
            try: x + 1
            except RuntimeError as error: print(error, flush=True)
            del x
            os._exit(0 if torch.bp._is_in_bad_fork() else 1)
        assert os.waitpid(child, 0)[1] == 0
        print((x + 1).tolist())
    """)
    assert status == 0 and "child of fork()" in text and "[2.0, 2.0, 2.0]" in text


def test_workers_of_a_data_loader():
    status, text = run("""
        torch_backplane.load(PLUGIN)
        torch.ones(1, device="bp")
        data = torch.utils.data.TensorDataset(torch.arange(64.0))
        loader = torch.utils.data.DataLoader(data, batch_size=8, num_workers=2, pin_memory=True)
        total = torch.zeros((), device="bp")
        for (batch,) in loader:
            assert batch.is_pinned()
            total += batch.to("bp", non_blocking=True).sum()
        print(total.item())
    """)
    assert status == 0 and "2016.0" in text, text


def test_the_device_is_lost_in_a_training_step():
    status, text = run("""
        torch_backplane.load(PLUGIN)
        model = torch.nn.Linear(4, 4).to("bp")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        x = torch.ones(2, 4).to("bp")
        try:
            for _ in range(100):
                optimizer.zero_grad()
                model(x).sum().backward()
                optimizer.step()
                torch.bp.synchronize()
        except torch.AcceleratorError as error:
            print("caught", str(error).splitlines()[0])
        try: model(x)
        except RuntimeError as error: print("again", str(error).splitlines()[0])
        print(torch_backplane.fallbacks())
    """, BACKPLANE_LAYERS="fault", BACKPLANE_LAYER_OPTIONS="fault.lost=kernel.launch@40")
    assert status == 0, text
    assert "caught" in text and "device lost" in text and "again" in text, text
    assert text.splitlines()[-1] == "{}"
