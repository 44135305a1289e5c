"""Backplane devices in PyTorch: any plugin of Backplane appears as the device "bp".

    import torch, torch_backplane
    torch_backplane.load("libacme_npu.so")
    model.to("bp")

What a device does not compute, PyTorch's CPU does; fallbacks() says what and why.
"""

import atexit
import importlib.metadata
import os
import warnings

import torch

from ._built_for import BACKPLANE_VERSION, TORCH_VERSION

__version__ = BACKPLANE_VERSION

# How long the end of the interpreter waits for work in flight, in nanoseconds.
_EXIT_TIMEOUT_NS = 10_000_000_000


def _release(version):
    """The release of a version without what was built into it: "2.15.0+cu132" is "2.15.0"."""
    return version.split("+")[0]


def _check_torch():
    built, found = _release(TORCH_VERSION), _release(torch.__version__)
    if built != found:
        raise ImportError(
            f"torch_backplane was built for PyTorch {built}, and this is PyTorch {found}. Install "
            f"torch=={built}, or build torch_backplane again with this PyTorch: pip install "
            "--no-build-isolation --force-reinstall on its source folder."
        )
    name = torch._C._get_privateuse1_backend_name()
    if name not in ("privateuseone", "bp"):
        raise ImportError(
            f'The device "{name}" of another package has taken the one place that PyTorch has for '
            "devices from outside. torch_backplane and that package cannot be imported in one "
            "process."
        )


_check_torch()

# Behind the check, so that a wrong PyTorch gives a sentence and not a missing symbol.
from . import _C, _device, _dlpack, distributed  # noqa: E402
from ._dlpack import from_dlpack, to_dlpack  # noqa: E402, F401

torch.utils.rename_privateuse1_backend("bp")
torch._register_device_module("bp", _device)
torch.utils.generate_methods_for_privateuse1_backend(
    for_tensor=True, for_module=True, for_packed_sequence=True, for_storage=True
)
_dlpack.install()
distributed.register()


def _add_entry_points():
    """Adds the manifests of installed packages to BACKPLANE_ADD_BACKENDS, where load() finds them.

    A package of a vendor declares the entry point `backplane.backends`. Its object is the path of a
    manifest or of a folder of manifests, or a function that returns the path.
    """
    paths = [path for path in os.environ.get("BACKPLANE_ADD_BACKENDS", "").split(":") if path]
    for entry in importlib.metadata.entry_points(group="backplane.backends"):
        try:
            found = entry.load()
            path = os.fspath(found() if callable(found) else found)
        except Exception as error:  # A broken package must not break the import.
            warnings.warn(
                f"the entry point '{entry.name}' of backplane.backends gives no manifest: "
                f"{type(error).__name__}: {error}",
                stacklevel=2,
            )
            continue
        if path not in paths:
            paths.append(path)
    if paths:
        os.environ["BACKPLANE_ADD_BACKENDS"] = ":".join(paths)


_add_entry_points()


def load(name, options=None):
    """Loads a plugin, and gives its devices as a list of torch.device.

    `name` is a path if it contains "/" or ends in ".so", else the name of a manifest: "acme.npu",
    or its last part where that is unique: "npu". Each device of the plugin becomes "bp:N", behind
    those of plugins that were loaded before. A plugin that is loaded already is not loaded again.
    `options` are the plugin's own, as a dict of texts. Safe from any thread.

    Raises RuntimeError if there is no such plugin, if it is no plugin or was built for another ABI,
    and if it finds no device. The text says what and why.
    """
    name = os.fspath(name)
    if name.endswith(".so") and "/" not in name and os.path.exists(name):
        name = os.path.join(".", name)
    pairs = [(str(key), str(value)) for key, value in (options or {}).items()]
    first, count = _C.load(name, pairs)
    return [torch.device("bp", index) for index in range(first, first + count)]


def set_fallback(mode):
    """Says what happens when a device does not compute an operator.

    "warn" (from the beginning): PyTorch's CPU computes it, and a warning says so once for each
    operator. "count": the CPU computes it without a word. "error": NotImplementedError. The calls
    are counted in each mode.
    """
    _C.set_fallback(mode)


def fallbacks():
    """Gives the calls that PyTorch's CPU computed: {operator: {reason: count}}."""
    return _C.fallbacks()


def reset_fallbacks():
    """Begins the counts of fallbacks() at zero."""
    _C.reset_fallbacks()


def registered():
    """Lists the operators of PyTorch that have an entry in the table, in all their forms."""
    return _C.registered()


def statistics(device=None):
    """Says how the library served each of its ops on a device: {op: {"native": count, ...}}."""
    return _C.statistics(_device._index(device))


@atexit.register
def _close():
    """Waits for work in flight, and unloads the plugins while the process is still whole."""
    for problem in _C.close_all(_EXIT_TIMEOUT_NS):
        warnings.warn(
            f"torch_backplane: a plugin was not unloaded at the end of the interpreter: {problem}",
            stacklevel=1,
        )
