"""The names in an ONNX model: of tensors, nodes, operators, attributes, symbols of sizes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def undecodable_name(model: Any) -> object | None:
    """Return the first name of a model that is not UTF-8, None if all are.

    Protobuf returns the bytes of a name that it cannot decode; most code expects text.
    """
    return next((name for name in _names(model) if not isinstance(name, str)), None)


def _names(model: Any) -> Iterator[object]:
    yield from (each.domain for each in model.opset_import)
    yield from _names_in_graph(model.graph)
    for function in model.functions:
        yield from (function.name, function.domain, *function.input, *function.output, *function.attribute)
        yield from (each.domain for each in function.opset_import)
        yield from _names_in_nodes(function.node)


def _names_in_graph(graph: Any) -> Iterator[object]:
    yield from (tensor.name for tensor in graph.initializer)
    for port in (*graph.input, *graph.output):
        yield port.name
        if port.type.HasField("tensor_type"):
            yield from (size.dim_param for size in port.type.tensor_type.shape.dim)
    yield from _names_in_nodes(graph.node)


def _names_in_nodes(nodes: Any) -> Iterator[object]:
    for node in nodes:
        yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
        for attribute in node.attribute:
            yield from (attribute.name, attribute.ref_attr_name)
            for graph in (attribute.g, *attribute.graphs) if attribute.HasField("g") else attribute.graphs:
                yield from _names_in_graph(graph)
