"""Resampling: up to three spatial dimensions with separable weights, row-major or in blocks of 16 channels."""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Sequence
from typing import Final

from ...desc import Arg, PrimitiveAttr, Resampling, item_size
from ...engines.target import Target
from ...kernels.spec import KernelSpec
from ..program import Launch, LaunchArgument, Program
from ..resampling_places import UNIT, Place, places, taps
from .blocks import (
    CHUNK,
    EVERY_TYPE,
    LANES,
    channel_blocks,
    channel_tail,
    is_blocked,
    lane_size,
    refuse_different,
    refuse_permuted,
)
from .chain import chain, chain_source, refuse_chain
from .implementation import NativeImplementation

#: Spatial dimensions that the kernels have.
_SPATIAL: Final = 3
#: Positions of a row that the kernel widens at once.
_STRIP: Final = 512
#: Columns of a row of src that the kernel has room for, to mix two of them before their columns.
_MIXED: Final = 4096
#: Columns of src for each of dst up to which rows are added up before their columns.
_WIDER: Final = 8
#: Bytes of an element -> the data type as which the kernel moves it.
_MOVED: Final = {1: "u8", 2: "u16", 4: "u32", 8: "u64"}


class NativeResampling(NativeImplementation[Resampling]):
    """Rows of dst, cut into pieces; src and dst in the same layout."""

    name = "native:resampling"

    def reject(self, op: Resampling, attr: PrimitiveAttr, target: Target) -> str | None:
        if op.src.ndims - 2 > _SPATIAL:
            return f"{op.src.ndims - 2} spatial dimensions; at most {_SPATIAL} are supported"
        op = self.complete(op, attr, target)
        if _looks_outside(op):
            return "places outside of src are not supported"
        if op.dst.dtype in ("f16", "bf16") and not _moves(op, attr):
            return f"{op.dst.dtype} is faster as f32"
        refused = refuse_permuted(op.src, op.dst, dtypes=EVERY_TYPE) or refuse_different(op.src, op.dst)
        return refused or refuse_chain(attr, op.dst)

    def program(self, op: Resampling, attr: PrimitiveAttr, target: Target) -> Program:
        if op.dst.elements == 0:
            return Program((), ())
        missing = (1,) * (_SPATIAL + 2 - op.src.ndims)
        sizes, wanted = (*missing, *op.src.dims[2:]), (*missing, *op.dst.dims[2:])
        alone = Place((0,) * taps(op), (UNIT, *(0,) * (taps(op) - 1)))
        axes = [[alone] for _ in missing] + [places(op, axis) for axis in range(op.src.ndims - 2)]
        part = "blocked" if is_blocked(op.dst) else "rows"
        moves = _moves(op, attr)
        real = "f" if moves or lane_size(op.dst.dtype) == 4 else "d"
        width = _records if part == "blocked" else _arrays
        tables = [*(_records(axis, real) for axis in axes[:2]), width(axes[2], real)]
        starts = (0, len(tables[0]), len(tables[0]) + len(tables[1]))
        lines = wanted[0] * wanted[1]
        if part == "blocked":
            blocks = channel_blocks(op.dst)
            more: tuple[int, ...] = (blocks, channel_tail(op.dst))
            work = op.dst.dims[0] * blocks * lines
        else:
            chunk = max(1, CHUNK // min(_STRIP, wanted[2]))
            more = (-(-wanted[2] // LANES) * LANES, chunk, *([] if op.algorithm == "cubic" else [_pairs(axes[2])]))
            work = math.prod(op.dst.dims[:2]) * -(-wanted[2] // _STRIP) * -(-lines // chunk)
        args: tuple[LaunchArgument, ...] = (
            ("m", (int(Arg.SRC), 0)), ("m", (int(Arg.DST), 0)), chain_source(attr), *(("t", start) for start in starts),
            *(("i", number) for number in (*sizes, *wanted, *more)),
        )  # fmt: skip
        close = part == "rows" and _are_close(axes[2])
        repeat = _repeat(axes[2]) if moves and part == "rows" else 1
        dtype = _MOVED[item_size(op.dst.dtype)] if moves else op.dst.dtype
        kernel = KernelSpec.of(
            "resampling", part=part, linear=op.algorithm == "linear", close=close, chain=chain(attr), repeat=repeat,
            dtype=dtype, shrinks=part == "rows" and _shrinks(op, axes), same=part == "rows" and _is_same(axes[2]),
            near=part == "rows" and target.isa == "x86-64-v3" and _are_close(axes[2], LANES // 2, LANES // 2),
            far=part == "rows" and not close and _has_far(dtype, target) and _are_far(axes[2]),
        )  # fmt: skip
        if op.algorithm == "cubic":
            part = "lower" if part == "rows" and _adds_rows_first(op) else part
            spans = (LANES, 2 * LANES) if part == "lower" else (LANES,) if part == "rows" else ()
            near = next((span for span in spans if _are_close(axes[2], span)), 0)
            kernel = KernelSpec.of("resampling_cubic", part=part, chain=chain(attr), dtype=dtype, near=near)
        return Program((kernel,), (Launch(0, args, work),), tables=b"".join(tables))


def _moves(op: Resampling, attr: PrimitiveAttr) -> bool:
    """Return whether elements are moved as they are."""
    return op.algorithm == "nearest" and not attr.post_ops


def _shrinks(op: Resampling, axes: Sequence[list[Place]]) -> bool:
    """Return whether planes of f32 become lower, of rows that the kernel has room for, with columns in order."""
    first, upper = ([_shared(place)[0][side] for place in axes[2]] for side in (0, 1))
    ordered = all(list(seen) == sorted(seen) for seen in (first, upper)) and all(map(operator.le, first, upper))
    flat = len(axes[0]) == 1 and op.src.ndims < _SPATIAL + 2
    lower = op.src.ndims > _SPATIAL and op.dst.dims[-2] < op.src.dims[-2]
    fits = op.src.dims[-1] <= _MIXED and op.dst.dtype == "f32"
    # Halved rows are pairs of columns, which take less time than a row in between.
    return op.algorithm == "linear" and flat and lower and fits and ordered and not _pairs(axes[2])


def _adds_rows_first(op: Resampling) -> bool:
    """Return whether planes of f32 become lower by cubic convolution, which then widens a row of dst instead of all of src."""
    if op.dst.dtype != "f32" or op.src.ndims != _SPATIAL + 1 or op.dst.dims[-2] >= op.src.dims[-2]:
        return False
    return op.src.dims[-1] <= min(_MIXED, _WIDER * op.dst.dims[-1])


def _looks_outside(op: Resampling) -> bool:
    """Return whether any place is outside of src, which one kind of coordinates alone allows."""
    axes = range(op.src.ndims - 2 if op.coordinates == "tf_crop_and_resize" and op.dst.elements else 0)
    return any(not place.elements for axis in axes for place in places(op, axis))


def _shared(place: Place) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Return two elements or four, and their weights; the second one is the first again, with weight 0, if there is one."""
    first = place.elements[0]
    if place.elements in ((first,), (first, first)):
        return (first, first), (1.0, 0.0)
    return place.elements, tuple(weight / UNIT for weight in place.weights)


def _records(seen: list[Place], real: str) -> bytes:
    """Return for each index its elements, then its weights as numbers of a type of `struct`'s."""
    return b"".join(struct.pack(f"<{len(e)}q{len(w)}{real}", *e, *w) for e, w in map(_shared, seen))


def _pairs(seen: list[Place]) -> int:
    """Return 1 plus the first element if indices see pairs of elements that follow one another, both with a weight, else 0."""
    first = seen[0].elements[0]
    for index, place in enumerate(seen):
        if place.elements != (first + 2 * index, first + 2 * index + 1) or 0 in place.weights:
            return 0
    return first + 1


def _repeat(seen: list[Place]) -> int:
    """Return how often each element follows itself in order, if that is 2, 4, 8 or 16 times, else 1."""
    for times in (2, 4, 8, 16):
        if [place.elements for place in seen] == [(index // times,) for index in range(len(seen))]:
            return times
    return 1


def _is_same(seen: list[Place]) -> bool:
    """Return whether each index sees the element of its number alone."""
    return [place.elements[:1] for place in seen] == [(index,) for index in range(len(seen))] and not any(
        any(place.weights[1:]) for place in seen
    )


def _has_far(dtype: str, target: Target) -> bool:
    """Return whether two permutations take less time than a gather of elements that are up to 31 apart."""
    return target.isa == "x86-64-v4" and dtype in ("f32", "u32")


def _are_close(seen: list[Place], span: int = LANES, lanes: int = LANES) -> bool:
    """Return whether ``lanes`` indices at a time see elements fewer than ``span`` behind that of the first one, side by side."""
    for elements in zip(*(elements for elements, _ in map(_shared, seen)), strict=True):
        for start in range(0, len(elements), lanes):
            part = elements[start : start + lanes]
            if min(part) != part[0] or max(part) - part[0] >= span:
                return False
    return True


def _are_far(seen: list[Place]) -> bool:
    """Return whether vectors of indices see elements from the first one's to the last one's, less than two vectors apart."""
    for elements in zip(*(elements for elements, _ in map(_shared, seen)), strict=True):
        parts = (elements[start : start + LANES] for start in range(0, len(elements), LANES))
        if any(max(part) != part[-1] for part in parts):
            return False
    return _are_close(seen, 2 * LANES)


def _arrays(seen: list[Place], real: str) -> bytes:
    """Return an array of the first elements, of the second ones and so on, then of weights, padded to whole vectors."""
    places = list(map(_shared, seen))
    places += places[-1:] * (-len(places) % LANES)
    columns = [*zip(*(elements for elements, _ in places), strict=True)]
    weights = [*zip(*(weights for _, weights in places), strict=True)]
    packed = [struct.pack(f"<{len(column)}i", *column) for column in columns]
    return b"".join((*packed, *(struct.pack(f"<{len(column)}{real}", *column) for column in weights)))


IMPLEMENTATIONS = (NativeResampling(),)
