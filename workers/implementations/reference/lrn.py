"""Local response normalisation, across channels and within them."""

from __future__ import annotations

from ...desc import Arg, Lrn, PrimitiveAttr
from ...engines.target import Target
from ..program import Program
from .implementation import ReferenceImplementation
from .tables import Tables


class ReferenceLrn(ReferenceImplementation[Lrn]):
    """One element after another, each with its window."""

    name = "ref:lrn"

    def program(self, op: Lrn, attr: PrimitiveAttr, target: Target) -> Program:
        if op.dst.elements == 0:
            return Program((), ())
        tables = Tables(attr)
        first, last = (1, 1) if op.algorithm == "across_channels" else (2, op.src.ndims - 1)
        count = op.local_size ** (last - first + 1)
        args = (
            tables.tensor(Arg.SRC, op.src), tables.tensor(Arg.DST, op.dst), tables.chain(op.dst),
            *(("i", number) for number in (first, last, op.local_size, count)),
            ("f", op.alpha / count), ("f", float(op.beta)), ("f", float(op.k)),
        )  # fmt: skip
        return tables.program("lrn", args, op.dst.elements, [(Arg.DST, op.dst)])
