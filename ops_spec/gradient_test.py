#!/usr/bin/env python3
"""Tests of how emit_autograd.py and emit_wrappers.py write gradients."""

import pathlib
import tempfile
import unittest

import emit_autograd
import emit_wrappers
import gradient_code
import signatures
import spec

# The gradient of z may be absent, and the formula reads it without asking whether it is given.
CARELESS = """\
squared:
  id: 99
  lifecycle: [[stable, "0.1"]]
  profile: infer
  doc: The square of x.
  args:
    x: {kind: tensor, dtypes: float}
    y: {kind: out, dtype: like(x), shape: "x.shape"}
    z: {kind: "out?", dtype: like(x), shape: "x.shape"}
  backward: {x: "add(grad_y, grad_z)"}
  numerics: E1
"""


# Revisions 4 and 5 brought an argument of each kind and a value. The gradient knows no more than
# its own revision has.
GROWN = """\
squared:
  id: 99
  lifecycle: [[stable, "0.1"]]
  profile: infer
  doc: The square of x.
  args:
    x: {kind: tensor, dtypes: float}
    y: {kind: out, dtype: like(x), shape: "x.shape"}
    mode: {kind: "enum(squared_mode: plain, hard)", values_since: {hard: 4}}
    n: {kind: i32, since: 4}
    t: {kind: "tensor?", dtype: like(x), shape: "x.shape", since: 5}
    s: {kind: "scalar|tensor", dtype: f32, since: 5}
    ts: {kind: "tensor[]", dtype: like(x), since: 5}
    z: {kind: "out?", dtype: like(x), shape: "x.shape", since: 5}
  backward: {x: "mul(mul(grad_y, x), FACTOR)"}
  numerics: E1
"""


