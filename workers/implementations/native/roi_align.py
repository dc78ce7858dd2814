"""RoiAlign of f32 and f64, row-major."""

from __future__ import annotations

from ...desc import Arg, PrimitiveAttr, RoiAlign, item_size
from ...engines.target import Target
from ...kernels.spec import KernelSpec
from ..program import Launch, LaunchArgument, Program
from .implementation import NativeImplementation

#: Parts of a box along its height whose rows are summed before their elements are.
_ROWS = 8
#: Channels of a box that share the places of its samples, and items at most: each has room for such places.
_CHANNELS = 64
_ITEMS = 32
#: Samples of a part that have room, and elements of an image along a dimension.
_SAMPLES = 1 << 10
_SIZE = 1 << 15


class NativeRoiAlign(NativeImplementation[RoiAlign]):
    """Channels of a box: sums of rows of the image, which are as wide as the box, and then of their elements."""

    name = "native:roi_align"

    def reject(self, op: RoiAlign, attr: PrimitiveAttr, target: Target) -> str | None:
        if attr.post_ops or not attr.is_plain:
            return "post-ops, scales and zero points are not supported"
        op = self.complete(op, attr, target)
        if op.src.dtype != op.dst.dtype or op.src.dtype not in ("f32", "f64") or op.boxes.dtype not in ("f32", "f64"):
            return f"{op.src.dtype} to {op.dst.dtype} by boxes of {op.boxes.dtype}; only f32 and f64 are supported"
        if op.images.dtype not in ("s32", "s64"):
            return f"images of {op.images.dtype}; only s32 and s64 are supported"
        if op.samples > _SAMPLES or max(op.src.dims[2:]) > _SIZE or max(op.dst.dims[2:]) > _SIZE:
            return f"more than {_SAMPLES} samples a part or {_SIZE} elements along a dimension"
        if not all(md.is_plain for md in op.memories().values()):
            return "only row-major layouts are supported"
        return None

    def program(self, op: RoiAlign, attr: PrimitiveAttr, target: Target) -> Program:
        if op.dst.elements == 0:
            return Program((), ())
        (images, channels, *sizes), parts = op.src.dims, op.dst.dims[2:]
        size, count, chunk = item_size(op.src.dtype), op.dst.dims[0], min(channels, _CHANNELS)
        # Places of neighbours along a dimension: where those of each part begin, indices and weights.
        taps = [_taps(op, *each) for each in zip(sizes, parts, strict=True)]
        rooms = [-(-(8 * (each + 1) + (8 + size) * most) // 64) * 64 for each, most in zip(parts, taps, strict=True)]
        row = size * (-(-sizes[1] // 16) * 16)
        room = sum(rooms) + _ROWS * row
        units = count * -(-channels // chunk)
        work = min(units, _ITEMS)
        kernel = KernelSpec.of(
            "roi_align", algorithm=op.algorithm, dtype=op.src.dtype, wide=op.boxes.dtype == "f64",
            long=op.images.dtype == "s64", summed=_ROWS,
        )  # fmt: skip
        memories: list[LaunchArgument] = [("m", (int(arg), 0)) for arg in (Arg.SRC, Arg.SRC_1, Arg.SRC_2, Arg.DST)]
        numbers = (images, channels, *sizes, *parts, op.samples, int(op.half_pixel))
        numbers = (*numbers, work, units, chunk, room, *rooms, row, *taps)
        args = (*memories, ("s", 0), *(("i", number) for number in numbers), ("f", op.scale))
        return Program((kernel,), (Launch(0, args, work),), b"", room * work)


def _taps(op: RoiAlign, size: int, parts: int) -> int:
    """Return how many neighbours of samples have room along a dimension.

    Samples of as many as a part has elements are at least half an element apart; further ones of ``max`` are zeros of a part.
    """
    return 2 * parts * op.samples if op.samples else 4 * (size + 4) + 8 * parts


IMPLEMENTATIONS = (NativeRoiAlign(),)
