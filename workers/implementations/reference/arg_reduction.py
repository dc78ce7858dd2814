"""Arg reduction of any data types and layouts."""

from __future__ import annotations

import math

from ...desc import Arg, ArgReduction, PrimitiveAttr
from ...engines.target import Target
from ..program import Program
from .implementation import ReferenceImplementation
from .tables import Tables


class ReferenceArgReduction(ReferenceImplementation[ArgReduction]):
    """One element of the destination after another."""

    name = "ref:arg_reduction"

    def program(self, op: ArgReduction, attr: PrimitiveAttr, target: Target) -> Program:
        if op.dst.elements == 0:
            return Program((), ())
        tables = Tables(attr)
        numbers = op.src.dims[op.axis], math.prod(op.src.dims[op.axis + 1 :]), op.algorithm == "min", op.select_last
        args = (
            tables.tensor(Arg.SRC, op.src), tables.tensor(Arg.DST, op.dst), tables.chain(op.dst),
            *(("i", int(number)) for number in numbers),
        )  # fmt: skip
        return tables.program("arg_reduction", args, op.dst.elements, [(Arg.DST, op.dst)])
