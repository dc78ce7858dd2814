"""The nine networks and two with few kernels, with random weights of these tests' own, and what ONNX Runtime computes with them.

Nothing here comes from poolrt: other weights, another input and another file for them than `poolrt.models` has.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import numpy_helper

#: Name -> file in the onnx package, and the factor on the last layer that keeps softmax away from one class only.
LIGHT: Final = {
    "alexnet": ("light_bvlc_alexnet", 1.0),
    "densenet121": ("light_densenet121", 1.0),
    "inception_v1": ("light_inception_v1", 0.2),
    "inception_v2": ("light_inception_v2", 5.0),
    "resnet50": ("light_resnet50", 0.03),
    "shufflenet": ("light_shufflenet", 0.003),
    "squeezenet": ("light_squeezenet", 1.0),
    "vgg19": ("light_vgg19", 1.0),
    "zfnet512": ("light_zfnet512", 1.0),
}
#: A network of a few layers, for tests in which it matters that kernels are created, not which ones.
SMALL: Final = "small"
#: A network of three primitives that compile in a moment, where it matters that kernels are created and not which.
TINY: Final = "tiny"
#: A network of many equal layers, so with few kernels, whose runs take more than ten milliseconds: to meet runs under way.
LASTING: Final = "lasting"
SEED: Final = 20240229


@dataclass(frozen=True, slots=True)
class Network:
    """A model file with an input and the output that belongs to it; arrays are float32."""

    path: Path
    input_name: str
    output_name: str
    x: NDArray[np.float32]
    y: NDArray[np.float32]

    def words(self) -> tuple[str, ...]:
        """Return the words for `poolrt run` that give the input and ask for the comparison."""
        return (
            "run", str(self.path),
            "--input", f"{self.input_name}={self.path.with_suffix('.x.npy')}",
            "--expect", str(self.path.with_suffix(".y.npz")),
        )  # fmt: skip


def make_network(name: str, folder: Path) -> Network:
    """Write a network, its input (.npy) and its output (.npz) into a folder."""
    if name == SMALL:
        model = small_model()
    elif name == TINY:
        model = tiny_model()
    elif name == LASTING:
        model = lasting_model()
    else:
        file, scale = LIGHT[name]
        model = onnx.load(str(Path(onnx.__file__).parent / "backend" / "test" / "data" / "light" / f"{file}.onnx"))
        fill(model, scale)
    path = folder / f"{name}.onnx"
    onnx.save(model, str(path))
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    (given,), (taken,) = session.get_inputs(), session.get_outputs()
    x = np.random.default_rng(SEED + 1).standard_normal(given.shape).astype(np.float32)
    y = session.run(None, {given.name: x})[0]
    # A comparison with an output that is nearly constant would prove nothing.
    assert len(np.unique(y)) > y.size // 2, f"{name}: {len(np.unique(y))} different values in {y.size}"
    np.save(path.with_suffix(".x.npy"), x)
    np.savez(path.with_suffix(".y.npz"), allow_pickle=False, **{taken.name: y})
    return Network(path, given.name, taken.name, x, y)


def small_model() -> Any:
    """Return a model with two convolutions, a pooling, a product and a softmax."""
    generator = np.random.default_rng(SEED)
    weights = [
        numpy_helper.from_array(drawn(generator, dims, operator, index), name)
        for name, operator, index, dims in (
            ("first", "Conv", 1, [16, 3, 3, 3]),
            ("last", "Conv", 1, [24, 16, 3, 3]),
            ("product", "Gemm", 1, [40, 24]),
            ("bias", "Gemm", 2, [40]),
        )
    ]
    node = onnx.helper.make_node
    nodes = [
        node("Conv", ["x", "first"], ["a"], pads=[1, 1, 1, 1]),
        node("Relu", ["a"], ["b"]),
        node("Conv", ["b", "last"], ["c"], strides=[2, 2]),
        node("GlobalAveragePool", ["c"], ["d"]),
        node("Flatten", ["d"], ["e"]),
        node("Gemm", ["e", "product", "bias"], ["f"], transB=1),
        node("Softmax", ["f"], ["y"]),
    ]
    x, y = (
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, dims)
        for name, dims in (("x", (1, 3, 32, 32)), ("y", (1, 40)))
    )
    graph = onnx.helper.make_graph(nodes, SMALL, [x], [y], weights)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)


def tiny_model() -> Any:
    """Return a model with a softmax, a tanh and a concatenation."""
    node = onnx.helper.make_node
    nodes = [node("Softmax", ["x"], ["a"]), node("Tanh", ["a"], ["b"]), node("Concat", ["b", "x"], ["y"], axis=1)]
    x, y = (
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, (2, channels, 6, 16))
        for name, channels in (("x", 4), ("y", 8))
    )
    graph = onnx.helper.make_graph(nodes, TINY, [x], [y])
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)


def lasting_model() -> Any:
    """Return a model with sixteen convolutions of one description, which share their weights."""
    weights = drawn(np.random.default_rng(SEED), [32, 32, 3, 3], "Conv", 1)
    node = onnx.helper.make_node
    nodes = []
    for number in range(16):
        nodes.append(node("Conv", [f"r{number - 1}" if number else "x", "weights"], [f"c{number}"], pads=[1, 1, 1, 1]))
        nodes.append(node("Relu", [f"c{number}"], [f"r{number}"]))
    nodes += [node("GlobalAveragePool", [nodes[-1].output[0]], ["a"]), node("Flatten", ["a"], ["y"])]
    x, y = (
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, dims)
        for name, dims in (("x", (1, 32, 64, 64)), ("y", (1, 32)))
    )
    graph = onnx.helper.make_graph(nodes, LASTING, [x], [y], [numpy_helper.from_array(weights, "weights")])
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)


def fill(model: Any, scale: float) -> None:
    """Replace the constant weights of a light graph, in place, by random ones that keep activations in range."""
    graph = model.graph
    shapes = {initializer.name: initializer for initializer in graph.initializer}
    readers = {name: (node, index) for node in reversed(graph.node) for index, name in enumerate(node.input)}
    last = [node.output[0] for node in graph.node if node.op_type == "Gemm"][-1:]
    generator = np.random.default_rng(SEED)
    weights = []
    for node in graph.node:
        if node.op_type == "ConstantOfShape":
            shape = [int(size) for size in numpy_helper.to_array(shapes[node.input[0]])]
            reader, index = readers[node.output[0]]
            while reader.op_type in ("Unsqueeze", "Reshape"):
                reader, index = readers[reader.output[0]]
            values = drawn(generator, shape, reader.op_type, index)
            if reader.output[0] in last:
                values *= np.float32(scale)
            weights.append(numpy_helper.from_array(values, node.output[0]))
    nodes = [node for node in graph.node if node.op_type != "ConstantOfShape"]
    read = {name for node in nodes for name in node.input}
    kept = [initializer for initializer in graph.initializer if initializer.name in read] + weights
    constant = {initializer.name for initializer in kept}
    inputs = [declared for declared in graph.input if declared.name in read - constant]
    for field, values_ in ((graph.node, nodes), (graph.initializer, kept), (graph.input, inputs)):
        del field[:]
        field.extend(values_)
    model.ir_version = 8


def drawn(generator: np.random.Generator, shape: list[int], operator: str, index: int) -> NDArray[np.float32]:
    """Return random weights for input ``index`` of an operator."""
    normal = generator.standard_normal(shape, dtype=np.float32)
    if operator in ("Conv", "Gemm") and index == 1:
        gain, fan = (2.0, math.prod(shape[1:])) if operator == "Conv" else (1.0, shape[-1])
        return normal * np.float32(math.sqrt(gain / fan))
    if operator == "BatchNormalization" and index in (1, 4):
        return (generator.random(shape, dtype=np.float32) + 1) / np.float32(2 if index == 1 else 1.3)
    if operator == "Mul":
        return generator.random(shape, dtype=np.float32) * np.float32(0.7) + np.float32(0.5)
    return normal * np.float32(0.1)
