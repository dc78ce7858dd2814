"""Determinants of any data types and layouts."""

from __future__ import annotations

from ...desc import Arg, Determinant, PrimitiveAttr
from ...engines.target import Target
from ..program import Program
from .implementation import ReferenceImplementation
from .tables import Tables


class ReferenceDeterminant(ReferenceImplementation[Determinant]):
    """One column after another."""

    name = "ref:determinant"

    def reject(self, op: Determinant, attr: PrimitiveAttr, target: Target) -> str | None:
        if attr.post_ops or not attr.is_plain:
            return "post-ops, scales and zero points are not supported"
        return None

    def program(self, op: Determinant, attr: PrimitiveAttr, target: Target) -> Program:
        if op.dst.elements == 0:
            return Program((), ())
        tables = Tables(attr)
        records = [tables.tensor(arg, md) for arg, md in op.memories().items()]
        count, rows, _ = op.src.dims
        args = (*records, ("s", 0))
        written = [(int(Arg.DST), op.dst)]
        return tables.program("determinant", args, count, written, scratchpad=max(64, 8 * count * rows * rows))
