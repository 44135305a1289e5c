"""torch.bp: what PyTorch expects of the module of a device."""

import json

import torch

from . import _C


def _index(device=None):
    """The index of a device that is given as None, a number, a text or a torch.device."""
    if device is None:
        return _C.current_device()
    if isinstance(device, int):
        return device
    device = torch.device(device)
    if device.type != "bp":
        raise ValueError(f"torch.bp works with devices of the type bp, not with {device}.")
    return _C.current_device() if device.index is None else device.index


# ---- Devices -------------------------------------------------------------------------------------


def is_available():
    """True if a plugin with a device is loaded, and this process may use it."""
    return _C.device_count() > 0 and _C.is_open()


def is_initialized():
    """True if a device can be used; there is nothing else to initialize."""
    return is_available()


def init():
    """Does nothing: torch_backplane.load() makes the devices."""


def device_count():
    """The number of devices of all loaded plugins."""
    return _C.device_count()


def current_device():
    """The index of the device of this thread for which tensors are made on "bp"."""
    return _C.current_device()


def set_device(device):
    """Makes a device the current one of this thread."""
    _C.set_device(_index(device))


class device:
    """Makes a device the current one within a with statement."""

    def __init__(self, device):
        self.index = _index(device)
        self.previous = -1

    def __enter__(self):
        self.previous = _C.current_device()
        _C.set_device(self.index)
        return self

    def __exit__(self, *_):
        _C.set_device(self.previous)
        return False


class device_of(device):
    """Makes the device of a tensor the current one; a tensor of the CPU changes nothing."""

    def __init__(self, tensor):
        is_own = tensor.device.type == "bp"
        super().__init__(tensor.device.index if is_own else _C.current_device())


class _Properties:
    def __init__(self, values):
        self.__dict__.update(values)

    def __repr__(self):
        return f"Properties({', '.join(f'{key}={value!r}' for key, value in vars(self).items())})"


def get_device_properties(device=None):
    """What the plugin says of a device: name, plugin, path, total_memory in bytes, dtypes, ..."""
    return _Properties(_C.properties(_index(device)))


def get_device_name(device=None):
    """The name of a device for people."""
    return _C.properties(_index(device))["name"]


def get_amp_supported_dtype():
    """The dtypes that autocast may choose: those of the current device."""
    dtypes = _C.properties(_C.current_device())["dtypes"] if is_available() else []
    names = {"bf16": torch.bfloat16, "f16": torch.float16}
    return [dtype for name, dtype in names.items() if name in dtypes]


def is_bf16_supported():
    """True if the current device has bf16."""
    return torch.bfloat16 in get_amp_supported_dtype()


# ---- Streams and events --------------------------------------------------------------------------


def Stream(device=None, priority=0):
    """Makes a stream of a device: a torch.Stream."""
    return torch.Stream(device=torch.device("bp", _index(device)), priority=priority)


def Event(enable_timing=False, blocking=False, interprocess=False):
    """Makes an event of the current device: a torch.Event."""
    return torch.Event(
        device="bp", enable_timing=enable_timing, blocking=blocking, interprocess=interprocess
    )


def current_stream(device=None):
    """The stream on which this thread submits work to a device."""
    return torch.accelerator.current_stream(torch.device("bp", _index(device)))


def default_stream(device=None):
    """The default stream of a device."""
    return torch.Stream(stream_id=0, device_index=_index(device), device_type=_device_type())


def _device_type():
    return int(torch._C._autograd.DeviceType.PrivateUse1)


def set_stream(stream):
    """Makes a stream the current one of its device, for this thread."""
    torch.accelerator.set_stream(stream)


class stream:
    """Submits work to a stream within a with statement; None changes nothing."""

    def __init__(self, stream):
        self.stream = stream

    def __enter__(self):
        if self.stream is not None:
            self.stream.__enter__()
        return self.stream

    def __exit__(self, *error):
        if self.stream is not None:
            return self.stream.__exit__(*error)
        return False


