"""Grid sample of any data types, layouts and attributes, along any number of dimensions."""

from __future__ import annotations

from ...desc import Arg, GridSample, PrimitiveAttr
from ...desc.operations.grid_sample import SAMPLE_ALGORITHMS, SAMPLE_PADDINGS
from ...engines.target import Target
from ..program import Program
from .implementation import ReferenceImplementation
from .tables import Tables


class ReferenceGridSample(ReferenceImplementation[GridSample]):
    """One element of the destination after another."""

    name = "ref:grid_sample"

    def program(self, op: GridSample, attr: PrimitiveAttr, target: Target) -> Program:
        if op.dst.elements == 0:
            return Program((), ())
        tables = Tables(attr)
        records = tables.tensor(Arg.SRC, op.src), tables.tensor(Arg.SRC_1, op.grid), tables.tensor(Arg.DST, op.dst)
        plain = int(attr.is_plain and not attr.post_ops)
        # One, two or four neighbours along a dimension.
        taps = 1 << SAMPLE_ALGORITHMS.index(op.algorithm)
        numbers = plain, taps, SAMPLE_PADDINGS.index(op.padding), int(op.align_corners)
        args = (*records, tables.chain(op.dst), *(("i", number) for number in numbers))
        return tables.program("grid_sample", args, op.dst.elements, [(Arg.DST, op.dst)])