class GradientTest(unittest.TestCase):
    """What emit_autograd.py and emit_wrappers.py write for gradients."""

    @classmethod
    def setUpClass(cls):
        cls.ops = {op.name: op for op in spec.load()}

    def node(self, name):
        node = emit_autograd.NodeSource(self.ops[name])
        return "\n".join(node.struct() + node.backward() + node.record())

    def wrapper(self, name):
        op = self.ops[name]
        without = gradient_code.without_gradient(op, self.ops.values())
        return "\n".join(emit_wrappers.Body(op, False, without).build())

    def test_backward_ops_are_asked_for_what_is_needed(self):
        text = self.node("layer_norm")
        self.assertIn("needs(1) ? &grad_inputs[1] : nullptr", text)
        self.assertIn("needs(2) ? &grad_inputs[2] : nullptr", text)
        self.assertIn("if (needs(0)) grad_inputs[0] = std::move(first);", text)

    def test_outputs_with_gradients_are_attached_in_order(self):
        text = self.node("layer_norm_backward")
        for line in ("attach(*node, grad_x, 0);", "if (grad_gamma) attach(*node, grad_gamma, 1);",
                     "if (grad_beta) attach(*node, grad_beta, 2);",
                     "grad_grad_x = or_zeros(grad_outputs[0], grad_x_meta_,",
                     "const Tensor& grad_grad_gamma = grad_outputs[1];"):
            self.assertIn(line, text)
        self.assertNotIn("attach(*node, mean", self.node("layer_norm"))

    def test_an_output_that_may_be_missing_must_be_asked_for(self):
        op = self.load(CARELESS)
        with self.assertRaisesRegex(spec.SpecError, "z may not be there: ask given"):
            emit_autograd.NodeSource(op)

    def test_a_backward_op_may_take_no_gradient_of_an_output(self):
        text = self.node("lstm")
        for line in ("grad_y = or_zeros(grad_outputs[0], y_meta_, device_of(grad_outputs, 3));",
                     "const Tensor& grad_h_next = grad_outputs[1];",
                     "const Tensor& grad_c_next = grad_outputs[2];",
                     "if (h_next) attach(*node, h_next, 1);",
                     "if (c_next) attach(*node, c_next, 2);"):
            self.assertIn(line, text)

    def load(self, text):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "small.yaml").write_text(text, encoding="utf-8")
            return spec.load(folder, others=list(self.ops.values()))[0]

    def grown(self, keys="", factor="2"):
        text = GROWN.replace("  numerics", f"{keys}  numerics")
        return self.load(text.replace("FACTOR", factor))

    def test_a_call_that_gives_what_came_later_is_not_recorded(self):
        later = {"mode hard": "frame.mode == 2", "n": "frame.n != 0", "t": "frame.t != nullptr",
                 "s": "frame.s != nullptr || frame.s_scalar.dtype != 0",
                 "ts": "frame.ts_count != 0", "z": "frame.z != nullptr"}
        for keys, known in (("", 0), ("  backward_revision: 4\n", 2),
                            ("  backward_revision: 5\n", 6)):
            op = self.grown(keys)
            wanted = dict(list(later.items())[known:])
            self.assertEqual(dict(signatures.given_later(op)), wanted)
            lines = emit_wrappers.Body(op, False, []).build()
            launch = lines.index("  detail::launch(in.target(), BP_OP_SQUARED, &frame);")
            found = [at for at, line in enumerate(lines) if "fail_later_gradient" in line]
            self.assertEqual(len(found), len(wanted))
            for at, (what, condition) in zip(found, wanted.items()):
                self.assertLess(at, launch)
                self.assertEqual(lines[at - 1], f"  if (({condition}) && detail::is_recorded(x))")
                self.assertIn(f'"squared", "{what}", {op.backward_revision}', lines[at])
        for name in ("softmax", "sdpa", "linear"):
            self.assertNotIn("fail_later_gradient", self.wrapper(name))

    def test_a_gradient_knows_nothing_newer_than_its_revision(self):
        for keys, factor, words in (
                ("", "n", "no such name"), ("  backward_revision: 4\n", "t", "no such name"),
                ("  backward_revision: 6\n", "2", "6 is not from 3, which brought the op, to 5")):
            with self.assertRaisesRegex(spec.SpecError, words):
                self.grown(keys, factor)
        self.grown("  backward_revision: 5\n", "t")
        with self.assertRaisesRegex(spec.SpecError, "backward_revision: the op has no gradient"):
            self.load(GROWN[:GROWN.index("  backward")] + '  backward: "none: a test"\n'
                      "  backward_revision: 4\n  numerics: E1\n")

    def test_lists_have_a_gradient_for_each_tensor(self):
        text = self.node("cat")
        for line in ("explicit CatNode(size_t count)", "if (!needs(0 + i)) continue;",
                     "dims::before(std::span(xs_metas_).first(i), axis_)",
                     "shape_of(xs_metas_[i])", "node->connect_all(0, xs);"):
            self.assertIn(line, text)

    def test_attributes_decide_what_is_kept(self):
        linear = self.ops["linear"]
        self.assertEqual(gradient_code.kept_when(linear, "y"), "(activation == Activation::kRelu)")
        for text in (self.node("linear"), self.wrapper("linear")):
            self.assertIn("(activation == Activation::kSilu)", text)
        self.assertEqual(gradient_code.kept_when(linear, "x"), "")
        self.assertEqual(gradient_code.kept_when(self.ops["exp"], "y"), "")

    def test_lines_that_formulas_share_run_where_they_are_needed(self):
        text = self.node("sdpa_backward")
        self.assertRegex(text, r"Tensor to_dp;\n *if \(needs\(0\) \|\| needs\(3\)\) to_dp = ")
        self.assertIn("const Tensor p = ", text)

    def test_where_broadcasts_without_being_elementwise(self):
        where = self.ops["where"]
        self.assertTrue(signatures.broadcasts(where))
        self.assertFalse(signatures.is_elementwise(where))
        self.assertIn("detail::TensorsAndOperand in(", self.wrapper("where"))
        self.assertIn("reduce_to(", self.node("where"))
        for op in self.ops.values():
            wanted = {a.name for a in op.inputs} == {"a", "b"} and op.arg("b").kind == "operand"
            self.assertEqual(signatures.is_elementwise(op), wanted, op.name)

    def test_inputs_without_a_gradient_are_checked(self):
        self.assertIn('check_no_gradient("sdpa", "bias", bias)', self.wrapper("sdpa"))

        def names(op):
            found = gradient_code.without_gradient(self.ops[op], self.ops.values())
            return [a.name for a in found]
        self.assertEqual(names("rope"), ["cos", "sin"])
        self.assertEqual(names("sdpa_backward"), ["bias"])  # y and lse are results of sdpa.
        self.assertEqual(names("rnn_backward"),
                         ["grad_y", "grad_h_next", "x", "h", "weight", "recurrent", "y"])
        for op in ("relu_backward", "layer_norm_backward", "cross_entropy", "embedding", "eq"):
            self.assertEqual(names(op), [], op)


if __name__ == "__main__":
    unittest.main()
