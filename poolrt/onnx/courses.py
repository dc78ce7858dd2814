"""Branches and loops that no single plan computes: a run takes the branch, or the passes, that tensors before them choose."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import numpy as np

from poolrt.graph.onnx.domains import ONNX_DOMAINS

from .errors import InvalidGraph
from .parts import Body, Part
from .strings import dtype_of_number

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Arrays: TypeAlias = Mapping[str, NDArray[Any]]

#: Operators whose nodes a course computes.
COURSES: Final = ("If", "Loop", "Scan")


class Compute(Protocol):
    """Computes the outputs of a part from arrays by name, of which there may be more than it reads."""

    def __call__(self, arrays: Arrays) -> dict[str, NDArray[Any]]: ...


def find_course(part: Part, start: Callable[[Body, Sequence[str]], Compute]) -> Course | None:
    """Return the course of the only node of a part, None if it has none; ``start`` makes what computes outputs of a body."""
    node = part.only
    if node is None or node.domain not in ONNX_DOMAINS or node.op_type not in COURSES:
        return None
    if part.body.sequences.intersection((*node.input, *node.output)):
        return None
    if node.op_type == "Scan" and not _attribute(node, "num_scan_inputs"):
        return None
    return Course(part, node, start)


class Course:
    """Computes the results of an If, Loop or Scan by runs of its branches, each of which has plans of its own."""

    def __init__(self, part: Part, node: Any, start: Callable[[Body, Sequence[str]], Compute]) -> None:
        self._part = part
        self._node = node
        self._start = start
        self._branches: dict[str, tuple[Any, Compute]] = {}
        fixed = [each for each in node.input if part.body.maker.get(each) in part.body.fixed]
        self._fixed: Compute | None = start(part.body, fixed) if fixed else None
        for name in ("then_branch", "else_branch") if node.op_type == "If" else ("body",):
            graph = _attribute(node, name)
            if not hasattr(graph, "node"):
                raise self._malformed(f"attribute {name} is missing, or no graph")
            ports = [each.name for each in graph.input]
            outputs = [each.name for each in graph.output]
            self._branches[name] = graph, start(part.body.branch(graph, ports), outputs)

    @property
    def _label(self) -> str:
        return str(self._node.name or self._node.output[0])

    def run(self, arrays: Arrays) -> dict[str, NDArray[Any]]:
        """Return the results of the node by name."""
        known = {**self._part.body.constants, **arrays}
        if self._fixed is not None:
            known |= self._fixed({})
        operands = [known[name] if name else None for name in self._node.input]
        if not operands:
            raise self._malformed("it has no inputs")
        if self._node.op_type == "If":
            results = self._branch(known, operands)
        elif self._node.op_type == "Loop":
            results = self._loop(known, operands)
        else:
            results = self._scan(known, [each for each in operands if each is not None])
        return {name: each for name, each in zip(self._node.output, results, strict=False) if name}

    def _branch(self, known: Arrays, operands: Sequence[Any]) -> list[NDArray[Any]]:
        name = "then_branch" if self._truth(operands[0]) else "else_branch"
        return self._pass(name, known, ())

    def _loop(self, known: Arrays, operands: Sequence[Any]) -> list[NDArray[Any]]:
        most = None if operands[0] is None else self._single(operands[0], "the number of passes")
        goes_on = len(operands) < 2 or operands[1] is None or self._truth(operands[1])
        carried: list[NDArray[Any]] = list(operands[2:])
        graph = self._branches["body"][0]
        self._require_outputs(graph, 1 + len(carried))
        collected: list[list[NDArray[Any]]] = [[] for _ in graph.output[1 + len(carried) :]]
        done = 0
        while goes_on and (most is None or done < most):
            given = [np.asarray(done, np.int64), np.asarray(True), *carried]
            condition, *results = self._pass("body", known, given)
            carried = results[: len(carried)]
            for parts, result in zip(collected, results[len(carried) :], strict=True):
                parts.append(result)
            goes_on = self._truth(condition)
            done += 1
        if not done:
            carried = [np.array(each) for each in carried]
        ports = graph.output[1 + len(carried) :]
        return [*carried, *(self._stack(parts, port, 0) for parts, port in zip(collected, ports, strict=True))]

    def _scan(self, known: Arrays, operands: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        node, graph = self._node, self._branches["body"][0]
        states = len(operands) - int(_attribute(node, "num_scan_inputs"))
        self._require_outputs(graph, max(states, 0))
        sequences, ports = operands[states:], graph.output[states:]
        axes = _attribute(node, "scan_input_axes") or [0] * len(sequences)
        backwards = _attribute(node, "scan_input_directions") or [0] * len(sequences)
        result_axes = _attribute(node, "scan_output_axes") or [0] * len(ports)
        turned = _attribute(node, "scan_output_directions") or [0] * len(ports)
        lengths = {each.shape[axis] for each, axis in zip(sequences, axes, strict=True)}
        if len(lengths) != 1:
            raise self._malformed(f"sequences of lengths {sorted(lengths)}")
        (length,) = lengths
        carried = list(operands[:states])
        collected: list[list[NDArray[Any]]] = [[] for _ in ports]
        for step in range(length):
            taken = [
                np.take(each, length - 1 - step if back else step, axis)
                for each, axis, back in zip(sequences, axes, backwards, strict=True)
            ]
            results = self._pass("body", known, [*carried, *taken])
            carried = results[:states]
            for parts, result in zip(collected, results[states:], strict=True):
                parts.append(result)
        if not length:
            carried = [np.array(each) for each in carried]
        stacked = [
            self._stack(parts[::-1] if back else parts, port, axis)
            for parts, port, axis, back in zip(collected, ports, result_axes, turned, strict=True)
        ]
        return [*carried, *stacked]

    def _pass(self, name: str, known: Arrays, given: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        """Run a branch once, and return its results in order."""
        graph, compute = self._branches[name]
        if len(graph.input) != len(given):
            raise self._malformed(f"{name} has {len(graph.input)} inputs; expect {len(given)}")
        found = compute({**known, **dict(zip((each.name for each in graph.input), given, strict=True))})
        return [found[each.name] for each in graph.output]

    def _stack(self, parts: Sequence[NDArray[Any]], port: Any, axis: int) -> NDArray[Any]:
        """Join what passes give along a new axis; without a pass, a size that the model leaves open is 0."""
        if len({each.shape for each in parts}) > 1:
            shapes = " and ".join(map(str, dict.fromkeys(each.shape for each in parts)))
            raise self._malformed(f"passes give {port.name!r} of shapes {shapes}")
        if parts:
            return np.stack(parts, axis)
        dtype = dtype_of_number(port.type.tensor_type.elem_type)
        if dtype is None:
            raise self._malformed(f"no pass gives {port.name!r}, and the model declares no type of it")
        sizes = [each.dim_value for each in port.type.tensor_type.shape.dim]
        sizes.insert(axis % (len(sizes) + 1), 0)
        return np.zeros(sizes, dtype)

    def _truth(self, array: NDArray[Any]) -> bool:
        return bool(self._single(array, "the condition"))

    def _single(self, array: NDArray[Any], what: str) -> int:
        if array.size != 1 or array.dtype.kind not in "biu":
            raise self._malformed(f"{what} has {array.size} elements of {array.dtype}; expect 1 of bool or an integer")
        return int(array.reshape(()))

    def _require_outputs(self, graph: Any, least: int) -> None:
        if len(graph.output) < least:
            raise self._malformed(f"body has {len(graph.output)} outputs; expect {least} at least")

    def _malformed(self, reason: str) -> InvalidGraph:
        return InvalidGraph(f"node {self._label!r} ({self._node.op_type}): {reason}")


def _attribute(node: Any, name: str) -> Any:
    """Return an attribute that is a graph, an integer or a list of integers, None if it is missing."""
    for each in node.attribute:
        if each.name == name:
            return each.g if each.HasField("g") else list(each.ints) if each.ints else each.i
    return None
