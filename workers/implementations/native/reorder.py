"""Reorder: between any two layouts and data types, padding of the destination zeroed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...desc import Arg, PrimitiveAttr, Reorder
from ...engines.target import Target
from ..program import LaunchArgument, Program
from .dequantise import NativeDequantise
from .loop_nest import IncompatibleBlocks
from .nest_builder import NestBuilder
from .quantise import NativeQuantise

if TYPE_CHECKING:
    from ..cross_engine import ReorderAcrossEngines


class NativeReorder:
    """Strided nests moved row by row, or by 16 x 16 transposition if the contiguous dimensions differ, and converted."""

    name = "native:nest"
    engine_kind = "cpu"
    general = False
    stays_inside = True

    def reject(self, op: Reorder, attr: PrimitiveAttr, target: Target) -> str | None:
        return "post-ops are not supported" if attr.post_ops else None

    def complete(self, op: Reorder, attr: PrimitiveAttr, target: Target) -> Reorder:
        return op

    def program(self, op: Reorder, attr: PrimitiveAttr, target: Target) -> Program:
        build = NestBuilder()
        if op.dst.elements == 0:
            return build.program()
        source: LaunchArgument = ("m", (int(Arg.SRC), 0))
        to: LaunchArgument = ("m", (int(Arg.DST), 0))
        try:
            build.move(op.src, op.dst, source, to, op.wraps)
        except IncompatibleBlocks:
            # Blocks that do not divide one another: through row-major memory, whose blocks divide everything.
            plain = op.src.with_tag("")
            between = build.book(plain.nbytes)
            build.move(op.src, plain, source, between)
            build.move(plain, op.dst, between, to, op.wraps)
        return build.program()


IMPLEMENTATIONS = (NativeReorder(), NativeQuantise(), NativeDequantise())


def find_further_implementations() -> tuple[ReorderAcrossEngines]:
    """Return that of several engines, which most processes need not import."""
    from ..cross_engine import ReorderAcrossEngines as AcrossEngines

    return (AcrossEngines("native:cross_engine", "cpu"),)
