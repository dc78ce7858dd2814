"""Elements moved from one place to another, 16 at a time, and converted if the data types differ.

A conversion rounds once, to even; integers are saturated, and NaN becomes the least one. Integers become others without
floats, saturated or with the high bits cut off that do not fit. What floats take part in is in float32 between types whose
numbers float32 holds, else in float64. Elements of one type are moved bit by bit, as whole numbers of their width (f32 as such).
"""

from __future__ import annotations

from typing import Any, Final

import llvmlite.ir as ir

from poolrt.cachestore.deferred_dataclass import dataclass

from ...desc.data_type import LIMITS
from .compiler import types
from .compiler.language import intrinsic
from .elements import SMALL, STORED, masked_load, narrowed, widened
from .first_lanes import masked_store
from .vec import F32, I8, I16, I32, I64, LANES, VD, VF, Builder, Value, lanes_below, pointer

#: What data types of one width are moved as.
_BITS: Final[dict[str, ir.Type]] = {"bits8": I8, "bits16": I16, "bits32": F32, "bits64": I64}
_WHOLE: Final = (*LIMITS, "bool")
_WIDTHS: Final = {I8: 1, I16: 2, I32: 4, F32: 4}


@dataclass(frozen=True, slots=True)
class Movement:
    """From elements of one type to those of another: both are data types, or both are ``bits8``, ``16``, ``32`` or ``64``."""

    src: str
    dst: str
    wraps: bool = False  #: whether integers lose high bits

    @property
    def src_size(self) -> int:
        """Return the bytes of an element of src."""
        return _WIDTHS.get(self.src_kind, 8)

    @property
    def dst_size(self) -> int:
        """Return the bytes of an element of dst."""
        return _WIDTHS.get(self.dst_kind, 8)

    @property
    def src_kind(self) -> ir.Type:
        """Return the type of an element of src in memory."""
        return _BITS.get(self.src) or STORED[self.src]

    @property
    def dst_kind(self) -> ir.Type:
        """Return the type of an element of dst in memory."""
        return _BITS.get(self.dst) or STORED[self.dst]

    def read(self, b: Builder, address: Value, mask: Value | None) -> Value:
        """Return 16 elements, those of a mask and zeros if there is one."""
        if mask is None:
            return b.load(pointer(b, address, ir.VectorType(self.src_kind, LANES)), align=1)
        return masked_load(b, address, self.src_kind, mask)

    def converted(self, b: Builder, value: Value) -> Value:
        """Return elements of src as those of dst."""
        if self.src == self.dst:
            return value
        if self.src in _WHOLE and self.dst in _WHOLE:
            return self._whole(b, value)
        between = VF if self.src in SMALL and self.dst in SMALL else VD
        lanes = widened(b, value, self.src, between)
        return narrowed(b, lanes, self.dst)

    def _whole(self, b: Builder, value: Value) -> Value:
        """Return integers and bool as others; a bool is whether a number is not 0."""
        wide = ir.VectorType(self.dst_kind, LANES)
        if "bool" in (self.src, self.dst):
            return b.zext(b.icmp_signed("!=", value, ir.Constant(value.type, None)), wide)
        signed = self.src[0] == "s"
        if not self.wraps:
            (least, most), (low, high) = LIMITS[self.src], LIMITS[self.dst]
            compare = b.icmp_signed if signed else b.icmp_unsigned
            for predicate, bound, reached in (("<", low, least < low), (">", high, most > high)):
                limit = ir.Constant(value.type, [bound] * LANES)
                value = b.select(compare(predicate, value, limit), limit, value) if reached else value
        if self.dst_kind.width < self.src_kind.width:
            return b.trunc(value, wide)
        return value if self.dst_kind == self.src_kind else (b.sext if signed else b.zext)(value, wide)

    def write(self, b: Builder, address: Value, value: Value, mask: Value | None = None) -> None:
        """Write 16 elements of src as elements of dst, or those of a mask."""
        found = self.converted(b, value)
        if mask is None:
            b.store(found, pointer(b, address, found.type), align=1)
        else:
            masked_store(b, found, address, mask)

    def intrinsics(self) -> tuple[Any, Any, Any, Any]:
        """Return functions of (source, target): of 16 elements, of the first ``count``, these and zeros up to 16, of one."""

        @intrinsic
        def move(_: Any, source: types.Integer, target: types.Integer) -> Any:
            def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
                self.write(b, a[1], self.read(b, a[0], None))
                return context.get_dummy_value()

            return types.void(types.int64, types.int64), emit

        @intrinsic
        def move_part(_: Any, source: types.Integer, target: types.Integer, count: types.Integer) -> Any:
            def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
                mask = lanes_below(b, a[2])
                self.write(b, a[1], self.read(b, a[0], mask), mask)
                return context.get_dummy_value()

            return types.void(types.int64, types.int64, types.int64), emit

        @intrinsic
        def move_padded(_: Any, source: types.Integer, target: types.Integer, count: types.Integer) -> Any:
            def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
                self.write(b, a[1], self.read(b, a[0], lanes_below(b, a[2])))
                return context.get_dummy_value()

            return types.void(types.int64, types.int64, types.int64), emit

        @intrinsic
        def move_one(_: Any, source: types.Integer, target: types.Integer) -> Any:
            def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
                undefined = ir.Constant(ir.VectorType(self.src_kind, LANES), None)
                one = b.load(pointer(b, a[0], self.src_kind), align=1)
                found = self.converted(b, b.insert_element(undefined, one, I32(0)))
                b.store(b.extract_element(found, I32(0)), pointer(b, a[1], self.dst_kind), align=1)
                return context.get_dummy_value()

            return types.void(types.int64, types.int64), emit

        return move, move_part, move_padded, move_one
