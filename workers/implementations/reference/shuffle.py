"""Shuffle: groups of any axis."""

from __future__ import annotations

from ...desc import Arg, PrimitiveAttr, Shuffle
from ...engines.target import Target
from ..program import Program
from .copies import copy
from .implementation import ReferenceImplementation
from .tables import Tables


class ReferenceShuffle(ReferenceImplementation[Shuffle]):
    """One element after another."""

    name = "ref:shuffle"

    def program(self, op: Shuffle, attr: PrimitiveAttr, target: Target) -> Program:
        if op.dst.elements == 0:
            return Program((), ())
        tables = Tables(attr)
        run = copy(tables, attr, Arg.SRC, op.src, op.dst, op.axis, group=op.group_size)
        return tables.program(*run, [(Arg.DST, op.dst)])
