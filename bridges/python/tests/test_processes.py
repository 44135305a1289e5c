"""Processes: forks, the end of the interpreter, threads, libraries of other versions, faults."""

import os
import pathlib
import shutil
import subprocess
import sys
import textwrap
import threading
import time

import pytest

import backplane as bp


def run(script, **environment):
    """Runs a script in a process of its own; returns its status, and its output."""
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], timeout=120,
                          env={**os.environ, **environment}, capture_output=True, text=True,
                          check=False)
    return done.returncode, done.stdout.strip(), done.stderr.strip()


# ---- Forks ---------------------------------------------------------------------------------------


def test_a_child_that_is_forked_after_a_load_gets_a_sentence():
    status, out, error = run("""
        import os, backplane as bp
        x = bp.ones([4])
        device, stream = x.device, bp.Stream(x.device)
        calls = (lambda: bp.ops.add(x, x), lambda: x + 1, x.clone, x.tolist, lambda: x.fill_(0),
                 lambda: bp.zeros([2]), lambda: bp.Device("cpu"), device.synchronize,
                 stream.synchronize, lambda: repr(x), lambda: bp.load("no_such_backend"))
        child = os.fork()
        if child == 0:
            refused = 0
            for call in calls:
                try:
                    call()
                except bp.Unsupported as error:
                    refused += "forked after Backplane had loaded a backend" in str(error)
            print("child:", refused, "of", len(calls), flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        print("parent:", bp.ops.add(x, x).tolist())
    """)
    assert status == 0, error
    assert "child: 11 of 11" in out and "parent: [2.0, 2.0, 2.0, 2.0]" in out


def test_a_child_that_is_forked_before_a_load_works():
    status, out, error = run("""
        import os, backplane as bp
        child = os.fork()
        if child == 0:
            print(bp.ops.add(bp.ones([2]), 1).tolist(), flush=True)
            os._exit(0)
        os.waitpid(child, 0)
    """)
    assert (status, out) == (0, "[2.0, 2.0]"), error


# ---- The end of the interpreter ------------------------------------------------------------------


def test_work_in_flight_ends_with_the_interpreter(device):
    status, out, error = run(f"""
        import backplane as bp
        bp.set_default_device({device.name!r})
        x = bp.full([256, 256], 0.01)
        w = bp.full([256, 256], 0.01)
        w.requires_grad = True
        for _ in range(20):
            x = bp.ops.matmul(x, w)
        held = x
        print("end")
    """)
    assert (status, out, error) == (0, "end", "")


def test_a_wait_ends_by_its_limit_and_by_an_interrupt():
    """The simulated device pauses for up to a second around each piece of work."""
    status, out, error = run("""
        import os, signal, threading, time, backplane as bp
        try:
            bp.load("sim", {"delay_us": 1000000, "delay_probability": 1, "seed": 3})
        except bp.NotFound:
            print("no sim")
            raise SystemExit
        x = bp.full([8, 8], 0.5, device="sim:0")
        for _ in range(6):
            x = bp.ops.matmul(x, x)
        begin = time.perf_counter()
        try:
            x.device.synchronize(timeout_s=0.2)
        except bp.Timeout as error:
            print(error, time.perf_counter() - begin < 1)
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        begin = time.perf_counter()
        try:
            x.device.synchronize()
        except KeyboardInterrupt:
            print("interrupted", time.perf_counter() - begin < 1)
    """)
    if out == "no sim":
        pytest.skip("no manifest names the simulated device")
    assert status == 0, error
    first, second = out.splitlines()
    assert "still works after 0.2" in first and first.endswith("True")
    assert second == "interrupted True"


def test_memory_of_others_may_outlive_the_interpreter(on_host):
    pytest.importorskip("numpy")
    status, out, error = run("""
        import numpy, backplane as bp
        a = numpy.ones(1000, "f4")
        x = bp.from_dlpack(a)
        b = bp.ops.add(x, x).numpy()
        import builtins
        builtins.kept = (a, x, b)
        print(b.sum())
    """)
    assert (status, out, error) == (0, "2000.0", "")


# ---- Threads -------------------------------------------------------------------------------------


def test_threads_work_at_once():
    failures = []

    def work(seed):
        try:
            x = bp.full([64], float(seed))
            for _ in range(200):
                x = bp.ops.add(bp.ops.mul(x, 0.5), seed * 0.5)
            assert x.tolist() == pytest.approx([seed] * 64)
        except BaseException as error:  # A thread cannot raise to the test.
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_gradients_of_threads_are_apart():
    results = {}

    def work(seed):
        x = bp.full([8], float(seed))
        x.requires_grad = True
        for _ in range(20):
            bp.ops.sum(bp.ops.mul(x, x)).backward()
        results[seed] = x.grad.tolist()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {i: [40.0 * i] * 8 for i in range(1, 5)}


def test_other_threads_run_while_one_waits():
    """A product of some 100 ms must not stop a thread that counts."""
    x = bp.full([1500, 1500], 0.01)
    counted, stop = [0], threading.Event()

    def count():
        while not stop.is_set():
            counted[0] += 1
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    begin = time.perf_counter()
    before = counted[0]
    while time.perf_counter() - begin < 0.2:
        bp.ops.matmul(x, x).tolist()
        break
    waited, during = time.perf_counter() - begin, counted[0] - before
    stop.set()
    thread.join()
    assert during >= 0.1 * waited / 0.002, (during, waited)


