"""Tensors from and to values of Python and other libraries: lists, buffers, numpy, DLPack."""

import array
import struct

from backplane import _core
from backplane._devices import as_device, find_host_device
from backplane._errors import Error, Unsupported

_HOST = (1, 0)  # DLPack's name for the memory of the process.

# Codes of the modules array and struct.
_CODES = {"bool": "B", "i8": "b", "i16": "h", "i32": "i", "i64": "q", "u8": "B", "u16": "H",
          "u32": "I", "u64": "Q", "f32": "f", "f64": "d"}
_FORMATS = {"?": "bool", "e": "f16", "f": "f32", "d": "f64"}


def _dtype_of_format(view):
    """Returns the name of the dtype of a memoryview; None if there is none."""
    code = view.format.lstrip("@=<")
    if code in _FORMATS:
        return _FORMATS[code]
    if code in ("b", "h", "i", "l", "q"):
        return f"i{8 * view.itemsize}"
    if code in ("B", "H", "I", "L", "Q"):
        return f"u{8 * view.itemsize}"
    return None


# ---- Lists ---------------------------------------------------------------------------------------


def _flatten(value, depth, shape, flat):
    """Appends the numbers of nested sequences to `flat`, and checks that they are regular."""
    if isinstance(value, (list, tuple, range)):
        if depth == len(shape):
            if flat:
                raise ValueError("asarray: a sequence stands beside a number; allowed: sequences "
                                 "of one length on each level")
            shape.append(len(value))
        if len(value) != shape[depth]:
            raise ValueError(f"asarray: a sequence of {len(value)} items stands beside one of "
                             f"{shape[depth]}; allowed: sequences of one length on each level")
        for item in value:
            _flatten(item, depth + 1, shape, flat)
        return
    if isinstance(value, _core.Tensor) or hasattr(value, "__array_namespace__"):
        if value.ndim != 0:
            return _flatten(value.tolist(), depth, shape, flat)
        value = value.item() if hasattr(value, "item") else float(value)
    if depth != len(shape):
        raise ValueError("asarray: a number stands beside a sequence; allowed: sequences of one "
                         "length on each level")
    flat.append(value)


def _kind(value):
    if isinstance(value, bool) or type(value).__name__ == "bool":
        return "bool"
    if hasattr(value, "__index__"):
        return "i64" if int(value) < 2**63 else "u64"
    if isinstance(value, complex) or not hasattr(value, "__float__"):
        raise TypeError(f"asarray: {value!r} is a {type(value).__name__}; allowed: numbers, lists "
                        "of numbers, and objects with __dlpack__ or a buffer")
    return "f32"


def _common_kind(flat):
    kinds = {_kind(value) for value in flat} or {"f32"}
    for kind in ("f32", "u64", "i64", "bool"):
        if kind in kinds:
            return kind
    return "f32"


def _bytes_of(flat, name):
    if name == "f16":
        return struct.pack(f"{len(flat)}e", *(float(v) for v in flat))
    code = _CODES[name]
    if name == "bool":
        values = (bool(v) for v in flat)
    elif name[0] == "f":
        values = (float(v) for v in flat)
    else:
        values = (int(v) for v in flat)
    return array.array(code, values)


def _from_list(value, dtype, device):
    flat, shape = [], []
    _flatten(value, 0, shape, flat)
    name = _common_kind(flat) if dtype is None else _core.dtype(dtype).name
    stored = name if name in _CODES or name == "f16" else "f32"
    made = _core.from_bytes(bytes(_bytes_of(flat, stored)), shape, stored, device)
    return made if stored == name else made.to(_core.dtype(name))


# ---- Other libraries -----------------------------------------------------------------------------


def _capsule_of(value, copy):
    """Asks for the newest capsule that the producer makes."""
    wanted = {"max_version": (1, 1)}
    if copy is not None:
        wanted["copy"] = copy
    try:
        return value.__dlpack__(**wanted)
    except TypeError:  # A producer from before DLPack 1.
        return value.__dlpack__()


def _device_for(place, wanted):
    """Returns the device of ours in whose memory a foreign tensor lies."""
    if wanted is not None and tuple(_core._dlpack_device(wanted)) == place:
        return wanted
    device = _core._find_dlpack_device(*place)
    if device is None and place == _HOST:
        device = find_host_device()
    if device is not None and tuple(_core._dlpack_device(device)) == place:
        return device
    raise Unsupported(f"from_dlpack: the tensor is of DLPack's device type {place[0]}, id "
                      f"{place[1]}, and no loaded backend has this device; load one with "
                      "backplane.load()", 2)


def _taken(value, home):
    """Returns a tensor of the memory, and whether nobody may write to it."""
    if not isinstance(value, _core.Tensor):
        return _core._import_capsule(_capsule_of(value, None), home)
    if value.requires_grad:
        raise BufferError("from_dlpack: the tensor requires a gradient; use tensor.detach() first")
    return value.detach(), False


def from_dlpack(value, /, *, device=None, copy=None):
    """Makes a tensor of an object with __dlpack__, such as an array of numpy, torch or jax.

    The memory is shared where that is possible; copy=True always copies, and copy=False raises
    BufferError instead. Memory that the owner lets nobody write to is copied. With `device` the
    tensor goes to that device.
    """
    wanted = None if device is None else as_device(device)
    home = value.device if isinstance(value, _core.Tensor) else _device_for(
        tuple(int(i) for i in value.__dlpack_device__()), wanted)
    if copy is False and wanted not in (None, home):
        raise BufferError(f"from_dlpack: the memory is that of {home}, and {wanted} was asked for; "
                          "this needs copy=None or copy=True")
    tensor, is_read_only = _taken(value, home)
    if is_read_only and copy is False:
        raise BufferError("from_dlpack: the owner lets nobody write to the memory, which a tensor "
                          "may do; use copy=None or copy=True")
    if copy or is_read_only:
        tensor = tensor.clone()
    return tensor if wanted in (None, home) else tensor.to(wanted)


