"""Turn an ONNX model into a graph: values by name, one operator after the other."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike

from poolrt.progress import watch_long
from poolrt.settings import Settings
from poolrt.spelling import describe_type, hint

from ..builder import Graph
from ..errors import GraphError, ModelError, UnsupportedNode
from ..source_node import SourceNode
from ..values import Value
from .bounds import Bounds
from .call import NodeCall, Results
from .control_flow import CONTROL_FLOW
from .domains import ML_DOMAIN, ONNX_DOMAINS, imported_version
from .empty_results import OWN_EMPTY, empty_results, has_empty, results_without_rows
from .expansion import MOST_DEPTH, MOST_NODES, Expansion, find_expansion, local_functions
from .folding import Array, Folding
from .model_file import ModelFile, onnx_package, read_model
from .node_order import in_order
from .operators import OPERATORS, OPERATORS_OF, SEQUENCES
from .patterns import Patterns
from .ports import check_output, declared_shape, known_input, open_input
from .read_node import ReadNode, attribute_value, read_nodes
from .scope import Scope
from .signatures import TypeMismatch, expected_types, find_schema
from .tensor_sequence import Item, TensorSequence
from .tensors import Operand, Tensors, Unavailable, array_dtype, array_dtype_name, dtype_of
from .unsupported import Unsupported

#: Inputs of a node that the message of an error has.
_MOST_SHOWN: Final = 4
#: What the message of an error says that only the last resort caught.
UNFORESEEN: Final = "cannot be imported"


def load_onnx(
    model: str | os.PathLike[str] | bytes | Any,
    *,
    batch: int | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    values: Mapping[str, ArrayLike] | None = None,
    name: str | None = None,
    engine: str = "cpu",
    constant_bytes: int | str | None = None,
) -> Graph:
    """Return the graph of an ONNX model: a path, the bytes of a model or an ``onnx.ModelProto``.

    ``batch`` is the size of a first dimension that the model leaves open (1 unless given); ``shapes`` gives the whole
    shape of inputs by name. ``values`` gives inputs that are constant, such as axes and sizes, which a graph has to know.
    Initialisers that are listed as inputs too are constants. Inputs and outputs keep the model's names and data types.
    Large weights stay in the file, which is mapped, until the graph is loaded into a pool, and as long as an executor runs
    it: rename another file over it, and do not overwrite it in place. ``constant_bytes`` bounds all that nodes compute from
    constants, beside the file's own data; by default it is the setting of this name (768 MiB).

    An import that takes over half a second shows a bar, if standard error is a terminal, or a line in a notebook, unless the
    setting ``progress`` is off.

    Raises ModelError if the model cannot be read, needs ``shapes`` or exceeds ``constant_bytes``, UnsupportedNode (a
    ModelError) that names the first node that poolrt cannot compute, and all missing operators, and TypeError for
    arguments of other types. Guarantees: no content of a model raises any other error. Needs the ``onnx`` extra:
    ``pip install 'poolrt[onnx]'``.
    """
    for argument, given, example in (("shapes", shapes, "{'x': (1, 3)}"), ("values", values, "{'axes': [1]}")):
        if given is not None and not isinstance(given, Mapping):
            raise TypeError(f"{argument}: expect a dict by input, such as {example}, got {describe_type(given)}")
    settings = Settings.load(constant_bytes=constant_bytes)
    file = read_model(model)
    return import_model(file, settings, name=name, engine=engine, batch=batch, shapes=shapes, values=values)


def import_model(
    file: ModelFile,
    settings: Settings,
    *,
    initializers: Mapping[str, Array] | None = None,
    nodes: Sequence[ReadNode] | None = None,
    batch: int | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    values: Mapping[str, ArrayLike] | None = None,
    name: str | None = None,
    engine: str = "cpu",
) -> Graph:
    """Return the graph of a model that has been read, for inputs of one set of shapes; see `load_onnx`.

    ``initializers`` and ``nodes`` are those of the file, which several graphs then have in common. Raises what `load_onnx`
    raises.
    """
    try:
        graph = Graph(name or file.name, engine)
        with watch_long("reading", "nodes", graph.name, settings.progress) as show:
            importing = _Import(file, graph, Folding(settings.constant_bytes), show, nodes)
            return importing.run(initializers, batch, dict(shapes or {}), dict(values or {}))
    except UnsupportedNode:
        raise
    except GraphError as error:
        raise ModelError(f"{file.label}: {error}") from error
    except Exception as error:
        # The last resort: protobuf, onnx and NumPy document few of the errors that malformed data make them raise.
        raise ModelError(f"{file.label}: {UNFORESEEN}: {type(error).__name__}: {error}") from error


def find_missing(file: ModelFile, others: Container[str] = ()) -> None:
    """Raise UnsupportedNode that names all operators of a model's graph that poolrt does not have; shapes are not needed.

    ``others`` are operators of ONNX's own domain that the caller has.
    """
    importing = _Import(file, Graph("model"), Folding(0), lambda done, total: None)
    for node in file.proto.graph.node:
        if not importing._is_known(node) and not (node.domain in ONNX_DOMAINS and node.op_type in others):
            importing._add_missing(node)
    importing.unsupported.raise_if_found()


class _Import:
    def __init__(
        self,
        file: ModelFile,
        graph: Graph,
        folding: Folding,
        show: Callable[[int, int], None],
        nodes: Sequence[ReadNode] | None = None,
    ) -> None:
        self.show = show
        self.file = file
        self.folding = folding
        self.proto = file.proto.graph
        self.nodes = read_nodes(self.proto.node) if nodes is None else nodes
        self.graph = graph
        self.opset = imported_version(file.proto.opset_import)
        self.functions = local_functions(file.proto)
        self.names: set[str] = set()
        self.repeated: dict[str, int] = {}
        self.inputs: dict[int, str] = {}
        self.expanded: Counter[str] = Counter()
        self.expansions = 0
        self.expanded_nodes = 0
        self.patterns = Patterns()
        self.bounds = Bounds()
        self.unsupported = Unsupported()

    def run(
        self,
        initializers: Mapping[str, Array] | None,
        batch: int | None,
        shapes: dict[str, Sequence[int]],
        values: dict[str, ArrayLike],
    ) -> Graph:
        if self.proto.sparse_initializer:
            raise ModelError("it has sparse initialisers, which are not supported")
        if not self.proto.output:
            raise ModelError("it has no outputs")
        scope = Scope.of_graph(self.nodes, self.proto.output, self.opset)
        scope.found.update(self.file.initializers() if initializers is None else initializers)
        stored = frozenset(scope.found)
        for declared in self.proto.input:
            if declared.name in stored:
                continue
            if declared.name in scope.found:
                raise ModelError(f"input {declared.name!r}: there is an input of this name already")
            shape = shapes.pop(declared.name, None)
            if declared.name in values:
                scope.found[declared.name] = known_input(declared, values.pop(declared.name))
            else:
                dims, dtype = open_input(declared, batch, shape)
                if 0 in dims:
                    # No run gives a tensor without elements.
                    scope.found[declared.name] = self.folding.fill(np.zeros((), array_dtype(dtype)), dims)
                    continue
                self.graph.declared_shapes[declared.name] = declared_shape(declared)
                value = self.graph.input(declared.name, dims, dtype)
                scope.found[declared.name] = value
                self.inputs[value.id] = declared.name
        for argument, left in (("shapes", shapes), ("values", values)):
            if left:
                name, known = next(iter(left)), [each.name for each in self.proto.input]
                text = f"the model has no input {name!r}; it has {', '.join(known)}{hint(name, known)}"
                raise ModelError(f"{argument}: {text}")
        self._add_nodes(scope)
        self.graph.expanded = dict(self.expanded)
        for declared in self.proto.output:
            result = self._output(declared, scope)
            bound = self.bounds.of(result)
            if not isinstance(result, Value):
                self.graph.empty_output(declared.name, result.shape, array_dtype_name(result))
            elif bound is None:
                self.graph.output(declared.name, result)
            else:
                self.graph.output(declared.name, result, bound.count, bound.axis)
        return self.graph

    def _add_nodes(self, scope: Scope) -> None:
        """Add the nodes of the model's graph. Raises UnsupportedNode that names all that are not supported."""
        nodes, total = iter(in_order(self.nodes, scope.has)), len(self.nodes)
        try:
            for number, node in enumerate(nodes):
                self.show(total, number)
                if self.unsupported.skips(node.input, node.output):
                    if not self._is_known(node):
                        self._add_missing(node)
                    continue
                first, expansions = self.graph.node_count, self.expansions
                try:
                    self._add_node(node, scope)
                    self._note_source(node, scope, first, self.expansions > expansions)
                except UnsupportedNode as error:
                    missing = _full_name(node) if isinstance(error, _MissingOperator) else ""
                    self.unsupported.add(error, node.output, missing=missing)
                except ModelError as error:
                    if error.is_computed:
                        error.stopped_at = next((str(name) for name in node.output if name), "")
                    raise
        except Exception:
            if self.unsupported.found:  # these nodes come first
                for node in nodes:
                    if not self._is_known(node):
                        self._add_missing(node)
            self.unsupported.raise_if_found()
            raise
        self.unsupported.raise_if_found()

    def _note_source(self, node: ReadNode, scope: Scope, first: int, expanded: bool) -> None:
        """Note which nodes of the graph a node of the model became."""
        known = not any(_is_computed(scope.found.get(name)) for name in node.output)
        names = _label(node), node.op_type, scope.opset, node.input, node.output
        self.graph.sources.append(SourceNode(*names, first, self.graph.node_count, known, expanded))

    def _is_known(self, node: Any) -> bool:
        if (node.domain, node.op_type) in self.functions:
            return True
        if node.op_type in OPERATORS_OF.get(node.domain, {}):
            return True
        if node.domain in ONNX_DOMAINS and node.op_type in (*OPERATORS, *CONTROL_FLOW, *SEQUENCES):
            return True
        domain = "" if node.domain in ONNX_DOMAINS else node.domain
        schema = find_schema(node.op_type, domain, self._version(node.domain, self.opset))
        return schema is not None and bool(schema.has_function or schema.has_context_dependent_function)

    def _version(self, domain: str, opset: int) -> int:
        """Return the version of the operators of a domain; ``opset`` is that of ONNX's own here."""
        if domain in ONNX_DOMAINS:
            return opset
        return imported_version(self.file.proto.opset_import, (domain,))

    def _add_missing(self, node: Any) -> None:
        """Note a node whose operator poolrt does not have."""
        self.unsupported.add(_missing(node, _label(node), self.opset), node.output, missing=_full_name(node))

    def _add_node(self, node: ReadNode, scope: Scope) -> None:
        """Add one node. Raises UnsupportedNode for what poolrt does not have, ModelError for what is no ONNX."""
        attributes = scope.attributes(node)
        call = self._call(node, attributes, scope)
        if not node.output:
            raise call.malformed("it has no output")
        try:
            results = self._results(node, attributes, call, scope)
        except ModelError as error:
            self.bounds.mark(error, call.operands)
            raise
        except Unavailable as error:
            raise self.bounds.mark(call.unsupported(str(error)), call.operands) from error
        except (ArithmeticError, GraphError, ValueError, TypeError, IndexError) as error:
            raise self.bounds.mark(call.malformed(f"{error}{_inputs(node, call)}"), call.operands) from error
        for name, result in zip(node.output, results, strict=False):
            if name and result is not None:
                if name in scope.found:
                    raise call.malformed(f"its result {name!r} is the name of another value; give each value one name")
                scope.found[name] = result

    def _results(
        self, node: ReadNode, attributes: Sequence[Any], call: NodeCall, scope: Scope
    ) -> tuple[Item | None, ...]:
        local = self.functions.get((node.domain, node.op_type))
        if local is not None:
            return self._expand(local, attributes, call, scope)
        if node.domain in ONNX_DOMAINS and node.op_type in SEQUENCES:
            return (SEQUENCES[node.op_type](call),)
        if node.domain in ONNX_DOMAINS and node.op_type == "Identity" and call.sequences:
            return (call.sequence(0),)
        if call.sequences and not (node.domain in ONNX_DOMAINS and node.op_type in CONTROL_FLOW):
            raise call.unsupported(f"its input {min(call.sequences)} is a sequence of tensors")
        if node.domain not in ONNX_DOMAINS:
            foreign = OPERATORS_OF.get(node.domain, {}).get(node.op_type)
            if foreign is None:
                return self._define(node, attributes, call, scope, None)
            if node.domain == ML_DOMAIN and (found := results_without_rows(call, foreign)) is not None:
                return found
            return self.bounds.carry(call, _as_tuple(foreign(call)))
        if node.op_type in CONTROL_FLOW:
            return CONTROL_FLOW[node.op_type](call, scope, self._add_inner)
        schema = find_schema(node.op_type, "", scope.opset)
        expected: Sequence[frozenset[str] | None] = [None] * len(node.output)
        if schema is not None:
            try:
                expected = expected_types(schema, call.operands, len(node.output))
            except TypeMismatch as error:
                raise call.malformed(str(error)) from error
        results = self._compute(node, attributes, call, scope)
        for index, (result, types) in enumerate(zip(results, expected, strict=False)):
            if isinstance(result, TensorSequence) or result is None or types is None:
                continue
            if dtype_of(result) not in types:
                wanted = " or ".join(sorted(types))
                raise call.unsupported(f"its result {index} would be of type {dtype_of(result)}; expect {wanted}")
        return results

    def _compute(
        self, node: ReadNode, attributes: Sequence[Any], call: NodeCall, scope: Scope
    ) -> tuple[Item | None, ...]:
        """Return the results of an operator, of the function that defines it if poolrt has no other form of it."""
        has_own = node.op_type in OWN_EMPTY or not has_empty(call.operands)
        if not has_own and (schema := find_schema(node.op_type, "", scope.opset)) is not None:
            given = _resolved(node, attributes)
            empty = empty_results(schema, given, scope.opset, call.operands, call.outputs)
            if empty is not None:
                return empty
        operator = OPERATORS.get(node.op_type)
        refused: Exception | None = None
        if operator is not None:
            try:
                return self.bounds.carry(call, _as_tuple(operator(call)))
            except (UnsupportedNode, Unavailable) as error:
                refused = error
        return self._define(node, attributes, call, scope, refused)

    def _define(
        self, node: ReadNode, attributes: Sequence[Any], call: NodeCall, scope: Scope, refused: Exception | None
    ) -> tuple[Item | None, ...]:
        """Return the results of the function that defines an operator. Raises ``refused``, or that there is none."""
        body = find_expansion(
            _resolved(node, attributes), scope.opset, self._version(node.domain, scope.opset), call.operands
        )
        if body is None:
            raise refused or _missing(node, call.label, scope.opset)
        try:
            results = self._expand(body, attributes, call, scope)
        except UnsupportedNode as error:
            if refused is not None:
                raise refused from error
            why = f", and the function that defines it needs {error.operator}: {error.reason}"
            missing = _missing(node, call.label, scope.opset, why)
            missing.is_computed = error.is_computed
            raise missing from error
        self.expanded[node.op_type] += 1
        self.expansions += 1
        return results

    def _expand(
        self, body: Expansion, attributes: Sequence[Any], call: NodeCall, outer: Scope
    ) -> tuple[Item | None, ...]:
        """Add the nodes of a function's body and return its results."""
        scope = Scope.of_function(body, attributes, call.items(), call.label, outer.depth + 1)
        self._add_inner(body.nodes, scope, call)
        return tuple(scope.find(name) if index in call.outputs else None for index, name in enumerate(body.outputs))

    def _add_inner(self, nodes: Sequence[Any], scope: Scope, call: NodeCall) -> None:
        """Add the nodes of a branch, of one pass of a loop, or of a function's body."""
        self.expanded_nodes += len(nodes)
        if scope.depth > MOST_DEPTH or self.expanded_nodes > MOST_NODES:
            raise call.computed(f"functions of more than {MOST_NODES} nodes, or nested deeper than {MOST_DEPTH}")
        for node in in_order(read_nodes(nodes), scope.has):
            self._add_node(node, scope)

    def _call(self, node: ReadNode, attributes: Sequence[Any], scope: Scope) -> NodeCall:
        label = scope.label(_label(node))
        operands: list[Operand | None] = []
        sequences: dict[int, TensorSequence] = {}
        for index, name in enumerate(node.input):
            if name and not scope.has(name):
                reader = f"node {label!r} ({node.op_type}, opset {scope.opset})"
                raise ModelError(f"{reader} reads {name!r}, which no node before it computes{hint(name, scope.found)}")
            found = scope.find(name) if name else None
            if isinstance(found, TensorSequence):
                sequences[index] = found
            operands.append(None if isinstance(found, TensorSequence) else found)
        used = frozenset(index for index, name in enumerate(node.output) if name in scope.read)
        if scope.given is None:
            attrs = node.values(label)
        else:  # they may refer to those of the function's node
            attrs = {each.name: attribute_value(each, label) for each in attributes}
        name = self._unique(label)
        math = Tensors(self.graph, self.folding, lambda part: self._unique(f"{name}/{part}"))
        where = (self.graph, name, label, node.op_type, scope.opset)
        return NodeCall(
            *where,
            tuple(operands),
            attrs,
            used,
            len(node.output),
            self._unique,
            self.folding,
            math,
            self.inputs,
            self.patterns,
            self.bounds,
            sequences,
        )

    def _unique(self, label: str) -> str:
        """Return a node name that is not in use: models may leave names out or repeat them."""
        name = label
        while name in self.names:
            number = self.repeated[label] = self.repeated.get(label, 1) + 1
            name = f"{label}#{number}"
        self.names.add(name)
        return name

    def _output(self, declared: Any, scope: Scope) -> Operand:
        """Return an output: a tensor of the graph, or a known array without elements."""
        found = scope.find(declared.name) if scope.has(declared.name) else None
        if found is None:
            raise ModelError(f"output {declared.name!r}: no node computes it")
        if isinstance(found, TensorSequence):
            raise ModelError(f"output {declared.name!r} is a sequence of tensors; a graph has tensors only")
        check_output(declared, found)
        try:
            if not isinstance(found, Value) and not found.size:
                array_dtype_name(found)
                return found
            return Tensors(self.graph, self.folding, self._unique).value(found)
        except ValueError as error:
            raise ModelError(f"output {declared.name!r}: {error}") from error


