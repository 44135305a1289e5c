#!/usr/bin/env python3
"""Tests of `compute`: what is refused, that the formulas agree with independent goldens, and that
each change to a formula makes it disagree.
"""

import decimal
import math
import unittest

import compute
import elementwise
import emit_cuda
import emit_glsl
import emit_highway
import spec
from formula_checks import fits, mutations, read_goldens
from generate_test import SQUARE, Folder
from primitives import CONTEXT, PRIMITIVES

# Both forms of lerp are right between its ends, and near the middle a formula may take either.
EQUIVALENT = {("lerp", "1/2 by 1/2048 in number")}


def first_difference(op, result, lines):
    names = [a.name for a in op.inputs]
    for inputs, wanted in lines:
        if not fits(compute.evaluate(result, dict(zip(names, inputs))), wanted):
            return inputs
    return None


class FormulaTest(unittest.TestCase):
    """The formulas of ops/*.yaml."""

    @classmethod
    def setUpClass(cls):
        cls.ops = [op for op in spec.load() if op.formula]
        cls.goldens = read_goldens("elementwise.txt", lambda line: (line[:-2], line[-2:]))

    def test_every_op_has_goldens_and_equals_them(self):
        for op in self.ops:
            with self.subTest(op.name):
                self.assertGreaterEqual(len(self.goldens.get(op.name, ())), 40)
                self.assertIsNone(first_difference(op, op.formula.result, self.goldens[op.name]))

    def test_no_golden_is_of_another_op(self):
        self.assertEqual(self.goldens.keys() - {op.name for op in self.ops}, set())

    def test_goldens_notice_every_mutation(self):
        count = 0
        for op in self.ops:
            for what, mutant in mutations(op.formula.result):
                if mutant == op.formula.result or (op.name, what) in EQUIVALENT:
                    continue
                count += 1
                # Lines with ordinary inputs come first: one that differs is enough, and they differ
                # soonest.
                with self.subTest(op.name, mutation=what):
                    self.assertIsNotNone(
                        first_difference(op, mutant, self.goldens[op.name][::-1]),
                        f"{op.name}: {what}: no golden tells")
        self.assertGreater(count, 60)


class RefusalTest(Folder):
    """What `compute` does not have is refused with file and line."""

    def entry(self, text, old="", new=""):
        entry = SQUARE.replace("    axis: {kind: i32, min: 0, below: \"x.ndim\", default: 0}\n", "")
        entry = entry.replace("square(grad_y, axis=axis)", "square(grad_y)").replace(old, new)
        entry = entry.replace("numerics: E1", "numerics: E2c")  # Most texts have several steps.
        return entry.replace("  backward:", f"  compute: \"{text}\"\n  samples: unary\n  backward:")

    def test_a_formula_is_a_tree_in_which_equal_parts_are_one(self):
        op = self.load(self.entry("e = exp(x)\\ne / (1 + exp(x))"))[0]
        self.assertEqual(len([n for n in op.formula.result.walk() if n.kind == "exp"]), 1)
        self.assertEqual(list(op.formula.names.values()), ["e"])
        self.assertAlmostEqual(float(op.formula.evaluate(x=0.0)), 0.5)

    def test_refusals_name_file_line_and_part(self):
        cases = {
            "sqr(x)": "'sqr(x)': no such function; there are abs, acos",
            "x + z": "'z': no such name here; there are x",
            "x ** 2": "'x ** 2': formulas have nothing like this",
            "exp(x, x)": "'exp(x, x)': exp takes 1 arguments",
            "select(x, x, x)": "'select(x, x, x)': select takes a condition where a number stands",
            "x < 0": "the result is a condition, and y is like(x)",
            "select(exp(x) < 1, x, 0)":
                "'exp(x) < 1': a condition compares inputs and numbers, which are exact",
            "select(x < 0.1, x, 0)": "'x < 0.1': a number of a condition is one of f32",
            "select(isnan(x + 1), x, 0)":
                "'isnan(x + 1)': isnan of an input or a number alone is exact",
            "select(x < 0 and x, x, 0)":
                "'x < 0 and x': both takes a condition where a number stands",
            "select(0 < x < 1, x, 0)":
                "'0 < x < 1': a condition is one comparison: < <= == != >= or >",
            "1 + 1": "the result does not depend on 'x'",
            "e = exp(x)\\nx": "the result does not depend on 'e'",
            "x = exp(x)\\nx": "'x = exp(x)': 'x' has a value already",
            "e = exp(x)": "the last line is an expression, the result",
            "x + True": "'True': is not a number",
            "exp = -x\\nexp": "'exp = -x': 'exp' is a function",
            "select(signbit(exp(x)), x, 0)":
                "'signbit(exp(x))': signbit of an input or a number alone is exact",
        }
        for text, message in cases.items():
            with self.subTest(text):
                self.assertIn(f"small.yaml:9: square: {message}", self.refusal(self.entry(text)))

    def test_integers_have_few_primitives(self):
        integers = ("dtypes: float", "dtypes: [float, int]")
        self.assertIn("'exp(x)': the op takes integers, and exp is for floats alone",
                      self.refusal(self.entry("exp(x)", *integers)))
        self.assertIn("'bit_not(x)': the op takes floats, and bit_not is for integers alone",
                      self.refusal(self.entry("bit_not(x)")))
        self.assertIn("'0.5': is no integer, and the op takes integers",
                      self.refusal(self.entry("x * 0.5", *integers)))

    def test_only_element_wise_ops_have_a_formula(self):
        entry = SQUARE.replace("  backward:", "  compute: \"x\"\n  samples: unary\n  backward:")
        self.assertIn("only an op of tensors and operands", self.refusal(entry))
        shape = ('shape: "x.shape", may', 'shape: "[1]", may')
        self.assertIn("y needs the shape x.shape", self.refusal(self.entry("x", *shape)))


