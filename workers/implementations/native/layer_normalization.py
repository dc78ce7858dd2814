"""Layer normalization of rows of any length, statistics computed, written or given, and its gradients."""

from __future__ import annotations

import math
from typing import Final

from ...desc import Arg, LayerNormalization, PrimitiveAttr
from ...engines.target import Target
from ...kernels.spec import KernelSpec
from ..program import Launch, LaunchArgument, Program
from .backward import NativeBackward, refuse_gradient
from .blocks import LANES
from .implementation import NativeImplementation
from .normalization_rows import NEUTRAL, normalize, refuse_rows
from .past_caches import asks_ahead, streams_rows

#: Rows whose contributions to the gradients of scale and shift one work item adds up: at least, at most.
_CHUNK: Final = (8, 256)
#: Work items that rows are divided into unless there are too few rows or too many.
_ITEMS: Final = 64


class NativeLayerNormalization(NativeImplementation[LayerNormalization]):
    """Row-major src and dst; vectors along a row."""

    name = "native:rows"
    stays_inside = True

    def reject(self, op: LayerNormalization, attr: PrimitiveAttr, target: Target) -> str | None:
        return refuse_rows(self.complete(op, attr, target), attr)

    def program(self, op: LayerNormalization, attr: PrimitiveAttr, target: Target) -> Program:
        rows, length = math.prod(op.dst.dims[:-1]), op.dst.dims[-1]
        streams, asks = streams_rows(op.dst, length, target), asks_ahead(op.dst, length, target)
        return normalize(op, attr, "layer", rows, (length,), streams, asks)


class NativeLayerNormalizationBackward(NativeBackward[LayerNormalization]):
    """Row-major src and gradients; one launch over rows, one over columns that adds up the gradients of scale and shift."""

    name = "native:rows_backward"

    def reject(self, op: LayerNormalization, attr: PrimitiveAttr, target: Target) -> str | None:
        op = self.complete(op, attr, target)
        if not op.src.is_plain:
            return f"layout {op.src.tag}; only row-major is supported"
        return refuse_gradient(op, attr, op.src, op.diff_dst, op.diff_src)

    def program(self, op: LayerNormalization, attr: PrimitiveAttr, target: Target) -> Program:
        rows, length = math.prod(op.src.dims[:-1]), op.src.dims[-1]
        memories = op.memories()
        sums = Arg.DIFF_SCALE in memories or Arg.DIFF_SHIFT in memories
        if length == 0 or (rows == 0 and not sums):
            return Program((), ())
        chunk = min(max(-(-rows // _ITEMS), _CHUNK[0]), _CHUNK[1])
        chunks, below = -(-rows // chunk), 4 * LANES * -(-length // LANES)

        def place(arg: Arg) -> LaunchArgument:
            return ("m", (int(arg), 0)) if arg in memories else ("i", 0)

        scaled = Arg.SCALE in memories
        lines: LaunchArgument = ("s", 0) if sums else ("i", 0)
        args: tuple[LaunchArgument, ...] = (
            *map(place, (Arg.SRC, Arg.DIFF_DST, Arg.DIFF_SRC, Arg.MEAN, Arg.VARIANCE)),
            place(Arg.SCALE) if scaled else ("t", 0), ("i", -int(scaled)), lines,
            *(("i", number) for number in (below, rows, chunk, length, int("use_global_stats" in op.flags))),
            ("f", float(op.epsilon)),
        )  # fmt: skip
        kernels = [KernelSpec.of("normalization_backward", part="rows", sums=sums, centered="rms_norm" not in op.flags)]
        launches = [Launch(0, args, chunks)] if chunks else []
        if sums:
            kernels.append(KernelSpec.of("normalization_backward", part="columns"))
            numbers: list[LaunchArgument] = [("i", number) for number in (below, chunks, length)]
            results = (lines, place(Arg.DIFF_SCALE), place(Arg.DIFF_SHIFT), *numbers)
            launches.append(Launch(1, results, -(-length // LANES)))
        return Program(tuple(kernels), tuple(launches), NEUTRAL, 2 * below * chunks if sums else 0)


IMPLEMENTATIONS = (NativeLayerNormalization(), NativeLayerNormalizationBackward())
