#!/usr/bin/env python3
"""Tests of the spec's loader, of expressions and formulas, and of the files generated from them."""

import contextlib
import functools
import io
import pathlib
import tempfile
import unittest
import unittest.mock

import emit_coverage
import emit_decompositions
import emit_infer
import emit_reference
import expressions
import formulas
import generate
import output
import spec

@functools.cache
def project():
    """Returns the ops of the project, which take seconds to load."""
    return spec.load()


SQUARE = """\
square:
  id: 7
  lifecycle: [[stable, "0.1"]]
  profile: infer
  doc: The square of x.
  args:
    x: {kind: tensor, dtypes: float}
    y: {kind: out, dtype: like(x), shape: "x.shape", may_alias: [x]}
    axis: {kind: i32, min: 0, below: "x.ndim", default: 0}
  backward: {x: "square(grad_y, axis=axis)"}
  numerics: E1
  cost: {flops: "numel(x)"}
"""


class Folder(unittest.TestCase):
    """A folder with one spec file, small.yaml."""

    def setUp(self):
        own = tempfile.TemporaryDirectory()
        self.addCleanup(own.cleanup)
        self.folder = pathlib.Path(own.name)

    def load(self, text, **files):
        (self.folder / "small.yaml").write_text(text, encoding="utf-8")
        for name, other in files.items():
            (self.folder / f"{name}.yaml").write_text(other, encoding="utf-8")
        return spec.load(self.folder)

    def refusal(self, text, **files):
        """Returns the message of the refusal, without the folder."""
        with self.assertRaises(spec.SpecError) as caught:
            self.load(text, **files)
        return str(caught.exception).replace(f"{self.folder}/", "")

    def changed(self, old, new, count=1):
        self.assertIn(old, SQUARE)
        return SQUARE.replace(old, new, count)


class LoadTest(Folder):
    def test_takes_a_good_entry(self):
        op = self.load(SQUARE)[0]
        self.assertEqual((op.name, op.id, op.profile, op.since), ("square", 7, "infer", 3))
        self.assertEqual([a.name for a in op.inputs], ["x"])
        self.assertEqual([a.name for a in op.free], ["x"])
        self.assertTrue(op.arg("axis").is_axis)
        self.assertEqual(op.arg("y").values["shape"].type, "dims")

    def test_names_file_and_line_of_bad_yaml(self):
        self.assertRegex(self.refusal(SQUARE + "other: [1, 2\n"), r"^small.yaml:1[45]: ")
        self.assertEqual(self.refusal(""), "small.yaml:1: the file has no ops")

    def test_names_file_and_line_of_a_bad_field(self):
        self.assertEqual(self.refusal(self.changed("id: 7", "id: seven")),
                         "small.yaml:2: square.id: 'seven' is not of type 'integer'")
        self.assertRegex(self.refusal(self.changed("E1", "R99")),
                         r"^small.yaml:11: square.numerics: ")
        self.assertRegex(self.refusal(self.changed("kind: tensor,", "kind: tenser,")),
                         r"^small.yaml:7: square.args.x.kind: 'tenser' ")
        self.assertRegex(self.refusal(self.changed("  profile: infer\n", "")),
                         r"^small.yaml:1: square: 'profile' is a required property")

    def test_refuses_a_key_that_stands_twice(self):
        self.assertEqual(self.refusal(self.changed("  profile: infer\n", "  profile: infer\n" * 2)),
                         "small.yaml:5: 'profile' stands here a second time")

    def test_refuses_an_id_or_a_name_that_is_taken(self):
        other = SQUARE.replace("square", "cube")
        self.assertEqual(self.refusal(SQUARE, zoo=other).replace(f"{self.folder}/", ""),
                         "zoo.yaml:2: cube: id 7 is taken by square (small.yaml:1)")
        self.assertRegex(self.refusal(SQUARE, zoo=SQUARE.replace("id: 7", "id: 8")),
                         r"^zoo.yaml:2: square: the name is taken by square")

    def test_keeps_private_and_public_ids_apart(self):
        self.assertRegex(self.refusal(self.changed("id: 7", "id: 65536")),
                         "small.yaml:2: .*vendor.op")
        private = SQUARE.replace("square:", "acme.square:").replace("square(", "acme_square(")
        self.assertRegex(self.refusal(private), "small.yaml:2: .*vendor.op")
        op = self.load(private.replace("id: 7", "id: 65536"))[0]
        self.assertEqual((op.name, op.c_name), ("acme.square", "acme_square"))

    def test_refuses_fields_that_a_kind_does_not_have(self):
        self.assertEqual(self.refusal(self.changed("dtypes: float}", "dtypes: float, min: 0}")),
                         "small.yaml:7: square: x: tensor has no 'min'")
        self.assertRegex(self.refusal(self.changed('shape: "x.shape", ', "")),
                         "small.yaml:8: square: y: an output needs 'shape'")
        self.assertRegex(self.refusal(self.changed(", dtypes: float", "")),
                         "small.yaml:7: square: x: tensor needs 'dtype' or 'dtypes'")

    def test_refuses_names_that_mean_nothing(self):
        for old, new, line in (("like(x)", "like(z)", 8), ("[x]", "[z]", 8),
                               ('"x.shape"', '"z.shape"', 8), ('"x.ndim"', '"z.ndim"', 9),
                               ("numel(x)", "numel(z)", 12), ("grad_y", "grad_z", 10)):
            with self.subTest(new):
                self.assertRegex(self.refusal(self.changed(old, new)), f"^small.yaml:{line}: .*z")

    def test_samples_are_those_of_a_formula(self):
        axis = "    axis: {kind: i32, min: 0, below: \"x.ndim\", default: 0}\n"
        entry = SQUARE.replace(axis, "").replace("square(grad_y, axis=axis)", "square(grad_y)")
        for line in ("  samples: unary\n", "  compute: \"x\"\n"):
            with self.subTest(line):
                self.assertIn("if and only if it has `compute`",
                              self.refusal(entry.replace("  cost:", f"{line}  cost:")))

    def test_refuses_names_that_no_frame_can_have(self):
        for name in ("struct_size", "class", "reserved_0", "x_count", "y_scalar"):
            with self.subTest(name):
                self.assertRegex(self.refusal(self.changed("axis:", f"{name}:")),
                                 f"small.yaml:9: .*'{name}' cannot be the name")

    def test_refuses_a_dtype_that_follows_from_itself(self):
        self.assertRegex(self.refusal(self.changed("dtypes: float", "dtype: like(y)")),
                         "its dtype follows from itself")


