"""The operators, each by its name: `backplane.ops.softmax(x, axis=-1)`.

The functions are made from the descriptions of the library when they are first used; no op is named
here. An op of a vendor, such as `acme.swiglu`, is `backplane.ops.acme.swiglu` once its backend is
loaded. `help(backplane.ops.softmax)` shows what a description says.

Every function takes tensors of one device. In an op that takes a number in place of a tensor, the
inputs are broadcast to one shape and cast to one dtype. Outputs have their own keyword: a tensor is
written to, and True asks for an optional one. `dtype`, `shape` and `device` are there where the
caller chooses them.
"""

from backplane import _core


class _Vendor:
    """The ops of one vendor."""

    def __init__(self, vendor):
        self._vendor = vendor

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return get(f"{self._vendor}.{name}")

    def __dir__(self):
        prefix = self._vendor + "."
        return [n[len(prefix):] for n in names() if n.startswith(prefix)]

    def __repr__(self):
        return f"<ops of {self._vendor}>"


def names():
    """Returns the names of all ops."""
    return _core.op_names()


def get(name):
    """Returns the function of an op by its full name, such as 'softmax' or 'acme.swiglu'."""
    return _core.op(name)


def describe(name):
    """Returns what the description of an op says, as a dict."""
    return _core.describe(name)


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    known = names()
    if name in known:
        function = get(name)
        globals()[name] = function  # The ops of the library never change.
        return function
    if any(n.startswith(name + ".") for n in known):
        return _Vendor(name)
    raise AttributeError(f"there is no op '{name}'; backplane.ops.names() lists those of the "
                         "library and of loaded backends")


def __dir__():
    listed = {n.split(".")[0] for n in names()}
    return sorted(listed | {"names", "get", "describe"})
