"""Product by weights of a few bits, of any data types and layouts."""

from __future__ import annotations

from ...desc import Arg, MatmulNbits, PrimitiveAttr
from ...engines.target import Target
from ..program import LaunchArgument, Program
from .implementation import ReferenceImplementation
from .tables import Tables


class ReferenceMatmulNbits(ReferenceImplementation[MatmulNbits]):
    """One element of dst a work item."""

    name = "ref:matmul_nbits"

    def program(self, op: MatmulNbits, attr: PrimitiveAttr, target: Target) -> Program:
        if op.dst.elements == 0:
            return Program((), ())
        tables = Tables(attr)

        def optional(arg: Arg) -> LaunchArgument:
            md = op.memories().get(arg)
            return ("i", 0) if md is None else tables.tensor(arg, md)

        required = [tables.tensor(arg, op.memories()[arg]) for arg in (Arg.SRC, Arg.WEIGHTS, Arg.SCALE)]
        extra = [optional(arg) for arg in (Arg.SHIFT, Arg.BIAS)]
        known = 0 if op.points is None else 1 + int(op.points.dtype == "u8")
        _, blocks, nbytes = op.weights.dims
        line = 0 if op.points is None else op.points.dims[1]
        numbers = (known, int(op.bias is not None), op.src.dims[1], op.dst.dims[1], blocks, nbytes, line, op.bits)
        args = (*required, *extra, tables.tensor(Arg.DST, op.dst), tables.chain(op.dst), *(("i", n) for n in numbers))
        return tables.program("matmul_nbits", args, op.dst.elements, [(Arg.DST, op.dst)])