class ExpressionTest(unittest.TestCase):
    SCOPE = {"x": "tensor", "ps": "list", "b": "operand", "s": "scalar", "n": "int", "p": "number",
             "axes": "dims", "mode": "enum", "=mode.none": "enum", "=mode.mean": "enum"}

    def type_of(self, text):
        return expressions.parse_value(
            text, self.SCOPE, ("int", "number", "dims", "dtype", "condition"), spec.DTYPES).type

    def test_knows_types(self):
        for text, kind in (("x.shape[1:-1] + [n, 2]", "dims"), ("x.shape[-1] // 2 % n", "int"),
                           ("[1] * x.ndim", "dims"), ("numel(x) + numel(axes)", "int"),
                           ("len(ps)", "int"), ("1 - p", "number"), ("acc(x)", "dtype"),
                           ("f32", "dtype"), ("mode == mean", "condition"),
                           ("x.dtype == f32", "condition"),
                           ("given(x)", "condition"), ("x.shape == axes", "condition"),
                           ("axes if mode == none else []", "dims"),
                           ("window(x.shape, axes, axes, axes, axes)", "dims"),
                           ("covered(x.shape, axes, axes, axes, axes, axes)", "dims")):
            with self.subTest(text):
                self.assertEqual(self.type_of(text), kind)

    def test_refuses_what_the_spec_does_not_have(self):
        for text, why in (("y.shape", "no such name"), ("x", "a tensor"), ("x.size", "only .shape"),
                          ("x.shape / 2", "operators"), ("x.shape + 1", "lists"),
                          ("foo(x)", "no such function"), ("numel(1)", "not a dims"),
                          ("x.shape[::2]", "no step"), ("lambda: 1", "nothing like this"),
                          ("mode == sum", "one of none, mean"), ("n == 1 == 2", "one comparison"),
                          ("__import__('os')", "no such function"), ("'a'", "not a number"),
                          ("min(1)", "takes 2"), ("(1", "was never closed"), ("p % 2", "for ints"),
                          ("len(x)", "does not take"), ("mode < none", "only == and !="),
                          ("x.dtype < f32", "only == and !="), ("x.dtype == 3", "not a dtype")):
            with self.subTest(text):
                with self.assertRaisesRegex(expressions.ExpressionError, why):
                    self.type_of(text)

    def test_writes_cpp_through_the_resolver(self):
        def cpp(text):
            kinds = ("int", "number", "dims", "condition")
            value = expressions.parse_value(text, self.SCOPE, kinds)
            return expressions.cpp(value, lambda what, name: f"{what}:{name}")
        self.assertEqual(cpp("x.shape[:-1] + [n]"),
                         "dims::concat(dims::slice(shape:x, 0, int64_t{-1}), dims::Dims{attr:n})")
        self.assertEqual(cpp("numel(x) // max(n, 1)"),
                         "dims::floor_div(numel:x, dims::max(attr:n, int64_t{1}))")
        self.assertEqual(cpp("1 - p"), "(1.0 - static_cast<double>(attr:p))")
        self.assertEqual(cpp("mode == mean"), "(attr:mode == enum:mode.mean)")
        self.assertEqual(cpp("axes if p == 0 else []"),
                         "((static_cast<double>(attr:p) == 0.0) ? dims::View(attr:axes) : "
                         "dims::View(dims::Dims{}))")