def _from_buffer(view, device):
    name = _dtype_of_format(view)
    if name is None:
        raise TypeError(f"asarray: a buffer has elements of the format '{view.format}', for which "
                        "there is no dtype")
    return _core.from_bytes(view if view.c_contiguous else bytes(view.tobytes()), list(view.shape),
                            name, device)


def _view_of(value):
    try:
        view = memoryview(value)
    except TypeError:
        return None
    return view.cast("B") if view.format == "c" else view


def asarray(value, /, *, dtype=None, device=None, copy=None):
    """Makes a tensor of a tensor, a number, nested lists of numbers, or another library's array.

    Arrays in the memory of the device are shared, unless copy=True; others are copied, for which
    copy=False raises ValueError. Without a device a tensor stays where it is, and all else goes to
    default_device(). Without dtype, integers become i64 and floats f32.
    """
    dtype = None if dtype is None else _core.dtype(dtype)
    if isinstance(value, _core.Tensor):
        made = value
    elif hasattr(value, "__dlpack__"):
        made = _foreign(value, device, copy)
    else:
        if copy is False:
            raise ValueError("asarray: the value is not a tensor, so it must be copied; leave out "
                             "copy=False")
        view = None if isinstance(value, (list, tuple, range)) else _view_of(value)
        on = as_device(device)
        made = _from_list(value, dtype, on) if view is None else _from_buffer(view, on)
        copy = None
    return _converted(made, value, dtype, device, copy)


def _foreign(value, device, copy):
    device = as_device(device)
    try:
        return from_dlpack(value, device=device, copy=False if copy is False else None)
    except (BufferError, Error):
        view = _view_of(value)
        if copy is False or view is None:
            raise
        return _from_buffer(view, device)


def _converted(made, value, dtype, device, copy):
    result = made if dtype is None else made.to(dtype)
    if device is not None:
        result = result.to(as_device(device))
    if result is made or result.dtype == made.dtype and result.device == made.device:
        return made.clone() if copy else made
    if copy is False and made is value:
        raise ValueError("asarray: another dtype or device needs a copy; leave out copy=False")
    return result


# ---- Methods of tensors --------------------------------------------------------------------------


def dlpack_device(self):
    """DLPack's type and id of the device of this tensor."""
    kind, number = _core._dlpack_device(self.device)
    if kind == 0:
        raise BufferError(f"DLPack has no name for {self.device}; use numpy.asarray(tensor), which "
                          "copies")
    return kind, number


def _moved(tensor, wanted):
    device = _core._find_dlpack_device(*wanted)
    if device is None and wanted == _HOST:
        device = find_host_device()
    if device is None:
        raise BufferError(f"__dlpack__: no loaded backend has the device of type {wanted[0]}, id "
                          f"{wanted[1]}")
    return tensor.to(device)


def dlpack(self, *, stream=None, max_version=None, dl_device=None, copy=None):
    """Hands the tensor to another library. The work on it has ended when the call returns, unless
    stream is -1."""
    if self.requires_grad:
        raise BufferError("__dlpack__: the tensor requires a gradient; use tensor.detach() first")
    tensor, is_copied = self, bool(copy)
    wanted = None if dl_device is None else tuple(int(i) for i in dl_device)
    if wanted is not None and wanted != tuple(_core._dlpack_device(self.device)):
        if copy is False:
            raise BufferError("__dlpack__: another device needs a copy, and copy is False")
        tensor, is_copied = _moved(self, wanted), True
    elif copy:
        tensor = self.clone()
    dlpack_device(tensor)
    if stream != -1:
        _core.synchronize(tensor.device)
    is_versioned = max_version is not None and max_version[0] >= 1
    try:
        return _core._export_capsule(tensor, is_versioned, is_copied)
    except Unsupported as error:
        raise BufferError(str(error)) from None


_NUMPY = {"bool": "bool", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64",
          "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64", "f16": "float16",
          "f32": "float32", "f64": "float64"}


def to_numpy(self, dtype=None, copy=None):
    """Returns a numpy array, which shares memory of the process unless copy is true."""
    import numpy
    tensor = self.detach() if self.requires_grad else self
    if tensor.dtype.name not in _NUMPY:
        if copy is False:
            raise ValueError(f"numpy has no dtype for {tensor.dtype.name}, so the elements must be "
                             "converted to f32; leave out copy=False")
        tensor = tensor.to(_core.dtype("f32"))
    if tuple(_core._dlpack_device(tensor.device)) == _HOST and copy is not True:
        made = numpy.asarray(memoryview(tensor))
    elif copy is False:
        raise ValueError(f"the tensor is on {self.device}, so it must be copied; leave out "
                         "copy=False")
    else:
        made = numpy.frombuffer(_core.to_bytes(tensor), _NUMPY[tensor.dtype.name])
        made = made.reshape(tensor.shape)
    return made if dtype is None else made.astype(dtype, copy=False)


def tolist(self):
    """Returns the elements as nested lists of numbers; a number for a tensor without axes."""
    name = self.dtype.name
    tensor = self if name in _CODES else self.to(_core.dtype("f32"))
    code = "?" if name == "bool" else _CODES.get(name, "f")
    flat = list(memoryview(_core.to_bytes(tensor)).cast(code))
    return _nested(flat, self.shape)


def _nested(flat, shape):
    if not shape:
        return flat[0]
    if len(shape) == 1:
        return flat
    step = len(flat) // shape[0] if shape[0] else 0
    return [_nested(flat[i * step:(i + 1) * step], shape[1:]) for i in range(shape[0])]
