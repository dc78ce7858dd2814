"""Resampling: up to three spatial dimensions with separable weights, row-major or in blocks of 16 channels."""

from __future__ import annotations

import math
import struct
from typing import Final

from ...desc import Arg, PrimitiveAttr, Resampling
from ...engines.target import Target
from ...kernels.spec import KernelSpec
from ..program import Launch, LaunchArgument, Program
from .blocks import CHUNK, LANES, channel_blocks, channel_tail, is_blocked, refuse_different, refuse_permuted
from .chain import chain, chain_source, refuse_chain
from .implementation import NativeImplementation

#: Spatial dimensions that the kernels have.
_SPATIAL: Final = 3
#: Positions of a row that the kernel widens at once.
_STRIP: Final = 512


class NativeResampling(NativeImplementation[Resampling]):
    """Rows of dst, cut into pieces; src and dst in the same layout."""

    name = "native:resampling"

    def reject(self, op: Resampling, attr: PrimitiveAttr, target: Target) -> str | None:
        if op.src.ndims - 2 > _SPATIAL:
            return f"{op.src.ndims - 2} spatial dimensions; at most {_SPATIAL} are supported"
        op = self.complete(op, attr, target)
        return refuse_permuted(op.src, op.dst) or refuse_different(op.src, op.dst) or refuse_chain(attr, op.dst)

    def program(self, op: Resampling, attr: PrimitiveAttr, target: Target) -> Program:
        if op.dst.elements == 0:
            return Program((), ())
        missing = (1,) * (_SPATIAL + 2 - op.src.ndims)
        sizes, wanted = (*missing, *op.src.dims[2:]), (*missing, *op.dst.dims[2:])
        linear = op.algorithm == "linear"
        axes = [[_place(index, s, w, linear) for index in range(w)] for s, w in zip(sizes, wanted, strict=True)]
        part = "blocked" if is_blocked(op.dst) else "rows"
        tables = [*map(_records, axes[:2]), _records(axes[2]) if part == "blocked" else _arrays(axes[2])]
        starts = (0, len(tables[0]), len(tables[0]) + len(tables[1]))
        lines = wanted[0] * wanted[1]
        if part == "blocked":
            blocks = channel_blocks(op.dst)
            more = (blocks, channel_tail(op.dst))
            work = op.dst.dims[0] * blocks * lines
        else:
            chunk = max(1, CHUNK // min(_STRIP, wanted[2]))
            more = (-(-wanted[2] // LANES) * LANES, chunk)
            work = math.prod(op.dst.dims[:2]) * -(-wanted[2] // _STRIP) * -(-lines // chunk)
        args: tuple[LaunchArgument, ...] = (
            ("m", (int(Arg.SRC), 0)), ("m", (int(Arg.DST), 0)), chain_source(attr), *(("t", start) for start in starts),
            *(("i", number) for number in (*sizes, *wanted, *more)),
        )  # fmt: skip
        kernel = KernelSpec.of("resampling", part=part, linear=linear, chain=chain(attr))
        return Program((kernel,), (Launch(0, args, work),), tables=b"".join(tables))


def _place(index: int, size: int, wanted: int, linear: bool) -> tuple[int, int, float]:
    """Return the elements below and above an index of dst, and the weight of the upper one, 0 if there is one element."""
    if not linear:
        nearest = (2 * index + 1) * size // (2 * wanted)
        return nearest, nearest, 0.0
    below, rest = divmod((2 * index + 1) * size - wanted, 2 * wanted)
    low, high = max(below, 0), min(below + 1, size - 1)
    return low, high, rest / (2.0 * wanted) if low < high else 0.0


def _records(places: list[tuple[int, int, float]]) -> bytes:
    return b"".join(struct.pack("<2qf4x", *place) for place in places)


def _arrays(places: list[tuple[int, int, float]]) -> bytes:
    """Return the lower places, the upper ones and the weights, each padded to whole vectors."""
    padding = [(0, 0, 0.0)] * (-len(places) % LANES)
    low, high, weights = zip(*places, *padding, strict=True)
    count = len(low)
    return struct.pack(f"<{count}i{count}i{count}f", *low, *high, *weights)


IMPLEMENTATIONS = (NativeResampling(),)
