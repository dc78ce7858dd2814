"""Reduction: every algorithm, along any dimensions."""

from __future__ import annotations

import math

from ...desc import Arg, PrimitiveAttr, Reduction
from ...engines.target import Target
from ...kernels.codes import REDUCTION
from ..program import Program
from .implementation import ReferenceImplementation
from .tables import Tables, as_float32


class ReferenceReduction(ReferenceImplementation[Reduction]):
    """One element of the destination after another."""

    name = "ref:reduction"

    def program(self, op: Reduction, attr: PrimitiveAttr, target: Target) -> Program:
        if op.dst.elements == 0:
            return Program((), ())
        tables = Tables(attr)
        count = math.prod(s for s, d in zip(op.src.dims, op.dst.dims, strict=True) if s != d)
        args = (
            tables.tensor(Arg.SRC, op.src), tables.tensor(Arg.DST, op.dst), tables.chain(op.dst),
            ("i", REDUCTION[op.algorithm]), ("i", count), ("f", as_float32(op.p)), ("f", as_float32(op.eps)),
        )  # fmt: skip
        return tables.program("reduction", args, op.dst.elements, [(Arg.DST, op.dst)])
