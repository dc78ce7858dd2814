"""The model of a session: read once, with one set of weights, and turned into a graph for each set of sizes."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from poolrt.cachestore.deferred_dataclass import replace
from poolrt.graph.errors import ModelError, UnsupportedNode
from poolrt.graph.onnx.domains import ONNX_DOMAINS, imported_version
from poolrt.graph.onnx.element_types import GRAPH_TYPES
from poolrt.graph.onnx.importer import find_missing, import_model
from poolrt.graph.onnx.model_file import ModelFile, read_model, tensor
from poolrt.graph.onnx.read_node import ReadNode, names_read, read_nodes
from poolrt.settings import Settings

from .errors import InvalidArgument, InvalidGraph, InvalidProtobuf, NoSuchFile, as_session_errors, not_implemented
from .maps import take_maps, type_of_maps
from .options import SessionOptions
from .parts import Body, Part
from .signature import Port, metadata, tensor_type
from .string_nodes import check_string_nodes
from .strings import OF_STRINGS, STRING, has_strings, string_tensor
from .text_labels import number_labels

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from poolrt.graph.builder import Graph


class SessionModel:
    """A parsed model. Its initialisers are arrays that all graphs have in common; they never change."""

    def __init__(
        self, source: Any, options: SessionOptions, settings: Settings, engine: str, fpmath_mode: str = "strict"
    ) -> None:
        """Read a model and check what needs no sizes.

        Raises NoSuchFile, InvalidProtobuf, InvalidGraph and NotImplemented, which names all missing operators, and TypeError
        for a source of another type.
        """
        self._file = _read(source)
        proto = self._file.proto
        self._settings = settings
        self._engine = engine
        self._fpmath_mode = fpmath_mode
        self._whole: Part | None = None
        self._nodes: Sequence[ReadNode] | None = None
        with as_session_errors():
            #: The texts of the outputs that graphs compute as numbers of texts, by name.
            self.texts = number_labels(proto.graph)
        #: The labels of the outputs that are maps, which graphs compute as tensors, by name.
        self.maps = take_maps(proto.graph)
        with as_session_errors():
            #: The weights by name.
            self.initializers: dict[str, NDArray[Any]] = self._file.initializers(but=STRING)
            self._strings = {
                each.name: string_tensor(each) for each in proto.graph.initializer if each.data_type == STRING
            }
            #: Whether it computes with strings, which no plan does.
            self.has_strings = has_strings(proto)
        self._replace_initializers(options)
        overrides = options._overrides, options._overrides_by_denotation
        ports = [Port.of(each, *overrides) for each in proto.graph.input]
        constants = {*self.initializers, *self._strings}
        self.inputs = tuple(port for port in ports if port.name not in constants)
        found = [Port.of(each, *overrides) for each in proto.graph.output]
        self.outputs = tuple(self._as_declared(port) for port in found)
        self.overridable = tuple(port for port in ports if port.name in constants)
        self.metadata = metadata(proto)
        for port in self.inputs:
            if port.element_type not in GRAPH_TYPES and port.element_type != STRING:
                reason = f"poolrt has no inputs of {port.type or 'no type'}"
                raise not_implemented(UnsupportedNode(port.name, "input", 0, reason))
        with as_session_errors():
            find_missing(self._file, OF_STRINGS if self.has_strings else ())
            _drop_unused(proto.graph)
            if self.has_strings:
                self._check_strings()

    @property
    def name(self) -> str:
        """The name of its graphs."""
        return self._file.name

    @property
    def opset(self) -> int:
        """The version of ONNX's own operators."""
        return imported_version(self._file.proto.opset_import)

    def _as_declared(self, port: Port) -> Port:
        """Return an output as the model declares it, not as graphs compute it."""
        if port.name in self.maps:
            return replace(port, type=type_of_maps(self.maps[port.name]))
        if port.name in self.texts:
            return replace(port, element_type=STRING, type=tensor_type(STRING))
        return port

    def declared_inputs(self) -> list[Any]:
        """Return the inputs as the model declares them, without the initialisers that are listed as inputs."""
        names = {port.name for port in self.inputs}
        return [each for each in self._file.proto.graph.input if each.name in names]

    def fixed_shapes(self) -> dict[str, tuple[int, ...]] | None:
        """Return the shape of each input if the model leaves no size open, else None."""
        shapes: dict[str, tuple[int, ...]] = {}
        for port in self.inputs:
            sizes = [size for size in port.dims or () if isinstance(size, int) and size > 0]
            if port.dims is None or len(sizes) != len(port.dims):
                return None
            shapes[port.name] = tuple(sizes)
        return shapes

    def graph(self, shapes: Mapping[str, Sequence[int]], values: Mapping[str, NDArray[Any]]) -> Graph:
        """Return the graph for inputs of these shapes, and of these values where sizes depend on them.

        Raises InvalidGraph and NotImplemented.
        """
        if self._nodes is None:
            self._nodes = read_nodes(self._file.proto.graph.node)
        return self._import(self._file, self.initializers, self._nodes, shapes, values)

    def whole_part(self) -> Part:
        """Return the part that has all nodes. Functions of the model are replaced by their nodes."""
        if self._whole is None:
            self._whole = self._make_whole()
        return self._whole

    def _make_whole(self) -> Part:
        proto = self._file.proto
        if proto.functions:
            proto = inline_functions(proto)
        types = {port.name: port.element_type for port in self.inputs}
        body = Body.of(self, proto.graph.node, {**self.initializers, **self._strings}, types, types)
        return body.whole((port.name for port in self.outputs), "")

    def part_graph(
        self,
        view: Any,
        initializers: Mapping[str, NDArray[Any]],
        shapes: Mapping[str, Sequence[int]],
        values: Mapping[str, NDArray[Any]],
    ) -> Graph:
        """Return the graph of a part; ``view`` has the fields of a GraphProto. Raises InvalidGraph and NotImplemented."""
        proto = SimpleNamespace(graph=view, opset_import=self._file.proto.opset_import, functions=())
        return self._import(ModelFile(proto, self._file.label), initializers, read_nodes(view.node), shapes, values)

    def _import(
        self,
        file: ModelFile,
        initializers: Mapping[str, NDArray[Any]],
        nodes: Sequence[ReadNode],
        shapes: Mapping[str, Sequence[int]],
        values: Mapping[str, NDArray[Any]],
    ) -> Graph:
        with as_session_errors():
            graph = import_model(
                file,
                self._settings,
                initializers=initializers,
                nodes=nodes,
                shapes=shapes,
                values=values,
                name=self.name,
                engine=self._engine,
            )
            graph.fpmath_mode = self._fpmath_mode
            return graph

    def store_constants(self) -> None:
        """Make the results of Constant nodes initialisers, so that no import decodes them again, and graphs share them.

        Those that are malformed, and strings, stay nodes. Call it before the first graph is made.
        """
        proto = self._file.proto
        if self.has_strings or proto.functions:
            return
        made = Counter(name for node in proto.graph.node for name in node.output)
        taken = {*self.initializers, *(each.name for each in proto.graph.input)}
        for number in reversed(range(len(proto.graph.node))):
            node = proto.graph.node[number]
            if node.op_type != "Constant" or node.domain not in ONNX_DOMAINS or len(node.output) != 1:
                continue
            name = str(node.output[0])
            array = _stored_array(node)
            if name and array is not None and made[name] == 1 and name not in taken:
                self.initializers[name] = array
                del proto.graph.node[number]

    def _check_strings(self) -> None:
        """Raise NotImplemented for nodes of strings that sessions do not have, InvalidGraph for names without one node each."""
        if not self.outputs:
            raise InvalidGraph(f"{self._file.label}: it has no outputs")
        body = self.whole_part().body
        results = [name for node in body.nodes for name in node.output if name]
        if len({*results}) < len(results):
            twice = next(name for name in results if results.count(name) > 1)
            raise InvalidGraph(f"{self._file.label}: two nodes compute {twice!r}")
        for port in self.outputs:
            if not body.knows(port.name):
                raise InvalidGraph(f"{self._file.label}: no node computes its output {port.name!r}")
        check_string_nodes(body, self.opset)

    def _replace_initializers(self, options: SessionOptions) -> None:
        for name, value in options._initializers.items():
            former = self.initializers.get(name)
            if former is None:
                raise InvalidArgument(f"add_initializer: the model has no initialiser {name!r}")
            given = value.numpy()
            if (given.shape, given.dtype) != (former.shape, former.dtype):
                expected = f"{former.dtype}{list(former.shape)}"
                raise InvalidArgument(
                    f"add_initializer: {name}: expect {expected}, got {given.dtype}{list(given.shape)}"
                )
            self.initializers[name] = given