class HighwayTest(unittest.TestCase):
    """What emit_highway.py writes for formulas."""

    def test_parts_that_are_shared_are_computed_once(self):
        ops = {op.name: op for op in spec.load()}
        text = "\n".join(emit_highway.functor(ops["silu_backward"]))
        self.assertEqual(text.count("exp_of_negative"), 1)
        self.assertEqual(text.count("quotient("), 2)

    def test_nan_is_kept_where_nothing_else_brings_it(self):
        ops = {op.name: op for op in spec.load()}
        self.assertIn("exp_of_negative(d", "\n".join(emit_highway.functor(ops["sigmoid"])))
        self.assertIn("exp_of_negative_number(d", "\n".join(emit_highway.functor(ops["silu"])))


class DeviceTest(unittest.TestCase):
    """What emit_cuda.py and emit_glsl.py write for formulas."""

    @classmethod
    def setUpClass(cls):
        cls.ops = {op.name: op for op in elementwise.load()}

    def test_every_op_is_in_one_part_and_in_the_list(self):
        ops = list(self.ops.values())
        parts = [emit_cuda.source(ops[i::4]) for i in range(4)]
        listed = elementwise.listing(ops, "emit_cuda.py", "bp::cuda")
        for op in ops:
            kernel = f"constinit const bp_kernel {elementwise.kernel_name(op)} ="
            self.assertEqual(sum(part.count(kernel) for part in parts), 1, op.name)
            self.assertIn(f"&{elementwise.kernel_name(op)},", listed)
            self.assertIn(f"kMap{emit_glsl.pascal(op.c_name)}, {op.id})",
                          "\n".join(emit_glsl.numbers(ops)))

    def test_operands_may_be_values_of_the_call(self):
        self.assertIn("args.b == nullptr ? convert_operand(args.b_scalar, args.a->dtype) : 0",
                      "\n".join(emit_glsl.kernel(self.ops["add"])[0]))
        launch = "\n".join(emit_cuda.launch(self.ops["lerp"]))
        self.assertIn("if (is_acc_operand(args.weight, *args.a)) {", launch)
        self.assertIn("submit_map<WithOperand<Lerp>, T, T, T>(launch, "
                      "WithOperand<Lerp>{Lerp(), value}", launch)
        self.assertIn("submit_map<Lerp, T, T, T, T>(launch, Lerp{}", launch)
        kernel = "\n".join(emit_cuda.kernel(self.ops["add"]))
        self.assertIn("BP_KERNEL_TAKES_SCALAR | BP_KERNEL_TAKES_ACC_OPERAND", kernel)
        self.assertNotIn("TAKES", "\n".join(emit_cuda.kernel(self.ops["exp"])))

    def test_numbers_are_of_the_type_that_is_computed_in(self):
        half = compute.number("0.5").value
        self.assertEqual(emit_glsl.write_number(half, "f32"), "0.5")
        self.assertEqual(emit_glsl.write_number(half, "f64"), "0.5lf")
        self.assertEqual(emit_glsl.write_number(compute.number(2).value, "integers"), "VALUE(2)")
        self.assertIn("static_cast<C>(0.5)", "\n".join(emit_cuda.functor(self.ops["silu"])))

    def test_inputs_of_shaders_are_operands_in_their_order(self):
        self.assertIn("return ((b <= 0.0) ? 0.0 : a);",
                      "\n".join(emit_glsl.case(self.ops["relu_backward"], "f32")))
        self.assertIn("return VALUE((a < b) ? 1 : 0);",
                      "\n".join(emit_glsl.case(self.ops["lt"], "integers")))


class PrimitiveTest(unittest.TestCase):
    """The values of primitives that no golden reaches, against the library of Python."""

    def value(self, name, x):
        with decimal.localcontext(CONTEXT):
            return PRIMITIVES[name].evaluate(decimal.Decimal(x))

    def test_functions_are_those_of_the_library(self):
        library = {"exp": math.exp, "log": math.log, "sqrt": math.sqrt, "tanh": math.tanh}
        for name, function in library.items():
            for x in (1e-12, 0.25, 0.9, 3.0):
                value = self.value(name, x)
                self.assertAlmostEqual(float(value) / function(x), 1, delta=1e-15)


if __name__ == "__main__":
    unittest.main()
