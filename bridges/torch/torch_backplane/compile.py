"""torch.compile(backend="backplane"): graphs of AOTAutograd, captured on the device and replayed.

A graph runs as it is the first time. The second time its work is captured (torch.bp.Graph), with
the memory that it needs, and from then on it is replayed: one call in place of one for each
operator. Input is copied into the tensors of the capture, but for parameters, which stay where
they are, and results are copied out of them, so that a result is never overwritten by a later
call.

With options={"program": True} a graph is written into one program, which the compiler of the
device compiles, and which is run from the first call on. Devices that record no graphs, or run
compiled programs alone, do so in any case.

An operator that cannot be captured, since PyTorch's CPU computes it or since it draws random
numbers, runs by itself, and what is before and behind it is captured. compiled() says how often,
and why. Without the installed package (its entry point),
`backend=torch_backplane.compile.backend` is the same.
"""

import collections
import operator
import threading

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._guards import TracingContext
from torch.fx.passes.split_module import split_module

from . import _C

_lock = threading.Lock()
_counts = collections.Counter()

# Operators that draw random numbers: each replay would repeat them.
_RANDOM = torch.Tag.nondeterministic_seeded


def compiled():
    """Gives the calls of compiled graphs: {"replayed": count, "a reason not to be": count, ...}."""
    with _lock:
        return dict(_counts)


def reset_compiled():
    """Begins the counts of compiled() at zero."""
    with _lock:
        _counts.clear()


def _count(what):
    with _lock:
        _counts[what] += 1


def _draws(node):
    """True if an operator draws random numbers; attention does only with dropout."""
    if node.op != "call_function" or _RANDOM not in getattr(node.target, "tags", ()):
        return False
    schema = node.target._schema.arguments
    places = [place for place, argument in enumerate(schema) if argument.name == "dropout_p"]
    if not places:
        return True
    given = node.args[places[0]] if places[0] < len(node.args) else node.kwargs.get("dropout_p", 0)
    return given != 0


def _why_not(module):
    """Why a graph cannot be captured, and the node that alone stands in the way, or None."""
    for node in module.graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt):
            return "its shapes are dynamic", None
        if isinstance(value, torch.Tensor) and value.device.type != "bp":
            return f"{node.name} is on {value.device}", None
    for node in module.graph.nodes:
        if _draws(node):
            return f"{node.target} draws random numbers", node
    return None, None


class _Walk(torch.fx.Interpreter):
    """Runs a graph, and knows the node that it runs."""

    def run_node(self, n):
        self.node = n
        return super().run_node(n)


class _Part(torch.nn.Module):
    """Calls a function in the place of a part of a graph."""

    def __init__(self, call):
        super().__init__()
        self.call = call

    def forward(self, *inputs):
        return self.call(*inputs)


def _call_count(module):
    return sum(node.op == "call_function" for node in module.graph.nodes)


def _is_on_device(value):
    return isinstance(value, torch.Tensor) and value.device.type == "bp"


def _numbers(inputs):
    """The inputs that the device does not have, which a capture takes as they are; None if one is
    no number. Attention gives the gradient its seed so."""
    numbers = {}
    for index, value in enumerate(inputs):
        if _is_on_device(value):
            continue
        if isinstance(value, torch.Tensor):
            if value.numel() != 1:
                return None
            value = value.item()
        numbers[index] = value
    return numbers


def _is_program(inputs):
    devices = {value.device for value in inputs if _is_on_device(value)}
    return any(_C.is_program_device(device.index) for device in devices)


def _key(tensor):
    return tensor.data_ptr(), tensor.shape, tensor.stride()


