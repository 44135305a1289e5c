"""What the namespace offers: __array_namespace_info__()."""

from backplane import _core
from backplane._devices import as_device, default_device
from backplane.array_api import _dtypes as dtypes


class Info:
    """The capabilities, devices and dtypes of backplane.array_api. There are no complex dtypes, and
    no extensions `linalg` and `fft`."""

    def capabilities(self):
        """What the standard leaves open."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 8}

    def default_device(self):
        """The device of calls that name none."""
        return default_device()

    def devices(self):
        """The devices of all loaded backends."""
        default_device()
        return list(_core.devices())

    def default_dtypes(self, *, device=None):
        """The dtypes of calls that name none."""
        return {"real floating": dtypes.float32, "complex floating": None,
                "integral": dtypes.int64, "indexing": dtypes.int64}

    def dtypes(self, *, device=None, kind=None):
        """The dtypes of a device, by their names in the standard."""
        served = set(as_device(device).dtypes)
        return {name: dtype for name, dtype in dtypes.DTYPES.items()
                if dtype in served and (kind is None or dtypes.isdtype(dtype, kind))}
