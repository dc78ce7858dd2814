"""Small transformers, spelled out as PyTorch exports them: BERT, GPT-2 and ViT."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

Array = NDArray[Any]
WIDTH: Final = 16
HEADS: Final = 4
LAYERS: Final = 2


class Export:
    """A model under construction; methods add nodes as the exporter writes them and return names of values."""

    def __init__(self, seed: int) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.random = np.random.default_rng(seed)

    def node(self, operator: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        """Add a node; return the name of its result, or a list of several."""
        names = [f"/{operator}_{len(self.nodes)}_{index}" for index in range(outputs)]
        self.nodes.append(
            helper.make_node(operator, list(inputs), names, f"/{operator}_{len(self.nodes)}", **attributes)
        )
        return names[0] if outputs == 1 else names

    def weight(self, *dims: int, scale: float = 0.3) -> str:
        """Add a constant of random numbers."""
        return self.constant((scale * self.random.standard_normal(dims)).astype(np.float32))

    def constant(self, value: Any) -> str:
        """Add a constant."""
        name = f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def integers(self, *numbers: int) -> str:
        """Add a constant of int64."""
        return self.constant(np.array(numbers, np.int64))

    def size(self, x: str, axis: int) -> str:
        """Read one size of a shape, as ``x.size(axis)`` is exported, and make it one dimension."""
        found = self.node("Gather", self.node("Shape", x), self.constant(np.array(axis, np.int64)), axis=0)
        return str(self.node("Unsqueeze", found, self.integers(0)))

    def linear(self, x: str, inputs: int, outputs: int) -> str:
        """Add a layer without an activation."""
        return str(self.node("Add", self.weight(outputs), self.node("MatMul", x, self.weight(inputs, outputs))))

    def layer_norm(self, x: str) -> str:
        """Spell layer normalization out, as exports before opset 17 do."""
        centered = self.node("Sub", x, self.node("ReduceMean", x, axes=[-1]))
        squares = self.node("Pow", centered, self.constant(np.float32(2)))
        variance = self.node("Add", self.node("ReduceMean", squares, axes=[-1]), self.constant(np.float32(1e-5)))
        scaled = self.node("Div", centered, self.node("Sqrt", variance))
        return str(self.node("Add", self.node("Mul", scaled, self.weight(WIDTH)), self.weight(WIDTH)))

    def gelu(self, x: str) -> str:
        """Spell GELU out with the error function."""
        inner = self.node("Erf", self.node("Div", x, self.constant(np.float32(2**0.5))))
        outer = self.node("Mul", x, self.node("Add", inner, self.constant(np.float32(1))))
        return str(self.node("Mul", outer, self.constant(np.float32(0.5))))

    def gelu_new(self, x: str) -> str:
        """Spell GELU out with tanh, as GPT-2 does."""
        cube = self.node("Mul", self.node("Pow", x, self.constant(np.float32(3))), self.constant(np.float32(0.044715)))
        inner = self.node("Mul", self.node("Add", x, cube), self.constant(np.float32((2 / np.pi) ** 0.5)))
        outer = self.node("Add", self.node("Tanh", inner), self.constant(np.float32(1)))
        return str(self.node("Mul", self.node("Mul", x, self.constant(np.float32(0.5))), outer))

    def heads(self, x: str, perm: list[int]) -> str:
        """Cut the last dimension into heads."""
        dims = self.node("Concat", self.size(x, 0), self.size(x, 1), self.integers(HEADS), self.integers(-1), axis=0)
        return str(self.node("Transpose", self.node("Reshape", x, dims), perm=perm))

    def joined(self, x: str) -> str:
        """Join heads again."""
        turned = self.node("Transpose", x, perm=[0, 2, 1, 3])
        dims = self.node("Concat", self.size(turned, 0), self.size(turned, 1), self.integers(WIDTH), axis=0)
        return str(self.node("Reshape", turned, dims))

    def attention(self, q: str, k: str, v: str, mask: Any = None) -> str:
        """Spell attention out; ``mask`` adds to the scores or replaces them."""
        query, key, value = self.heads(q, [0, 2, 1, 3]), self.heads(k, [0, 2, 3, 1]), self.heads(v, [0, 2, 1, 3])
        scores = self.node("Div", self.node("MatMul", query, key), self.constant(np.float32((WIDTH / HEADS) ** 0.5)))
        scores = scores if mask is None else mask(scores)
        return self.joined(self.node("MatMul", self.node("Softmax", scores, axis=-1), value))

    def model(self, inputs: dict[str, tuple[int, tuple[Any, ...]]], result: str, opset: int = 14) -> onnx.ModelProto:
        """Return the model, with an output ``y``."""
        self.nodes.append(helper.make_node("Identity", [result], ["y"]))
        declared = [helper.make_tensor_value_info(name, kind, dims) for name, (kind, dims) in inputs.items()]
        output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
        graph = helper.make_graph(self.nodes, "exported", declared, [output], self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def bert(length: int | str = 7) -> onnx.ModelProto:
    """Return an encoder of tokens with a padding mask, whose last step is the pooler; a length may be a symbol."""
    made = Export(1)
    positions = made.node(
        "Slice", made.constant(np.arange(32)[None]), made.integers(0), made.size("ids", 1), made.integers(1)
    )
    words = made.node("Gather", made.weight(50, WIDTH), "ids")
    x = made.node("Add", words, made.node("Gather", made.weight(32, WIDTH), positions))
    x = made.layer_norm(x)
    wide = made.node("Unsqueeze", made.node("Unsqueeze", "mask", made.integers(1)), made.integers(2))
    excluded = made.node("Sub", made.constant(np.float32(1)), made.node("Cast", wide, to=TensorProto.FLOAT))
    bias = made.node("Mul", excluded, made.constant(np.float32(np.finfo(np.float32).min)))
    for _ in range(LAYERS):
        q, k, v = (made.linear(x, WIDTH, WIDTH) for _ in range(3))
        mixed = made.attention(q, k, v, lambda scores: made.node("Add", scores, bias))
        x = made.layer_norm(made.node("Add", made.linear(mixed, WIDTH, WIDTH), x))
        hidden = made.gelu(made.linear(x, WIDTH, 4 * WIDTH))
        x = made.layer_norm(made.node("Add", made.linear(hidden, 4 * WIDTH, WIDTH), x))
    first = made.node("Gather", x, made.constant(np.array(0, np.int64)), axis=1)
    pooled = made.node("Tanh", made.node("Gemm", first, made.weight(WIDTH, WIDTH), made.weight(WIDTH), transB=1))
    dims = ("batch", length)
    return made.model({"ids": (TensorProto.INT64, dims), "mask": (TensorProto.INT64, dims)}, pooled)


def sdpa(length: int = 5) -> onnx.ModelProto:
    """Return an encoder as PyTorch's dynamo exporter writes it: all sizes from shapes, and a mask that is gathered."""
    made = Export(4)
    zero, one, last = made.constant(np.int64(0)), made.constant(np.int64(1)), made.integers(-1)
    batch, steps = (made.node("Shape", "ids", start=axis, end=axis + 1) for axis in range(2))
    wide = made.node("Cast", "mask", to=TensorProto.BOOL)
    rows, columns = (made.node("Range", zero, made.node("Squeeze", each), one) for each in (batch, steps))
    rows = made.node("Unsqueeze", rows, made.integers(1, 2, 3))
    columns = made.node("Unsqueeze", columns, made.integers(0, 1, 2))
    shape = made.node("Shape", made.node("Max", rows, columns), start=0)
    places = [made.node("Unsqueeze", made.node("Expand", each, shape), last) for each in (rows, columns)]
    gathered = made.node("GatherND", wide, made.node("Concat", *places, axis=-1), batch_dims=0)
    kept = made.node("And", made.node("GreaterOrEqual", columns, zero), gathered)
    nothing, lowest = made.constant(np.float32(0)), made.constant(np.float32(-np.inf))
    half = made.constant(np.float32((WIDTH / HEADS) ** -0.25))
    apart = made.node("Concat", batch, steps, last, made.integers(WIDTH // HEADS), axis=0)
    joined = made.node("Concat", batch, steps, last, axis=0)

    def norm(x: str) -> str:
        return str(made.node("LayerNormalization", x, made.weight(WIDTH), made.weight(WIDTH), axis=-1, epsilon=1e-12))

    def head(x: str) -> str:
        parts = made.node("Reshape", made.linear(x, WIDTH, WIDTH), apart, allowzero=1)
        return str(made.node("Transpose", parts, perm=[0, 2, 1, 3]))

    x = norm(made.node("Gather", made.weight(50, WIDTH), "ids"))
    for _ in range(LAYERS):
        q, k, v = head(x), head(x), head(x)
        sizes = made.node("Shape", k, start=0)
        ends = [
            made.node("Slice", sizes, made.integers(first), made.integers(end)) for first, end in ((0, -2), (-1, 99))
        ]
        long = made.node("Slice", sizes, made.integers(-2), last)
        flat = made.node("Reshape", k, made.node("Concat", last, long, ends[1], axis=0), allowzero=0)
        turned = made.node("Transpose", flat, perm=[0, 2, 1])
        key = made.node("Reshape", turned, made.node("Concat", ends[0], ends[1], long, axis=0), allowzero=0)
        bias = made.node("Where", kept, nothing, lowest)
        scores = made.node("Add", made.node("MatMul", made.node("Mul", q, half), made.node("Mul", key, half)), bias)
        weights = made.node("Softmax", scores, axis=-1)
        weights = made.node("Where", made.node("IsNaN", weights), nothing, weights)
        mixed = made.node("Transpose", made.node("MatMul", weights, v), perm=[0, 2, 1, 3])
        mixed = made.node("Reshape", mixed, joined, allowzero=1)
        x = norm(made.node("Add", made.linear(mixed, WIDTH, WIDTH), x))
        hidden = made.node("Gelu", made.linear(x, WIDTH, 4 * WIDTH))
        x = norm(made.node("Add", made.linear(hidden, 4 * WIDTH, WIDTH), x))
    dims = ("batch", length)
    return made.model({"ids": (TensorProto.INT64, dims), "mask": (TensorProto.INT64, dims)}, x, 20)


def gpt2(length: int = 6) -> onnx.ModelProto:
    """Return a decoder of tokens with a causal mask that is cut out of a constant, and the logits of a vocabulary."""
    made = Export(2)
    size = made.size("ids", 1)
    end = made.node("Squeeze", size, made.integers(0))
    numbers = made.node("Range", made.constant(np.array(0, np.int64)), end, made.constant(np.array(1, np.int64)))
    positions = made.node("Gather", made.weight(32, WIDTH), made.node("Unsqueeze", numbers, made.integers(0)))
    words = made.weight(50, WIDTH)
    x = made.node("Add", made.node("Gather", words, "ids"), positions)
    lower = made.constant(np.tril(np.ones((1, 1, 32, 32), np.bool_)))
    cut = made.node("Slice", lower, made.integers(0), size, made.integers(2), made.integers(1))
    causal = made.node("Slice", cut, made.integers(0), size, made.integers(3), made.integers(1))
    lowest = made.constant(np.float32(np.finfo(np.float32).min))
    for _ in range(LAYERS):
        normal = made.layer_norm(x)
        dims = made.node("Concat", made.integers(-1), made.size(normal, 2), axis=0)
        flat = made.node(
            "Gemm", made.node("Reshape", normal, dims), made.weight(WIDTH, 3 * WIDTH), made.weight(3 * WIDTH)
        )
        back = made.node("Concat", made.size(normal, 0), made.size(normal, 1), made.integers(3 * WIDTH), axis=0)
        q, k, v = made.node("Split", made.node("Reshape", flat, back), made.integers(*[WIDTH] * 3), outputs=3, axis=2)
        mixed = made.attention(q, k, v, lambda scores: made.node("Where", causal, scores, lowest))
        x = made.node("Add", made.linear(mixed, WIDTH, WIDTH), x)
        hidden = made.gelu_new(made.linear(made.layer_norm(x), WIDTH, 4 * WIDTH))
        x = made.node("Add", x, made.linear(hidden, 4 * WIDTH, WIDTH))
    logits = made.node("MatMul", made.layer_norm(x), made.node("Transpose", words, perm=[1, 0]))
    return made.model({"ids": (TensorProto.INT64, ("batch", length))}, logits)


def vit() -> onnx.ModelProto:
    """Return an encoder of image patches with a class token that is expanded to the batch."""
    made = Export(3)
    patches = made.node(
        "Conv", "x", made.weight(WIDTH, 3, 4, 4), made.weight(WIDTH), kernel_shape=[4, 4], strides=[4, 4]
    )
    dims = made.node("Concat", made.size(patches, 0), made.size(patches, 1), made.integers(-1), axis=0)
    tokens = made.node("Transpose", made.node("Reshape", patches, dims), perm=[0, 2, 1])
    wanted = made.node("Concat", made.size(tokens, 0), made.integers(-1), made.integers(-1), axis=0)
    filling = numpy_helper.from_array(np.array([1], np.int64))
    ones = made.node("ConstantOfShape", made.node("Shape", wanted), value=filling)
    kept = made.node("Equal", wanted, made.node("Mul", ones, made.constant(np.array(-1, np.int64))))
    token = made.node("Expand", made.weight(1, 1, WIDTH), made.node("Where", kept, ones, wanted))
    x = made.node("Add", made.node("Concat", token, tokens, axis=1), made.weight(1, 10, WIDTH))
    for _ in range(LAYERS):
        normal = made.layer_norm(x)
        q, k, v = (made.linear(normal, WIDTH, WIDTH) for _ in range(3))
        x = made.node("Add", made.linear(made.attention(q, k, v), WIDTH, WIDTH), x)
        hidden = made.gelu(made.linear(made.layer_norm(x), WIDTH, 4 * WIDTH))
        x = made.node("Add", made.linear(hidden, 4 * WIDTH, WIDTH), x)
    first = made.node("Gather", made.layer_norm(x), made.constant(np.array(0, np.int64)), axis=1)
    scores = made.node("Gemm", first, made.weight(5, WIDTH), made.weight(5), transB=1)
    return made.model({"x": (TensorProto.FLOAT, ("batch", 3, 12, 12))}, scores, 13)
