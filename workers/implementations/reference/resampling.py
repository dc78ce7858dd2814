"""Resampling: any number of spatial dimensions, algorithm and coordinates."""

from __future__ import annotations

from ...desc import Arg, PrimitiveAttr, Resampling
from ...engines.target import Target
from ..program import Program
from ..resampling_places import places, taps
from .implementation import ReferenceImplementation
from .tables import Tables, as_float32


class ReferenceResampling(ReferenceImplementation[Resampling]):
    """One element of the destination after another."""

    name = "ref:resampling"

    def program(self, op: Resampling, attr: PrimitiveAttr, target: Target) -> Program:
        if op.dst.elements == 0:
            return Program((), ())
        tables = Tables(attr)
        count = taps(op)
        starts: list[int] = []
        words: list[int] = []
        for axis in range(op.src.ndims - 2):
            starts.append(op.src.ndims - 2 + len(words))
            for place in places(op, axis):
                for tap in range(count):
                    words += (place.elements[tap], place.weights[tap]) if place.elements else (-1, 0)
        seen = tables.numbers([*starts, *words])
        records = tables.tensor(Arg.SRC, op.src), tables.tensor(Arg.DST, op.dst), tables.chain(op.dst)
        args = (*records, seen, ("i", count), ("f", as_float32(op.extrapolation)))
        return tables.program("resampling", args, op.dst.elements, [(Arg.DST, op.dst)])