class FormulaTest(Folder):
    def setUp(self):
        super().setUp()
        self.ops = {op.name: op for op in project()}

    def parse(self, text, scope=None):
        parser = formulas.FormulaParser(
            self.ops, scope or {"x": "tensor", "b": "operand", "n": "int"}, spec.DTYPES)
        return parser.formula(text)

    def test_binds_arguments_by_position_and_by_name(self):
        call = self.parse("mul(x, 2)").result
        self.assertEqual((call.op.name, call.args["a"]), ("mul", formulas.Ref("x")))
        self.assertEqual(call.args["b"].text, "2")
        call = self.parse("sum(x, axes=[0], keepdims=n, dtype=acc(x))").result
        self.assertEqual({k: v.text for k, v in call.attrs.items()},
                         {"axes": "[0]", "keepdims": "n"})
        self.assertEqual(call.dtype.text, "acc(x)")

    def test_keeps_lines_views_and_branches(self):
        formula = self.parse(
            "t = transpose(x)\nk = x.shape[:1]\nreshape(t if n == 1 else neg(t), k)")
        self.assertEqual([s.name for s in formula.statements], ["t", "k"])
        self.assertEqual(formula.result.kind, "reshape")
        branch = formula.result.tensor
        self.assertEqual((branch.condition.text, branch.then), ("n == 1", formulas.Ref("t")))

    def test_refuses_calls_that_are_not_complete_or_too_much(self):
        for text, why in (("sum(x)", "needs axes"), ("neg(x, x)", "takes 1 tensors"),
                          ("neg(x, axis=1)", "takes no 'axis'"), ("neg(2)", "is no tensor"),
                          ("neg(b)", "may be an inline scalar"), ("nothing(x)", "no op or view"),
                          ("neg(x, dtype=f32)", "cannot be chosen"),
                          ("reshape(x)", "takes a tensor"),
                          ("uniform(dtype=f32, seed=1, offset=0)", "needs shape="),
                          ("neg(x, shape=x.shape)", "takes no shape="),
                          ("x = neg(x)\nx", "a meaning"),
                          ("y = neg(x)", "the last line"), ("neg(x=x, x=x)", "repeated|twice")):
            with self.subTest(text):
                with self.assertRaisesRegex(expressions.ExpressionError, why):
                    self.parse(text)

    def test_decompositions_give_every_output_a_value(self):
        text = SQUARE.replace(
            "  backward:", "  decompose: |\n    z = square(x, axis=axis)\n  backward:")
        self.assertIn("no line gives y a value", self.refusal(text))
        text = text.replace("z = square(x", "y = square(y")
        self.assertIn("has no value yet", self.refusal(text))

    def test_a_decomposition_for_some_calls_names_what_they_give(self):
        decompose = "  decompose: |\n    y = square(x, axis=axis)\n"
        for name, formula in (("x", decompose), ("alpha", "")):
            text = SQUARE.replace(
                "  backward:", f"{formula}  decompose_where_given: [{name}]\n  backward:")
            self.assertIn(f"decompose_where_given: '{name}'", self.refusal(text))
        self.assertEqual(self.ops["matmul"].decompose_where_given, ["addend", "alpha"])

    def grown(self, keys, formula="y = neg(x)"):
        """Returns two ops. The second one has a decomposition, and later got a number and a
        tensor."""
        other = SQUARE.replace("square", "neg").replace("id: 7", "id: 8")
        other = other.replace('    axis: {kind: i32, min: 0, below: "x.ndim", default: 0}\n', "")
        text = SQUARE.replace("  backward:", "    n: {kind: i32, since: 4}\n"
                              '    t: {kind: "tensor?", dtype: like(x), shape: "x.shape", since: 6}'
                              f"\n{keys}  decompose: |\n    {formula}\n  backward:")
        return text + other.replace(', axis=axis', '')

    def test_a_decomposition_claims_the_revision_for_which_it_was_written(self):
        for keys, row in (("", "3, BP_SQUARE_ARGS_SIZE_R3"),
                          ("  decompose_revision: 5\n", "5, BP_SQUARE_ARGS_SIZE_R4"),
                          ("  decompose_revision: 6\n", "6, BP_SQUARE_ARGS_SIZE_R6")):
            text = emit_decompositions.source(self.load(self.grown(keys)))
            self.assertIn(f"{{BP_OP_SQUARE, {row}, square, nullptr, \"\"}}", text)

    def test_a_decomposition_knows_nothing_newer_than_its_revision(self):
        self.assertIn("no such name here; there are axis, n, x, y",
                      self.refusal(self.grown("  decompose_revision: 5\n", "y = neg(t)")))
        self.load(self.grown("  decompose_revision: 6\n", "y = neg(t)"))
        for keys, words in (
                ("  decompose_revision: 7\n", "7 is not from 3, which brought the op, to 6, which"),
                ("  decompose_revision: 2\n", "2 is not from 3, which brought the op, to 6, which"),
                ("  decompose_where_given: [n]\n", "revision 4 brought 'n', and")):
            self.assertIn(words, self.refusal(self.grown(keys)))
        text = self.changed("  backward:", "  decompose_revision: 3\n  backward:")
        self.assertIn("decompose_revision: the op has no decomposition", self.refusal(text))

    def test_a_backward_op_is_bound_by_name(self):
        gradients = self.ops["relu"].gradients
        self.assertEqual(gradients.gradients, {"x": "grad_x"})
        self.assertEqual(gradients.saved(), ({"grad_y", "y"}, set()))
        text = self.refusal(SQUARE.replace('{x: "square(grad_y, axis=axis)"}', "square"))
        self.assertEqual(
            text, "small.yaml:10: square: square: output 'y' is the gradient of no input")

    def test_a_gradient_saves_only_what_it_reads(self):
        linear = self.ops["linear"].gradients
        read = {"grad_y", "y", "preactivation", "grad_preactivation"}
        self.assertEqual(linear.saved(["bias"])[0], read)
        self.assertEqual(linear.saved(["weight"])[0], read | {"x"})
        self.assertIn("bias", linear.saved(["bias"])[1])
        self.assertEqual(self.ops["embedding"].gradients.saved(),
                         ({"grad_y", "indices"}, {"weight", "bounds"}))
        prelude = self.ops["maximum"].gradients
        self.assertEqual([s.name for s in prelude.needed(["a"])], ["is_a", "is_b", "share"])
        self.assertEqual(self.ops["amax"].gradients.needed([]), [])