def inline_functions(proto: Any) -> Any:
    """Return a ModelProto with the nodes of its functions in place of those that call them."""
    from onnx import inliner

    return inliner.inline_local_functions(proto)


def _stored_array(node: Any) -> NDArray[Any] | None:
    """Return the numbers of a Constant that has a tensor, None for another one, and for a malformed tensor."""
    if len(node.attribute) != 1 or node.attribute[0].name != "value" or not node.attribute[0].HasField("t"):
        return None
    try:
        return tensor(node.attribute[0].t, None)
    except ModelError:
        return None


def _drop_unused(graph: Any) -> None:
    """Remove the nodes that no output needs: a model is cut for none of them."""
    makers: dict[str, list[int]] = {}
    for number, node in enumerate(graph.node):
        for name in node.output:
            makers.setdefault(name, []).append(number)
    needed: set[int] = set()
    left = [each.name for each in graph.output]
    while left:
        for number in makers.pop(left.pop(), ()):
            if number not in needed:
                needed.add(number)
                left += names_read([graph.node[number]])
    for number in reversed(range(len(graph.node))) if len(needed) < len(graph.node) else ():
        if number not in needed:
            del graph.node[number]


def _read(source: Any) -> ModelFile:
    if type(source).__name__ == "ModelProto":
        # Plans are made later, too: what the caller changes in a ModelProto meanwhile must not be in them.
        source = source.SerializeToString()
    elif isinstance(source, str | os.PathLike) and not os.path.exists(source):
        raise NoSuchFile(f"Load model from {Path(source)} failed. File doesn't exist")
    elif isinstance(source, bytearray | memoryview):
        source = bytes(source)
    try:
        return read_model(source)
    except TypeError as error:
        raise TypeError(f"Unable to load from type '{type(source)}': {error}") from error
    except ModelError as error:
        raise InvalidProtobuf(str(error)) from error