def test_streams_of_threads_are_apart(device):
    stream = bp.Stream(device)
    x = bp.full([4], 2.0)
    bp.synchronize(device)
    with stream:
        y = bp.ops.mul(x, 3)
        event = bp.Event(device)
        event.record()
    event.synchronize()
    assert event.is_done and y.tolist() == [6] * 4
    with pytest.raises(bp.InvalidArgument, match="another order"):
        stream.__exit__()


# ---- Plugins -------------------------------------------------------------------------------------


def test_a_plugin_that_cannot_be_loaded_says_why(tmp_path):
    text = tmp_path / "libtext.so"
    text.write_text("no library")
    with pytest.raises(bp.Error, match="libtext.so") as caught:
        bp.load(text)
    assert not isinstance(caught.value, bp.NotFound)
    with pytest.raises(bp.NotFound, match="nothing.so"):
        bp.load(tmp_path / "nothing.so")
    with pytest.raises(bp.NotFound, match="no_such_backend"):
        bp.load("no_such_backend")
    with pytest.raises(bp.NotFound, match="no_such_backend"):
        bp.Device("no_such_backend:3")
    other = tmp_path / "libother.so"
    shutil.copy(pathlib.Path(bp._core.__file__), other)  # A library, and no plugin.
    with pytest.raises(bp.Incompatible, match="libother.so"):
        bp.load(other)


def test_a_vendor_is_found_by_its_entry_point(tmp_path):
    package = tmp_path / "acme_wheel"
    package.mkdir()
    (package / "__init__.py").write_text(
        "import pathlib\n\ndef manifest():\n"
        "    return pathlib.Path(__file__).parent / 'acme.json'\n")
    (package / "acme.json").write_text(
        '{"name": "acme.wheel", "library": "libacme.so", '
        '"abi": {"major": 0, "minor_min": 3, "minor": 4}}')
    info = tmp_path / "acme_wheel-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-wheel\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[backplane.backends]\nacme = acme_wheel:manifest\nbroken = no_such_module:x\n")
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    status, out, error = run("""
        import os, backplane as bp
        print([m["library"] for m in bp.manifests() if m["name"] == "acme.wheel"])
        print(os.environ["BACKPLANE_ADD_BACKENDS"])
    """, PYTHONPATH=path)
    assert status == 0, error
    assert str(package / "libacme.so") in out and str(package / "acme.json") in out
    assert "the entry point 'broken'" in error and "no_such_module" in error


def test_the_command_of_the_package_is_found(tmp_path):
    from backplane import _conformance
    program = _conformance.find()
    status, out, error = run("from backplane._conformance import main; main()")
    if program is None:
        assert status == 1 and "bp-conformance is not installed beside" in error
    else:
        assert "bp-conformance: a verb is needed" in out + error


def test_out_of_memory_is_a_memory_error():
    with pytest.raises(MemoryError) as caught:
        bp.empty([1 << 45], dtype="f32")
    assert isinstance(caught.value, bp.OutOfMemory) and len(str(caught.value)) > 20


def test_the_loss_of_a_device_in_a_step_is_an_exception(device):
    status, out, error = run(f"""
        import backplane as bp
        bp.set_default_device({device.name!r})
        w = bp.ones([4])
        w.requires_grad = True
        try:
            for _ in range(100):
                bp.ops.sum(bp.ops.mul(w, w)).backward()
                w.grad.tolist()
        except bp.DeviceLost as error:
            print("lost:", error)
    """, BACKPLANE_LAYERS="fault", BACKPLANE_LAYER_OPTIONS="fault.lost=kernel.launch@20")
    assert status == 0, error
    assert out.startswith("lost:") and len(out) > 20


# ---- Libraries of other versions -----------------------------------------------------------------


def build(tmp_path, name, source):
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler builds the library of another version")
    file = tmp_path / "other.c"
    file.write_text(source)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(tmp_path / name), str(file),
                    f"-Wl,-soname,{name}"], check=True)
    return tmp_path / name


def test_a_library_of_an_older_minor_gives_a_sentence(tmp_path):
    major, minor = bp.abi_version
    older = build(tmp_path, "libolder.so", f"""
        int bp_abi_version(unsigned* major, unsigned* minor) {{
          *major = {major}; *minor = {minor - 1}; return 0; }}""")
    status, _, error = run("import backplane", LD_PRELOAD=str(older))
    assert status == 1
    assert f"ImportError: backplane was built for ABI {major}.{minor} of the library" in error
    assert f"has ABI {major}.{minor - 1}; install" in error


def test_a_library_without_our_symbols_gives_a_sentence(tmp_path):
    major, minor = bp.abi_version
    build(tmp_path, f"libbackplane.so.{major}.{minor}", "int nothing_of_ours;")
    status, _, error = run("import backplane", LD_LIBRARY_PATH=str(tmp_path))
    assert status == 1
    assert "ImportError: backplane cannot be loaded: the library that was found is another" in error


@pytest.mark.parametrize("said, text", [
    ("libbackplane.so.0.4: cannot open shared object file: No such file", "was not found"),
    ("_core.so: undefined symbol: bp_op_new", "another version"),
    ("backplane was built for ABI 0.4 of the library", "was built for ABI 0.4"),
    ("No module named 'backplane._core'", "not built for this Python"),
])
def test_an_import_that_fails_says_why(said, text):
    from backplane import _missing
    assert text in str(_missing.explain(ImportError(said)))
