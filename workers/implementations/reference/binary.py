"""Binary: every algorithm, either operand broadcast along any dimension."""

from __future__ import annotations

from poolrt.cachestore.deferred_dataclass import replace

from ...desc import Arg, Binary, PrimitiveAttr
from ...desc.operations.binary import BITWISE_ALGORITHMS
from ...engines.target import Target
from ...kernels.codes import BINARY
from ..layouts import follow
from ..program import Program
from .implementation import ReferenceImplementation
from .tables import Tables


class ReferenceBinary(ReferenceImplementation[Binary]):
    """One element after another."""

    name = "ref:binary"

    def reject(self, op: Binary, attr: PrimitiveAttr, target: Target) -> str | None:
        if op.algorithm in BITWISE_ALGORITHMS and (attr.post_ops or not attr.is_plain):
            return "post-ops, scales and zero points of functions of bits are not supported"
        return super().reject(op, attr, target)

    def complete(self, op: Binary, attr: PrimitiveAttr, target: Target) -> Binary:
        src0 = follow(op.src0, op.src1)
        src1 = follow(op.src1, src0)
        wide = src0 if src0.dims == op.dst.dims else src1
        return replace(op, src0=src0, src1=src1, dst=follow(op.dst, wide))

    def program(self, op: Binary, attr: PrimitiveAttr, target: Target) -> Program:
        if op.dst.elements == 0:
            return Program((), ())
        tables = Tables(attr)
        operands = ((Arg.SRC, op.src0), (Arg.SRC_1, op.src1))
        sources = [tables.tensor(arg, md, op.dst.dims) for arg, md in operands]
        args = (*sources, tables.tensor(Arg.DST, op.dst), tables.chain(op.dst), ("i", BINARY[op.algorithm]))
        return tables.program("binary", args, op.dst.elements, [(Arg.DST, op.dst)])
