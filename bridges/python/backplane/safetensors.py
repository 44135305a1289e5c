"""Weights on disk, in the safetensors format.

    backplane.safetensors.save("model.safetensors", {"weight": w, "bias": b})
    tensors = backplane.safetensors.load("model.safetensors", device="cpu")
"""

import os

from backplane import _core
from backplane._devices import as_device


def save(path, tensors, metadata=None):
    """Writes a dict of tensors, and a dict of texts. The file gets its name only when it is
    complete and on disk, so an interrupted save leaves an earlier file as it was."""
    _core._save_safetensors(os.fspath(path), dict(tensors), dict(metadata or {}))


def load(path, device=None):
    """Returns the tensors of a file as a dict, on `device`. Every number of the file is checked
    first."""
    return _core._load_safetensors(os.fspath(path), as_device(device))[0]


def load_with_metadata(path, device=None):
    """Returns the tensors of a file, and its texts."""
    return _core._load_safetensors(os.fspath(path), as_device(device))
