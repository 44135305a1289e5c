"""The operators and methods that Python code expects of an array, as methods of Tensor."""

import numbers

from backplane import _autograd, _core, _exchange, _indexing, array_api
from backplane._devices import as_device

# The method, and the function of the standard that it calls.
_BINARY = {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide",
    "floordiv": "floor_divide", "mod": "remainder", "pow": "pow", "matmul": "matmul",
    "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor",
    "lshift": "bitwise_left_shift", "rshift": "bitwise_right_shift",
}
_COMPARISONS = {"lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal",
                "eq": "equal", "ne": "not_equal"}
_UNARY = {"abs": "abs", "neg": "negative", "pos": "positive", "invert": "bitwise_invert"}
_METHODS = ("sum", "prod", "mean", "var", "std", "max", "min", "any", "all", "argmax", "argmin")


def _takes(other):
    """Tensors and numbers, those of numpy included. An array of another library is an operand once
    it is a tensor: asarray() says where it shall be."""
    return isinstance(other, (_core.Tensor, numbers.Number)) or type(other).__name__ == "bool"


def _binary(function):
    def method(self, other, /):
        if not _takes(other):
            return NotImplemented
        return function(self, other)
    return method


def _reflected(function):
    def method(self, other, /):
        if not _takes(other):
            return NotImplemented
        return function(other, self)
    return method


def _in_place(function):
    """Gives the name another tensor: the memory that others see stays as it is only for leaves of a
    graph; else it is written."""
    def method(self, other, /):
        if not _takes(other):
            return NotImplemented
        result = function(self, other)
        if result.shape != self.shape:
            raise ValueError(f"an operation in place has the shape {result.shape}; allowed: "
                             f"{self.shape}, that of the tensor that it writes to")
        if result.dtype != self.dtype:
            raise TypeError(f"an operation in place has the dtype {result.dtype.name}; allowed: "
                            f"{self.dtype.name}, that of the tensor that it writes to")
        return self.copy_(result)
    return method


def _unary(function):
    return lambda self, /: function(self)


def _number(self, kind):
    if self.size != 1:
        raise TypeError(f"{kind.__name__}() of a tensor of the shape {self.shape}; allowed: one "
                        "element")
    return kind(self.item())


def _index(self):
    if self.ndim != 0 or self.dtype.name[0] not in "iu":
        raise TypeError(f"a tensor of {self.dtype.name} and the shape {self.shape} is no index; "
                        "allowed: one integer without axes")
    return int(self.item())


def _length(self):
    if self.ndim == 0:
        raise TypeError("len() of a tensor without axes")
    return self.shape[0]


def _iterate(self):
    if self.ndim == 0:
        raise TypeError("a tensor without axes has no parts to go through")
    return (self.select(0, i) for i in range(self.shape[0]))


def _transposed(self):
    if self.ndim != 2:
        raise ValueError(f"T of a tensor with {self.ndim} axes; allowed: 2. mT swaps the last two")
    return self.transpose(0, 1)


def _to_device(self, device, /, *, stream=None):
    """The array on another device. `stream` is not used: the current streams order the copy."""
    if stream is not None and not isinstance(stream, _core.Stream):
        raise TypeError(f"to_device: stream is a {type(stream).__name__}; allowed: None, or a "
                        "backplane.Stream")
    return self.to(as_device(device))


def _namespace(self, /, *, api_version=None):
    """The namespace of the array API standard."""
    if api_version not in (None, "2021.12", "2022.12", "2023.12", "2024.12"):
        raise ValueError(f"api_version is {api_version!r}; allowed: '2021.12' to '2024.12'")
    return array_api


def _reduce(self):
    """Pickles the elements, and not the device."""
    return _unpickle, (bytes(_core.to_bytes(self)), list(self.shape), self.dtype.name)


def _deepcopy(self, memo):
    """A copy on the same device, outside of the graph."""
    copy = self.detach().clone()
    copy.requires_grad = self.requires_grad and self.is_leaf
    return copy


def _unpickle(data, shape, dtype):
    return _core.from_bytes(data, shape, dtype, as_device(None))


def _add_operators(cls):
    for name, called in _BINARY.items():
        function = getattr(array_api, called)
        setattr(cls, f"__{name}__", _binary(function))
        setattr(cls, f"__r{name}__", _reflected(function))
        setattr(cls, f"__i{name}__", _in_place(function))
    for name, called in _COMPARISONS.items():
        setattr(cls, f"__{name}__", _binary(getattr(array_api, called)))
    for name, called in _UNARY.items():
        setattr(cls, f"__{name}__", _unary(getattr(array_api, called)))
    for name in _METHODS:
        setattr(cls, name, getattr(array_api, name))


def add_methods(cls):
    """Adds operators, conversions and exchange to the class of the extension."""
    _add_operators(cls)
    cls.__hash__ = object.__hash__
    cls.__getitem__, cls.__setitem__ = _indexing.getitem, _indexing.setitem
    cls.__bool__ = lambda self: _number(self, bool)
    cls.__int__ = lambda self: _number(self, int)
    cls.__float__ = lambda self: _number(self, float)
    cls.__complex__ = lambda self: _number(self, complex)
    cls.__index__, cls.__len__, cls.__iter__ = _index, _length, _iterate
    cls.__dlpack__, cls.__dlpack_device__ = _exchange.dlpack, _exchange.dlpack_device
    cls.__array__, cls.numpy, cls.tolist = _exchange.to_numpy, _exchange.to_numpy, _exchange.tolist
    cls.__array_namespace__, cls.to_device = _namespace, _to_device
    cls.__reduce__, cls.__deepcopy__ = _reduce, _deepcopy
    cls.__array_ufunc__ = None  # numpy computes with a tensor once it is asked for an array.
    cls.T, cls.mT = property(_transposed), property(array_api.matrix_transpose)
    cls.backward = _autograd.backward
