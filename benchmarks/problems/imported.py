"""Problems that are ONNX models of a few nodes: poolrt computes the graph that it imports from the model."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from poolrt import Graph, load_onnx

from .problem import normals

Array = NDArray[Any]
_OPSET: Final = 21
_MICROSOFT: Final = "com.microsoft"
#: A result is rounded to another of 255 steps if it is nearly half-way between two.
_STEP: Final = 1.1 / 127


@dataclass(frozen=True)
class Imported:
    """Nodes as an ONNX model, with arrays as inputs and constants; it has the interface of `Problem`."""

    family: str
    name: str
    dims: tuple[int, ...]
    nodes: tuple[Any, ...]
    given: Mapping[str, Array]
    stored: Mapping[str, Array]
    results: tuple[str, ...] = ("y",)
    near: float = 0.0
    dtype: str = "float32"

    def __str__(self) -> str:
        return f"{self.name} {'x'.join(map(str, self.dims))}"

    def model(self) -> bytes:
        """Return the ONNX model."""
        sources = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in self.given.items()
        ]
        stored = [numpy_helper.from_array(value, name) for name, value in self.stored.items()]
        results = [helper.make_empty_tensor_value_info(name) for name in self.results]
        graph = helper.make_graph(list(self.nodes), "operation", sources, results, stored)
        opset = [helper.make_opsetid("", _OPSET), helper.make_opsetid(_MICROSOFT, 1)]
        whole: bytes = helper.make_model(graph, opset_imports=opset, ir_version=10).SerializeToString()
        return whole

    def graph(self) -> Graph:
        """Return poolrt's graph."""
        return load_onnx(self.model())

    def arrays(self) -> dict[str, Array]:
        """Return the inputs by name."""
        return dict(self.given)

    def nbytes(self) -> int:
        """Return the bytes of inputs, constants and results."""
        graph = self.graph()
        written = sum(
            math.prod(dims) * np.dtype(graph.output_types[name]).itemsize for name, dims in graph.outputs.items()
        )
        return written + sum(array.nbytes for array in (*self.given.values(), *self.stored.values()))


def _bytes(dtype: str, *dims: int) -> Array:
    info = np.iinfo(dtype)
    return np.random.default_rng(len(dims)).integers(info.min, info.max + 1, dims, dtype)


def _node(kind: str, reads: str, *writes: str, domain: str = "", **attributes: Any) -> Any:
    return helper.make_node(kind, reads.split(), list(writes or ("y",)), domain=domain, **attributes)