class GenerateTest(Folder):
    def frame(self, args):
        entry = SQUARE.split("  args:")[0] + "  args:\n    x: {kind: tensor, dtypes: float}\n"
        text = entry + args + '  backward: "none: a test"\n' + SQUARE[SQUARE.index("  numerics"):]
        return generate.frame(self.load(text)[0])

    def names(self, args):
        return [name for _, name, _ in self.frame(args)[0]]

    def test_frames_have_no_hidden_padding(self):
        self.assertEqual(self.names("    n: {kind: i32}\n    m: {kind: i64}\n    k: {kind: i32}\n"),
                         ["struct_size", "flags", "x", "n", "reserved_0", "m", "k", "reserved_1"])
        self.assertEqual(self.names("    n: {kind: i32}\n    k: {kind: i32}\n"),
                         ["struct_size", "flags", "x", "n", "k"])

    def test_lists_and_operands_have_two_members(self):
        rows = self.frame('    l: {kind: "i64[]"}\n    b: {kind: operand, dtype: like(x)}\n'
                          '    ts: {kind: "tensor[]", dtype: like(x)}\n')
        self.assertEqual([row[:2] for row in rows[0][3:]],
                         [("uint64_t", "l_count"), ("const int64_t*", "l"),
                          ("const bp_tensor*", "b"), ("bp_scalar", "b_scalar"),
                          ("uint64_t", "ts_count"), ("const bp_tensor* const*", "ts")])

    def test_enums_count_from_1(self):
        text = self.changed("    axis:", '    mode: {kind: "enum(mode: up, down)"}\n    axis:')
        text = text.replace("axis=axis)", "axis=axis, mode=mode)")
        lines = list(generate.enums(self.load(text)[0]))
        self.assertEqual(lines[1:3], ["  BP_SQUARE_MODE_UP = 1,", "  BP_SQUARE_MODE_DOWN = 2,"])

    def test_an_enum_counts_from_0_if_it_says_so(self):
        text = self.changed("    axis:", '    mode: {kind: "enum(mode: up, down)", '
                                         "first: 0}\n    axis:")
        text = text.replace("axis=axis)", "axis=axis, mode=mode)")
        lines = list(generate.enums(self.load(text)[0]))
        self.assertEqual(lines[1:3], ["  BP_SQUARE_MODE_UP = 0,", "  BP_SQUARE_MODE_DOWN = 1,"])

    def test_a_scalar_may_be_absent(self):
        op = self.load(self.changed("  backward:", "    seed: {kind: scalar|tensor, dtype: u64, "
                                                   "may_be_absent: true}\n  backward:"))
        self.assertIn("BP_MAY_BE_ABSENT(square, seed)\n", generate.rows(op, "here"))
        self.assertIn("0 if the scalar is absent too", str(list(generate.struct(op[0]))))

    def test_rows_are_those_of_the_op(self):
        rows = generate.rows(self.load(SQUARE), "here")
        self.assertEqual(rows[rows.index("BP_OP(7"):].split("\n"), [
            "BP_OP(7, square, 3, infer, core, E1)", "BP_ARG(square, x, tensor, float)",
            "BP_ARG(square, y, out, like(x))", "BP_ARG(square, axis, i32, none)",
            "BP_ARGS_SIZE(square, 3, 32)", "#undef BP_DTYPE_SET", "#undef BP_ARGS_SIZE",
            "#undef BP_VALUE_SINCE",
            "#undef BP_LAST_VALUE", "#undef BP_MAY_BE_ABSENT", ""])

    def grown(self, *appended):
        """Returns the op with arguments appended."""
        return self.changed("  backward:", "".join(f"    {line}\n" for line in appended) +
                            "  backward:")

    def test_a_frame_grows_at_its_end_by_whole_words(self):
        op = self.load(self.grown("n: {kind: i32, since: 4}",
                                  't: {kind: "tensor?", dtype: like(x), since: 6}'))[0]
        rows, sizes = generate.frame(op)
        self.assertEqual([name for _, name, _ in rows],
                         ["struct_size", "flags", "x", "y", "axis", "reserved_0", "n", "reserved_1",
                          "t"])
        self.assertEqual(sizes, {3: 32, 4: 40, 6: 48})
        self.assertEqual(generate.ids(op), "enum { BP_OP_SQUARE = 7, BP_SQUARE_ARGS_SIZE_R3 = 32, "
                         "BP_SQUARE_ARGS_SIZE_R4 = 40,\n  BP_SQUARE_ARGS_SIZE_R6 = 48 };")
        self.assertEqual(spec.revisions([op]), [3, 4, 6])

    def test_an_enum_that_is_appended_counts_from_0(self):
        op = self.load(self.grown('m: {kind: "enum(form: none, soft, hard)", since: 4, '
                                  'values_since: {hard: 5}}'))[0]
        self.assertEqual(list(generate.enums(op))[1:3],
                         ["  BP_SQUARE_M_NONE = 0,", "  BP_SQUARE_M_SOFT = 1,"])
        rows = generate.rows([op], "here")
        self.assertIn("BP_VALUE_SINCE(square, m, hard, 2, 5)\nBP_LAST_VALUE(square, m, 2)\n", rows)

    def test_an_enum_counts_from_0_if_it_says_so(self):
        member = 'm: {kind: "enum(form: none, soft)", first: 0}'
        text = self.changed("    axis: {", f"    {member}\n    axis: {{")
        op = self.load(text.replace("axis=axis)", "m=m, axis=axis)"))[0]
        self.assertEqual(list(generate.enums(op))[1:3],
                         ["  BP_SQUARE_M_NONE = 0,", "  BP_SQUARE_M_SOFT = 1,"])

    def test_what_is_appended_is_described(self):
        op = self.load(self.grown("n: {kind: i64, since: 4}", *[
            f"later_{i}: {{kind: i64, since: {i}}}" for i in range(5, 9)]))[0]
        self.assertEqual(generate.describe(op.arg("n")), "Since revision 4, 0 before.")
        self.assertTrue(all(len(line) <= 100 for line in generate.ids(op).split("\n")))

    def test_refuses_what_an_old_call_could_not_give(self):
        for line, words in (
                ("t: {kind: tensor, dtype: like(x), since: 4}", "is optional, and tensor is not"),
                ("n: {kind: i32, min: 1, since: 4}", "an attribute that is appended may be 0"),
                ("n: {kind: i32, since: 2}", "came in revision 2, before what precedes it"),
                ('m: {kind: "enum(form: a, b)", values_since: {a: 4}}', "values at the end"),
                ('m: {kind: "enum(form: a, b)", values_since: {c: 4}}', "values at the end"),
                ("n: {kind: i32, values_since: {c: 4}}", "i32 has no 'values_since'")):
            self.assertIn(words, self.refusal(self.grown(line)), line)

    def test_no_line_is_longer_than_100_columns(self):
        text = generate.header(project(), "GUARD", "ops_spec/ops")
        self.assertEqual([line for line in text.split("\n") if len(line) > 100], [])

    def run_main(self, *argv):
        errors = io.StringIO()
        with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
            code = generate.main([*map(str, argv)])
        return code, errors.getvalue()

    def test_check_finds_files_out_of_date_and_a_wrong_count(self):
        header, rows = self.folder / "a.h", self.folder / "a.def"
        where = ("--header", header, "--rows", rows)
        count = len(project())
        self.assertEqual(self.run_main(*where, "--check", count)[0], 1)
        self.assertEqual(self.run_main(*where), (0, ""))
        self.assertEqual(self.run_main(*where, "--check", count), (0, ""))
        self.assertIn("expected", self.run_main(*where, "--check", count + 1)[1])
        rows.write_text(rows.read_text(encoding="utf-8") + "\n", encoding="utf-8")
        self.assertIn("a.def: out of date", self.run_main(*where, "--check", count)[1])

    def test_bad_specs_end_with_their_file_and_line(self):
        (self.folder / "bad.yaml").write_text("x: 1\n", encoding="utf-8")
        code, errors = self.run_main("--ops", self.folder, "--check", 1)
        self.assertEqual(code, 1)
        self.assertRegex(errors, r"bad.yaml:1: x: 1 is not of type 'object'")

    def test_private_ops_may_call_public_ones(self):
        private = SQUARE.replace("square:", "acme.square:").replace("id: 7", "id: 65536").replace(
            '"square(grad_y, axis=axis)"', '"mul(grad_y, mul(x, 2))"')
        (self.folder / "acme.yaml").write_text(private, encoding="utf-8")
        header = self.folder / "acme_ops.h"
        code, errors = self.run_main("--ops", self.folder, "--header", header,
                                     "--rows", self.folder / "acme_ops.def")
        self.assertEqual((code, errors), (0, ""))
        self.assertIn("enum { BP_OP_ACME_SQUARE = 65536, BP_ACME_SQUARE_ARGS_SIZE_R1 = 32 };",
                      header.read_text(encoding="utf-8"))


