"""The operands of one direction of a recurrent network."""

from __future__ import annotations

from ..call import NodeCall
from ..tensors import Operand


def of_direction(call: NodeCall, index: int, number: int, axis: int = 0) -> Operand | None:
    """Return what an operand has of direction ``number`` along the ``axis`` of directions, whose size is 1 then."""
    found = call.optional(index)
    return None if found is None else call.math.slice(found, [number], [number + 1], [axis], [1])
