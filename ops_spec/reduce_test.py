#!/usr/bin/env python3
"""Tests of `reduce`: what is refused, that the formulas agree with independent goldens, and that
each change to a formula makes it disagree.
"""

import dataclasses
import decimal
import unittest

import compute
import emit_reductions
import reduce
import reductions
from formula_checks import fits, mutations, read_goldens, replaced
from generate_test import Folder

# Line 11 has the formula.
REDUCED = """\
length:
  id: 7
  lifecycle: [[stable, "0.1"]]
  profile: infer
  doc: The root of the sum of squares of x over axes.
  args:
    x: {kind: tensor, dtypes: float}
    y: {kind: out, dtype: like(x), shape: "reduced(x.shape, axes, keepdims)"}
    axes: {kind: "i64[]", min: 0, below: "x.ndim", distinct: true}
    keepdims: {kind: i32, min: 0, max: 1, default: 0}
  reduce: {combine: add, map: "x * x", finish: "sqrt(total)"}
  backward: "none: nothing here needs it"
"""
FORMULA = 'combine: add, map: "x * x", finish: "sqrt(total)"'


def first_difference(reduction, lines):
    return next((xs for xs, wanted in lines if not fits(reduction.evaluate(xs), wanted)), None)


# ---- Mutations -----------------------------------------------------------------------------------

ZERO, INFINITY = decimal.Decimal(0), decimal.Decimal("Infinity")


def cleared(value):
    return ZERO if value.is_infinite() else value


# What the shift may be mistaken for. A NaN needs no shift, since the terms have it as well.
SHIFTS = {
    "the shift left out": lambda xs: ZERO,
    "the shift not cleared of infinities": lambda xs: max(xs, default=-INFINITY),
    "the smallest element as the shift": lambda xs: cleared(min(xs, default=ZERO)),
    "the first element as the shift": lambda xs: cleared(xs[0]) if xs else ZERO,
    "the largest magnitude as the shift": lambda xs: cleared(max(map(abs, xs), default=ZERO)),
}


def with_shift(made, shift):
    kind = type("Mutant", (reduce.Reduction,), {"_shift": staticmethod(shift)})
    return kind(made.combine, made.map, made.finish, made.has_shift)


def formula_mutations(formula):
    """Yields the formula with one mistake: in its parts, and in what it is given."""
    yield from mutations(formula.result)
    for name in formula.inputs:
        given = compute.Node("input", name=name)
        if name == reduce.SHIFT:
            yield "no shift", replaced(formula.result, given, compute.number(0))
        if name == reduce.COUNT:
            for step in (1, -1):
                yield f"count off by {step}", replaced(
                    formula.result, given, compute.Node("add", (given, compute.number(step))))


def reduction_mutations(made):
    for key in ("map", "finish"):
        formula = getattr(made, key)
        if formula:
            yield f"no {key}", dataclasses.replace(made, **{key: None})
            for what, result in formula_mutations(formula):
                yield f"{key}: {what}", dataclasses.replace(made, **{key: compute.Compute(result)})
    combines = reduce.COUNTED if made.counts else reduce.COMBINES
    for other in combines.keys() - {made.combine}:
        yield f"{made.combine} as {other}", dataclasses.replace(made, combine=other)
    if made.has_shift:
        for what, shift in SHIFTS.items():
            yield what, with_shift(made, shift)


class FormulaTest(unittest.TestCase):
    """The formulas of ops/*.yaml."""

    @classmethod
    def setUpClass(cls):
        cls.ops = reductions.load()
        cls.goldens = read_goldens("reduction.txt", lambda line: (line[2:], line[:2]))

    def test_every_op_has_goldens_and_equals_them(self):
        for op in self.ops:
            with self.subTest(op.name):
                self.assertGreaterEqual(len(self.goldens.get(op.name, ())), 40)
                self.assertIsNone(first_difference(op.reduction, self.goldens[op.name]))

    def test_no_golden_is_of_another_op(self):
        self.assertEqual(self.goldens.keys() - {op.name for op in self.ops}, set())

    def test_goldens_notice_every_mutation(self):
        count = 0
        for op in self.ops:
            for what, mutant in reduction_mutations(op.reduction):
                if mutant == op.reduction:
                    continue
                count += 1
                with self.subTest(op.name, mutation=what):
                    self.assertIsNotNone(first_difference(mutant, self.goldens[op.name]),
                                         f"{op.name}: {what}: no golden tells")
        self.assertGreater(count, 50)

    def test_what_copies_one_element_is_known(self):
        copies = {op.name: op.reduction.copies_one for op in self.ops}
        self.assertTrue(all(copies[name] for name in ("sum", "mean", "amax", "amin", "prod")))
        self.assertFalse(any(copies[name] for name in ("logsumexp", "any", "all",
                                                       "count_nonzero")))

    def test_no_elements_have_the_result_of_their_combination(self):
        results = {op.name: op.reduction.evaluate([]) for op in self.ops}
        for name, value in {"sum": 0, "prod": 1, "amax": "-Infinity", "amin": "Infinity", "any": 0,
                            "all": 1, "count_nonzero": 0}.items():
            self.assertEqual(results[name], decimal.Decimal(value), name)


