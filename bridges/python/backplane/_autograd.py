"""Gradients of ops, from their descriptions.

The runtime records the graph and runs it backward. What it calls for an op is made here: from the
formulas of the description, or from the op that the description names. So an op of a vendor that
describes its gradient has one.
"""

import functools

from backplane import _core
from backplane import _formulas as formulas
from backplane._errors import InvalidArgument, Unsupported

_INVALID, _UNSUPPORTED = 1, 2


class Plan:
    """How the gradients of one op are computed."""

    def __init__(self, described):
        self.name = described["name"]
        self.arguments = {a["name"]: a for a in described["arguments"]}
        self.revision = described["backward_revision"]
        outputs = [n for n, a in self.arguments.items() if a["is_output"]]
        text = described["backward"]
        self.bound = text if text.isidentifier() else None
        self.lines = None if self.bound else formulas.parse(text)
        reads = self._read_names()
        self.differentiable = [o for o in outputs if f"grad_{o}" in reads]
        self.saved = [o for o in outputs if o in reads]
        self.asked = self._asked_names()
        self.enums = {n for n, a in self.arguments.items() if a["values"]}
        self._compiled = {}

    def _read_names(self):
        if self.bound is None:
            names = set().union(*(formulas.names_in(tree) for _, tree in self.lines))
            self.gradients = {name[5:] for name, _ in self.lines if name.startswith("grad_")}
            return names
        self.backward = _core.describe(self.bound)["arguments"]
        self.gradients = {a["name"][5:] for a in self.backward if a["is_output"]}
        return {a["name"] for a in self.backward if not a["is_output"]}

    def _asked_names(self):
        """Returns the gradients of outputs that may be absent. Others are zeros then."""
        if self.bound is not None:
            return {a["name"] for a in self.backward if a["is_optional"]}
        return {call.args[0].id for _, tree in self.lines for call in formulas.ast.walk(tree)
                if isinstance(call, formulas.ast.Call) and call.func.id == "given"}

    def run(self, wanted, values, device, before):
        """Returns the gradients of the inputs named `wanted`."""
        if self.bound is not None:
            return self._run_bound(wanted, values)
        if wanted not in self._compiled:
            results = [f"grad_{w}" for w in wanted]
            lines = formulas.slice_of(self.lines, results)
            parameters = set(self.arguments) | {f"grad_{o}" for o in self.differentiable}
            self._compiled[wanted] = formulas.compile_lines(lines, parameters, self.enums, results)
        return self._compiled[wanted](values, device, before)

    def _run_bound(self, wanted, values):
        asked, made = {}, []
        for a in self.backward:
            name = a["name"]
            if not a["is_output"]:
                if name in values:
                    asked[name] = values[name]
            elif not a["is_optional"] or name[5:] in wanted:
                made.append(name[5:])
                if a["is_optional"]:
                    asked[name] = True
        result = _core.op(self.bound)(**asked)
        found = dict(zip(made, result if isinstance(result, tuple) else (result,)))
        return [found[w] for w in wanted]


@functools.lru_cache(maxsize=None)
def plan_of(name, revision):
    described = _core.describe(name)
    text = described["backward"]
    if text is None or text.startswith("none:"):
        return None
    return Plan(described)


def _plan(name):
    return plan_of(name, _core.describe(name)["backward_revision"])


@functools.lru_cache(maxsize=None)
def _results_of_forwards(name):
    """Returns the outputs of the ops whose gradients the op `name` computes; None if it is none of
    these. They are functions of the inputs, and the gradients of the inputs lead through them."""
    forwards = [d for d in map(_core.describe, _core.op_names()) if d["backward"] == name]
    if not forwards:
        return None
    return {a["name"] for d in forwards for a in d["arguments"] if a["is_output"]}


def saved_outputs(name):
    """Returns the outputs that the gradient of an op reads; None if the op has no gradient."""
    plan = _plan(name)
    if plan is None and _results_of_forwards(name) is not None:
        reason = (_core.describe(name)["backward"] or "none: it says none").removeprefix("none: ")
        raise Unsupported(f"{name}: it computes gradients, and has none of its own, so there is no "
                          f"second derivative: {reason}", _UNSUPPORTED)
    return None if plan is None else plan.saved


