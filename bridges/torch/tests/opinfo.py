"""Runs PyTorch's own samples of operators (OpInfo) on bp and on the CPU, and compares.

    python opinfo.py PLUGIN [--dtypes float32,int64] [--ops add,sum] [--samples 30] [--verbose]

Every operator of op_db is run whose operator of ATen has an entry in the table of the bridge. A
sample is right if the results, and for f32 and f64 the gradients, agree with the CPU's in dtype,
shape and value. A sample that PyTorch's CPU refuses is not counted.
"""

import argparse
import collections
import contextlib
import io
import json
import sys
import time
import warnings

import torch

import torch_backplane

with contextlib.redirect_stderr(io.StringIO()), warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch.testing._internal.common_methods_invocations import op_db

# Operators of op_db that are made of operators in the table, and have no name there themselves.
COMPOSED = """
    linear conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d cross_entropy
    scaled_dot_product_attention layer_norm rms_norm batch_norm group_norm instance_norm nll_loss
    max_pool1d max_pool2d max_pool3d avg_pool1d adaptive_avg_pool1d adaptive_avg_pool2d
    adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d embedding
    softmax log_softmax softmin selu relu6 logsigmoid prelu pad interpolate upsample_nearest
    upsample_bilinear l1_loss pixel_shuffle pixel_unshuffle fold unfold one_hot cosine_similarity
    normalize pairwise_distance tanhshrink softsign hardshrink matmul addr outer stack hstack vstack
    dstack chunk split reshape flatten permute transpose squeeze unsqueeze expand movedim narrow
    select slice diagonal index_put masked_fill masked_select where take_along_dim std var std_mean
    var_mean max min sort argsort topk msort cummax cummin norm linalg.norm linalg.vector_norm
    dist clone contiguous to zeros_like ones_like full_like empty_like new_zeros new_ones new_full
    fill zero_ isfinite isclose allclose true_divide rsub float_power square unfold_copy unflatten
    ravel tile repeat repeat_interleave swapaxes t T cumulative_trapezoid trapezoid diff ldexp
    einsum inner kron tensordot mH block_diag meshgrid arange linspace
""".split()

# Random results, or memory that was never written: there is nothing to compare.
RANDOM = """
    nn.functional.dropout nn.functional.dropout2d nn.functional.dropout3d
    nn.functional.alpha_dropout nn.functional.feature_alpha_dropout_with_train
    nn.functional.feature_alpha_dropout_without_train nn.functional.rrelu bernoulli multinomial
    normal normal_ uniform exponential cauchy geometric log_normal rand_like randint randint_like
    randn randn_like empty empty_like empty_strided new_empty new_empty_strided empty_permuted
    randperm random native_dropout_backward
""".split()

TOLERANCES = {
    torch.float64: (1e-7, 1e-7),
    torch.float32: (1.3e-4, 1e-5),
    torch.float16: (2e-3, 2e-3),
    torch.bfloat16: (1.6e-2, 1e-2),
}

Sample = collections.namedtuple("Sample", "op dtype index what is_right fallbacks problem")


def mapped_ops():
    """The entries of op_db whose operators have an entry in the table."""
    bases = {name.removeprefix("aten::").split(".")[0].rstrip("_")
             for name in torch_backplane.registered()}
    chosen = []
    for op in op_db:
        plain = op.name.removeprefix("nn.functional.")
        names = {op.name, plain, op.aten_name or "", (op.aten_name or "").lstrip("_")}
        if op.name not in RANDOM and (names & bases or plain in COMPOSED or op.name in COMPOSED):
            chosen.append(op)
    return chosen


def to_bp(value):
    """The same argument with tensors on bp, of the same strides."""
    if isinstance(value, torch.Tensor):
        moved = value.detach().to("bp")
        strides = value.stride()
        if moved.stride() != strides and value.numel() and all(s > 0 for s in strides):
            moved = torch.empty_strided(value.shape, strides, dtype=value.dtype,
                                        device="bp").copy_(moved)
        return moved.requires_grad_(value.requires_grad)
    if isinstance(value, (list, tuple)):
        return type(value)(to_bp(item) for item in value)
    if isinstance(value, dict):
        return {key: to_bp(item) for key, item in value.items()}
    if isinstance(value, torch.device) or value == "cpu":
        return torch.device("bp")
    return value


