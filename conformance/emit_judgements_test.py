#!/usr/bin/env python3
"""Tests of emit_judgements.py: the class in an entry is what the suite judges an op by."""

import pathlib
import re
import shutil
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "ops_spec")]
import classes  # noqa: E402
import emit_judgements  # noqa: E402
import spec  # noqa: E402


def rows_of(ops):
    """{op: the judgement in its emitted row}."""
    found = re.findall(r"^    \{\.op = BP_OP_(\w+), (.*)\},$", emit_judgements.header(ops), re.M)
    return dict(found)


class JudgementsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.ops = spec.load()
        cls.rows = rows_of(cls.ops)

    def changed(self, name, old, new):
        """The rows if the entry of op `name` has the class `new`, in a copy of the spec."""
        with tempfile.TemporaryDirectory() as own:
            folder = pathlib.Path(own) / "ops"
            shutil.copytree(spec.HERE / "ops", folder)
            path = folder / pathlib.Path(next(o.path for o in self.ops if o.name == name)).name
            text = path.read_text(encoding="utf-8")
            start = re.search(rf"^{name}:$", text, re.M).start()
            entry = text[start:].replace(f"  numerics: {old}\n", f"  numerics: {new}\n", 1)
            self.assertNotEqual(entry, text[start:])
            path.write_text(text[:start] + entry, encoding="utf-8")
            return rows_of(spec.load(folder))

    def test_every_op_has_the_judgement_of_its_class(self):
        self.assertEqual(len(self.rows), len(self.ops))
        for op in self.ops:
            own, row = classes.CLASSES[op.numerics], self.rows[op.name.upper()]
            self.assertIn(f".bound = BoundRule::{own.bound}", row, op.name)
            self.assertEqual(".checks_zero = true" in row, own.checks_zero, op.name)
            self.assertEqual(".checks_bias = true" in row, own.checks_bias, op.name)

    def test_another_class_in_an_entry_is_another_judgement_of_this_op_alone(self):
        for name, old, new, wanted in (
                ("matmul", "R1", "E0", ".bound = BoundRule::kExact, .checks_zero = true"),
                ("copy", "E1", "E0", ".bound = BoundRule::kExact, .checks_zero = true"),
                ("log_softmax", "R4L", "P", ".bound = BoundRule::kPropagated"),
                ("sigmoid", "E2c", "P", ".bound = BoundRule::kPropagated"),
                ("rope", "P", "R3", ".bound = BoundRule::kChosen, .checks_zero = true")):
            with self.subTest(name, old=old, new=new):
                rows = self.changed(name, old, new)
                self.assertEqual(rows, {**self.rows, name.upper(): wanted})

    def test_no_two_classes_are_judged_alike_but_those_of_one_propagation(self):
        alike = {}
        for name, own in classes.CLASSES.items():
            alike.setdefault(own, []).append(name)
        self.assertEqual([names for names in alike.values() if len(names) > 1], [["P", "X"]])

    def test_the_suite_has_each_rule_and_no_other(self):
        header = (HERE / "numerics" / "judgement.hpp").read_text(encoding="utf-8")
        body = re.search(r"enum class BoundRule \{(.*?)\};", header, re.S)[1]
        self.assertEqual(set(re.findall(r"^  (k\w+),", body, re.M)),
                         {own.bound for own in classes.CLASSES.values()})

    def test_the_page_of_the_classes_has_each_of_them_once(self):
        page = (HERE / "docs" / "error_classes.md").read_text(encoding="utf-8")
        self.assertEqual(re.findall(r"^\| `([A-Z]\w*)` \|", page, re.M), list(classes.CLASSES))


if __name__ == "__main__":
    unittest.main()
