"""DLPack: tensors of bp in the hands of other libraries, and the other way, without a copy.

PyTorch calls each device from outside kDLExtDev, and gives an address that means nothing to others.
A device of a plugin has a name of its own in DLPack: memory of a host device is memory of the CPU.
So tensors of bp get methods of their own, and all others keep PyTorch's.
"""

import torch

from . import _C, _device

_theirs = torch.Tensor.__dlpack__
_their_device = torch.Tensor.__dlpack_device__


def _place(index):
    return _C.properties(index)["dlpack_device"]


def _check(tensor):
    """The reasons of PyTorch not to hand a tensor over, in its own words."""
    if tensor.requires_grad:
        raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
    if tensor.is_conj():
        raise BufferError("Can't export tensors with the conjugate bit set")
    if tensor.is_neg():
        raise BufferError("Can't export tensors with the negative bit set")


def _on(tensor, wanted):
    """A copy of a tensor on the device that DLPack calls `wanted`."""
    for index in range(_device.device_count()):
        if _place(index) == wanted:
            return tensor.to(torch.device("bp", index))
    if wanted == (1, 0):
        return tensor.cpu()
    raise BufferError(f"__dlpack__: no loaded plugin has the device of type {wanted[0]}, id "
                      f"{wanted[1]}.")


def _dlpack(self, *, stream=-1, max_version=None, dl_device=None, copy=None, read_only=False):
    """Hands the tensor to another library as a capsule of DLPack, without a copy if `dl_device` is
    that of the tensor. The work on it has ended when the call returns, whatever `stream` is."""
    if self.device.type != "bp":
        options = {"read_only": True} if read_only else {}
        return _theirs(self, stream=stream, max_version=max_version, dl_device=dl_device, copy=copy,
                       **options)
    _check(self)
    wanted = None if dl_device is None else tuple(int(part) for part in dl_device)
    tensor, flags = self, 0
    if wanted is not None and wanted != _dlpack_device(self):
        if copy is False:
            raise BufferError("__dlpack__: another device needs a copy, and copy is False.")
        tensor, flags = _on(self, wanted), _C.DLPACK_IS_COPIED
        if tensor.device.type != "bp":
            return _theirs(tensor, max_version=max_version)
    elif copy:
        tensor, flags = self.clone(), _C.DLPACK_IS_COPIED
    is_versioned = max_version is not None and max_version[0] >= 1
    if read_only:
        flags |= _C.DLPACK_READ_ONLY
    if read_only and not is_versioned:
        raise BufferError("__dlpack__: a tensor can be for reading only since DLPack 1; give "
                          "max_version=(1, 0).")
    return _C.to_dlpack(tensor, is_versioned, flags if is_versioned else 0)


def _dlpack_device(self):
    """DLPack's type and id of the device of this tensor."""
    if self.device.type != "bp":
        return _their_device(self)
    place = _place(self.device.index)
    if place[0] == 0:
        raise BufferError(f"DLPack has no name for {self.device}. tensor.cpu() makes a copy that "
                          "others can read.")
    return place


def install():
    """Gives the methods to torch.Tensor."""
    torch.Tensor.__dlpack__ = _dlpack
    torch.Tensor.__dlpack_device__ = _dlpack_device


def _device_for(source, device):
    """The index of the device of bp in whose memory a tensor of another library lies."""
    if device is not None or not hasattr(source, "__dlpack_device__"):
        return _device._index(device)
    place = tuple(int(part) for part in source.__dlpack_device__())
    current = _C.current_device()
    found = [index for index in range(_device.device_count()) if _place(index) == place]
    return current if current in found or not found else found[0]


def to_dlpack(tensor):
    """Gives a tensor of bp to another library, as a capsule of DLPack 1, without a copy.

    The same as `tensor.detach().__dlpack__(max_version=(1, 0))`, which `from_dlpack()` of other
    libraries calls. Waits for the work on the tensor. A device without addresses is
    NotImplementedError, and a tensor that is not on bp is RuntimeError.
    """
    return _C.to_dlpack(tensor, True, 0)


def from_dlpack(source, device=None):
    """Makes a tensor of bp from one of another library, without a copy.

    `source` has `__dlpack__`, or is a capsule of DLPack, and its memory is one that the device can
    use: a host device takes arrays of numpy. Without `device` it is the device of bp in whose
    memory the tensor lies. Memory that its owner lets nobody write to is copied.
    """
    index = _device_for(source, device)
    capsule = source
    if hasattr(source, "__dlpack__"):
        try:
            capsule = source.__dlpack__(max_version=(1, 0))
        except TypeError:  # A producer from before DLPack 1.
            capsule = source.__dlpack__()
    return _C.from_dlpack(capsule, index)
