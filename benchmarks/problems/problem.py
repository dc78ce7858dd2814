"""A single operation on one shape: how poolrt computes it, the ONNX model of it, and its inputs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from poolrt import Graph
from poolrt.graph.values import Value

Array = NDArray[Any]
_OPSET: Final = 23


@dataclass(frozen=True)
class Problem:
    """One operation on one shape: how poolrt's graph computes it, and ONNX's node, whose further inputs are constants."""

    family: str
    name: str
    dims: tuple[int, ...]
    build: Callable[..., Value | tuple[Value, ...]]
    node: str
    constants: tuple[Array | None, ...] = ()
    attributes: dict[str, Any] = field(default_factory=dict)
    #: How many inputs of the same shape the operation combines.
    inputs: int = 1
    #: The data type of the inputs.
    dtype: str = "float32"
    #: The order of inputs and constants, in numbers of them, unless inputs come first.
    order: tuple[int, ...] = ()
    #: Integer inputs are below this, unless it is 0.
    below: int = 0
    #: How many results the operation has; ``build`` returns a tuple of several.
    results: int = 1
    #: The shape of the second input, unless it is that of the first.
    second: tuple[int, ...] = ()
    #: The domain of the node's operator.
    domain: str = ""
    #: The largest difference of results as a share of the largest number, unless it is that of the data type.
    near: float = 0.0

    def __str__(self) -> str:
        kind = "" if self.dtype == "float32" else f"{self.dtype} "
        return f"{kind}{self.name} {'x'.join(map(str, self.dims))}"

    def model(self) -> bytes:
        """Return the ONNX model."""
        given = [(f"c{number}", value) for number, value in enumerate(self.constants)]
        names = [*self.arrays(), *(name if value is not None else "" for name, value in given)]
        names = [names[place] for place in self.order] or names
        made = helper.make_node(self.node, names, self._outputs(), domain=self.domain, **self.attributes)
        stored = [numpy_helper.from_array(value, name) for name, value in given if value is not None]
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(self.dtype))
        sources = [helper.make_tensor_value_info(name, kind, array.shape) for name, array in self.arrays().items()]
        results = [helper.make_empty_tensor_value_info(name) for name in self._outputs()]
        graph = helper.make_graph([made], "operation", sources, results, stored)
        opset = [helper.make_opsetid("", _OPSET), *([helper.make_opsetid(self.domain, 1)] if self.domain else [])]
        whole: bytes = helper.make_model(graph, opset_imports=opset, ir_version=10).SerializeToString()
        return whole

    def graph(self) -> Graph:
        """Return poolrt's graph."""
        g = Graph("operation")
        inputs = [g.input(name, array.shape, self.dtype) for name, array in self.arrays().items()]
        built = self.build(g, *inputs)
        for name, value in zip(self._outputs(), built if isinstance(built, tuple) else (built,), strict=True):
            g.output(name, value)
        return g

    def arrays(self) -> dict[str, Array]:
        """Return the inputs by name."""
        if self.below:
            return {"x0": np.random.default_rng(0).integers(0, self.below, self.dims, self.dtype)}
        found = {}
        for number, dims in enumerate((self.dims, self.second or self.dims)[: self.inputs]):
            values = normals(*dims)
            if np.dtype(self.dtype).kind in "iu":
                values = np.abs(50.0 * values).round()
            found[f"x{number}"] = values.astype(self.dtype)
        return found

    def nbytes(self) -> int:
        """Return the least bytes that the operation reads and writes; of a table, it reads no more than its result."""
        graph = self.graph()
        types = graph.output_types
        sizes = (math.prod(dims) * np.dtype(types[name]).itemsize for name, dims in graph.outputs.items())
        written = sum(sizes)
        given = sum(array.nbytes for array in self.arrays().values())
        stored = sum(value.nbytes for value in self.constants if value is not None)
        return given + (min(stored, written) if self.node == "Gather" else stored) + written

    def _outputs(self) -> list[str]:
        return [f"y{number}" for number in range(self.results)]


def normals(*dims: int) -> Array:
    """Return values drawn from a seed."""
    return np.random.default_rng(len(dims)).standard_normal(dims).astype(np.float32)
