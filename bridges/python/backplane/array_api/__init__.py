"""The Python array API standard, version 2024.12, on every device of Backplane.

    import backplane.array_api as xp
    x = xp.linspace(0, 1, 5)
    xp.sum(xp.sin(x) ** 2)

Arrays are backplane.Tensor. Complex dtypes and the extensions `linalg` and `fft` are absent.
Integers beside floats give the dtype of the floats, which the standard leaves open.
"""

from math import e, inf, nan, pi  # noqa: F401

from backplane.array_api import (
    _creation, _dtypes, _elementwise, _manipulation, _reductions, _sorting)
from backplane.array_api._dtypes import (  # noqa: F401
    astype, can_cast, finfo, iinfo, isdtype, result_type)
from backplane.array_api._info import Info as _Info

__array_api_version__ = "2024.12"
newaxis = None

for _module in (_creation, _elementwise, _manipulation, _reductions, _sorting):
    for _name in _module.NAMES:
        globals()[_name] = getattr(_module, _name)
for _name, _dtype in _dtypes.DTYPES.items():
    globals()[_name] = _dtype

__all__ = sorted([
    "astype", "can_cast", "finfo", "iinfo", "isdtype", "result_type", "e", "inf", "nan", "newaxis",
    "pi", "__array_namespace_info__", "__array_api_version__", *_dtypes.DTYPES, *_creation.NAMES,
    *_elementwise.NAMES, *_manipulation.NAMES, *_reductions.NAMES, *_sorting.NAMES])


def __array_namespace_info__():
    """Returns what this namespace offers."""
    return _Info()


def __dir__():
    return __all__