def quantised_while_running() -> Iterator[Imported]:
    """Yield tensors that are quantised with scales that the run computes, and products of them."""
    for dims in ((1, 768), (8, 768), (128, 768), (197, 768), (512, 1024)):
        yield Imported(
            "dynamic", "dynamic quantize", dims, (_node("DynamicQuantizeLinear", "x", "y", "s", "z"),),
            {"x": normals(*dims)}, {}, ("y", "s", "z"), _STEP,
        )  # fmt: skip
    for rows, depth, columns in ((1, 768, 768), (1, 768, 3072), (16, 768, 768), (128, 768, 768)):
        nodes = (
            _node("DynamicQuantizeLinear", "x", "q", "s", "z"),
            _node("MatMulInteger", "q w z", "y"),
        )
        yield Imported(
            "dynamic", "dynamic quantize, product", (rows, depth, columns), nodes, {"x": normals(rows, depth)},
            {"w": _bytes("int8", depth, columns) // 2}, near=_STEP,
        )  # fmt: skip


def quantised_by_channel() -> Iterator[Imported]:
    """Yield computed tensors that are quantised with a scale for each channel."""
    for dims, axis in (((768, 768), 0), ((768, 768), 1), ((64, 64, 3, 3), 0), ((1, 64, 56, 56), 1), ((128, 768), 1)):
        scales = np.linspace(0.01, 0.03, dims[axis], dtype=np.float32)
        yield Imported(
            "by channel", f"quantize along axis {axis}", dims, (_node("QuantizeLinear", "x s z", axis=axis),),
            {"x": normals(*dims)}, {"s": scales, "z": np.zeros(dims[axis], np.int8)}, near=_STEP,
        )  # fmt: skip


def integer_products() -> Iterator[Imported]:
    """Yield products of two computed matrices of bytes."""
    sizes = (
        (1, 512, 512),
        (1, 768, 3072),
        (4, 767, 765),
        (64, 64, 64),
        (128, 768, 768),
        (128, 64, 128),
        (256, 256, 256),
    )
    for rows, depth, columns in sizes:
        for kind in ("int8", "uint8"):
            yield Imported(
                "integer products", f"integer product u8 by {kind}", (rows, depth, columns), (_node("MatMulInteger", "a b"),),
                {"a": _bytes("uint8", rows, depth), "b": _bytes(kind, depth, columns) // 2}, {}, near=1e-9,
            )  # fmt: skip
    for rows, depth, columns in ((1, 768, 768), (4, 768, 768)):
        yield Imported(
            "integer products", "integer product with zero points", (rows, depth, columns),
            (_node("MatMulInteger", "a b p q"),),
            {
                "a": _bytes("uint8", rows, depth), "b": _bytes("uint8", depth, columns) // 2,
                "p": np.asarray(7, np.uint8), "q": np.asarray(9, np.uint8),
            }, {}, near=1e-9,
        )  # fmt: skip


def quantised_means() -> Iterator[Imported]:
    """Yield global average pooling of bytes."""
    for dims in ((1, 2048, 7, 7), (1, 1280, 7, 7), (1, 64, 56, 56)):
        stored = {
            "s": np.asarray(0.02, np.float32), "z": np.asarray(128, np.uint8),
            "t": np.asarray(0.01, np.float32), "u": np.asarray(128, np.uint8),
        }  # fmt: skip
        node = _node("QLinearGlobalAveragePool", "x s z t u", domain=_MICROSOFT, channels_last=0)
        yield Imported(
            "quantised means", "quantised global mean", dims, (node,), {"x": _bytes("uint8", *dims)}, stored, near=_STEP
        )


def moved() -> Iterator[Imported]:
    """Yield operations that mostly move numbers, and running sums."""
    for dims, axis in (((768, 768), 0), ((128, 768), 0), ((1024, 256), 0), ((128, 768), 1)):
        yield Imported(
            "moved", f"running sum along axis {axis}", dims, (_node("CumSum", "x a"),), {"x": normals(*dims)},
            {"a": np.asarray(axis, np.int64)},
        )  # fmt: skip
    for dims in ((1, 64, 56, 56), (1, 256, 28, 28)):
        yield Imported(
            "moved", "depth to space", dims, (_node("DepthToSpace", "x", blocksize=2),), {"x": normals(*dims)}, {}
        )
        yield Imported(
            "moved", "space to depth", dims, (_node("SpaceToDepth", "x", blocksize=2),), {"x": normals(*dims)}, {}
        )
        how = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        node = helper.make_node("Resize", ["x", "", "r"], ["y"], **how)
        yield Imported(
            "moved", "nearest resize by 2", dims, (node,), {"x": normals(*dims)},
            {"r": np.asarray((1, 1, 2, 2), np.float32)},
        )  # fmt: skip
        yield Imported(
            "moved", "add of a number a channel", dims, (_node("Add", "x b"),), {"x": normals(*dims)},
            {"b": normals(1, dims[1], 1, 1)},
        )  # fmt: skip
        yield Imported(
            "moved", "deconvolution 2x2 / 2", dims, (_node("ConvTranspose", "x w", strides=[2, 2]),),
            {"x": normals(*dims)}, {"w": normals(dims[1], dims[1] // 2, 2, 2)},
        )  # fmt: skip
    for left, right in (((128, 768), (1, 768)), ((128, 768), (128, 1)), ((1, 12, 128, 128), (1, 1, 1, 128))):
        yield Imported(
            "moved", f"add of {'x'.join(map(str, right))}", left, (_node("Add", "a b"),),
            {"a": normals(*left), "b": normals(*right)}, {},
        )  # fmt: skip


def splits() -> Iterator[Imported]:
    """Yield tensors in parts: a detector's boxes, small rows, queries with keys and values, and channels."""
    for dims, axis, count in (((1, 8400, 85), 2, 5), ((64, 64), 0, 4), ((128, 2304), 1, 3), ((1, 64, 56, 56), 1, 2)):
        names = [f"y{number}" for number in range(count)]
        node = helper.make_node("Split", ["x"], names, axis=axis, num_outputs=count)
        title = f"split along {axis} in {count}"
        yield Imported("split", title, dims, (node,), {"x": normals(*dims)}, {}, tuple(names))


def grids() -> Iterator[Imported]:
    """Yield images of few and of many channels, sampled at places that are drawn."""
    for dims, sizes in (((1, 3, 224, 224), (224, 224)), ((4, 64, 56, 56), (56, 56)), ((8, 32, 28, 28), (28, 28))):
        places = np.random.default_rng(1).uniform(-1, 1, (dims[0], *sizes, 2)).astype(np.float32)
        for mode in ("linear", "nearest"):
            node = _node("GridSample", "x g", mode=mode, align_corners=0)
            yield Imported("grid", f"{mode} at places of a grid", dims, (node,), {"x": normals(*dims), "g": places}, {})