class EmitTest(Folder):
    def test_inference_checks_every_field(self):
        text = "\n".join(emit_infer.Function(self.load(SQUARE)[0]).text())
        for part in ("bad_tensor(row, 0,", "is_in(x_dtype, kSet_f32_f64_f16_bf16)",
                     "const int64_t high = dims::shape(*f.x).count;",
                     "set_output(out[0], y_dtype, dims::shape(*f.x))"):
            self.assertIn(part, text)

    def test_inference_takes_appended_arguments_that_are_absent(self):
        text = emit_infer.source(self.load(self.changed("  backward:", """\
    t: {kind: "tensor?", dtypes: float, shape: "x.shape", since: 4}
    s: {kind: "scalar|tensor", dtype: f32, since: 4}
    m: {kind: "enum(form: none, soft)", since: 4}
  backward:""")))
        for part in ("t_dtype = f.t != nullptr ? f.t->dtype : bp_dtype{0};",
                     "f.t != nullptr && !is_in(t_dtype, ",
                     "f.s == nullptr && f.s_scalar.dtype != 0 && !is_scalar(",
                     '{"m", "none, soft", 0, offsetof(bp_square_args, m), 0, Kind::enumeration}',
                     "7, BP_SQUARE_ARGS_SIZE_R3, sizeof(bp_square_args), "):
            self.assertIn(part, text)

    def test_emission_is_deterministic(self):
        for emit in (emit_infer.source, emit_reference.pages):
            self.assertEqual(emit(spec.load()), emit(spec.load()))

    def test_the_reference_has_every_op_and_argument(self):
        ops = project()
        pages = emit_reference.pages(ops)
        for op in ops:
            text = pages[pathlib.Path(op.path).stem]
            self.assertIn(f"\n### {op.name}\n", text)
            for arg in op.args:
                self.assertIn(f"\n| `{arg.name}` | ", text[text.index(f"\n### {op.name}\n"):])
        self.assertIn("| [sin](function.md#sin) | `sin` | `Sin` | `sine` | `SIN` |\n",
                      pages["README"])


