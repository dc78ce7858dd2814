"""Fourier transforms of floats of any layouts and attributes: direct sums."""

from __future__ import annotations

import math
from typing import Final

from ...desc import Arg, Dft, PrimitiveAttr
from ...engines.target import Target
from ..program import Program
from .implementation import ReferenceImplementation
from .tables import Tables

_TYPES: Final = ("f64", "f32", "f16", "bf16")


class ReferenceDft(ReferenceImplementation[Dft]):
    """One part of a result after another; each is the sum over a signal."""

    name = "ref:dft"

    def reject(self, op: Dft, attr: PrimitiveAttr, target: Target) -> str | None:
        for md in (op.src, op.dst):
            if md.dtype not in _TYPES:
                return f"data type {md.dtype}; only {', '.join(_TYPES)} are supported"
        return None

    def program(self, op: Dft, attr: PrimitiveAttr, target: Target) -> Program:
        if op.dst.elements == 0:
            return Program((), ())
        tables = Tables(attr)
        size, made, inner = op.src.dims[op.axis], op.dst.dims[op.axis], math.prod(op.src.dims[op.axis + 1 : -1])
        numbers = size, made, inner, op.src.dims[-1], op.dst.dims[-1], op.length, op.read, op.inverse, op.mirrors
        records = tables.tensor(Arg.SRC, op.src), tables.tensor(Arg.DST, op.dst), tables.chain(op.dst)
        args = (*records, *(("i", int(number)) for number in numbers))
        return tables.program("dft", args, op.dst.elements, [(Arg.DST, op.dst)])