class _Replayed:
    """One graph: run, then captured, then replayed. The calls of several threads take turns."""

    def __init__(self, module, fixed, storages, program):
        self.module = module
        self.program = program  # False: as the device does best.
        self.fixed = fixed  # The indices of the parameters among the arguments.
        self.storages = storages  # The addresses of the parameters of the forward graph.
        self.reason, self.refused = _why_not(module)
        self.lock = threading.Lock()
        self.is_warm = False
        self.graph = None
        self.parts = None  # The graph divided at a node that cannot be captured.

    def run(self, arguments):
        """`arguments` is a list, which is emptied so that nothing is kept alive."""
        inputs = list(arguments)
        arguments.clear()
        with self.lock:
            # The capture of a program runs nothing, and all that it needs is in the program.
            is_warm = self.is_warm or self.program or _is_program(inputs)
            numbers = _numbers(inputs)
            if numbers is None:
                self.reason = self.reason or "an input is no tensor of bp and no number"
            if self.reason is None and is_warm:
                if self.graph is None or self._moved(inputs):
                    self._capture(inputs, numbers)
                if self.graph is not None and numbers != self.numbers:
                    _count("a number of the host is not that of the capture")
                    return self.module(*inputs)
                if self.graph is not None:
                    return self._replay(inputs)
            if self.refused is not None and self.parts is None:
                self._divide(inputs)
            self.is_warm = True
        if self.parts is not None:
            return self.parts(*inputs)
        _count(self.reason or "run once before the capture")
        return self.module(*inputs)

    def _divide(self, inputs):
        """Divides the graph into what is before a node, the node alone, and what is behind it."""
        refused, self.refused, reason = self.refused, None, self.reason
        if _call_count(self.module) < 2:
            return
        for index in self.fixed:
            self._is_fixed(index, inputs[index])
        is_behind = False
        places = {}
        for node in self.module.graph.nodes:
            if node.target is operator.getitem:
                places[node] = places[node.args[0]]  # No part takes or gives a tuple.
            else:
                places[node] = 1 if node is refused else 2 if is_behind else 0
            is_behind |= node is refused
        parts = split_module(self.module, self.module, places.get, keep_original_order=True)
        for name, part in list(parts.named_children()):
            if name == "submod_1":
                setattr(parts, name, _Part(self._counted(part, reason)))
            elif name in ("submod_0", "submod_2") and _call_count(part) > 1:
                replayed = _Replayed(part, set(), self.storages, self.program)
                setattr(parts, name, _Part(lambda *given, r=replayed: r.run(list(given))))
        self.parts = parts

    @staticmethod
    def _counted(part, reason):
        def call(*inputs):
            _count(reason)
            return part(*inputs)

        return call

    def _is_fixed(self, index, tensor):
        address = tensor.untyped_storage().data_ptr()
        if index in self.fixed:
            self.storages.add(address)
        return address in self.storages

    def _moved(self, inputs):
        """True if a parameter lies elsewhere now, as after load_state_dict(assign=True)."""
        return any(_key(inputs[i]) != key for i, key in self.kept.items())

    def _capture(self, inputs, numbers):
        self.graph = None
        self.numbers = numbers
        tensors = [(i, t) for i, t in enumerate(inputs) if i not in numbers]
        self.kept = {i: _key(t) for i, t in tensors if self._is_fixed(i, t)}
        self.inputs = list(inputs)
        for i, tensor in tensors:
            if i not in self.kept:
                self.inputs[i] = tensor.clone()
        graph = _C.Graph()
        try:
            graph.capture_begin(self.program)
            walk = _Walk(self.module)
            try:
                self.outputs = walk.run(*self.inputs)
            except BaseException:
                self.refused = walk.node
                graph.abandon()
                raise
            graph.capture_end()
        except (RuntimeError, NotImplementedError) as error:
            self.reason = str(error).splitlines()[0]
            return
        self.graph = graph

    def _replay(self, inputs):
        for index, (own, given) in enumerate(zip(self.inputs, inputs)):
            if index not in self.kept and index not in self.numbers:
                own.copy_(given)
        self.graph.replay()
        _count("replayed")
        same = {id(own): given for own, given in zip(self.inputs, inputs)}

        def given_out(out):
            if not isinstance(out, torch.Tensor):
                return out
            return same[id(out)] if id(out) in same else out.clone()

        if isinstance(self.outputs, (tuple, list)):
            return [given_out(out) for out in self.outputs]
        return given_out(self.outputs)


_OPTIONS = {"program"}


def backend(module, example_inputs, options=None, **others):
    """What torch.compile() calls: the entry point "backplane" of torch_dynamo_backends."""
    options = dict(options or {})
    if unknown := options.keys() - _OPTIONS:
        raise ValueError(
            f'torch_backplane: the backend "backplane" has no option {", ".join(sorted(unknown))}; '
            f'allowed: {", ".join(sorted(_OPTIONS))}'
        )
    program = bool(options.get("program", False))
    storages = set()

    def forward(graph, inputs):
        metadata = TracingContext.get().fw_metadata
        fixed = set(metadata.static_input_indices if metadata is not None else ())
        return boxed(_Replayed(graph, fixed, storages, program))

    def backward(graph, inputs):
        return boxed(_Replayed(graph, set(), storages, program))

    def boxed(replayed):
        def run(arguments):
            return replayed.run(arguments)

        run._boxed_call = True  # It takes its arguments as one list.
        return run

    compiler = aot_autograd(fw_compiler=forward, bw_compiler=backward)
    return compiler(module, example_inputs, **others)
