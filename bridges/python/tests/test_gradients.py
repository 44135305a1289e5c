"""Gradients of ops against central differences, of first and second order.

Each row calls ops with the leaves a, b, c, which are f64 tensors of the given shapes.
"""

import pytest

import backplane as bp
from backplane import ops

F64 = bp.dtype("f64")
I64 = bp.dtype("i64")


def index(*values):
    return bp.asarray(list(values), dtype=I64)


ROWS = [
    # A number in place of a tensor, broadcasts, and casts.
    ("add(a, b)", (2, 3), (3,)),
    ("mul(a, 2.5)", (2, 3)),
    ("sub(1, a)", (3,)),
    ("div(a, b)", (2, 3), (2, 1)),
    ("add(a, b.to('f32')).to('f64')", (3,), (2, 3)),
    ("pow(a, b)", (4,), (4,)),
    ("atan2(a, b)", (4,), (4,)),
    ("maximum(a, b)", (4,), (4,)),
    ("where(gt(a, b), a, b)", (2, 3), (3,)),
    ("lerp(a, b, c)", (3,), (3,), (3,)),
    ("clamp(a, b, c)", (4,), (4,), (4,)),
    ("addcmul(a, b, c)", (3,), (3,), (3,)),
    # Gradients that are another op, and those that read the output.
    ("exp(a)", (4,)),
    ("tanh(a)", (4,)),
    ("sigmoid(a)", (4,)),
    ("gelu(a, approximation='tanh')", (4,)),
    ("gelu(a, approximation='none')", (4,)),
    ("silu(a)", (4,)),
    ("sqrt(a)", (4,)),
    ("erf(a)", (4,)),
    ("softmax(a, axis=-1)", (2, 4)),
    ("log_softmax(a, axis=0)", (3, 2)),
    ("logsumexp(a, axes=[1])", (2, 3)),
    # Movement.
    ("cat([a, b], axis=1)", (2, 3), (2, 2)),
    ("copy(a.permute(1, 0))", (2, 3)),
    ("flip(a, axis=1)", (2, 3)),
    ("roll(a, shift=1, axis=0)", (3, 2)),
    ("pad(a, axis=0, before=1, after=2, mode='reflect')", (4, 2)),
    ("tile(a, count=2, axis=1)", (2, 3)),
    ("gather(a, index(0, 1, 1).reshape(1, 3), axis=0)", (2, 3)),
    ("index_select(a, index(1, 0, 1), axis=1)", (2, 3)),
    ("scatter_reduce(a, index(0, 1).reshape(1, 2), b, axis=0, reduction='sum')", (2, 2), (1, 2)),
    ("embedding(a, index(2, 0, 2))", (3, 2)),
    ("topk(a, k=2, axis=1)", (2, 4)),
    ("sort(a, axis=1)", (2, 4)),
    # Reductions and scans.
    ("sum(a, axes=[0])", (2, 3)),
    ("mean(a, axes=[0, 1], keepdims=True)", (2, 3)),
    ("var(a, axes=[1], correction=1)", (2, 4)),
    ("norm(a, axes=[1], p=2.0)", (2, 4)),
    ("prod(a, axes=[1])", (2, 3)),
    ("amax(a, axes=[1])", (2, 3)),
    ("cumsum(a, axis=1)", (2, 3)),
    ("cumprod(a, axis=1)", (2, 3)),
    # Products, windows, norms.
    ("matmul(a, b)", (2, 3), (3, 4)),
    ("matmul(a, b, c, alpha=0.5, beta=2.0)", (2, 3), (3, 4), (2, 4)),
    ("linear(a, b, c)", (2, 3), (4, 3), (4,)),
    ("linear(a, b, c, activation='gelu')", (2, 3), (4, 3), (4,)),
    ("convolution(a, b, c, padding=1)", (1, 2, 4, 4), (3, 2, 3, 3), (3,)),
    ("avg_pool(a, kernel_size=2)", (1, 2, 4, 4)),
    ("max_pool(a, kernel_size=2)", (1, 2, 4, 4)),
    ("layer_norm(a, b, c, normalized_ndim=1)", (2, 4), (4,), (4,)),
    ("rms_norm(a, b, normalized_ndim=1)", (2, 4), (4,)),
    ("batch_norm_training(a, b, c)", (4, 2, 3), (2,), (2,)),
    # Losses, attention, gates.
    ("cross_entropy(a, index(1, 0, 2))", (3, 4)),
    ("mse_loss(a, b)", (2, 3), (2, 3)),
    ("sdpa(a, b, c, scale=0.5)", (1, 2, 3, 4), (1, 2, 3, 4), (1, 2, 3, 4)),
    ("swiglu(a, b)", (2, 3), (2, 3)),
    ("dropout(a, p=0.5, seed=7, offset=0)", (4, 3)),
]

# Ops whose gradient has no gradient of its own, or is not smooth.
FIRST_ORDER = ("max_pool", "maximum", "amax", "topk", "sort", "clamp")


def sample(shape, salt):
    """Numbers from 0.3 to 1.7, which lie apart."""
    count = 1
    for extent in shape:
        count *= extent
    turns = [0.7548776662466927 * (i + 1) + 0.5698402909980532 * (salt + 1) for i in range(count)]
    return bp.asarray([0.3 + 1.4 * (t % 1.0) for t in turns], dtype=F64).reshape(list(shape))


