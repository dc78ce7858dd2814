"""Reorder between engines: transfers copy the bytes of one side, and a nested reorder computes on the other side's engine.

An OpenCL device computes reorders to and from a CPU, and reorders to another device. The CPU computes them if the device
lacks a data type. The tensor of the other engine gets a copy in the scratchpad. Dst's former content is copied in only if
it matters: between strided elements, and for a sum.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from poolrt.cachestore.deferred_dataclass import dataclass, replace

from ..desc import Arg, PrimitiveAttr, Reorder
from ..engines.target import Target
from .primitive_desc import PrimitiveDesc, UnsupportedPrimitive, primitive_desc
from .program import LaunchArgument, NestedLaunch, Program, Transfer


@dataclass(frozen=True, slots=True)
class ReorderAcrossEngines:
    """Accepts what the best reorder within the computing engine accepts."""

    name: str
    engine_kind: str
    general: bool = True
    nests: bool = True

    def reject(self, op: Reorder, attr: PrimitiveAttr, target: Target) -> str | None:
        """Return why ``op`` cannot be computed, or None."""
        if not op.is_cross_engine:
            return "only reorders between engines are supported"
        try:
            _nested(op, attr, target)
        except UnsupportedPrimitive as error:
            return str(error)
        return None

    def complete(self, op: Reorder, attr: PrimitiveAttr, target: Target) -> Reorder:
        """Return ``op``, whose layouts are given."""
        return op

    def program(self, op: Reorder, attr: PrimitiveAttr, target: Target) -> Program:
        """Describe the transfers, and the nested reorder if bytes change."""
        if op.dst.elements == 0:
            return Program((), ())
        memories = {**op.memories(), **attr.memories(op.memories())}
        elsewhere = self._elsewhere(op, memories)
        places: dict[int, LaunchArgument] = {arg: ("m", (int(arg), 0)) for arg in memories if arg not in elsewhere}
        end = 0
        copied = _is_copied(op, attr)
        for arg in elsewhere:
            if copied and places:
                # One place serves both sides.
                places[arg] = next(iter(places.values()))
                continue
            places[arg] = ("s", end)
            # On cache lines of its own, with as many bytes behind it as kernels may read.
            end += (memories[arg].nbytes + 127) // 64 * 64
        keeps = bool(op.dst.strides) or any(step.kind == "sum" for step in attr.post_ops)
        copies_in, copies_out = (
            tuple(Transfer(int(arg), places[arg], memories[arg].nbytes) for arg in chosen)
            for chosen in (
                [arg for arg in elsewhere if arg != Arg.DST or keeps],
                [arg for arg in elsewhere if arg == Arg.DST],
            )
        )
        if copied:
            return Program((), (), b"", end, (), copies_in, copies_out)
        nested = _nested(op, attr, target)
        launch = NestedLaunch(0, tuple((int(arg), place) for arg, place in places.items()), end)
        return Program((), (launch,), b"", end + nested.program().scratchpad, (nested,), copies_in, copies_out)

    def _elsewhere(self, op: Reorder, args: Iterable[int]) -> list[int]:
        """Return the arguments on another engine than the one that computes."""
        if self.engine_kind == "opencl":
            return [Arg.SRC if op.src_engine == "cpu" else Arg.DST]
        # The arguments of attributes are on the device, as the stream is.
        engines: dict[int, str] = {Arg.SRC: op.src_engine, Arg.DST: op.dst_engine}
        return [arg for arg in args if engines.get(arg, "opencl") == "opencl"]


def _is_copied(op: Reorder, attr: PrimitiveAttr) -> bool:
    """Return whether dst's bytes are those of src, all of them."""
    plain = attr.is_plain and not attr.post_ops
    return plain and op.src == op.dst and not op.dst.strides and math.prod(op.dst.padded_dims) == op.dst.elements


def _nested(op: Reorder, attr: PrimitiveAttr, target: Target) -> PrimitiveDesc:
    """Return the reorder within one engine. Its scratch memory is always a part of the outer primitive's."""
    inside = replace(op, src_engine="", dst_engine="")
    return primitive_desc(inside, replace(attr, scratchpad_mode="library"), target)