class InventoryTest(unittest.TestCase):
    """The rules that hold for the ops of this tree."""

    def test_every_op_can_be_differentiated_or_says_why_not(self):
        for op in project():
            with self.subTest(op.name):
                self.assertTrue(op.gradients.reason or op.gradients.gradients)

    def test_backward_ops_are_not_asked_of_inference(self):
        for op in project():
            if "_backward" in op.name:
                self.assertIn(op.profile, ("train", "llm"), op.name)

    def test_ids_lie_in_the_block_of_their_family(self):
        first = {"movement": 1, "unary": 100, "binary": 200, "reduction": 300, "matrix": 400,
                 "convolution": 450, "pooling": 480, "normalization": 500, "loss": 550,
                 "attention": 600, "random": 650, "optimizer": 700,
                 "quantization": 800, "moe": 850, "recurrent": 900,
                 "spectral": 950}
        shared = {"function": ["unary"], "activation": ["unary", "attention"],
                  "rectifier": ["unary"],
                  "comparison": ["unary", "binary"], "bits": ["unary", "binary"],
                  "channel_norm": ["normalization"], "resampling": ["pooling"],
                  "scan": ["reduction"], "indexing": ["movement"]}
        ends = sorted(first.values())[1:] + [spec.FIRST_PRIVATE_ID]
        for op in project():
            family = pathlib.Path(op.path).stem
            starts = [first[block] for block in shared.get(family, [family])]
            self.assertTrue(any(start <= op.id < min(e for e in ends if e > start)
                                for start in starts), op.name)