def synchronize(device=None):
    """Waits for all work of a device. Raises torch.AcceleratorError if work has failed: the text
    names the op. The failure has ended then, and later work runs again."""
    torch.accelerator.synchronize(torch.device("bp", _index(device)))


# ---- Graphs --------------------------------------------------------------------------------------

# Work that is recorded once, with its memory, and replayed often: capture_begin(), capture_end(),
# replay(), info(). The tensors of the capture are those of each replay: a program copies new input
# into them. Copies to the host, random numbers and what PyTorch's CPU computes cannot be captured.
Graph = _C.Graph


class graph:
    """Captures the work of a with statement into a torch.bp.Graph instead of running it.

    `program=True` writes it into one program, which the compiler of the device compiles. Devices
    that record no graphs, or run compiled programs alone, do so in any case.
    """

    def __init__(self, graph, program=False):
        self.graph = graph
        self.program = program

    def __enter__(self):
        self.graph.capture_begin(self.program)
        return self.graph

    def __exit__(self, kind, *_):
        if kind is None:
            self.graph.capture_end()
        else:
            self.graph.abandon()
        return False


# ---- Random numbers ------------------------------------------------------------------------------


def _generator(device=None):
    return _C.default_generator(_index(device))


def manual_seed(seed):
    """Seeds the generator of the current device."""
    _generator().manual_seed(int(seed))


def manual_seed_all(seed):
    """Seeds the generators of all devices."""
    for index in range(device_count()):
        _generator(index).manual_seed(int(seed))


def seed():
    """Gives the generator of the current device a random seed."""
    _generator().seed()


def seed_all():
    """Gives the generators of all devices one random seed."""
    if device_count():
        manual_seed_all(_generator(0).seed())


def initial_seed():
    """The seed of the generator of the current device."""
    return _generator().initial_seed()


def get_rng_state(device="bp"):
    """The state of a generator: a tensor of 16 bytes on the CPU, its seed and its offset."""
    return _generator(device).get_state()


def set_rng_state(new_state, device="bp"):
    """Sets the state of a generator to one that get_rng_state() gave."""
    _generator(device).set_state(new_state)


def get_rng_state_all():
    """The states of the generators of all devices."""
    return [get_rng_state(index) for index in range(device_count())]


def set_rng_state_all(new_states):
    """Sets the states of the generators of all devices."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


# ---- Memory --------------------------------------------------------------------------------------


def memory_stats(device=None):
    """What the cache of a device holds, in bytes and counts."""
    return _C.memory(_index(device))


def memory_allocated(device=None):
    """The bytes that tensors of a device hold now."""
    return memory_stats(device)["allocated_bytes.all.current"]


def max_memory_allocated(device=None):
    """The most bytes that tensors of a device have held."""
    return memory_stats(device)["allocated_bytes.all.peak"]


def memory_reserved(device=None):
    """The bytes that the cache has taken from a device."""
    return memory_stats(device)["reserved_bytes.all.current"]


def max_memory_reserved(device=None):
    """The most bytes that the cache has taken from a device."""
    return memory_stats(device)["reserved_bytes.all.peak"]


def memory_snapshot(device=None):
    """All blocks of the cache of a device, as api/docs/memory.md of Backplane shows them."""
    return json.loads(_C.memory_snapshot(_index(device)))


def empty_cache():
    """Gives the memory that no tensor holds back to the devices."""
    for index in range(device_count()):
        _C.empty_cache(index)


# ---- For PyTorch ---------------------------------------------------------------------------------


def _is_in_bad_fork():
    """True in a child of fork(): the devices belong to its parent."""
    return _C.is_in_child()


def _lazy_call(callback):
    callback()


def _lazy_init():
    if _C.is_in_child():
        raise RuntimeError(
            "torch_backplane: devices cannot be used in a child of fork(). Start the process with "
            "the multiprocessing method 'spawn'."
        )