def evaluate(text, leaves):
    scope = {name: ops.get(name) for name in ops.names() if "." not in name}
    scope.update(zip("abc", leaves), index=index)
    result = eval(text, scope)  # The rows of this file.
    result = result[0] if isinstance(result, tuple) else result
    return ops.sum(ops.mul(result, sample(result.shape, 20)))


def differences(function, leaves, which, step=1e-5):
    """The gradient of a function by central differences."""
    flat = leaves[which].numpy(copy=True).reshape(-1)
    result = []
    for i in range(flat.size):
        ends = []
        for sign in (1, -1):
            moved = flat.copy()
            moved[i] += sign * step
            changed = list(leaves)
            changed[which] = bp.asarray(moved).reshape(list(leaves[which].shape))
            ends.append(float(function(changed).item()))
        result.append((ends[0] - ends[1]) / (2 * step))
    return result


def check(function, leaves, gradients, bound):
    for i, gradient in enumerate(gradients):
        expected = differences(function, leaves, i)
        for got, wanted in zip(gradient.flatten().tolist(), expected):
            assert abs(got - wanted) <= bound * max(1.0, abs(wanted)), (i, got, wanted)


def leaves_of(shapes):
    leaves = [sample(shape, i) for i, shape in enumerate(shapes)]
    for leaf in leaves:
        leaf.requires_grad = True
    return leaves


@pytest.fixture(autouse=True)
def needs_f64(device):
    if F64 not in device.dtypes:
        pytest.skip(f"{device} has no f64, which the differences need")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_agree_with_differences(row):
    text, *shapes = row
    leaves = leaves_of(shapes)
    evaluate(text, leaves).backward()
    plain = [leaf.detach() for leaf in leaves]
    bound = 1e-3 if "f32" in text else 1e-6
    step = lambda values: evaluate(text, values)
    if "f32" in text:
        pytest.importorskip("numpy")
        assert all(leaf.grad is not None and leaf.grad.dtype == F64 for leaf in leaves)
        return
    check(step, plain, [leaf.grad for leaf in leaves], bound)


@pytest.mark.parametrize("row", [r for r in ROWS if not r[0].startswith(FIRST_ORDER)],
                         ids=lambda row: row[0])
def test_agree_in_second_order(row):
    text, *shapes = row
    if "f32" in text:
        pytest.skip("differences of second order need f64 throughout")

    def slope(leaves):
        """The sum of the weighted gradients, which depends on the leaves."""
        for leaf in leaves:
            leaf.requires_grad = True
        found = bp.grad([evaluate(text, leaves)], leaves, create_graph=True)
        total = None
        for i, gradient in enumerate(found):
            part = ops.sum(ops.mul(gradient, sample(gradient.shape, 30 + i)))
            total = part if total is None else ops.add(total, part)
        return total

    leaves = leaves_of(shapes)
    total = slope(leaves)
    found = bp.grad([total], leaves, allow_unused=True) if total.requires_grad else [None]
    if all(g is None for g in found):
        return  # The op is linear in each input alone.
    plain = [leaf.detach() for leaf in leaves]
    zeros = [bp.zeros(leaf.shape, dtype=F64) for leaf in leaves]
    check(lambda values: slope([v.detach() for v in values]), plain,
          [g if g is not None else z for g, z in zip(found, zeros)], 1e-5)


def test_every_formula_is_understood():
    from backplane import _autograd
    from backplane import _formulas as formulas
    count = 0
    for name in ops.names():
        plan = _autograd.plan_of(name)
        if plan is None or plan.bound is not None:
            continue
        for gradient in plan.gradients:
            result = [f"grad_{gradient}"]
            parameters = set(plan.arguments) | {f"grad_{o}" for o in plan.differentiable}
            formulas.compile_lines(formulas.slice_of(plan.lines, result), parameters, plan.enums,
                                   result)
            count += 1
    assert count > 150


def test_gradients_add_up():
    x = sample((3,), 0)
    x.requires_grad = True
    for _ in range(2):
        ops.sum(ops.mul(x, x)).backward()
    assert x.grad.tolist() == pytest.approx([4 * v for v in x.tolist()])
    x.grad = None
    assert x.grad is None


def test_no_grad_records_nothing():
    x = sample((3,), 0)
    x.requires_grad = True
    with bp.no_grad():
        assert not ops.exp(x).requires_grad
    assert ops.exp(x).requires_grad

    @bp.no_grad()
    def evaluated():
        return ops.exp(x)
    assert not evaluated().requires_grad and bp.is_grad_enabled()


def test_a_comparison_has_no_gradient():
    x = sample((3,), 0)
    x.requires_grad = True
    assert not ops.gt(x, 1.0).requires_grad


def test_a_write_since_the_call_is_found():
    x = sample((3,), 0)
    x.requires_grad = True
    y = ops.exp(ops.mul(x, 1.0))
    z = ops.sum(ops.mul(y, y))
    with bp.no_grad():
        y.fill_(0)
    with pytest.raises(bp.InvalidArgument, match="written in place"):
        z.backward()


def test_writes_in_place_are_not_recorded():
    x = sample((3,), 0)
    x.requires_grad = True
    out = bp.zeros([3], dtype=F64)
    with pytest.raises(bp.InvalidArgument, match="no_grad"):
        ops.exp(x, y=out)


def test_an_optional_output_has_a_gradient_too():
    x = sample((2, 4), 0)
    x.requires_grad = True
    y, mean, rstd = ops.layer_norm(x, normalized_ndim=1, mean=True, rstd=True)
    assert y.requires_grad
    ops.sum(ops.mul(y, y)).backward()
    assert x.grad is not None