class CoreAtenTest(unittest.TestCase):
    def test_operators_exist_and_few_are_missing(self):
        found = emit_coverage.load(project())
        self.assertGreaterEqual(emit_coverage.share(found), 0.95)
        self.assertIn("| `_embedding_bag` | not reachable: bags of indices that are cut by offsets",
                      emit_coverage.page(found))

    def test_a_name_that_the_spec_lacks_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "aten.yaml")
            path.write_text("abs: abs\nsin: [sine]\n", encoding="utf-8")
            with self.assertRaisesRegex(spec.SpecError, "sin: there is no operator 'sine'"):
                emit_coverage.load(project(), path)


class Output(Folder):
    def answer(self, *arguments):
        """Returns the status and what was printed."""
        printed, status = io.StringIO(), None
        with unittest.mock.patch("sys.argv", ["emit_rows.py", *arguments]), \
                contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            try:
                output.path()
            except SystemExit as end:
                status = end.code
        return status, printed.getvalue()

    def test_names_one_file_and_makes_its_folder(self):
        target = self.folder / "new" / "rows.cpp"
        with unittest.mock.patch("sys.argv", ["emit_rows.py", str(target)]):
            self.assertEqual(output.path(), target)
        self.assertTrue(target.parent.is_dir())

    def test_anything_else_is_no_file(self):
        for arguments, expected in ((["--help"], 0), ([], 2), (["a", "b"], 2), (["--out"], 2)):
            status, printed = self.answer(*arguments)
            self.assertEqual(status, expected, arguments)
            self.assertIn("usage: emit_rows.py FILE", printed)


if __name__ == "__main__":
    unittest.main()
