"""Branches and loops whose course is known while a model is loaded: their nodes are added once for each pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from .call import NodeCall
from .scope import Scope
from .tensors import Operand, dtype_of

#: Adds the nodes of a graph in a scope, on behalf of a node.
AddNodes: TypeAlias = Callable[[Sequence[Any], Scope, NodeCall], None]
_Results: TypeAlias = "tuple[Operand | None, ...]"
#: Passes of one loop.
MOST_PASSES: Final = 10_000


def branch(call: NodeCall, outer: Scope, add_nodes: AddNodes) -> _Results:
    """Add the branch that a known condition chooses."""
    chosen = call.graph_attribute("then_branch" if _truth(call, call.known(0, "the condition")) else "else_branch")
    return _run(call, chosen, outer, [], add_nodes)


def loop(call: NodeCall, outer: Scope, add_nodes: AddNodes) -> _Results:
    """Add the body for each pass; how many there are, and when a condition ends them, is known."""
    count = MOST_PASSES
    if call.has(0):
        (count,) = call.known_integers(0, "the number of passes")
    goes_on = _truth(call, call.known(1, "the condition")) if call.has(1) else True
    body = call.graph_attribute("body")
    carried: list[Operand | None] = list(call.operands[2:])
    collected: list[list[Operand]] = [[] for _ in range(len(body.output) - 1 - len(carried))]
    done = 0
    while goes_on and done < count:
        if done >= MOST_PASSES:
            raise call.unsupported(f"more than {MOST_PASSES} passes")
        given = [np.asarray(done, np.int64), np.asarray(True), *carried]
        condition, *results = _run(call, body, outer, given, add_nodes)
        if condition is None:
            raise call.malformed("its body gives no condition")
        carried = list(results[: len(carried)])
        _collect(call, collected, results[len(carried) :])
        goes_on = _truth(call, _known(call, condition))
        done += 1
    return (*carried, *(_stacked(call, each, 0) for each in collected))


def scan(call: NodeCall, outer: Scope, add_nodes: AddNodes) -> _Results:
    """Add the body for each element along an axis of the sequences."""
    if call.opset < 9:
        raise call.unsupported("Scan of opset 8 is not supported")
    body, count = call.graph_attribute("body"), call.integer("num_scan_inputs")
    operands = call.operands_given()
    states = len(operands) - count
    if count < 1 or states < 0 or len(body.output) < states:
        raise call.malformed(f"{count} sequences of {len(operands)} inputs")
    axes = call.integers("scan_input_axes", (0,) * count)
    backwards = call.integers("scan_input_directions", (0,) * count)
    outputs = len(body.output) - states
    output_axes = call.integers("scan_output_axes", (0,) * outputs)
    output_backwards = call.integers("scan_output_directions", (0,) * outputs)
    if len(axes) != count or len(backwards) != count or len(output_axes) != outputs or len(output_backwards) != outputs:
        raise call.malformed("axes or directions do not fit its inputs and outputs")
    sequences = operands[states:]
    if any(call.bounds.of(each) for each in sequences):
        raise call.unsupported("the size of a sequence is known only after a run")
    places = [axis % len(each.shape) for axis, each in zip(axes, sequences, strict=True)]
    lengths = {each.shape[place] for each, place in zip(sequences, places, strict=True)}
    if len(lengths) != 1:
        raise call.malformed(f"sequences of lengths {sorted(lengths)}")
    length = int(lengths.pop())
    if length > MOST_PASSES:
        raise call.unsupported(f"more than {MOST_PASSES} passes")
    carried: list[Operand | None] = list(operands[:states])
    collected: list[list[Operand]] = [[] for _ in range(outputs)]
    for step in range(length):
        elements = []
        for each, place, turned in zip(sequences, places, backwards, strict=True):
            at = length - 1 - step if turned else step
            part = call.math.slice(each, [at], [at + 1], [place], [1])
            elements.append(call.math.squeeze(part, (place,)))
        results = _run(call, body, outer, [*carried, *elements], add_nodes)
        carried = list(results[:states])
        _collect(call, collected, results[states:])
    found = []
    for parts, axis, turned in zip(collected, output_axes, output_backwards, strict=True):
        found.append(_stacked(call, parts[::-1] if turned else parts, axis))
    return (*carried, *found)


def _run(call: NodeCall, graph: Any, outer: Scope, given: Sequence[Operand | None], add_nodes: AddNodes) -> _Results:
    """Add the nodes of a graph that an attribute has, and return its results."""
    scope = Scope.of_branch(graph, outer, call.label)
    scope.found.update(call.initializers(graph))
    if len(given) > len(graph.input):
        raise call.malformed(f"its graph has {len(graph.input)} inputs; expect {len(given)}")
    scope.found.update(zip((each.name for each in graph.input), given, strict=False))
    add_nodes(graph.node, scope, call)
    return tuple(scope.find(each.name) for each in graph.output)


def _collect(call: NodeCall, collected: list[list[Operand]], results: Sequence[Operand | None]) -> None:
    for parts, result in zip(collected, results, strict=True):
        if result is None:
            raise call.malformed("its body leaves a result out")
        parts.append(result)


def _stacked(call: NodeCall, parts: list[Operand], axis: int) -> Operand:
    """Join results along a new axis."""
    if not parts:
        raise call.unsupported("a loop without a pass collects nothing")
    if len({dtype_of(each) for each in parts}) != 1:
        raise call.malformed("its results are of different types")
    for each in parts:
        bound = call.bounds.of(each)
        if bound is not None:
            raise call.unsupported("a result of its body has a size that is known only after a run")
    place = axis % (len(parts[0].shape) + 1)
    return call.math.concat([call.math.unsqueeze(each, (place,)) for each in parts], place)


def _known(call: NodeCall, operand: Operand) -> Any:
    if not isinstance(operand, np.ndarray):
        raise call.unsupported("the condition is computed by the model; it must be constant")
    return operand


def _truth(call: NodeCall, array: Any) -> bool:
    if array.size != 1:
        raise call.malformed(f"the condition has {array.size} elements; expect 1")
    return bool(array.reshape(()))


CONTROL_FLOW: Final = {"If": branch, "Loop": loop, "Scan": scan}
