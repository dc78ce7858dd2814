"""What `Pool.load` takes: a graph, or an ONNX model as a path, as bytes or as an ``onnx.ModelProto``."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from poolrt.graph.builder import Graph
from poolrt.settings import Settings
from poolrt.spelling import describe_type

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

_OF_GRAPHS: Final = "batch and shapes are for ONNX models: the shapes of a Graph are those that it was built with"


def to_graph(
    source: object,
    batch: int | None,
    shapes: Mapping[str, Sequence[int]] | None,
    settings: Settings,
    values: Mapping[str, ArrayLike] | None = None,
) -> Graph:
    """Return the graph of ``source``; ``batch``, ``shapes`` and ``values`` are those of `poolrt.load_onnx`.

    Raises TypeError if it is nothing of these, or for sizes beside a graph, and ModelError as `load_onnx` does.
    """
    if isinstance(source, Graph):
        if batch is not None or shapes or values:
            raise TypeError(_OF_GRAPHS)
        return source
    if isinstance(source, str | bytes | bytearray | memoryview | os.PathLike) or _is_proto(source):
        from poolrt.graph.onnx.importer import load_onnx

        return load_onnx(source, batch=batch, shapes=shapes, values=values, constant_bytes=settings.constant_bytes)
    raise TypeError(f"graph: expect a Graph, or the path or the bytes of an ONNX model, got {_describe(source)}")


def to_graphs(
    source: object,
    batch: int | None,
    several: Sequence[Any],
    settings: Settings,
    values: Mapping[str, ArrayLike] | None = None,
) -> Iterator[Graph]:
    """Yield the graph of an ONNX model for each set of shapes; the model is read once. Raises as `to_graph`."""
    if isinstance(source, Graph):
        raise TypeError(_OF_GRAPHS)
    for each in several:
        if not isinstance(each, Mapping):
            example = "{'x': (1, 3)}"
            found = describe_type(each)
            raise TypeError(f"shapes: expect a dict by input, such as {example}, or a list of these, got {found} in it")
    from poolrt.graph.onnx.importer import import_model
    from poolrt.graph.onnx.model_file import read_model

    file = read_model(source)
    initializers = file.initializers()
    for shapes in several:
        yield import_model(file, settings, initializers=initializers, batch=batch, shapes=shapes, values=values)


def _is_proto(source: object) -> bool:
    """Return whether an object is an ``onnx.ModelProto``, without importing onnx."""
    return type(source).__name__ == "ModelProto"


def _describe(source: Any) -> str:
    if source is Graph:
        return "the class Graph: make one with Graph()"
    if type(source).__name__ == "Model":
        return "a Model, which is loaded already: run it"
    if callable(source) and not isinstance(source, type):
        return f"{describe_type(source)}: functions are called with pool.submit(function, ...)"
    return describe_type(source)
