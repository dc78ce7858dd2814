"""Shuffle: groups of any axis."""

from __future__ import annotations

import dataclasses

from ...desc import Arg, PrimitiveAttr, Shuffle
from ...engines.target import Target
from ..native.blocks import follow
from ..program import Program
from .attributes import refuse_attributes
from .copies import copy
from .tables import Tables


class ReferenceShuffle:
    """One element after another."""

    name = "ref:shuffle"
    engine_kind = "cpu"
    general = True

    def reject(self, op: Shuffle, attr: PrimitiveAttr, target: Target) -> str | None:
        return refuse_attributes(op, attr, op.dst)

    def complete(self, op: Shuffle, attr: PrimitiveAttr, target: Target) -> Shuffle:
        src = follow(op.src, op.dst)
        return dataclasses.replace(op, src=src, dst=follow(op.dst, src))

    def program(self, op: Shuffle, attr: PrimitiveAttr, target: Target) -> Program:
        if op.dst.elements == 0:
            return Program((), ())
        tables = Tables(attr)
        run = copy(tables, attr, Arg.SRC, op.src, op.dst, op.axis, group=op.group_size)
        return tables.program(*run, [(Arg.DST, op.dst)])
