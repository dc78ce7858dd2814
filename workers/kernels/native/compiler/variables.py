"""The variables of a function while it is lowered: where each is kept, and what several ways to one place agree on.

A variable has a place on the stack, from which LLVM makes registers. An assignment of another type gives it another place.
"""

from __future__ import annotations

import llvmlite.ir as ir
from llvmlite.ir import IRBuilder
from llvmlite.ir.values import Block, Value

from poolrt.cachestore.deferred_dataclass import dataclass

from . import types
from .operands import Operand, Refused, Typed, cast, common


@dataclass(frozen=True, slots=True, eq=False)
class Slot:
    """The place of a variable of a type."""

    kind: types.Type
    place: Value

    def read(self, b: IRBuilder) -> Typed:
        """Return the value."""
        return Typed(self.kind, b.load(self.place))


#: Variable -> its place, or what it is a name for: a tuple, a function.
Names = dict[str, Slot | Operand]
#: The end of a way through a function: the block, and the variables there.
Way = tuple[Block, Names]


def new_slot(b: IRBuilder, kind: types.Type) -> Slot:
    """Return a place that holds zero when the function begins."""
    with b.goto_entry_block():
        place = b.alloca(kind.lowered)
        b.store(ir.Constant(kind.lowered, None), place)
    return Slot(kind, place)


def join(b: IRBuilder, ways: list[Way], target: Block) -> Names:
    """End several ways with a branch to a block, and return the variables there.

    Numbers of different types become the type that holds both. A variable that one way has not assigned is kept.
    """
    names: Names = {}
    for name in dict.fromkeys(name for _, each in ways for name in each):
        found = [each.get(name) for _, each in ways]
        given = [one for one in found if one is not None]
        if all(one is given[0] for one in given):
            names[name] = given[0]
            continue
        slots = [one for one in given if isinstance(one, Slot)]
        if len(slots) < len(given):
            continue  # a name for different things: an error if it is used
        names[name] = slot = new_slot(b, common(*(one.kind for one in slots)))
        for block, each in ways:
            _copy(b, block, each.get(name), slot)
    for block, _ in ways:
        b.position_at_end(block)
        b.branch(target)
    return names


def close_turn(b: IRBuilder, way: Way, head: Names, target: Block) -> None:
    """End a turn of a loop with a branch to its head, where each variable is kept as it was when the loop began."""
    block, names = way
    for name, before in head.items():
        after = names.get(name)
        if after is before:
            continue
        if not isinstance(before, Slot) or not isinstance(after, Slot):
            raise Refused(f"{name} is something else after a turn of a loop than before it")
        if common(before.kind, after.kind) != before.kind:
            raise Refused(
                f"{name} is {before.kind} before a loop and {after.kind} after a turn: begin with {after.kind}"
            )
        _copy(b, block, after, before)
    b.position_at_end(block)
    b.branch(target)


def _copy(b: IRBuilder, block: Block, source: Slot | Operand | None, target: Slot) -> None:
    if isinstance(source, Slot):
        b.position_at_end(block)
        b.store(cast(b, source.read(b), target.kind), target.place)