class _Call:
    """One recorded call: what its gradient reads, and the versions of that."""

    def __init__(self, plan, values, outputs):
        self.plan, self.values = plan, values
        self.outputs = {n: t.detach() if isinstance(t, _core.Tensor) else t
                        for n, t in outputs.items()}
        self.versions = [(name, t, t.version) for name, t in _tensors({**values, **self.outputs})]
        self.inputs = [(name, index, t) for name, index, t in _places(values) if t.requires_grad]
        self.differentiated = [row for row in self.inputs if row[0] in plan.gradients]

    def check(self):
        for name, tensor, version in self.versions:
            if tensor.version != version:
                raise InvalidArgument(
                    f"{self.plan.name}: the gradient needs {name}, which was written in place "
                    "since the call; clone it before the write", _INVALID)

    def environment(self, output, gradient):
        values = dict(self.values)
        values.update(self._saved())
        for other in self.plan.differentiable:
            name = f"grad_{other}"
            if other == output:
                values[name] = gradient
            elif name not in self.plan.asked and self.outputs.get(other) is not None:
                values[name] = _zeros(self.outputs[other])
        return values

    def _saved(self):
        """The saved outputs. A graph of gradients needs them as results of the inputs, so then the
        op runs again."""
        if not self.plan.saved or not _core.is_grad_enabled():
            return self.outputs
        asked = {n: True for n in self.plan.saved if self.plan.arguments[n]["is_optional"]}
        given = {n: v for n, v in self.values.items() if v is not None}
        first = next((o for o in self.outputs.values() if o is not None), None)
        for argument in self.plan.arguments.values():
            is_made = argument["is_output"] and not argument["is_optional"]
            if is_made and len(argument["dtypes"]) > 1:
                given["dtype"] = first.dtype
        result = _core.op(self.plan.name)(**given, **asked)
        names = [n for n, a in self.plan.arguments.items()
                 if a["is_output"] and (not a["is_optional"] or n in asked)]
        return dict(zip(names, result if isinstance(result, tuple) else (result,)))

    def gradients(self, output, gradient):
        self.check()
        values = self.environment(output, gradient)
        whole = tuple(dict.fromkeys(n for n, index, _ in self.differentiated if index is None))
        made = self.plan.run(whole, values, gradient.device, None) if whole else ()
        found = dict(zip(whole, made))
        return [found[name] if index is None else self._item(name, index, values, gradient)
                for name, index, _ in self.differentiated]

    def _item(self, name, index, values, gradient):
        """The gradient of one tensor of a list: in its formula the list is that tensor."""
        items = self.values[name]
        before = lambda _, axis: sum(t.shape[axis] for t in items[:index])
        return self.plan.run((name,), {**values, name: items[index]}, gradient.device, before)[0]


def _places(values):
    for name, value in values.items():
        if isinstance(value, _core.Tensor):
            yield name, None, value
        elif isinstance(value, list):
            for index, item in enumerate(value):
                if isinstance(item, _core.Tensor):
                    yield name, index, item


def _tensors(values):
    return [(name, tensor) for name, _, tensor in _places(values)]


def _zeros(like):
    return _core.op("fill")(value=0, shape=like.shape, dtype=like.dtype, device=like.device)


def _check(plan, values, call):
    results = _results_of_forwards(plan.name) or ()
    for name, _, _ in call.inputs:
        if name not in plan.gradients and name not in results:
            raise Unsupported(f"{plan.name}: {name} requires a gradient, and the op has none for "
                              "it; use detach()", _UNSUPPORTED)
    for name, argument in plan.arguments.items():
        value = values.get(name)
        is_given = value is not None and (isinstance(value, _core.Tensor) or bool(value))
        if argument["since"] > plan.revision and is_given:
            raise Unsupported(f"{plan.name}: {name} came after the gradient of the op was written, "
                              "so the call cannot be recorded; leave it out", _UNSUPPORTED)


def record(name, values, outputs):
    """Returns the outputs as part of the graph."""
    plan = _plan(name)
    call = _Call(plan, values, outputs)
    _check(plan, values, call)
    inputs = [t for _, _, t in call.differentiated]
    made = dict(outputs)
    for output in plan.differentiable:
        if isinstance(outputs.get(output), _core.Tensor):
            function = functools.partial(call.gradients, output)
            made[output] = _core._record(name, inputs, outputs[output], function)
    return made


# ---- For users -----------------------------------------------------------------------------------


class _GradMode:
    """A block, or a function, in which recording is on or off."""

    def __init__(self, enabled):
        self._enabled, self._before = enabled, []

    def __enter__(self):
        self._before.append(_core.set_grad_enabled(self._enabled))
        return self

    def __exit__(self, *_):
        _core.set_grad_enabled(self._before.pop())

    def __call__(self, function):
        @functools.wraps(function)
        def wrapped(*args, **kwargs):
            with type(self)(self._enabled):
                return function(*args, **kwargs)
        return wrapped


def no_grad():
    """Turns recording off in a block or a function, for evaluation and updates of parameters."""
    return _GradMode(False)


def enable_grad():
    """Turns recording on in a block or a function."""
    return _GradMode(True)


def backward(self, gradient=None, retain_graph=False, create_graph=False):
    """Adds the gradient of this tensor to `grad` of each leaf that it depends on.

    `gradient` is the gradient of this tensor itself; without it, the tensor has one element, and
    its gradient is 1. The graph is freed, unless retain_graph or create_graph is true; with
    create_graph the gradients are recorded too.
    """
    _core._backward(self, gradient, retain_graph, create_graph)
