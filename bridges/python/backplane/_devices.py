"""Backends: loading them, finding them, and the device of calls that name none."""

import contextlib
import importlib.metadata
import os
import threading
import warnings

from backplane import _core

ENTRY_POINTS = "backplane.backends"
_MANIFESTS = "BACKPLANE_ADD_BACKENDS"

_default = None
_current = threading.local()


def _path_of(entry):
    """Returns the path that an entry point names: a str, a path, or what a function returns."""
    found = entry.load()
    return os.fspath(found() if callable(found) else found)


def add_entry_points():
    """Adds the manifests of installed packages to BACKPLANE_ADD_BACKENDS, where this process and
    the programs that it starts find them.

    A package declares the entry point `backplane.backends`. Its object is the path of a manifest or
    of a folder of manifests, or a function that returns the path.
    """
    paths = [p for p in os.environ.get(_MANIFESTS, "").split(":") if p]
    for entry in importlib.metadata.entry_points(group=ENTRY_POINTS):
        try:
            path = _path_of(entry)
        except Exception as error:  # A broken package must not break the import.
            warnings.warn(f"the entry point '{entry.name}' of {ENTRY_POINTS} ({entry.value}) gives "
                          f"no manifest: {type(error).__name__}: {error}", RuntimeWarning,
                          stacklevel=2)
            continue
        if path not in paths:
            paths.append(path)
    if paths:
        os.environ[_MANIFESTS] = ":".join(paths)


def load(name, options=None):
    """Loads a backend, and returns what it is as a dict, with its `devices`.

    `name` is the path of a plugin if it has a '/' or ends in '.so', else the name in a manifest:
    'acme.npu', or 'npu' where that is unique. `options` is a dict of names and values of the
    backend. A failure is an Error whose text says what is wrong with the file.

    Ops that a device has no kernel for run on a device of class host, as far as they are not
    decomposed. If none is loaded, the first one that the manifests name is loaded too.
    """
    name = os.fspath(name)
    if name.endswith(".so") and "/" not in name and os.path.exists(name):
        name = os.path.join(".", name)
    loaded = _core._load(name, {str(k): str(v) for k, v in (options or {}).items()})
    find_host_device()
    return loaded


def find_host_device():
    """Returns the first device of class host, or None. Loads what manifests name until one is
    found."""
    problems = []
    for device in _core.devices():
        if device.is_host:
            return device
    for manifest in _core.manifests():
        if manifest["problem"] is None:
            try:
                loaded = _core._load(manifest["name"], {})
            except _core_error() as error:
                problems.append(str(error))
                continue
            for device in loaded["devices"]:
                if device.is_host:
                    return device
    find_host_device.problems = problems
    return None


find_host_device.problems = []


def _core_error():
    from backplane._errors import Error
    return Error


def default_device():
    """Returns the device of calls that name none: that of the innermost use_device() of this
    thread, else the one that set_default_device() was given, else the first of class host."""
    stack = getattr(_current, "stack", None)
    if stack:
        return stack[-1]
    if _default is not None:
        return _default
    device = find_host_device()
    if device is None:
        from backplane._errors import NotFound
        problems = "; ".join(find_host_device.problems)
        raise NotFound("no device was named, and no backend with a device of class host is "
                       "loaded or found by its manifest; name a device, or load a backend with "
                       f"backplane.load(){': ' + problems if problems else ''}", 8)
    return device


def as_device(device):
    """Returns a Device for a Device, a name, or None for the default."""
    if device is None:
        return default_device()
    return _core.Device(device) if isinstance(device, str) else device


def set_default_device(device):
    """Sets the device of calls that name none, in all threads. None: the first of class host."""
    global _default
    _default = None if device is None else as_device(device)


@contextlib.contextmanager
def use_device(device):
    """In this block, calls of this thread that name no device use `device`."""
    if not hasattr(_current, "stack"):
        _current.stack = []
    _current.stack.append(as_device(device))
    try:
        yield _current.stack[-1]
    finally:
        _current.stack.pop()