def tensors_in(value):
    """The tensors in nested results, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [tensor for item in value for tensor in tensors_in(item)]
    if isinstance(value, dict):
        return tensors_in(list(value.values()))
    return []


def compare(own, expected, dtype, what):
    """Raises AssertionError if a tensor of bp is not that of the CPU."""
    assert own.dtype == expected.dtype, f"{what} is {own.dtype}, and not {expected.dtype}"
    assert own.shape == expected.shape, f"{what} is {own.shape}, and not {expected.shape}"
    rtol, atol = TOLERANCES.get(expected.dtype, TOLERANCES.get(dtype, (1e-5, 1e-5)))
    torch.testing.assert_close(own.detach().cpu(), expected.detach(), rtol=rtol, atol=atol,
                               equal_nan=True, msg=lambda text: f"{what}: {text}")


def compare_gradients(own, expected, own_leaves, leaves, dtype):
    """Compares the gradients for random gradients of the results."""
    pairs = [(o, e) for o, e in zip(own, expected) if e.requires_grad]
    inputs = [(o, e) for o, e in zip(own_leaves, leaves) if e.requires_grad]
    if not pairs or not inputs:
        return
    seeds = [torch.randn_like(e) for _, e in pairs]
    wanted = torch.autograd.grad([e for _, e in pairs], [e for _, e in inputs], seeds,
                                 allow_unused=True)
    got = torch.autograd.grad([o for o, _ in pairs], [o for o, _ in inputs],
                              [seed.to("bp") for seed in seeds], allow_unused=True)
    for number, (g, w) in enumerate(zip(got, wanted)):
        assert (g is None) == (w is None), f"gradient {number} is missing on one side"
        if w is not None:
            rtol, atol = TOLERANCES[dtype]
            torch.testing.assert_close(g.cpu(), w, rtol=10 * rtol, atol=10 * atol, equal_nan=True,
                                       msg=lambda text: f"gradient {number}: {text}")


def run_sample(op, dtype, sample, has_gradient):
    """None if the CPU refuses the sample, else the problem, or "" if bp is right."""
    try:
        expected = op.op(sample.input, *sample.args, **sample.kwargs)
    except Exception:  # noqa: BLE001 - what the CPU refuses is no sample.
        return None
    try:
        own_input, own_args = to_bp(sample.input), to_bp(sample.args)
        own_kwargs = to_bp(sample.kwargs)
        own = op.op(own_input, *own_args, **own_kwargs)
        got, wanted = tensors_in(own), tensors_in(expected)
        assert len(got) == len(wanted), f"{len(got)} results, and not {len(wanted)}"
        if not wanted and not isinstance(expected, (list, tuple, dict)):
            assert own == expected, f"the result is {own}, and not {expected}"
        for number, (g, w) in enumerate(zip(got, wanted)):
            compare(g, w, dtype, f"result {number}")
        if has_gradient:
            compare_gradients(got, wanted, tensors_in([own_input, own_args, own_kwargs]),
                              tensors_in([sample.input, sample.args, sample.kwargs]), dtype)
    except Exception as error:  # noqa: BLE001 - every problem is reported.
        return f"{type(error).__name__}: {error}"
    return ""


def describe(sample):
    """The shapes of a sample, in short."""
    def short(value):
        if isinstance(value, torch.Tensor):
            return tuple(value.shape)
        if isinstance(value, (list, tuple)):
            return [short(item) for item in value]
        return value
    kwargs = {key: short(value) for key, value in sample.kwargs.items()}
    return f"{short(sample.input)} {[short(a) for a in sample.args]} {kwargs}"[:160]


def samples_of(op, dtype, limit):
    """Yields a Sample for each sample of an operator in one dtype."""
    if dtype not in op.supported_dtypes("cpu"):
        return
    has_gradient = (dtype in (torch.float32, torch.float64) and op.supports_autograd
                    and dtype in op.supported_backward_dtypes("cpu"))
    torch.manual_seed(1)
    try:
        inputs = op.sample_inputs("cpu", dtype, requires_grad=has_gradient)
        samples = [sample for _, sample in zip(range(limit), inputs)]
    except Exception:  # noqa: BLE001 - some samples need what is not installed.
        return
    name = op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")
    for index, sample in enumerate(samples):
        if sample.kwargs.get("dropout_p"):
            continue  # Random.
        torch_backplane.reset_fallbacks()
        problem = run_sample(op, dtype, sample, has_gradient)
        if problem is not None:
            counts = torch_backplane.fallbacks()
            fallbacks = [f"{key}: {reason}" for key, value in counts.items() for reason in value]
            yield Sample(name, str(dtype)[6:], index, describe(sample), not problem, fallbacks,
                         problem)


def run(ops, dtypes, limit, seconds=None, verbose=False):
    """Runs all samples of these operators and dtypes, at most for so many seconds."""
    warnings.filterwarnings("ignore")
    torch_backplane.set_fallback("count")
    begin, results = time.monotonic(), []
    for op in ops:
        if verbose:
            print(op.name, file=sys.stderr, flush=True)
        for dtype in dtypes:
            if seconds is None or time.monotonic() - begin < seconds:
                results.extend(samples_of(op, dtype, limit))
    return results


def report(results):
    """Prints the share that is right, what is wrong, and what fell back."""
    right = sum(sample.is_right for sample in results)
    alone = sum(not sample.fallbacks for sample in results)
    total = max(len(results), 1)
    print(f"{right} of {len(results)} samples are right ({100 * right / total:.2f} %); "
          f"{alone} ran without PyTorch's CPU ({100 * alone / total:.2f} %).")
    wrong = collections.defaultdict(list)
    for sample in results:
        if not sample.is_right:
            wrong[sample.op].append(sample)
    for op, samples in sorted(wrong.items()):
        dtypes = sorted({sample.dtype for sample in samples})
        text = " ".join(samples[0].problem.split("\nException raised")[0].split())
        print(f"  {op}: {len(samples)} wrong ({', '.join(dtypes)}); {samples[0].what}: "
              f"{text[:260]}")
    reasons = collections.Counter(reason for sample in results for reason in set(sample.fallbacks))
    print("Fallbacks, by samples:")
    for reason, count in reasons.most_common(60):
        print(f"  {count:5d} {reason[:200]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("plugin")
    parser.add_argument(
        "--dtypes", default="float32,float16,bfloat16,float64,int32,int64,uint8,bool")
    parser.add_argument("--ops", default="")
    parser.add_argument("--samples", type=int, default=30)
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--json", help="a file for all results")
    options = parser.parse_args()
    torch_backplane.load(options.plugin)
    names = set(options.ops.split(",")) - {""}
    ops = [op for op in mapped_ops() if not names or op.name in names]
    dtypes = [getattr(torch, name) for name in options.dtypes.split(",")]
    begin = time.monotonic()
    results = run(ops, dtypes, options.samples, verbose=options.verbose)
    print(f"{len(ops)} operators, {time.monotonic() - begin:.0f} s")
    report(results)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump([sample._asdict() for sample in results], file, indent=1)


if __name__ == "__main__":
    main()
