"""Models of random nodes: tensors that several nodes read, operands read twice, outputs that other nodes read, views in a row.

The same seed makes the same model. Every tensor is float32. No node has a step at which its result jumps, so that roundings
stay small.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

Array = NDArray[Any]
Shape = tuple[int, ...]

_FUNCTIONS: Final = (
    "Relu", "Sigmoid", "Tanh", "LeakyRelu", "Elu", "HardSwish", "HardSigmoid", "Gelu", "Softplus", "Neg", "Abs", "Erf", "Sin",
    "Softsign", "Mish", "Selu", "Celu", "Identity", "Dropout",
)  # fmt: skip
_SHAPES: Final = (
    (1, 8, 7, 8), (2, 17, 5, 4), (1, 3, 8, 7), (2, 5, 16), (1, 8, 33), (3, 17), (8, 16), (2, 3, 1, 5), (7,), (2, 1, 3, 2, 5),
)  # fmt: skip
#: Elements of a tensor that later nodes read.
_MOST: Final = 50_000


@dataclass
class RandomModel:
    """A model that grows by one node after the other."""

    rng: random.Random
    numbers: np.random.Generator
    shapes: dict[str, Shape] = field(default_factory=dict)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)

    def input(self, shape: Shape) -> None:
        name = f"x{len(self.inputs)}"
        self.inputs.append(name)
        self.shapes[name] = shape

    def constant(self, value: Array) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(value, name))
        return name

    def weights(self, *shape: int, scale: float = 1.0) -> str:
        return self.constant((scale * self.numbers.standard_normal(shape)).astype(np.float32))

    def integers(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def add(self, operator: str, inputs: Sequence[str], *shapes: Sequence[int], **attributes: Any) -> str:
        """Add a node whose results have these shapes; return the name of the first."""
        names = [f"t{len(self.shapes) + index}" for index in range(len(shapes))]
        self.nodes.append(helper.make_node(operator, list(inputs), names, f"n{len(self.nodes)}", **attributes))
        self.shapes.update((name, tuple(map(int, shape))) for name, shape in zip(names, shapes, strict=True))
        return names[0]

    def pick(self, fits: Callable[[Shape], bool]) -> str | None:
        """Return a tensor, mostly one of the last."""
        known = [name for name, shape in self.shapes.items() if fits(shape) and math.prod(shape) <= _MOST]
        if not known:
            return None
        return self.rng.choice(known[-4:] if self.rng.random() < 0.6 else known)


def _function(g: RandomModel, x: str, shape: Shape) -> None:
    g.add(g.rng.choice(_FUNCTIONS), [x], shape)


def _of_two(g: RandomModel, x: str, shape: Shape) -> None:
    def fits(other: Shape) -> bool:
        try:
            return math.prod(np.broadcast_shapes(shape, other)) <= _MOST
        except ValueError:
            return False

    other = g.pick(fits) or x
    operands = [x, other] if g.rng.random() < 0.5 else [other, x]
    g.add(g.rng.choice(("Add", "Mul", "Sub", "Max", "Min")), operands, np.broadcast_shapes(shape, g.shapes[other]))


def _with_constant(g: RandomModel, x: str, shape: Shape) -> None:
    sizes = [size if g.rng.random() < 0.6 else 1 for size in shape[g.rng.randint(0, len(shape)) :]]
    operands = [x, g.weights(*sizes)]
    g.add(g.rng.choice(("Add", "Mul", "Sub")), operands if g.rng.random() < 0.6 else operands[::-1], shape)


def _window(g: RandomModel, x: str, shape: Shape) -> None:
    if len(shape) != 4 or min(shape[2:]) < 3:
        return
    batch, channels, *sizes = shape
    size, stride = g.rng.choice((1, 3)), g.rng.choice((1, 1, 2))
    before = g.rng.choice((0, size // 2))
    made = [(each + 2 * before - size) // stride + 1 for each in sizes]
    window = {"kernel_shape": [size, size], "strides": [stride, stride], "pads": [before] * 4}
    kind = g.rng.choice(("Conv", "Conv", "depthwise", "MaxPool", "AveragePool"))
    if kind.endswith("Pool"):
        g.add(kind, [x], (batch, channels, *made), **window)
        return
    groups, outputs = (channels, channels) if kind == "depthwise" else (1, g.rng.choice((3, 8, 17)))
    weights = g.weights(outputs, channels // groups, size, size, scale=(channels // groups * size * size) ** -0.5)
    operands = [x, weights, *([g.weights(outputs)] if g.rng.random() < 0.6 else [])]
    g.add("Conv", operands, (batch, outputs, *made), group=groups, **window)


def _product(g: RandomModel, x: str, shape: Shape) -> None:
    if len(shape) < 2:
        return
    columns = g.rng.choice((1, 5, 16, 33))
    kind = g.rng.choice(("with itself", "matrix", "matrix"))
    if kind == "matrix":
        found = g.add("MatMul", [x, g.weights(shape[-1], columns, scale=shape[-1] ** -0.5)], (*shape[:-1], columns))
        if g.rng.random() < 0.6:
            g.add("Add", [found, g.weights(columns)], g.shapes[found])
        return
    order = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
    turned = g.add("Transpose", [x], [shape[axis] for axis in order], perm=order)
    g.add("MatMul", [x, turned], (*shape[:-1], shape[-2]))


def _normalisation(g: RandomModel, x: str, shape: Shape) -> None:
    kind = g.rng.choice(("Softmax", "LayerNormalization", "BatchNormalization"))
    if kind == "Softmax":
        g.add(kind, [x], shape, axis=g.rng.randrange(len(shape)))
    elif kind == "LayerNormalization":
        g.add(kind, [x, g.weights(shape[-1]), g.weights(shape[-1])], shape, epsilon=0.1)
    elif len(shape) > 2:
        variance = g.constant(g.numbers.uniform(0.5, 2, shape[1]).astype(np.float32))
        g.add(kind, [x, *(g.weights(shape[1]) for _ in range(3)), variance], shape)


def _reduction(g: RandomModel, x: str, shape: Shape) -> None:
    axes = sorted(g.rng.sample(range(len(shape)), g.rng.randint(1, len(shape))))
    keep = g.rng.randint(0, 1)
    made = [1 if axis in axes else size for axis, size in enumerate(shape) if keep or axis not in axes]
    g.add(g.rng.choice(("ReduceMean", "ReduceSum", "ReduceMax")), [x, g.integers(*axes)], made, keepdims=keep)


def _order(g: RandomModel, x: str, shape: Shape) -> None:
    order = g.rng.sample(range(len(shape)), len(shape))
    g.add("Transpose", [x], [shape[axis] for axis in order], perm=order)


def _sizes(g: RandomModel, x: str, shape: Shape) -> None:
    at, made = g.rng.randrange(len(shape)), list(shape)
    match g.rng.choice(("join", "divide", "insert", "remove", "expand")):
        case "join" if at + 1 < len(shape):
            before, after = made[:at], made[at + 2 :]
            joined = (*before, made[at] * made[at + 1], *after)
            g.add("Reshape", [x, g.integers(*before, -1, *after)], joined)
        case "divide" if made[at] % 2 == 0 and len(shape) < 5:
            made[at : at + 1] = [made[at] // 2, 2]
            g.add("Reshape", [x, g.integers(*made)], made)
        case "insert" if len(shape) < 5:
            made.insert(at, 1)
            g.add("Unsqueeze", [x, g.integers(at)], made)
        case "remove" if made[at] == 1 and len(shape) > 1:
            del made[at]
            g.add("Squeeze", [x, g.integers(at)], made)
        case "expand" if 1 in made:
            made[made.index(1)] = 3
            g.add("Expand", [x, g.integers(*made)], made)


def _part(g: RandomModel, x: str, shape: Shape) -> None:
    axis, made = g.rng.randrange(len(shape)), list(shape)
    size = shape[axis]
    match g.rng.choice(("Slice", "Split", "Gather", "Pad")):
        case "Slice":
            start, step = g.rng.randrange(size), g.rng.choice((1, 1, 2))
            made[axis] = -(-(size - start) // step)
            g.add("Slice", [x, *(g.integers(each) for each in (start, size, axis, step))], made)
        case "Split" if size > 1:
            first = g.rng.randint(1, size - 1)
            halves = [[*made[:axis], each, *made[axis + 1 :]] for each in (first, size - first)]
            g.add("Split", [x, g.integers(first, size - first)], *halves, axis=axis)
        case "Gather":
            made[axis] = 3
            g.add("Gather", [x, g.integers(*(g.rng.randrange(size) for _ in range(3)))], made, axis=axis)
        case "Pad":
            pads = [g.rng.choice((0, 0, 1, 2)) for _ in range(2 * len(shape))]
            made = [each + pads[at] + pads[at + len(shape)] for at, each in enumerate(made)]
            g.add("Pad", [x, g.integers(*pads)], made, mode=g.rng.choice(("constant", "edge")))


def _joined(g: RandomModel, x: str, shape: Shape) -> None:
    axis = g.rng.randrange(len(shape))

    def fits(other: Shape) -> bool:
        return len(other) == len(shape) and other[:axis] == shape[:axis] and other[axis + 1 :] == shape[axis + 1 :]

    parts = [x, *(g.pick(fits) or x for _ in range(g.rng.randint(1, 2)))]
    total = sum(g.shapes[part][axis] for part in parts)
    g.add("Concat", parts, (*shape[:axis], total, *shape[axis + 1 :]), axis=axis)


_KINDS: Final[Sequence[Callable[[RandomModel, str, Shape], None]]] = (
    _function, _function, _of_two, _of_two, _with_constant, _window, _window, _window, _product, _normalisation, _reduction,
    _order, _order, _sizes, _sizes, _part, _part, _joined,
)  # fmt: skip


def random_model(seed: int) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """Return a model of 3 to 14 nodes and its inputs."""
    g = RandomModel(random.Random(seed), np.random.default_rng(seed))
    g.input(g.rng.choice(_SHAPES))
    wanted = g.rng.randint(3, 14)
    while len(g.nodes) < wanted:
        x = g.pick(lambda shape: len(shape) > 0)
        if x is None:
            break
        g.rng.choice(_KINDS)(g, x, g.shapes[x])
        if g.rng.random() < 0.05:
            g.input(g.shapes[x])
    made = [name for name in g.shapes if name not in g.inputs]
    read = {name for node in g.nodes for name in node.input}
    outputs = [name for name in made if name not in read or g.rng.random() < 0.25]
    ports = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in g.shapes.items()}
    used = [name for name in g.inputs if name in read]
    graph = helper.make_graph(
        g.nodes, f"random {seed}", [ports[name] for name in used], [ports[name] for name in outputs], g.constants
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    return model, {name: g.numbers.standard_normal(g.shapes[name]).astype(np.float32) for name in used}
