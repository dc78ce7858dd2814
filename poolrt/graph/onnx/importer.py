"""Turn an ONNX model into a graph: values by name, one operator after the other."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from ..builder import Graph
from ..errors import GraphError, ModelError, UnsupportedNode
from ..values import Value
from .call import NodeCall, Operand
from .model_file import FLOAT, ModelFile, onnx_package, read_model
from .operators import OPERATORS

_DOMAINS = ("", "ai.onnx")


def load_onnx(
    model: str | os.PathLike[str] | bytes | Any,
    *,
    batch: int | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    name: str | None = None,
    engine: str = "cpu",
) -> Graph:
    """Return the graph of an ONNX model: a path, the bytes of a model or an ``onnx.ModelProto``.

    ``batch`` is the size of a first dimension that the model leaves open (1 unless given); ``shapes`` gives the whole
    shape of inputs by name. Initialisers that are listed as inputs too are constants. Inputs and outputs keep the
    model's names. Large weights stay in the file, which is mapped, until the graph is loaded into a pool: do not
    overwrite it in place before.

    Raises ModelError if the model cannot be read or needs ``shapes``, and UnsupportedNode (a ModelError) that names
    the first node that poolrt cannot compute. Needs the ``onnx`` extra: ``pip install 'poolrt[onnx]'``.
    """
    file = read_model(model)
    try:
        return _Import(file, Graph(name or file.name, engine)).run(batch, dict(shapes or {}))
    except UnsupportedNode:
        raise
    except GraphError as error:
        raise ModelError(f"{file.label}: {error}") from error


class _Import:
    def __init__(self, file: ModelFile, graph: Graph) -> None:
        self.file = file
        self.proto = file.proto.graph
        self.graph = graph
        self.opset = max((int(o.version) for o in file.proto.opset_import if o.domain in _DOMAINS), default=1)
        self.found: dict[str, Operand] = {}
        self.names: set[str] = set()

    def run(self, batch: int | None, shapes: dict[str, Sequence[int]]) -> Graph:
        if self.proto.sparse_initializer:
            raise ModelError("it has sparse initialisers, which are not supported")
        self.found.update(self.file.initializers())
        for declared in self.proto.input:
            if declared.name not in self.found:
                dims = _input_shape(declared, batch, shapes.pop(declared.name, None))
                self.found[declared.name] = self.graph.input(declared.name, dims)
        if shapes:
            raise ModelError(f"shapes: the model has no input {next(iter(shapes))!r}")
        read = {each for node in self.proto.node for each in node.input} | {each.name for each in self.proto.output}
        for node in self.proto.node:
            self._node(node, read)
        for declared in self.proto.output:
            self.graph.output(declared.name, self._output(declared.name))
        return self.graph

    def _node(self, node: Any, read: set[str]) -> None:
        call = self._call(node, read)
        operator = OPERATORS.get(node.op_type) if node.domain in _DOMAINS else None
        if operator is None:
            where = "" if node.domain in _DOMAINS else f" of domain {node.domain}"
            raise call.unsupported(f"poolrt has no such operator{where}")
        try:
            self.found[node.output[0]] = operator(call)
        except ModelError:
            raise
        except (GraphError, ValueError, TypeError, IndexError) as error:
            raise call.malformed(str(error)) from error

    def _call(self, node: Any, read: set[str]) -> NodeCall:
        label = node.name or (node.output[0] if node.output else node.op_type)
        operands: list[Operand | None] = []
        for name in node.input:
            if name and name not in self.found:
                raise ModelError(f"node {label!r} ({node.op_type}) reads {name!r}, which no node before it computes")
            operands.append(self.found[name] if name else None)
        used = frozenset(index for index, name in enumerate(node.output) if name in read)
        attrs = {a.name: onnx_package().helper.get_attribute_value(a) for a in node.attribute}
        name = self._unique(label)
        return NodeCall(self.graph, name, label, node.op_type, self.opset, tuple(operands), attrs, used, self._unique)

    def _unique(self, label: str) -> str:
        """Return a node name that is not in use: models may leave names out or repeat them."""
        name, number = label, 1
        while name in self.names:
            number += 1
            name = f"{label}#{number}"
        self.names.add(name)
        return name

    def _output(self, name: str) -> Value:
        found = self.found.get(name)
        if found is None:
            raise ModelError(f"output {name!r}: no node computes it")
        # The output may be a known array; it still has to be a tensor of the graph.
        return found if isinstance(found, Value) else self.graph.eltwise(found, "linear", name=self._unique(name))


def _input_shape(declared: Any, batch: int | None, given: Sequence[int] | None) -> tuple[int, ...]:
    """Return the shape of an input, its open first dimension set to the batch."""
    kind = declared.type.tensor_type
    if not declared.type.HasField("tensor_type") or kind.elem_type != FLOAT:
        names = onnx_package().TensorProto.DataType.items()
        found = next((name for name, number in names if number == kind.elem_type), kind.elem_type)
        raise ModelError(f"input {declared.name!r}: expect a tensor of type FLOAT, got {found}")
    if given is not None:
        return tuple(int(size) for size in given)
    if not kind.HasField("shape"):
        raise ModelError(f"input {declared.name!r}: the model gives no shape; pass shapes={{{declared.name!r}: ...}}")
    sizes: list[int] = []
    symbols: dict[str, int] = {}
    for axis, dim in enumerate(kind.shape.dim):
        if dim.dim_value > 0:
            sizes.append(dim.dim_value)
        elif axis == 0 or dim.dim_param in symbols:
            sizes.append(1 if batch is None else batch)
            symbols = {dim.dim_param: sizes[-1]} if dim.dim_param else symbols
        else:
            which = dim.dim_param or "unnamed"
            raise ModelError(
                f"input {declared.name!r}: dimension {axis} ({which}) is open; pass shapes={{{declared.name!r}: ...}}"
            )
    if batch is not None and sizes and sizes[0] != batch:
        raise ModelError(f"input {declared.name!r}: the model fixes its batch at {sizes[0]}; got batch={batch}")
    return tuple(sizes)