class _MissingOperator(UnsupportedNode):
    """A node whose operator poolrt does not have at all."""


def _missing(node: Any, label: str, opset: int, why: str = "") -> _MissingOperator:
    where = "" if node.domain in ONNX_DOMAINS else f" of domain {node.domain}"
    if not (where or why) and find_schema(node.op_type, "", opset) is None:
        why = f", nor has ONNX in this opset{hint(node.op_type, (*OPERATORS, *CONTROL_FLOW, *SEQUENCES))}"
    return _MissingOperator(label, node.op_type, opset, f"poolrt has no such operator{where}{why}")


def _resolved(node: ReadNode, attributes: Sequence[Any]) -> Any:
    """Return a node with its attributes' values in place of references to those of a function."""
    given = onnx_package().NodeProto()
    given.CopyFrom(node.proto)
    del given.attribute[:]
    given.attribute.extend(attributes)
    return given


def _inputs(node: Any, call: NodeCall) -> str:
    """Return the end of a message about operands that do not go together: names, data types and shapes of inputs."""
    pairs = zip(node.input, call.operands, strict=False)
    shown = [f"{name} {dtype_of(each)}{list(each.shape)}" for name, each in pairs if each is not None]
    more = len(shown) - _MOST_SHOWN
    listed = ", ".join(shown[:_MOST_SHOWN]) + (f" and {more} more" if more > 0 else "")
    return f"; inputs: {listed}" if shown else ""


def _full_name(node: Any) -> str:
    return str(node.op_type) if node.domain in ONNX_DOMAINS else f"{node.domain}.{node.op_type}"


def _is_computed(found: Item | None) -> bool:
    """Return whether a graph computes a tensor, or one of a sequence."""
    return any(isinstance(each, Value) for each in (found.items if isinstance(found, TensorSequence) else (found,)))


def _as_tuple(results: Results) -> tuple[Operand | None, ...]:
    return results if isinstance(results, tuple) else (results,)


def _label(node: Any) -> str:
    """Return a node's name in messages: its own, else its result's."""
    return str(node.name or (node.output[0] if node.output else node.op_type))
