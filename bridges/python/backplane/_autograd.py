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


class Recipe:
    """What a recorded call keeps, and what its gradients are made of, if the inputs `wanted`
    require a gradient. The extension reads the lists of names."""

    def __init__(self, plan, wanted):
        self.plan, self.wanted = plan, wanted
        names, results, facts = plan.needs(wanted)
        # The op runs again for a graph of gradients, if these read the elements of its outputs.
        self.runs_again = any(n not in facts for n in results)
        inputs = [n for n, a in plan.arguments.items() if not a["is_output"]]
        self.inputs = inputs if self.runs_again else names
        self.kept = [*self.inputs, *results]
        self.facts = [n for n in self.kept if n in facts and (n in results or not self.runs_again)]
        self.versioned = [n for n in (*names, *results)
                          if plan.arguments[n]["is_tensor"] and n not in facts]
        self.differentiable, self.later = plan.differentiable, plan.later
        self.needs_shapes = self.runs_again or len(plan.differentiable) > 1

    def check(self, values, versions):
        for name, version in zip(self.versioned, versions):
            if _version(values[name]) != version:
                raise InvalidArgument(
                    f"{self.plan.name}: the gradient needs {name}, which was written in place "
                    "since the call; clone it before the write", _INVALID)

    def environment(self, values, output, gradient):
        """Returns what the formulas read. The gradients of other outputs are zeros where a formula
        does not ask whether they are given."""
        found = dict(values)
        if self.runs_again and _core.is_grad_enabled():
            found.update(self._run_again(values))
        for other in self.differentiable:
            name, shape = f"grad_{other}", values.get(f"{other}.facts")
            if other == output:
                found[name] = gradient
            elif name not in self.plan.asked and shape is not None:
                found[name] = _core.op("fill")(value=0, shape=shape.shape, dtype=shape.dtype,
                                               device=gradient.device)
        return found

    def _run_again(self, values):
        """Returns the outputs as results of the inputs, so that the gradients have gradients."""
        given = {n: values[n] for n in self.inputs if values[n] is not None}
        made = []
        for name, argument in self.plan.arguments.items():
            if not argument["is_output"]:
                continue
            if argument["is_optional"]:
                if name not in self.plan.saved:
                    continue
                given[name] = True
            elif len(argument["dtypes"]) > 1:
                given["dtype"] = values[f"{name}.facts"].dtype
            made.append(name)
        result = _core.op(self.plan.name)(**given)
        return dict(zip(made, result if isinstance(result, tuple) else (result,)))

    def item(self, name, index, values, device):
        """The gradient of one tensor of a list: in its formula the list is that tensor."""
        items = values[name]
        before = lambda _, axis: sum(t.shape[axis] for t in items[:index])
        return self.plan.run((name,), {**values, name: items[index]}, device, before)[0]


def _version(value):
    """How often the tensors of an argument were written; 0 for a number, and for none."""
    if isinstance(value, list):
        return sum(t.version for t in value)
    return value.version if isinstance(value, _core.Tensor) else 0


def recipe(name, key, required):
    """Returns the recipe of a call whose inputs `required` require a gradient."""
    plan = plan_of(name, key)
    for one in required:
        if one not in plan.gradients and one not in (_results_of_forwards(name) or ()):
            raise Unsupported(f"{name}: {one} requires a gradient, and the op has none for it; use "
                              "detach()", _UNSUPPORTED)
    return Recipe(plan, tuple(n for n in required if n in plan.gradients))


def check_later(name, values):
    """Refuses a call that gives what came after the gradient of the op was written."""
    for later, value in values.items():
        if value is not None and (isinstance(value, _core.Tensor) or value):
            raise Unsupported(f"{name}: {later} came after the gradient of the op was written, so "
                              "the call cannot be recorded; leave it out", _UNSUPPORTED)


def gradients(made, values, versions, places, output, gradient):
    """Returns the gradients of a recorded call, for the gradient of one output.

    `values` has what the recipe `made` keeps. If some inputs are of lists, `places` has a pair for
    each input: its name, and its index in its list or None. Else `places` is None.
    """
    made.check(values, versions)
    found = made.environment(values, output, gradient)
    if places is None:
        return made.plan.run(made.wanted, found, gradient.device, None)
    whole = tuple(dict.fromkeys(name for name, index in places if index is None))
    results = made.plan.run(whole, found, gradient.device, None) if whole else ()
    by_name = dict(zip(whole, results))
    return [by_name[name] if index is None else made.item(name, index, found, gradient.device)
            for name, index in places]


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
