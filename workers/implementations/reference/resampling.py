"""Resampling: any number of spatial dimensions, by the nearest element or linearly."""

from __future__ import annotations

import dataclasses

from ...desc import Arg, PrimitiveAttr, Resampling
from ...engines.target import Target
from ..native.blocks import follow
from ..program import Program
from .attributes import refuse_attributes
from .tables import Tables


class ReferenceResampling:
    """One element of the destination after another."""

    name = "ref:resampling"
    engine_kind = "cpu"
    general = True

    def reject(self, op: Resampling, attr: PrimitiveAttr, target: Target) -> str | None:
        return refuse_attributes(op, attr, op.dst)

    def complete(self, op: Resampling, attr: PrimitiveAttr, target: Target) -> Resampling:
        src = follow(op.src, op.dst)
        return dataclasses.replace(op, src=src, dst=follow(op.dst, src))

    def program(self, op: Resampling, attr: PrimitiveAttr, target: Target) -> Program:
        if op.dst.elements == 0:
            return Program((), ())
        tables = Tables(attr)
        records = tables.tensor(Arg.SRC, op.src), tables.tensor(Arg.DST, op.dst), tables.chain(op.dst)
        args = (*records, ("i", int(op.algorithm == "linear")))
        return tables.program("resampling", args, op.dst.elements, [(Arg.DST, op.dst)])
