"""Write a graph of poolrt as an ONNX model of the same operations and weights: what the rivals of a network compute.

Each node becomes the operators that PyTorch's exporters write for it; attention is written as matrix products and a softmax.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import onnx
from onnx import helper, numpy_helper

from poolrt import Graph
from poolrt.graph.ir import GraphIR, Node
from poolrt.workers.desc import type_name

_OPSET: Final = 20
_IR_VERSION: Final = 10
#: Sizes that differ from run to run: the name of an input, its dimension, and a name for the size.
Open = Mapping[str, Mapping[int, str]]
_ELTWISE: Final = {
    "relu": "Relu", "tanh": "Tanh", "logistic": "Sigmoid", "hardswish": "HardSwish", "exp": "Exp", "sqrt": "Sqrt", "abs": "Abs",
}  # fmt: skip
_BINARY: Final = {"add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "max": "Max", "min": "Min", "pow": "Pow"}


def write_model(graph: Graph, open_sizes: Open | None = None) -> bytes:
    """Return the model, with ``open_sizes`` of inputs named. Raises ValueError for a node that has no operator here."""
    return _Writer(graph.to_ir(), open_sizes or {}).model().SerializeToString()  # type: ignore[no-any-return]


class _Writer:
    """The model of one graph, whose nodes are written in order."""

    def __init__(self, ir: GraphIR, open_sizes: Open) -> None:
        self._ir = ir
        self._open = open_sizes
        self._nodes: list[onnx.NodeProto] = []
        self._stored: list[onnx.TensorProto] = []
        self._names = {value: name for name, value in ir.inputs}

    def model(self) -> onnx.ModelProto:
        """Return the model."""
        for value, constant in self._ir.constants.items():
            self._names[value] = self._store(constant.to_array())
        for node in self._ir.nodes:
            self._write(node)
        outputs = []
        for name, value in self._ir.outputs:
            self._nodes.append(helper.make_node("Identity", [self._name(value)], [name]))
            outputs.append(helper.make_tensor_value_info(name, self._type(value), None))
        inputs = []
        for name, value in self._ir.inputs:
            names = self._open.get(name, {})
            sizes = [names.get(axis, size) for axis, size in enumerate(self._dims(value))]
            inputs.append(helper.make_tensor_value_info(name, self._type(value), sizes))
        graph = helper.make_graph(self._nodes, self._ir.name, inputs, outputs, self._stored)
        opset = [helper.make_opsetid("", _OPSET)]
        return helper.make_model(graph, opset_imports=opset, ir_version=_IR_VERSION)

    def _write(self, node: Node) -> None:
        write = _WRITERS.get(node.kind)
        if write is None or node.post_ops or node.quantisation:
            raise ValueError(f"{node.kind} {node.name!r} has no ONNX operator here")
        write(self, node, [self._name(value) for value in node.inputs])

    def _dims(self, value: int) -> tuple[int, ...]:
        return self._ir.values[value].dims

    def _type(self, value: int) -> int:
        return helper.np_dtype_to_tensor_dtype(np.dtype(type_name(self._ir.values[value].dtype)))

    def _name(self, value: int) -> str:
        return self._names.setdefault(value, f"v{value}")

    def _store(self, array: Any) -> str:
        name = f"c{len(self._stored)}"
        self._stored.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def _add(self, operator: str, inputs: list[str], node: Node | None = None, **attributes: Any) -> str:
        """Add an operator, whose result is that of ``node`` if one is given; return the name of the result."""
        name = f"t{len(self._nodes)}" if node is None else self._name(node.output)
        self._nodes.append(helper.make_node(operator, inputs, [name], **attributes))
        return name

    def _matmul(self, node: Node, names: list[str]) -> None:
        if len(names) == 2:
            self._add("MatMul", names, node)
        else:
            self._add("Add", [self._add("MatMul", names[:2]), names[2]], node)

    def _inner_product(self, node: Node, names: list[str]) -> None:
        self._add("Gemm", names, node, transB=1)

    def _window(self, node: Node) -> dict[str, Any]:
        return {
            "strides": node.integers("strides"),
            "dilations": [each + 1 for each in node.integers("dilations")],
            "pads": [*node.integers("padding_l"), *node.integers("padding_r")],
        }

    def _convolution(self, node: Node, names: list[str]) -> None:
        self._add("Conv", names, node, group=node.attrs["groups"], **self._window(node))

    def _deconvolution(self, node: Node, names: list[str]) -> None:
        if node.attrs["groups"] != 1:
            raise ValueError(f"deconvolution {node.name!r} with groups has no ONNX operator here")
        weights = self._ir.constants[node.inputs[1]].to_array()
        names[1] = self._store(np.swapaxes(weights, 0, 1))
        extra = node.integers("output_padding")
        self._add("ConvTranspose", names, node, output_padding=extra, **self._window(node))

    def _pooling(self, node: Node, names: list[str]) -> None:
        is_max = node.attrs["algorithm"] == "max"
        extra = {} if is_max else {"count_include_pad": int(node.attrs["algorithm"] == "avg_include_padding")}
        operator = "MaxPool" if is_max else "AveragePool"
        self._add(operator, names, node, kernel_shape=node.integers("kernel"), **extra, **self._window(node))

    def _eltwise(self, node: Node, names: list[str]) -> None:
        algorithm, alpha, beta = str(node.attrs["algorithm"]), node.number("alpha"), node.number("beta")
        if algorithm in ("gelu_erf", "gelu_tanh"):
            self._add("Gelu", names, node, approximate="tanh" if algorithm == "gelu_tanh" else "none")
        elif algorithm == "hardsigmoid":
            self._add("HardSigmoid", names, node, alpha=alpha, beta=beta)
        elif algorithm == "linear":
            scaled = self._add("Mul", [*names, self._store(np.float32(alpha))])
            self._add("Add", [scaled, self._store(np.float32(beta))], node)
        elif algorithm in _ELTWISE:
            self._add(_ELTWISE[algorithm], names, node)
        else:
            raise ValueError(f"eltwise {node.name!r}: {algorithm} has no ONNX operator here")

    def _binary(self, node: Node, names: list[str]) -> None:
        self._add(_BINARY[str(node.attrs["algorithm"])], names, node)

    def _softmax(self, node: Node, names: list[str]) -> None:
        self._add("Softmax", names, node, axis=node.attrs["axis"])

    def _layer_normalization(self, node: Node, names: list[str]) -> None:
        self._add("LayerNormalization", names, node, axis=-1, epsilon=node.number("epsilon"))

    def _batch_normalization(self, node: Node, names: list[str]) -> None:
        src, mean, variance, scale, shift = names
        inputs = [src, scale, shift, mean, variance]
        self._add("BatchNormalization", inputs, node, epsilon=node.number("epsilon"))

    def _concat(self, node: Node, names: list[str]) -> None:
        self._add("Concat", names, node, axis=node.attrs["axis"])

    def _gather(self, node: Node, names: list[str]) -> None:
        self._add("Gather", names, node, axis=node.attrs["axis"])

    def _attention(self, node: Node, names: list[str]) -> None:
        if self._dims(node.inputs[0])[1] != self._dims(node.inputs[1])[1]:
            raise ValueError(f"attention {node.name!r} with shared keys has no ONNX operator here")
        query, key, value, *mask = names
        keys = self._add("Transpose", [key], perm=[0, 1, 3, 2])
        scores = self._add("MatMul", [query, keys])
        scores = self._add("Mul", [scores, self._store(np.float32(node.number("scale")))])
        if node.attrs["causal"]:
            rows, count = self._dims(node.inputs[0])[2], self._dims(node.inputs[1])[2]
            seen = np.tri(rows, count, count - rows, bool)
            mask = [*mask, self._store(np.where(seen, np.float32(0.0), np.float32(-np.inf)))]
        for each in mask:
            scores = self._add("Add", [scores, each])
        self._add("MatMul", [self._add("Softmax", [scores], axis=-1), value], node)

    def _reshape(self, node: Node, names: list[str]) -> None:
        self._add("Reshape", [*names, self._store(np.array(self._dims(node.output), np.int64))], node)

    def _transpose(self, node: Node, names: list[str]) -> None:
        self._add("Transpose", names, node, perm=node.integers("perm"))

    def _slice(self, node: Node, names: list[str]) -> None:
        dims = range(len(self._dims(node.output)))
        sizes = [np.array(node.integers(name), np.int64) for name in ("starts", "ends", "steps")]
        starts, ends, steps = (self._store(each) for each in sizes)
        self._add("Slice", [*names, starts, ends, self._store(np.array(dims, np.int64)), steps], node)


_WRITERS: Final[dict[str, Callable[[_Writer, Node, list[str]], None]]] = {
    name.removeprefix("_"): getattr(_Writer, name)
    for name in (
        "_matmul", "_inner_product", "_convolution", "_deconvolution", "_pooling", "_eltwise", "_binary", "_softmax",
        "_layer_normalization", "_batch_normalization", "_concat", "_gather", "_attention", "_reshape", "_transpose", "_slice",
    )
}  # fmt: skip
