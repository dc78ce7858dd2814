"""Operators on sequences of tensors: all that they do is done while a model is loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import numpy as np

from ..call import NodeCall
from ..tensor_sequence import Item, TensorSequence
from ..tensors import Operand, dtype_of, shape_of

_SequenceOperator: TypeAlias = "Callable[[NodeCall], Item]"
#: Tensors of a sequence.
MOST_ITEMS: Final = 10_000


def empty(call: NodeCall) -> TensorSequence:
    """Return a sequence without tensors."""
    return TensorSequence(())


def construct(call: NodeCall) -> TensorSequence:
    """Return the operands as a sequence."""
    return _of_one_type(call, tuple(call.operands_given()))


def insert(call: NodeCall) -> TensorSequence:
    """Return a sequence with a tensor more, before a position or at the end."""
    items = list(call.sequence(0).items)
    items.insert(_position(call, 2, len(items), len(items)), call.operand(1))
    return _of_one_type(call, tuple(items))


def erase(call: NodeCall) -> TensorSequence:
    """Return a sequence without the tensor at a position, or the last one."""
    items = list(call.sequence(0).items)
    del items[_position(call, 1, len(items) - 1, len(items) - 1)]
    return TensorSequence(tuple(items))


def at(call: NodeCall) -> Operand:
    """Return the tensor at a position."""
    items = call.sequence(0).items
    return items[_position(call, 1, len(items) - 1)]


def length(call: NodeCall) -> Operand:
    """Return the number of tensors."""
    return np.asarray(len(call.sequence(0).items), np.int64)


def split(call: NodeCall) -> TensorSequence:
    """Return the parts of a tensor along an axis, each of one element unless sizes are given."""
    source, m = call.operand(0), call.math
    axis = call.axis(len(source.shape), 0)
    size = shape_of(source)[axis]
    if call.bounds.of(source) is not None:
        raise call.bounds.refused(call, [call.bounds.of(source)])
    drops = not call.has(1) and not call.integer("keepdims", 1)
    if not call.has(1):
        sizes = (1,) * min(size, MOST_ITEMS + 1)
    elif call.shape(1):
        sizes = call.known_integers(1, "split")
    else:
        (step,) = call.known_integers(1, "split")
        if step < 1:
            raise call.malformed(f"split: expect a number of 1 or more, got {step}")
        sizes = tuple(min(step, size - start) for start in range(0, min(size, step * (MOST_ITEMS + 1)), step))
    _check_count(call, len(sizes))
    if sum(sizes) != size or min(sizes, default=0) < 0:
        raise call.malformed(f"split: sizes {sizes} do not add up to {size}")
    ends = [sum(sizes[: number + 1]) for number in range(len(sizes))]
    parts = [m.slice(source, [end - each], [end], [axis], [1]) for each, end in zip(sizes, ends, strict=True)]
    return TensorSequence(tuple(m.squeeze(part, (axis,)) if drops else part for part in parts))


def concat(call: NodeCall) -> Operand:
    """Join the tensors of a sequence along an axis, or along a new one."""
    items, m = call.sequence(0).items, call.math
    if not items:
        raise call.malformed("the sequence has no tensors")
    bounds = [call.bounds.of(each) for each in items]
    if any(bounds):
        raise call.bounds.refused(call, bounds)
    is_new = bool(call.integer("new_axis", 0))
    axis = call.axis(len(items[0].shape) + is_new)
    return m.concat([m.unsqueeze(each, (axis,)) for each in items] if is_new else items, axis)


def _position(call: NodeCall, index: int, most: int, default: int | None = None) -> int:
    """Return a position of 0 to ``most``; a negative one counts from the end of a sequence."""
    if not call.has(index) and default is not None:
        found = default
    else:
        numbers = call.known_integers(index, "position")
        if len(numbers) != 1:
            raise call.malformed(f"position: expect one number, got {len(numbers)}")
        (found,) = numbers
    count = len(call.sequence(0).items)
    if not -count <= found <= most:
        raise call.malformed(f"position: expect {-count}..{most}, got {found}")
    return found + count if found < 0 else found


def _of_one_type(call: NodeCall, items: tuple[Operand, ...]) -> TensorSequence:
    _check_count(call, len(items))
    types = sorted({dtype_of(each) for each in items})
    if len(types) > 1:
        raise call.malformed(f"tensors of types {' and '.join(types)} in one sequence")
    return TensorSequence(items)


def _check_count(call: NodeCall, count: int) -> None:
    if count > MOST_ITEMS:
        raise call.unsupported(f"a sequence of more than {MOST_ITEMS} tensors")


SEQUENCES: Final[Mapping[str, _SequenceOperator]] = {
    "SequenceEmpty": empty,
    "SequenceConstruct": construct,
    "SequenceInsert": insert,
    "SequenceErase": erase,
    "SequenceAt": at,
    "SequenceLength": length,
    "SplitToSequence": split,
    "ConcatFromSequence": concat,
}
