#!/usr/bin/env python3
"""Tests of error classes: which a formula decides, which an entry has to name, and the refusals of
classes that contradict the entry or say the same twice."""

import json
import unittest

import classes
import spec
from generate_test import SQUARE, Folder

AXIS = '    axis: {kind: i32, min: 0, below: "x.ndim", default: 0}\n'
LENGTH = """\
length:
  id: 8
  lifecycle: [[stable, "0.1"]]
  profile: infer
  doc: What is left of x over axes.
  args:
    x: {kind: tensor, dtypes: float}
    y: {kind: out, dtype: like(x), shape: "reduced(x.shape, axes, keepdims)"}
    axes: {kind: "i64[]", min: 0, below: "x.ndim", distinct: true}
    keepdims: {kind: i32, min: 0, max: 1, default: 0}
  reduce: {combine: add}
  backward: "none: nothing here needs it"
"""


class ClassesTest(Folder):
    def entry(self, compute, numerics=""):
        """An element-wise op with the formula; without a class if `numerics` is empty."""
        entry = SQUARE.replace(AXIS, "").replace("square(grad_y, axis=axis)", "square(grad_y)")
        own = f'  compute: "{compute}"\n  samples: unary\n'
        own += f"  numerics: {numerics}\n" if numerics else ""
        return entry.replace("  numerics: E1\n", own)

    def test_a_formula_of_one_step_decides_its_class(self):
        for compute, decided in {"-abs(x)": "E0", "max(x, 0.5)": "E0", "select(x < 0, -x, x)": "E0",
                                 "x + x": "E1", "abs(x) * 3": "E1", "1 / x": "E1d",
                                 "sqrt(abs(x))": "E1d", "exp(-x)": "E2", "tanh(x)": "E2"}.items():
            with self.subTest(compute):
                self.assertEqual(self.load(self.entry(compute))[0].numerics, decided)

    def test_a_formula_of_several_steps_says_whether_it_is_a_function_or_a_gradient(self):
        for compute in ("x * x * x", "exp(x + 1)", "fma(x, x, 1)", "max(x, 0.1)",
                        "exp(x) - x", "x / 0.1"):
            with self.subTest(compute):
                for given in ("E2c", "P"):
                    self.assertEqual(self.load(self.entry(compute, given))[0].numerics, given)
                self.assertIn("square: numerics: a formula of several steps is of class E2c or P, "
                              "and the entry has to say which", self.refusal(self.entry(compute)))

    def test_a_class_that_contradicts_the_formula_is_refused(self):
        self.assertEqual(
            self.refusal(self.entry("exp(x)", "E0")),
            "small.yaml:12: square: numerics: E0 contradicts `compute`, from which the class E2 "
            "follows: leave it out")
        self.assertIn("numerics: a formula of several steps is of class E2c or P, not E0",
                      self.refusal(self.entry("exp(x) + x", "E0")))
        self.assertIn("numerics: R3 contradicts `reduce`, from which the class R1 follows",
                      self.refusal(LENGTH + "  numerics: R3\n"))

    def test_a_class_that_repeats_the_formula_is_refused(self):
        self.assertIn("numerics: E2 repeats `compute`, from which the class E2 follows",
                      self.refusal(self.entry("exp(x)", "E2")))
        self.assertIn("numerics: R1 repeats `reduce`", self.refusal(LENGTH + "  numerics: R1\n"))

    def test_what_is_combined_decides_the_class_of_a_reduction(self):
        self.assertEqual(self.load(LENGTH)[0].numerics, "R1")
        largest = LENGTH.replace("combine: add", "combine: max")
        self.assertEqual(self.load(largest)[0].numerics, "R3")
        self.assertIn("reduce: the largest result is exact, and mul is not", self.refusal(
            largest.replace("combine: max", 'combine: max, map: "x * x"')))

    def test_an_op_without_a_formula_names_its_class(self):
        self.assertIn("numerics: an op without `compute` and `reduce` names its class",
                      self.refusal(SQUARE.replace("  numerics: E1\n", "")))
        self.assertIn("numerics: class E2 is for an op whose `compute` is one primitive, and this "
                      "op has no `compute`",
                      self.refusal(SQUARE.replace("numerics: E1", "numerics: E2")))

    def test_a_decomposition_into_ops_that_err_is_not_exact(self):
        other = SQUARE.replace("square:\n  id: 7", "other:\n  id: 9").replace(AXIS, "")
        other = other.replace("square(grad_y, axis=axis)", "square(grad_y)")
        entry = self.entry("exp(x)") + other.replace(
            "  backward:", '  decompose: "y = square(x)"\n  backward:')
        self.assertIn("other: numerics: class E1 says that the result is exact, and its "
                      "decomposition calls square, which is of class E2", self.refusal(entry))
        self.load(entry.replace("numerics: E1", "numerics: P"))

    def test_a_decomposition_into_ops_on_integers_is_exact(self):
        square = self.entry("x * x * x", "E2c").replace("x: {kind: tensor, dtypes: float}",
                                              "x: {kind: tensor, dtypes: [float, int]}")
        self.assertNotEqual(square, self.entry("x * x * x", "E2c"))
        other = SQUARE.replace("square:\n  id: 7", "other:\n  id: 9").replace(AXIS, "")
        other = other.replace("square(grad_y, axis=axis)", "square(grad_y)")
        other = other.replace("dtypes: float", "dtype: i64")
        entry = square + other.replace(
            "  backward:", '  decompose: "y = square(reshape(x, x.shape))"\n  backward:')
        self.load(entry)
        self.assertIn("which is of class E2c", self.refusal(entry.replace("dtype: i64",
                                                                         "dtypes: float")))


class TableTest(unittest.TestCase):
    def test_the_schema_has_the_classes(self):
        schema = json.loads((spec.HERE / "schema.json").read_text(encoding="utf-8"))
        entry = schema["$defs"]["op"]
        named = entry["properties"]["numerics"]["enum"]
        self.assertEqual(named, list(classes.CLASSES))

    def test_every_class_is_of_an_op(self):
        self.assertEqual({op.numerics for op in spec.load()}, set(classes.CLASSES))


if __name__ == "__main__":
    unittest.main()
