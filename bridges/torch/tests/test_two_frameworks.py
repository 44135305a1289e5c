"""PyTorch and the package for Python (bridges/python) on one device, in one process.

Each has a registry of its own, and loads the plugin for itself. The tests run programs of their
own, in which either package is imported first, and so ends last.
"""

import importlib.util
import textwrap

import pytest
from test_failures import run

pytestmark = pytest.mark.skipif(importlib.util.find_spec("backplane") is None,
                                reason="the package of bridges/python is not installed here")

TORCH = "import torch, torch_backplane; torch_backplane.load(PLUGIN)\n"
PYTHON = "import backplane as bp\n"
# A plugin that is given by its path is known by its name after its load.
DEVICE = """
name = torch_backplane._C.properties(0)["target"]
if PLUGIN.endswith(".so"): bp.load(PLUGIN)
device = bp.Device(name)
torch_backplane.set_fallback("error")
"""
ORDERS = pytest.mark.parametrize("first", ["torch", "python"])


def run_both(first, code):
    """Runs a program that imports both packages in this order."""
    both = TORCH + PYTHON if first == "torch" else PYTHON + TORCH
    return run(both + DEVICE + textwrap.dedent(code), prelude="")


@ORDERS
def test_tensors_go_both_ways(first):
    status, text = run_both(first, """
        import gc
        a = bp.asarray([[1.0, 2.0], [3.0, 4.0]], device=device)
        t = torch_backplane.from_dlpack(a)
        assert t.device.type == "bp" and t.tolist() == [[1, 2], [3, 4]]
        t.mul_(10); torch.bp.synchronize()
        assert a.tolist() == [[10, 20], [30, 40]]
        a[0] = 7.0; device.synchronize()
        assert (t + 1).tolist() == [[8, 8], [31, 41]]

        if a.__dlpack_device__()[0] == 12:  # PyTorch takes each such device for bp.
            try: torch.from_dlpack(bp.asarray([1.0], device=device)) + 1
            except RuntimeError as error: assert "torch_backplane.from_dlpack()" in str(error)
            else: raise AssertionError("a foreign address was read")

        x = torch.arange(6.0, device="bp").reshape(2, 3)
        y = bp.from_dlpack(x[:, 1:])
        assert y.device == device and y.tolist() == [[1, 2], [4, 5]]
        x.add_(1); torch.bp.synchronize()
        assert bp.ops.add(y, 1.0).tolist() == [[3, 4], [6, 7]]

        # A tensor that came back is the same memory, and each owner may go first.
        back = torch_backplane.from_dlpack(y)
        del x, y; gc.collect(); torch.bp.empty_cache()
        back.add_(1); assert back.tolist() == [[3, 4], [6, 7]]
        del a; gc.collect()
        other = [bp.asarray([0.0] * 4, device=device) for _ in range(100)]
        assert t.tolist() == [[7, 7], [30, 40]]
        print("done")
    """)
    assert (status, text) == (0, "done\n"), text


@ORDERS
def test_both_work_at_once(first):
    status, text = run_both(first, """
        import threading
        a = bp.asarray([[0.5, 0.25], [0.125, 1.0]], device=device)
        x = torch.tensor([[0.5, 0.25], [0.125, 1.0]], device="bp")
        results = {}
        def python():
            with bp.Stream(device):
                y = a
                for _ in range(200): y = bp.ops.tanh(bp.ops.add(y, a))
                results["python"] = y.tolist()
        def pytorch():
            with torch.bp.Stream():
                y = x
                for _ in range(200): y = torch.tanh(y + x)
                results["torch"] = y.tolist()
        threads = [threading.Thread(target=work) for work in (python, pytorch) * 2]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        torch.testing.assert_close(torch.tensor(results["python"]), torch.tensor(results["torch"]))
        print("done")
    """)
    assert (status, text) == (0, "done\n"), text


@ORDERS
def test_both_end_with_work_in_flight(first):
    """Each also works on memory of the other one, which may be unloaded before it."""
    status, text = run_both(first, """
        a = bp.asarray([[0.01] * 300] * 300, device=device)
        x = torch.full((300, 300), 0.01, device="bp")
        of_python, of_torch = torch_backplane.from_dlpack(a), bp.from_dlpack(x)
        stream = torch.bp.Stream()
        keep = []
        for _ in range(20):
            of_python = of_python @ x
            with torch.bp.stream(stream): keep.append(x @ x)
            of_torch = of_torch @ a
        print("done")
    """)
    assert (status, text) == (0, "done\n"), text


@ORDERS
def test_a_child_of_fork_is_told_by_both(first):
    status, text = run_both(first, """
        import os
        a, x = bp.asarray([1.0, 2.0], device=device), torch.ones(2, device="bp")
        t, b = torch_backplane.from_dlpack(a), bp.from_dlpack(x)
        child = os.fork()
        if child == 0:
            told = 0
            for work in (lambda: x + 1, lambda: t + 1, lambda: bp.ops.add(a, a),
                         lambda: bp.ops.add(b, b)):
                try: work()
                except (RuntimeError, bp.Error) as error: told += "fork" in str(error)
            del a, x, t, b
            os._exit(told)
        assert os.waitpid(child, 0)[1] == 4 << 8
        assert (x + t).tolist() == [2, 3] and bp.ops.add(a, b).tolist() == [2, 3]
        print("done")
    """)
    assert status == 0 and text.splitlines()[-1] == "done", text


@ORDERS
def test_a_failure_of_one_is_not_that_of_the_other(first):
    status, text = run_both(first, """
        x = torch.rand(3, 2, device="bp")
        a = bp.asarray([1.0, 2.0], device=device)
        try:
            torch.embedding(x, torch.tensor([7], device="bp")); torch.bp.synchronize()
        except RuntimeError as error: print("embedding" in str(error))
        assert bp.ops.add(a, a).tolist() == [2, 4]
        assert (x + 1).sum().item() > 6
        print("done")
    """)
    assert (status, text) == (0, "True\ndone\n"), text
