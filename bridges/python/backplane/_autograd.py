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
        revision = described["backward_revision"]
        self.later = [n for n, a in self.arguments.items() if a["since"] > revision]
        outputs = [n for n, a in self.arguments.items() if a["is_output"]]
        text = described["backward"]
        self.bound = text if text.isidentifier() else None
        self.lines = None if self.bound else formulas.parse(text)
        reads = self._read_names()
        self.differentiable = [o for o in outputs if f"grad_{o}" in reads]
        self.saved = [o for o in outputs if o in reads]
        self.asked = self._asked_names()
        self.enums = {n for n, a in self.arguments.items() if a["values"]}
        self._compiled, self._needs = {}, {}
        self.tensors = [n for n, a in self.arguments.items()
                        if a["is_tensor"] and not a["is_output"]]
        self.has_lists = any(self.arguments[n]["is_list"] for n in self.tensors)

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

    def needs(self, wanted):
        """Returns the inputs and attributes that the gradients of the inputs `wanted` read, the
        outputs that they read, and the names of which they read no elements."""
        if wanted not in self._needs:
            if self.bound is not None:
                names, facts = {a["name"] for a in self.backward}, frozenset()
            else:
                lines = formulas.slice_of(self.lines, [f"grad_{w}" for w in wanted])
                names = set().union(*(formulas.names_in(tree) for _, tree in lines))
                facts = formulas.facts_in(lines)
            kept = [[n for n, a in self.arguments.items() if n in names and a["is_output"] == out]
                    for out in (False, True)]
            self._needs[wanted] = (*kept, facts)
        return self._needs[wanted]

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


_PLANS = {}


def plan_of(name, key=None):
    """Returns the plan of an op; None if it has no gradient. `key` names a description, which never
    changes; one that grew has another key."""
    if key is None or key not in _PLANS:
        described = _core.describe(name)
        text = described["backward"]
        plan = None if text is None or text.startswith("none:") else Plan(described)
        if key is None:
            return plan
        _PLANS[key] = plan
    return _PLANS[key]


@functools.lru_cache(maxsize=None)
def _results_of_forwards(name):
    """Returns the outputs of the ops whose gradients the op `name` computes; None if it is none of
    these. They are functions of the inputs, and the gradients of the inputs lead through them."""
    forwards = [d for d in map(_core.describe, _core.op_names()) if d["backward"] == name]
    if not forwards:
        return None
    return {a["name"] for d in forwards for a in d["arguments"] if a["is_output"]}


def saved_outputs(name, key):
    """Returns the outputs that the gradient of an op reads; None if the op has no gradient."""
    plan = plan_of(name, key)
    if plan is None and _results_of_forwards(name) is not None:
        reason = (_core.describe(name)["backward"] or "none: it says none").removeprefix("none: ")
        raise Unsupported(f"{name}: it computes gradients, and has none of its own, so there is no "
                          f"second derivative: {reason}", _UNSUPPORTED)
    return None if plan is None else plan.saved


class _Call:
    """One recorded call: what its gradient reads, and the versions of that."""

    def __init__(self, plan, values, outputs):
        self.plan = plan
        self.inputs = [row for row in _places(values, plan.tensors) if row[2].requires_grad]
        self.differentiated = [row[:2] for row in self.inputs if row[0] in plan.gradients]
        wanted = tuple(dict.fromkeys([n for n, _ in self.differentiated]))
        names, results, facts = plan.needs(wanted)
        self.outputs = {n: _kept(outputs[n], n in facts) for n in results}
        # The op runs again for a graph of gradients, if these read its outputs.
        runs_again = any(n not in facts for n in results)
        self.values = values if runs_again else {n: _kept(values[n], n in facts) for n in names}
        self.lists = {n: _kept(values[n], n in facts) for n, index in self.differentiated
                      if index is not None} if plan.has_lists else None
        self.shapes = {n: formulas.Facts(outputs[n]) for n in plan.differentiable
                       if outputs[n] is not None}
        self.versions = [
            (n, t, t.version) for source, kept in ((self.values, names), (self.outputs, results))
            for n, _, t in _places(source, kept) if n not in facts]

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
            elif name not in self.plan.asked and other in self.shapes:
                values[name] = _zeros(self.shapes[other], gradient.device)
        return values

    def _saved(self):
        """The saved outputs. A graph of gradients needs them as results of the inputs, so then the
        op runs again."""
        is_read = any(isinstance(t, _core.Tensor) for t in self.outputs.values())
        if not is_read or not _core.is_grad_enabled():
            return self.outputs
        asked = {n: True for n in self.plan.saved if self.plan.arguments[n]["is_optional"]}
        given = {n: v for n, v in self.values.items() if v is not None}
        for name, argument in self.plan.arguments.items():
            is_made = argument["is_output"] and not argument["is_optional"]
            if is_made and len(argument["dtypes"]) > 1:
                given["dtype"] = self.shapes[name].dtype
        result = _core.op(self.plan.name)(**given, **asked)
        names = [n for n, a in self.plan.arguments.items()
                 if a["is_output"] and (not a["is_optional"] or n in asked)]
        return dict(zip(names, result if isinstance(result, tuple) else (result,)))

    def gradients(self, output, gradient):
        self.check()
        values = self.environment(output, gradient)
        whole = tuple(dict.fromkeys(n for n, index in self.differentiated if index is None))
        made = self.plan.run(whole, values, gradient.device, None) if whole else ()
        found = dict(zip(whole, made))
        return [found[name] if index is None else self._item(name, index, values, gradient)
                for name, index in self.differentiated]

    def _item(self, name, index, values, gradient):
        """The gradient of one tensor of a list: in its formula the list is that tensor."""
        items = self.lists[name]
        before = lambda _, axis: sum(t.shape[axis] for t in items[:index])
        return self.plan.run((name,), {**values, name: items[index]}, gradient.device, before)[0]


def _places(values, names):
    """Returns the tensors of these arguments, each with its place if it is one of a list."""
    found = []
    for name in names:
        value = values[name]
        if isinstance(value, _core.Tensor):
            found.append((name, None, value))
        elif isinstance(value, list):
            found += [(name, i, t) for i, t in enumerate(value) if isinstance(t, _core.Tensor)]
    return found


def _kept(value, is_fact):
    """Returns what a gradient keeps: a value, or what it reads of a tensor without elements."""
    if is_fact and isinstance(value, list):
        return [_kept(item, is_fact) for item in value]
    return formulas.Facts(value) if is_fact and isinstance(value, _core.Tensor) else value


def _zeros(like, device):
    return _core.op("fill")(value=0, shape=like.shape, dtype=like.dtype, device=device)


def _check(plan, values, call):
    for name, _, _ in call.inputs:
        if name not in plan.gradients and name not in (_results_of_forwards(plan.name) or ()):
            raise Unsupported(f"{plan.name}: {name} requires a gradient, and the op has none for "
                              "it; use detach()", _UNSUPPORTED)
    for name in plan.later:
        value = values.get(name)
        if value is not None and (isinstance(value, _core.Tensor) or value):
            raise Unsupported(f"{plan.name}: {name} came after the gradient of the op was written, "
                              "so the call cannot be recorded; leave it out", _UNSUPPORTED)


def record(name, key, values, outputs):
    """Returns the outputs as part of the graph."""
    plan = plan_of(name, key)
    call = _Call(plan, values, outputs)
    _check(plan, values, call)
    inputs = [t for n, _, t in call.inputs if n in plan.gradients]
    del call.inputs
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
