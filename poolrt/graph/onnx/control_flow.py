"""Branches and loops: their nodes are added once for each pass that there may be, and a run chooses between results."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from ..errors import ModelError, UnsupportedNode
from ..values import Value
from .bounds import Bound
from .call import NodeCall
from .scope import Scope
from .tensor_sequence import Item, TensorSequence
from .tensors import Operand, dtype_of, shape_of

#: Adds the nodes of a graph in a scope, on behalf of a node.
AddNodes: TypeAlias = Callable[[Sequence[Any], Scope, NodeCall], None]
_Results: TypeAlias = "tuple[Item | None, ...]"
#: Passes of one loop.
MOST_PASSES: Final = 10_000
#: Passes of a loop that a computed condition ends: a run computes all of them.
_MOST_COUNTED: Final = 256


def branch(call: NodeCall, outer: Scope, add_nodes: AddNodes) -> _Results:
    """Add the branch that a known condition chooses; both if it is computed, and choose between their results."""
    condition = call.operand(0)
    if isinstance(condition, Value):
        return _both(call, condition, outer, add_nodes)
    chosen = call.graph_attribute("then_branch" if _truth(call, call.known(0, "the condition")) else "else_branch")
    return _run(call, chosen, outer, [], add_nodes)


def _both(call: NodeCall, condition: Value, outer: Scope, add_nodes: AddNodes) -> _Results:
    """Return the results of the branch that a run chooses: those of both have one shape and data type."""
    if math.prod(condition.shape) != 1 or condition.dtype != "bool":
        raise call.malformed(f"the condition: expect one bool, got {condition.dtype} of {condition.shape}")
    m = call.math
    one, other = (_branch_that_fits(call, name, outer, add_nodes) for name in ("then_branch", "else_branch"))
    chooses = m.reshape(condition, ())
    results: list[Item | None] = []
    for number, (left, right) in enumerate(zip(one, other, strict=True)):
        if left is None or right is None:
            raise call.computed("a branch leaves a result out, and a run chooses it")
        if isinstance(left, TensorSequence) or isinstance(right, TensorSequence):
            raise call.computed("a run chooses between sequences of tensors; the condition must be constant")
        if call.bounds.of(left) or call.bounds.of(right) or shape_of(left) != shape_of(right):
            asked = call.inputs_of(0)
            what = f"a run chooses between results {number} of shapes {shape_of(left)} and {shape_of(right)}"
            raise call.ask(what, asked) if asked else call.computed(f"{what}; the condition must be constant")
        results.append(m.select(chooses, left, right))
    return tuple(results)


def _branch_that_fits(call: NodeCall, name: str, outer: Scope, add_nodes: AddNodes) -> _Results:
    """Return the results of a branch that a run may choose.

    A model for two kinds of input has a branch for each, of which only the chosen one fits the shapes: no error of the model.
    """
    try:
        return _run(call, call.graph_attribute(name), outer, [], add_nodes)
    except UnsupportedNode:
        raise
    except ModelError as error:
        what = f"a run chooses a branch, and the {name} does not fit: {error}"
        asked = call.inputs_of(0)
        raise (call.ask(what, asked) if asked else call.computed(f"{what}; the condition must be constant")) from error


def loop(call: NodeCall, outer: Scope, add_nodes: AddNodes) -> _Results:
    """Add the body for each pass, of which the number is known, or the most; a computed condition ends them in a run."""
    count = MOST_PASSES
    if call.has(0):
        (count,) = call.known_integers(0, "the number of passes")
    first = call.operand(1) if call.has(1) else np.asarray(True)
    if isinstance(first, Value):
        return _counted_loop(call, count, first, outer, add_nodes)
    goes_on = _truth(call, first)
    body = call.graph_attribute("body")
    carried = call.items()[2:]
    collected: list[list[Operand]] = [[] for _ in range(len(body.output) - 1 - len(carried))]
    done = 0
    while goes_on and done < count:
        if done >= MOST_PASSES:
            raise call.computed(f"more than {MOST_PASSES} passes")
        given = [np.asarray(done, np.int64), np.asarray(True), *carried]
        condition, *results = _run(call, body, outer, given, add_nodes)
        if condition is None or isinstance(condition, TensorSequence):
            raise call.malformed("its body gives no condition")
        if isinstance(condition, Value):
            return _counted_loop(call, count, np.asarray(True), outer, add_nodes)
        carried = list(results[: len(carried)])
        _collect(call, collected, results[len(carried) :])
        goes_on = _truth(call, condition)
        done += 1
    return (*carried, *(_stacked(call, each, 0) for each in collected))


def _counted_loop(call: NodeCall, most: int, first: Operand, outer: Scope, add_nodes: AddNodes) -> _Results:
    """Add all passes that there may be: those after the condition has ended the loop leave what is carried as it is."""
    m, body = call.math, call.graph_attribute("body")
    if not 1 <= most <= _MOST_COUNTED:
        asked = call.inputs_of(1) if call.has(1) else ()
        what = f"the model computes a condition that ends the loop within {most} passes; at most {_MOST_COUNTED} are supported"
        raise call.ask(what, asked) if asked else call.computed(what)
    carried = call.items()[2:]
    collected: list[list[Operand]] = [[] for _ in range(len(body.output) - 1 - len(carried))]
    goes_on: Operand = m.reshape(first, ())
    count: Operand = np.zeros(1, np.int64)
    for done in range(most):
        given = [np.asarray(done, np.int64), np.asarray(True), *carried]
        condition, *results = _run(call, body, outer, given, add_nodes)
        if condition is None or isinstance(condition, TensorSequence):
            raise call.malformed("its body gives no condition")
        for number, new in enumerate(results[: len(carried)]):
            old = carried[number]
            if isinstance(new, TensorSequence) or isinstance(old, TensorSequence):
                raise call.unsupported("a sequence of tensors that a computed loop carries on")
            if new is None or old is None or call.bounds.of(new) or shape_of(new) != shape_of(old):
                raise call.computed(
                    f"what its body carries on as {number} has another shape in each pass of a computed loop"
                )
            carried[number] = m.select(goes_on, new, old)
        _collect(call, collected, results[len(carried) :])
        count = m.binary(count, m.reshape(m.cast(goes_on, "int64"), (1,)), "add")
        goes_on = m.binary(goes_on, m.reshape(condition, ()), "and")
    stacked = [_stacked(call, each, 0) for each in collected]
    for each in stacked:
        call.bounds.note(m.value(each), Bound(0, m.value(count)))
    return (*carried, *(m.value(each) for each in stacked))


def scan(call: NodeCall, outer: Scope, add_nodes: AddNodes) -> _Results:
    """Add the body for each element along an axis of the sequences."""
    if call.opset < 9:
        return _batched_scan(call, outer, add_nodes)
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
        raise call.computed("the size of a sequence is known only after a run")
    places = [axis % len(each.shape) for axis, each in zip(axes, sequences, strict=True)]
    lengths = {each.shape[place] for each, place in zip(sequences, places, strict=True)}
    if len(lengths) != 1:
        raise call.malformed(f"sequences of lengths {sorted(lengths)}")
    length = int(lengths.pop())
    if length > MOST_PASSES:
        raise call.computed(f"more than {MOST_PASSES} passes")
    carried: list[Item | None] = list(operands[:states])
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


def _batched_scan(call: NodeCall, outer: Scope, add_nodes: AddNodes) -> _Results:
    """Add the body for each element of each image of a batch: the form of opset 8."""
    m, body, count = call.math, call.graph_attribute("body"), call.integer("num_scan_inputs")
    if call.has(0):
        raise call.unsupported("sequences of different lengths are not supported")
    operands = [call.operand(index) for index in range(1, len(call.operands))]
    states = len(operands) - count
    backwards = call.integers("directions", (0,) * count)
    if count < 1 or states < 0 or len(body.output) < states or len(backwards) != count:
        raise call.malformed(f"{count} sequences of {len(operands)} inputs")
    if any(call.bounds.of(each) for each in operands):
        raise call.computed("the size of a sequence is known only after a run")
    batch, length = shape_of(operands[states])[:2]
    if batch * length > MOST_PASSES:
        raise call.computed(f"more than {MOST_PASSES} passes")
    images: list[list[Operand]] = [[] for _ in body.output]
    for image in range(batch):
        own = [m.squeeze(m.slice(each, [image], [image + 1], [0], [1]), (0,)) for each in operands]
        carried: list[Item | None] = list(own[:states])
        collected: list[list[Operand]] = [[] for _ in range(len(body.output) - states)]
        for step in range(length):
            places = [length - 1 - step if turned else step for turned in backwards]
            elements = [
                m.squeeze(m.slice(each, [at], [at + 1], [0], [1]), (0,))
                for each, at in zip(own[states:], places, strict=True)
            ]
            results = _run(call, body, outer, [*carried, *elements], add_nodes)
            carried = list(results[:states])
            _collect(call, collected, results[states:])
        _collect(call, images, (*carried, *(_stacked(call, parts, 0) for parts in collected)))
    return tuple(_stacked(call, each, 0) for each in images)


def _run(call: NodeCall, graph: Any, outer: Scope, given: Sequence[Item | None], add_nodes: AddNodes) -> _Results:
    """Add the nodes of a graph that an attribute has, and return its results."""
    scope = Scope.of_branch(graph, outer, call.label)
    scope.found.update(call.initializers(graph))
    if len(given) > len(graph.input):
        raise call.malformed(f"its graph has {len(graph.input)} inputs; expect {len(given)}")
    scope.found.update(zip((each.name for each in graph.input), given, strict=False))
    add_nodes(graph.node, scope, call)
    return tuple(scope.find(each.name) for each in graph.output)


def _collect(call: NodeCall, collected: list[list[Operand]], results: Sequence[Item | None]) -> None:
    for parts, result in zip(collected, results, strict=True):
        if result is None:
            raise call.malformed("its body leaves a result out")
        if isinstance(result, TensorSequence):
            raise call.malformed("its body collects sequences of tensors; expect tensors")
        parts.append(result)


def _stacked(call: NodeCall, parts: list[Operand], axis: int) -> Operand:
    """Join results along a new axis."""
    if not parts:
        raise call.computed("a loop without a pass collects nothing")
    if len({dtype_of(each) for each in parts}) != 1:
        raise call.malformed("its results are of different types")
    for each in parts:
        bound = call.bounds.of(each)
        if bound is not None:
            raise call.computed("a result of its body has a size that is known only after a run")
    place = axis % (len(parts[0].shape) + 1)
    return call.math.concat([call.math.unsqueeze(each, (place,)) for each in parts], place)


def _truth(call: NodeCall, array: Any) -> bool:
    if array.size != 1:
        raise call.malformed(f"the condition has {array.size} elements; expect 1")
    return bool(array.reshape(()))


CONTROL_FLOW: Final = {"If": branch, "Loop": loop, "Scan": scan}
