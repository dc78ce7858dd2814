"""Tensors whose size along one axis is known only after a run: a graph has room for the largest, and counts how much is used.

Elements behind those that are counted are in range for what reads them, and mean nothing. Each operator of a model that reads
such a tensor has a rule here, which says along which axis of its results the same elements are; there are rules for operators
that compute every element, or every row, on its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from poolrt.cachestore.deferred_dataclass import dataclass, field

from ..errors import ModelError
from ..shapes import normalize_axes, normalize_axis
from ..values import Value
from .tensors import Operand, shape_of

if TYPE_CHECKING:
    from .call import NodeCall

_Results: TypeAlias = "tuple[Operand | None, ...]"


@dataclass(frozen=True, slots=True)
class Bound:
    """The first ``count`` elements along an axis are used; ``count`` is a tensor of one int64.

    ``asked`` are inputs that a user may give while loading, so that the size is known.
    """

    axis: int
    count: Value
    asked: tuple[str, ...] = ()

    def along(self, axis: int) -> Bound:
        """Return the same for another axis."""
        return Bound(axis, self.count, self.asked)


@dataclass(frozen=True, slots=True)
class Bounds:
    """The tensors of one import that have a bound."""

    found: dict[int, Bound] = field(default_factory=dict)

    def of(self, operand: Operand | None) -> Bound | None:
        """Return the bound of an operand, None if all of its elements are used."""
        return self.found.get(operand.id) if isinstance(operand, Value) else None

    def note(self, operand: Operand | None, bound: Bound) -> None:
        """Note the bound of a result."""
        if isinstance(operand, Value):
            self.found[operand.id] = bound

    def carry(self, call: NodeCall, results: _Results) -> _Results:
        """Return the results of a node, with the bounds that its operands give them noted.

        Raises UnsupportedNode if an operator has no rule, or an operand of it is used in another way.
        """
        given = [self.of(operand) for operand in call.operands]
        if not any(given):
            return results
        if call.operator in _OWN:
            return results
        rule = _RULES.get(call.operator)
        if rule is None:
            raise self.refused(call, given)
        if call.operator == "Shape":
            return (_shape(call, given[0]),)
        found = rule(call, given, results)
        if found is None:
            raise self.refused(call, given)
        for result in results:
            self.note(result, found)
        return results

    def mark(self, error: ModelError, operands: Sequence[Operand | None]) -> ModelError:
        """Return the error of a node, which says of itself whether the node reads a tensor of a counted size."""
        error.is_computed |= any(self.of(operand) is not None for operand in operands)
        return error

    def refused(self, call: NodeCall, given: Sequence[Bound | None]) -> Exception:
        """Return the error for a node that cannot read a tensor of a counted size."""
        index, bound = next((place, each) for place, each in enumerate(given) if each is not None)
        what = f"the size of input {index} is known only after a run"
        if bound.asked:
            return call.ask(what, bound.asked)
        return call.computed(f"{what}; this use of it is not supported")


def _elementwise(call: NodeCall, given: Sequence[Bound | None], results: _Results) -> Bound | None:
    """Operands are broadcast: those that have no bound have a size of 1 along its axis."""
    rank = max((len(each.shape) for each in results if each is not None), default=0)
    found: Bound | None = None
    for operand, bound in zip(call.operands, given, strict=True):
        if operand is None or bound is None:
            continue
        here = bound.along(bound.axis + rank - len(operand.shape))
        if found is not None and here != found:
            return None
        found = here
    for operand, bound in zip(call.operands, given, strict=True):
        if found is not None and operand is not None and bound is None:
            place = found.axis - rank + len(operand.shape)
            if place >= 0 and operand.shape[place] != 1:
                return None
    return found


def _only_first(call: NodeCall, given: Sequence[Bound | None]) -> Bound | None:
    return given[0] if given and not any(given[1:]) else None


def _clip(call: NodeCall, given: Sequence[Bound | None], results: _Results) -> Bound | None:
    return _only_first(call, given)


def _rows(call: NodeCall, given: Sequence[Bound | None], results: _Results) -> Bound | None:
    """Each row is computed on its own: those of a reduction or of a softmax along another axis."""
    bound = _only_first(call, given)
    if bound is None:
        return None
    rank = len(call.shape(0))
    if call.operator in ("Softmax", "LogSoftmax"):
        return bound if call.opset >= 13 and call.axis(rank, -1) != bound.axis else None
    if call.operator in ("ArgMax", "ArgMin"):
        axes: Sequence[int] = (call.integer("axis", 0),)
    else:
        axes = call.axes(1) or range(rank)
    along = normalize_axes(tuple(axes), rank)
    if bound.axis in along:
        return None
    dropped = 0 if call.integer("keepdims", 1) else sum(axis < bound.axis for axis in along)
    return bound.along(bound.axis - dropped)


def _gather(call: NodeCall, given: Sequence[Bound | None], results: _Results) -> Bound | None:
    axis = normalize_axis(call.integer("axis", 0), len(call.shape(0)))
    data, indices = given[:2]
    if indices is not None:
        return None if data is not None else indices.along(axis + indices.axis)
    if data is None or data.axis == axis:
        return None
    return data if data.axis < axis else data.along(data.axis + len(call.shape(1)) - 1)


def _gather_nd(call: NodeCall, given: Sequence[Bound | None], results: _Results) -> Bound | None:
    data, indices = given[:2]
    last = len(call.shape(1)) - 1
    return indices if data is None and indices is not None and indices.axis < last else None


def _slice(call: NodeCall, given: Sequence[Bound | None], results: _Results) -> Bound | None:
    """Along the axis of the bound, the first elements may be left out, and those from an end on."""
    bound, sizes = _only_first(call, given), call.shape(0)
    if bound is None:
        return None
    if call.opset < 10:
        starts, ends = call.integers("starts"), call.integers("ends")
        axes, steps = call.integers("axes", range(len(starts))), (1,) * len(starts)
    else:
        starts, ends = call.known_integers(1, "starts"), call.known_integers(2, "ends")
        axes = call.known_integers(3, "axes") if call.has(3) else tuple(range(len(starts)))
        steps = call.known_integers(4, "steps") if call.has(4) else (1,) * len(starts)
    m = call.math
    for start, end, axis, step in zip(starts, ends, normalize_axes(axes, len(sizes)), steps, strict=True):
        if axis != bound.axis or (start == 0 and step == 1 and end >= sizes[axis]):
            continue
        if start < 0 or end < 0 or step != 1:
            return None
        count = m.binary(bound.count, np.asarray([min(end, sizes[axis])], np.int64), "min")
        rest = m.binary(m.binary(count, np.asarray([start], np.int64), "sub"), np.asarray([0], np.int64), "max")
        bound = Bound(axis, m.value(rest), bound.asked)
    return bound


def _squeeze(call: NodeCall, given: Sequence[Bound | None], results: _Results) -> Bound | None:
    bound, axes = _only_first(call, given), call.axes(1)
    if bound is None:
        return None
    rank = len(call.shape(0))
    dropped = (
        [axis for axis, size in enumerate(call.shape(0)) if size == 1] if axes is None else normalize_axes(axes, rank)
    )
    # One element at most: without the axis, nothing says that it is not used.
    return None if bound.axis in dropped else bound.along(bound.axis - sum(axis < bound.axis for axis in dropped))


def _unsqueeze(call: NodeCall, given: Sequence[Bound | None], results: _Results) -> Bound | None:
    bound, axes = _only_first(call, given), call.axes(1)
    if bound is None or axes is None:
        return None
    added = normalize_axes(axes, len(call.shape(0)) + len(axes))
    kept = [axis for axis in range(len(call.shape(0)) + len(axes)) if axis not in added]
    return bound.along(kept[bound.axis])


def _transpose(call: NodeCall, given: Sequence[Bound | None], results: _Results) -> Bound | None:
    bound, rank = _only_first(call, given), len(call.shape(0))
    return (
        None if bound is None else bound.along(list(call.integers("perm", range(rank - 1, -1, -1))).index(bound.axis))
    )


def _reshape(call: NodeCall, given: Sequence[Bound | None], results: _Results) -> Bound | None:
    """The axis remains as it is, and its size is not written in the model."""
    bound, sizes = _only_first(call, given), call.shape(0)
    if bound is None or results[0] is None:
        return None
    wanted = call.known_integers(1, "shape") if call.has(1) else call.integers("shape")
    made, before = shape_of(results[0]), math.prod(sizes[: bound.axis])
    for axis, size in enumerate(made):
        if size == sizes[bound.axis] and math.prod(made[:axis]) == before and wanted[axis] in (-1, 0):
            return bound.along(axis)
    return None


def _concat(call: NodeCall, given: Sequence[Bound | None], results: _Results) -> Bound | None:
    bound, rank = given[0], len(call.shape(0))
    if bound is None or any(each != bound for each in given) or call.axis(rank) == bound.axis:
        return None
    return bound


def _split(call: NodeCall, given: Sequence[Bound | None], results: _Results) -> Bound | None:
    bound = _only_first(call, given)
    return None if bound is None or call.axis(len(call.shape(0)), 0) == bound.axis else bound


def _matmul(call: NodeCall, given: Sequence[Bound | None], results: _Results) -> Bound | None:
    """Rows of the left factor are rows of the product."""
    bound, left, right = _only_first(call, given), len(call.shape(0)), len(call.shape(1))
    return bound if bound is not None and right <= left and bound.axis == left - 2 else None


def _shape(call: NodeCall, bound: Bound | None) -> Operand:
    """Return the shape with the count in the place of the largest size."""
    m, sizes = call.math, call.shape(0)
    parts: list[Operand] = [np.asarray([size], np.int64) for size in sizes]
    if bound is not None:
        parts[bound.axis] = m.reshape(m.cast(bound.count, "int64"), (1,))
    kept = parts[call.integer("start", 0) : call.integer("end", len(sizes))]
    return m.concat(kept, 0) if kept else np.zeros(0, np.int64)


def used(call: NodeCall, operand: Operand, bound: Bound) -> Operand:
    """Return which places along the axis of a bound are used, in a shape that is broadcast to the operand."""
    m, sizes = call.math, shape_of(operand)
    numbers = np.arange(sizes[bound.axis], dtype=np.int64)
    shape = [-1 if axis == bound.axis else 1 for axis in range(len(sizes))]
    count = m.reshape(m.cast(bound.count, "int64"), (1,) * len(sizes))
    return m.binary(numbers.reshape(shape), count, "lt")


#: Operators that note the bounds of their results themselves.
_OWN: Final = ("TopK",)
_Rule: TypeAlias = "Callable[[NodeCall, Sequence[Bound | None], _Results], Bound | None]"

_ELEMENTWISE: Final = (
    "Abs", "Acos", "Add", "And", "Asin", "Atan", "BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "Cast",
    "Ceil", "Celu", "Cos", "Div", "Elu", "Equal", "Erf", "Exp", "Floor", "Gelu", "Greater", "GreaterOrEqual", "HardSigmoid",
    "HardSwish", "Identity", "IsInf", "IsNaN", "LeakyRelu", "Less", "LessOrEqual", "Log", "Max", "Mean", "Min", "Mish", "Mod",
    "Mul", "Neg", "Not", "Or", "Pow", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Sign", "Sin", "Softplus", "Softsign",
    "Sqrt", "Sub", "Sum", "Tan", "Tanh", "ThresholdedRelu", "Where", "Xor",
)  # fmt: skip
_REDUCTIONS: Final = (
    "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceL1", "ReduceL2", "ReduceLogSum",
    "ReduceLogSumExp", "ReduceSumSquare", "ArgMax", "ArgMin", "Softmax", "LogSoftmax",
)  # fmt: skip
_RULES: Final[Mapping[str, _Rule]] = {
    **dict.fromkeys(_ELEMENTWISE, _elementwise),
    **dict.fromkeys(_REDUCTIONS, _rows),
    "CastLike": _clip,
    "Clip": _clip,
    "Concat": _concat,
    "Gather": _gather,
    "GatherND": _gather_nd,
    "MatMul": _matmul,
    "Reshape": _reshape,
    "Shape": _clip,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _squeeze,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}
