"""Turn an ONNX model into a graph: values by name, one operator after the other."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from poolrt.settings import Settings
from poolrt.spelling import describe_type, hint

from ..builder import Graph
from ..errors import GraphError, ModelError, UnsupportedNode
from ..values import Value
from .call import NodeCall, Operand, Operator
from .folding import Folding
from .model_file import FLOAT, ModelFile, onnx_package, read_model
from .operators import OPERATORS
from .unsupported import Unsupported

_DOMAINS = ("", "ai.onnx")
#: What the message of an error says that only the last resort caught.
UNFORESEEN: Final = "cannot be imported"


def load_onnx(
    model: str | os.PathLike[str] | bytes | Any,
    *,
    batch: int | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    name: str | None = None,
    engine: str = "cpu",
    constant_bytes: int | str | None = None,
) -> Graph:
    """Return the graph of an ONNX model: a path, the bytes of a model or an ``onnx.ModelProto``.

    ``batch`` is the size of a first dimension that the model leaves open (1 unless given); ``shapes`` gives the whole
    shape of inputs by name. Initialisers that are listed as inputs too are constants. Inputs and outputs keep the
    model's names. Large weights stay in the file, which is mapped, until the graph is loaded into a pool: do not
    overwrite it in place before. ``constant_bytes`` bounds all that nodes compute from constants, beside the file's
    own data; by default it is the setting of this name (768 MiB).

    Raises ModelError if the model cannot be read, needs ``shapes`` or exceeds ``constant_bytes``, UnsupportedNode (a
    ModelError) that names the first node that poolrt cannot compute, and all missing operators, and TypeError for
    arguments of other types. Guarantees: no content of a model raises any other error. Needs the ``onnx`` extra:
    ``pip install 'poolrt[onnx]'``.
    """
    if shapes is not None and not isinstance(shapes, Mapping):
        raise TypeError(
            f"shapes: expect a dict of shapes by input, such as {{'x': (1, 3)}}, got {describe_type(shapes)}"
        )
    folding = Folding(Settings.load(constant_bytes=constant_bytes).constant_bytes)
    file = read_model(model)
    try:
        graph = Graph(name or file.name, engine)
        return _Import(file, graph, folding).run(batch, dict(shapes or {}))
    except UnsupportedNode:
        raise
    except GraphError as error:
        raise ModelError(f"{file.label}: {error}") from error
    except Exception as error:
        # The last resort: protobuf, onnx and NumPy document few of the errors that malformed data make them raise.
        raise ModelError(f"{file.label}: {UNFORESEEN}: {type(error).__name__}: {error}") from error


class _Import:
    def __init__(self, file: ModelFile, graph: Graph, folding: Folding) -> None:
        self.file = file
        self.folding = folding
        self.proto = file.proto.graph
        self.graph = graph
        self.opset = max((int(o.version) for o in file.proto.opset_import if o.domain in _DOMAINS), default=1)
        self.found: dict[str, Operand] = {}
        self.names: set[str] = set()
        self.repeated: dict[str, int] = {}
        self.unsupported = Unsupported()

    def run(self, batch: int | None, shapes: dict[str, Sequence[int]]) -> Graph:
        if self.proto.sparse_initializer:
            raise ModelError("it has sparse initialisers, which are not supported")
        if not self.proto.output:
            raise ModelError("it has no outputs")
        for name in _names(self.proto):
            if not isinstance(name, str):  # protobuf returns the bytes of a name that it cannot decode
                raise ModelError(f"the name {name!r} is not UTF-8")
        self.found.update(self.file.initializers())
        for declared in self.proto.input:
            if declared.name not in self.found:
                dims = _input_shape(declared, batch, shapes.pop(declared.name, None))
                self.found[declared.name] = self.graph.input(declared.name, dims)
        if shapes:
            name, known = next(iter(shapes)), list(self.graph.inputs)
            raise ModelError(f"shapes: the model has no input {name!r}; it has {', '.join(known)}{hint(name, known)}")
        read = {each for node in self.proto.node for each in node.input} | {each.name for each in self.proto.output}
        nodes = iter(self.proto.node)
        try:
            for node in nodes:
                self._node(node, read)
        except Exception:
            if self.unsupported.found:  # these nodes come first
                for node in nodes:
                    if _operator(node) is None:
                        self._add_missing(node)
            self.unsupported.raise_if_found()
            raise
        self.unsupported.raise_if_found()
        for declared in self.proto.output:
            self.graph.output(declared.name, self._output(declared.name))
        return self.graph

    def _node(self, node: Any, read: set[str]) -> None:
        operator = _operator(node)
        skipped = self.unsupported.skips(node.input, node.output)
        if skipped and operator is not None:
            return
        call = None if skipped else self._call(node, read)
        if call is not None and not node.output:
            raise call.malformed("it has no output")
        if call is None or operator is None:
            self._add_missing(node)
            return
        try:
            self.found[node.output[0]] = operator(call)
        except UnsupportedNode as error:
            self.unsupported.add(error, node.output)
        except ModelError:
            raise
        except (ArithmeticError, GraphError, ValueError, TypeError, IndexError) as error:
            raise call.malformed(str(error)) from error

    def _add_missing(self, node: Any) -> None:
        """Note a node whose operator poolrt does not have."""
        where, name = "", node.op_type
        if node.domain not in _DOMAINS:
            where, name = f" of domain {node.domain}", f"{node.domain}.{node.op_type}"
        error = UnsupportedNode(_label(node), node.op_type, self.opset, f"poolrt has no such operator{where}")
        self.unsupported.add(error, node.output, missing=name)

    def _call(self, node: Any, read: set[str]) -> NodeCall:
        label = _label(node)
        operands: list[Operand | None] = []
        for name in node.input:
            if name and name not in self.found:
                raise ModelError(f"node {label!r} ({node.op_type}) reads {name!r}, which no node before it computes")
            operands.append(self.found[name] if name else None)
        used = frozenset(index for index, name in enumerate(node.output) if name in read)
        attrs = {each.name: _attribute(each, label) for each in node.attribute}
        name, unique = self._unique(label), self._unique
        where = (self.graph, name, label, node.op_type, self.opset)
        return NodeCall(*where, tuple(operands), attrs, used, unique, self.folding)

    def _unique(self, label: str) -> str:
        """Return a node name that is not in use: models may leave names out or repeat them."""
        name = label
        while name in self.names:
            number = self.repeated[label] = self.repeated.get(label, 1) + 1
            name = f"{label}#{number}"
        self.names.add(name)
        return name

    def _output(self, name: str) -> Value:
        found = self.found.get(name)
        if found is None:
            raise ModelError(f"output {name!r}: no node computes it")
        # The output may be a known array; it still has to be a tensor of the graph.
        return found if isinstance(found, Value) else self.graph.eltwise(found, "linear", name=self._unique(name))


def _operator(node: Any) -> Operator | None:
    return OPERATORS.get(node.op_type) if node.domain in _DOMAINS else None


def _label(node: Any) -> str:
    """Return a node's name in messages: its own, else its result's."""
    return str(node.name or (node.output[0] if node.output else node.op_type))


def _names(graph: Any) -> Iterator[object]:
    for tensor in (*graph.initializer, *graph.input, *graph.output):
        yield tensor.name
    for node in graph.node:
        yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
        yield from (each.name for each in node.attribute)


def _attribute(attribute: Any, label: str) -> Any:
    try:
        return onnx_package().helper.get_attribute_value(attribute)
    except ValueError as error:
        # The error of the onnx package contains the whole attribute.
        raise ModelError(
            f"node {label!r}: attribute {attribute.name!r} has no value, or one of unknown type"
        ) from error


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
        raise ModelError(f"input {declared.name!r}: the model gives no shape; {_ask_for_shape(declared.name)}")
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
            reason = f"dimension {axis} ({which}) is open; {_ask_for_shape(declared.name)}"
            raise ModelError(f"input {declared.name!r}: {reason}")
    if batch is not None and sizes and sizes[0] != batch:
        raise ModelError(f"input {declared.name!r}: the model fixes its batch at {sizes[0]}; got batch={batch}")
    return tuple(sizes)


def _ask_for_shape(name: str) -> str:
    return f"pass shapes={{{name!r}: ...}}, or --shape {name}=... on the command line"
