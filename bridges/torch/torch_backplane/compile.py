"""torch.compile(backend="backplane"): graphs of AOTAutograd, captured on the device and replayed.

A graph runs as it is the first time. The second time its work is captured (torch.bp.Graph), with
the memory that it needs, and from then on it is replayed: one call in place of one for each
operator. Input is copied into the tensors of the capture, but for parameters, which stay where
they are, and results are copied out of them, so that a result is never overwritten by a later
call.

With options={"program": True} a graph is written into one program, which the compiler of the
device compiles, and which is run from the first call on. Devices that record no graphs, or run
compiled programs alone, do so in any case.

A graph that cannot be captured runs operator by operator. compiled() says which, and why. Without
the installed package (its entry point), `backend=torch_backplane.compile.backend` is the same.
"""

import collections
import threading

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._guards import TracingContext

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
    """Why a graph cannot be captured, or None."""
    for node in module.graph.nodes:
        if _draws(node):
            return f"{node.target} draws random numbers"
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt):
            return "its shapes are dynamic"
        if isinstance(value, torch.Tensor) and value.device.type != "bp":
            return f"{node.name} is on {value.device}"
    return None


def _is_program(inputs):
    devices = {t.device for t in inputs if isinstance(t, torch.Tensor)}
    return any(device.type == "bp" and _C.is_program_device(device.index) for device in devices)


def _key(tensor):
    return tensor.data_ptr(), tensor.shape, tensor.stride()


class _Replayed:
    """One graph: run, then captured, then replayed. The calls of several threads take turns."""

    def __init__(self, module, fixed, storages, program):
        self.module = module
        self.program = program  # False: as the device does best.
        self.fixed = fixed  # The indices of the parameters among the arguments.
        self.storages = storages  # The addresses of the parameters of the forward graph.
        self.reason = _why_not(module)
        self.lock = threading.Lock()
        self.is_warm = False
        self.graph = None

    def run(self, arguments):
        """`arguments` is a list, which is emptied so that nothing is kept alive."""
        inputs = list(arguments)
        arguments.clear()
        with self.lock:
            # The capture of a program runs nothing, and all that it needs is in the program.
            is_warm = self.is_warm or self.program or _is_program(inputs)
            if self.reason is None and is_warm:
                if self.graph is None or self._moved(inputs):
                    self._capture(inputs)
                if self.graph is not None:
                    return self._replay(inputs)
            self.is_warm = True
        _count(self.reason or "run once before the capture")
        return self.module(*inputs)

    def _is_fixed(self, index, tensor):
        address = tensor.untyped_storage().data_ptr()
        if index in self.fixed:
            self.storages.add(address)
        return address in self.storages

    def _moved(self, inputs):
        """True if a parameter lies elsewhere now, as after load_state_dict(assign=True)."""
        return any(_key(inputs[i]) != key for i, key in self.kept.items())

    def _capture(self, inputs):
        self.graph = None
        self.kept = {i: _key(t) for i, t in enumerate(inputs) if self._is_fixed(i, t)}
        self.inputs = [t if i in self.kept else t.clone() for i, t in enumerate(inputs)]
        graph = _C.Graph()
        try:
            graph.capture_begin(self.program)
            try:
                self.outputs = self.module(*self.inputs)
            except BaseException:
                graph.abandon()
                raise
            graph.capture_end()
        except (RuntimeError, NotImplementedError) as error:
            self.reason = str(error).splitlines()[0]
            return
        self.graph = graph

    def _replay(self, inputs):
        for index, (own, given) in enumerate(zip(self.inputs, inputs)):
            if index not in self.kept:
                own.copy_(given)
        self.graph.replay()
        _count("replayed")
        same = {id(own): given for own, given in zip(self.inputs, inputs)}
        return [
            same.get(id(out), out.clone()) if isinstance(out, torch.Tensor) else out
            for out in self.outputs
        ]


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