class RefusalTest(Folder):
    """What `reduce` does not have is refused with file and line."""

    def entry(self, formula, old="", new=""):
        self.assertIn(old, REDUCED)
        return REDUCED.replace(FORMULA, formula).replace(old, new)

    def test_a_formula_has_its_value(self):
        op = self.load(REDUCED)[0]
        self.assertEqual(float(op.reduction.evaluate([3.0, -4.0])), 5)
        self.assertFalse(op.reduction.copies_one)
        self.assertEqual([name for name, holds in reductions.facts(op).items() if holds],
                         ["kAdds", "kHasMap", "kHasFinish"])

    def test_refusals_name_file_line_and_part(self):
        cases = {
            'combine: add, map: "x"': "map is 'x' itself: leave it out",
            'combine: add, finish: "total"': "finish is 'total' itself: leave it out",
            'combine: add, finish: "total < 0"': "finish is a condition, and a number is needed",
            'combine: add, map: "x < 0"':
                "map is a condition, from which add makes i64, and y is like(x)",
            'combine: max, map: "x < 0"':
                "map is a condition, from which max makes bool, and y is like(x)",
            'combine: mul, map: "x < 0"':
                "map is a condition, which add or max or min combines, and not mul",
            'combine: max, map: "x < 0", finish: "total + 1"':
                "map is a condition: it has neither shift nor finish",
            'combine: max, shift: max, map: "x < shift"':
                "map is a condition: it has neither shift nor finish",
            'combine: min, map: "x * x"':
                "reduce: the smallest result is exact, and mul is not",
            'combine: mul, map: "x + 1"':
                "reduce: the bound of a product is that of exact factors, and add is not",
            'combine: add, map: "x - shift"': "'shift': no such name here; there are x",
            'combine: add, map: "x * count"': "'count': no such name here; there are x",
            'combine: add, map: "sqr(x)"': "'sqr(x)': no such function",
            'combine: add, finish: "1 / count"': "the result does not depend on 'total'",
            'combine: add, finish: "total / x"': "'x': no such name here; there are count, total",
            'combine: add, shift: max': "map does not use the shift: leave it out",
            'combine: add, shift: max, map: "x * x", finish: "shift + total"':
                "map does not use the shift: leave it out",
        }
        for formula, message in cases.items():
            with self.subTest(formula):
                self.assertIn(f"small.yaml:11: length: {message}",
                              self.refusal(self.entry(formula)))

    def test_refusals_of_the_schema_name_the_key(self):
        for formula, message in {
                "combine: sub": "length.reduce.combine: 'sub' is not one of ['add', 'mul', 'max', "
                                "'min']",
                "combine: add, shift: min": "length.reduce.shift: 'min' is not one of ['max']",
                'map: "x * x"': "length.reduce: 'combine' is a required property"}.items():
            with self.subTest(formula):
                self.assertEqual(self.refusal(self.entry(formula)), f"small.yaml:11: {message}")

    def test_conditions_become_bools_and_counts(self):
        for combine, dtype, value in (("max", "bool", 1), ("min", "bool", 0), ("add", "i64", 2)):
            op = self.load(self.entry(f'combine: {combine}, map: "x < 0"', "dtype: like(x)",
                                      f"dtype: {dtype}"))[0]
            self.assertEqual(op.reduction.evaluate([-1.0, 2.0, -3.0]), value)
            self.assertEqual(op.numerics, "E0")
            facts = reductions.facts(op)
            self.assertTrue(facts["kCounts"])
            self.assertFalse(facts["kAdds"] or facts["kIsLargest"] or facts["kIsSmallest"])
        self.assertIn("the result is a number, and y is bool", self.refusal(self.entry(
            FORMULA, "dtype: like(x)", "dtype: bool")))

    def test_integers_have_few_primitives_and_no_shift(self):
        integers = ("dtypes: float", "dtypes: [float, int]")
        self.assertIn("'exp(x)': the op takes integers, and exp is for floats alone",
                      self.refusal(self.entry('combine: add, map: "exp(x)"', *integers)))
        self.assertIn("a shift is for floats alone", self.refusal(
            self.entry('combine: add, shift: max, map: "x - shift"', *integers)))

    def test_only_ops_over_axes_have_a_formula(self):
        self.assertIn("an op that reduces takes a tensor 'x', axes and keepdims",
                      self.refusal(self.entry(FORMULA, "keepdims: {", "keeps: {").replace(
                          "axes, keepdims)", "axes, keeps)")))
        self.assertIn("y needs the shape reduced(x.shape, axes, keepdims)",
                      self.refusal(self.entry(FORMULA, '"reduced(x.shape, axes, keepdims)"',
                                              '"reduced(x.shape, axes, 1)"')))


class EmitTest(unittest.TestCase):
    """What emit_reductions.py writes for formulas."""

    def test_every_op_is_in_every_language(self):
        ops = reductions.load()
        vectors, device = "\n".join(emit_reductions.highway(ops)), "\n".join(
            emit_reductions.cuda(ops))
        for op in ops:
            for text in (vectors, device):
                self.assertEqual(text.count(f"struct {reductions.formula_name(op)} {{"), 1)
            for name, _, _ in reductions.formulas(op):
                self.assertIn(f"case {op.id}u:", "\n".join(emit_reductions.glsl(ops, "f32")), name)

    def test_shaders_of_integers_have_no_functions_of_floats(self):
        text = "\n".join(emit_reductions.glsl(reductions.load(), "integers"))
        self.assertNotIn("exp", text)


if __name__ == "__main__":
    unittest.main()
