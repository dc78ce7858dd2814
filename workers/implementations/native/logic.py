"""Binary: comparisons, logic, bits, sums that wrap, whole quotients, remainders but those of 16-bit floats; any strides."""

from __future__ import annotations

from typing import Final

from poolrt.cachestore.deferred_dataclass import replace

from ...desc import LIMITS, Arg, Binary, PrimitiveAttr
from ...desc.operations.binary import BITWISE_ALGORITHMS
from ...engines.target import Target
from ..layouts import follow
from ..program import Program
from .combined import combine, refuse_operands
from .implementation import NativeImplementation

#: Data type -> the kernel's kind of elements.
_KINDS: Final = {
    "f64": "f64", "f32": "f32", "f16": "f16", "bf16": "b16", **{name: name for name in LIMITS}, "bool": "u8"
}  # fmt: skip
_NARROW: Final = ("f16", "bf16")
_TRUTHS: Final = ("ge", "gt", "le", "lt", "eq", "ne", "and", "or", "xor")
_REMAINDERS: Final = ("mod", "fmod")
_QUOTIENTS: Final = ("floor_div", "trunc_div")


class NativeLogic(NativeImplementation[Binary]):
    """Any strides; vectors along the dimension whose elements are adjacent in dst."""

    name = "native:logic"
    stays_inside = True
    # Strides are possible, which other implementations made for speed do not get.
    general = True

    def reject(self, op: Binary, attr: PrimitiveAttr, target: Target) -> str | None:
        if op.algorithm not in (*_TRUTHS, *_REMAINDERS, *_QUOTIENTS, *BITWISE_ALGORITHMS):
            return f"algorithm {op.algorithm} is not supported"
        op = self.complete(op, attr, target)
        if op.src0.dtype != op.src1.dtype or op.src0.dtype not in _KINDS or op.dst.dtype not in _KINDS:
            return f"data types {op.src0.dtype} and {op.src1.dtype} to {op.dst.dtype}"
        if op.algorithm not in _TRUTHS:
            if op.dst.dtype != op.src0.dtype or op.dst.dtype in ("bool", *_NARROW):
                return f"{op.algorithm} of {op.src0.dtype} to {op.dst.dtype}"
            if op.algorithm in _QUOTIENTS and op.dst.dtype in ("f32", "f64"):
                return f"{op.algorithm} of {op.dst.dtype}"
        return refuse_operands(attr, op.src0, op.src1, op.dst)

    def complete(self, op: Binary, attr: PrimitiveAttr, target: Target) -> Binary:
        own = (op.dst, op.src0, op.src1)
        known = next((md for md in own if not md.is_any and md.dims == op.dst.dims), op.dst)
        src0, src1, dst = (follow(md, known) for md in (op.src0, op.src1, op.dst))
        return replace(op, src0=src0, src1=src1, dst=dst)

    def program(self, op: Binary, attr: PrimitiveAttr, target: Target) -> Program:
        kinds = _KINDS[op.src0.dtype], _KINDS[op.dst.dtype]
        return combine(op.algorithm, *kinds, ((Arg.SRC, op.src0), (Arg.SRC_1, op.src1)), op.dst)
