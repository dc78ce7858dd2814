"""Convolution on blocks of 16 channels: a batch-reduce kernel, after a padded copy of the source if one is needed."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeAlias

from poolrt.cachestore.deferred_dataclass import dataclass, replace

from ...desc import Arg, Convolution, MemoryDesc, PrimitiveAttr
from ...engines.target import Target
from ...kernels.spec import KernelSpec
from ..nested.builder import shifted
from ..program import LaunchArgument, Program
from .blocks import blocked_tag, refuse
from .chain import chain_source
from .convolution_chain import bounds, refuse_bounded
from .convolution_chunks import Sizes, chunks, cut, ends_with_half, takes_chunks
from .convolution_tiles import Tiling, images_at_once, inputs_at_once, strips, tiling
from .convolution_walks import (
    Corners,
    Step,
    Taps,
    Walks,
    corners,
    line_of,
    reads_much_padding,
    spare_of,
    taps_of,
    trims_at,
    trims_of,
)
from .convolution_window import Window
from .nest_builder import NestBuilder

#: Slabs, rows and columns of positions.
Shape: TypeAlias = tuple[int, int, int]


class NativeBlockedConvolution:
    """1 to 3 spatial dimensions; groups of whole blocks of channels, or one group of any number of channels."""

    name = "native:blocked"
    engine_kind = "cpu"
    general = False
    stays_inside = True

    def reject(self, op: Convolution, attr: PrimitiveAttr, target: Target) -> str | None:
        if op.src.ndims not in (3, 4, 5):
            return f"{op.src.ndims - 2} spatial dimensions; only 1 to 3 are supported"
        if op.groups > 1 and (op.weights.dims[1] % 16 or op.weights.dims[0] // op.groups % 16):
            return "groups that are not whole blocks of 16 channels"
        op = self.complete(op, attr, target)
        for md in (op.src, op.dst):
            if md.tag != blocked_tag(md.ndims):
                return f"layout {md.tag}; only blocks of 16 channels are supported"
        if op.weights.tag != weights_tag(op.weights.ndims):
            return f"weights layout {op.weights.tag}; only {weights_tag(op.weights.ndims)} is supported"
        return refuse(op.src, op.dst) or refuse_operands(op) or refuse_bounded(attr, op.dst)

    def complete(self, op: Convolution, attr: PrimitiveAttr, target: Target) -> Convolution:
        tag = blocked_tag(op.src.ndims)
        weights = op.weights.with_tag(weights_tag(op.weights.ndims)) if op.weights.is_any else op.weights
        return replace(
            op, src=chosen(op.src, tag), dst=chosen(op.dst, tag), weights=weights, bias=op.bias and chosen(op.bias, "")
        )

    def program(self, op: Convolution, attr: PrimitiveAttr, target: Target) -> Program:
        if op.dst.elements == 0:
            return Program((), ())
        window = Window.of(op)
        if not takes_chunks(target.isa, math.prod(window.out)) or reads_much_padding(window):
            tiles = tiling(target.isa, *window.out, 1, line=line_of(window, target.isa))
            trims = trims_of(window, tiles, target.isa)
            window = replace(window, trims=trims) if trims else replace(window, spare=spare_of(window, tiles))
        blocks = op.weights.padded_dims[1] // 16
        planes = op.src.padded_dims[1] // 16
        build = NestBuilder()
        source = padded(build, window, ("m", (int(Arg.SRC), 0)), op.src.dims[0] * planes)
        reach = Reach.of(window, op.weights.dims[1], 64)
        operands = in_place(op, attr, source, len(reach.steps) * 1024)
        reduce(build, op, attr, target, reach.shape, reach.steps, reach.walk(planes, blocks), operands, reach)
        return build.program()


@dataclass(frozen=True, slots=True)
class Walk:
    """The layout of a tile's source: bytes from slab to slab, row to row and position to position, strides of image and group."""

    slab: int
    row: int
    step: int
    image: int
    group: int


@dataclass(frozen=True, slots=True)
class Operands:
    """Where a batch-reduce launch reads and writes; bytes from weights to those of the next group, block and row."""

    src: LaunchArgument
    weights: LaunchArgument
    bias: LaunchArgument
    dst: LaunchArgument
    residual: LaunchArgument
    weight_group: int
    weight_block: int
    weight_row: int


@dataclass(frozen=True, slots=True)
class Reach:
    """The source of tiles over blocked planes: positions, the kernel's steps, bytes of a slab, a row of tiles and a plane.

    Each block of channels has a step for each of ``number`` taps; ``taps`` returns which of them a tile needs.
    """

    shape: Shape
    steps: list[Step]
    slab: int
    row: int
    plane: int
    number: int
    taps: Callable[[Corners], Taps]
    window: Window

    @classmethod
    def of(cls, window: Window, channels: int, weight_row: int) -> Reach:
        """Return the reach over the blocks of ``channels`` in the source itself or in its padded copy."""
        rows, phases, columns = window.copy()
        slab = rows * phases * columns * 64
        plane = window.slabs * slab
        front = window.depth.pad * slab if window.trims else 0
        taps = [
            kd * window.depth.dilation * slab - front + window.offset(kh, kw, columns) * 64
            for kd in range(window.depth.kernel)
            for kh in range(window.kernel[0])
            for kw in range(window.kernel[1])
        ]
        lanes = [min(16, channels - first) for first in range(0, channels, 16)]
        steps = [(i * plane + tap, n, (16 - n) * weight_row) for i, n in enumerate(lanes) for tap in taps]
        if window.is_pointwise:
            shape = (1, 1, window.depth.out * math.prod(window.out))
            return cls(shape, steps, 0, 0, plane, 1, lambda tile: None, window)
        row = window.step * phases * columns * 64
        needed = taps_of(window)
        return cls(
            (window.depth.out, *window.out), steps, window.slab_step * slab, row, plane, len(taps), needed, window
        )

    def walk(self, planes: int, group_planes: int) -> Walk:
        """Return the layout of tiles in images of ``planes`` and groups of ``group_planes`` planes."""
        return Walk(self.slab, self.row, 64, planes * self.plane, group_planes * self.plane)


def padded(build: NestBuilder, window: Window, source: LaunchArgument, planes: int) -> LaunchArgument:
    """Return the place of ``planes`` that tiles read: the source, or its padded copy, which is added."""
    if window.is_direct:
        return source
    rows, phases, columns = window.copy()
    items = planes * window.slabs * rows
    to = build.book(items * phases * columns * 64)
    build.launch(KernelSpec.of("conv_pad"), (source, to, *ints(window.copy_sizes())), items)
    return to


def in_place(op: Convolution, attr: PrimitiveAttr, src: LaunchArgument, weight_block: int) -> Operands:
    """Return the operands if all but src are execution arguments, the weights of 16 outputs side by side."""
    blocks = -(-op.dst.dims[1] // op.groups // 16)
    bias: LaunchArgument = ("m", (int(Arg.BIAS), 0)) if op.bias else ("i", 0)
    weights, dst = ("m", (int(Arg.WEIGHTS), 0)), ("m", (int(Arg.DST), 0))
    return Operands(src, weights, bias, dst, chain_source(attr), blocks * weight_block, weight_block, 64)


def reduce(
    build: NestBuilder,
    op: Convolution,
    attr: PrimitiveAttr,
    target: Target,
    shape: Shape,
    steps: list[Step],
    walk: Walk,
    operands: Operands,
    reach: Reach | None = None,
) -> None:
    """Add the batch-reduce launch over the slabs, rows and columns of ``shape`` into blocks of 16 channels.

    With the ``reach`` that the steps are of, tiles leave taps out that read nothing but padding, as far as the level's kernel
    can, and a launch sums as many inputs as caches hold: the first one begins with the bias, others with the sums in dst.
    """
    leaves_out = reach is not None and reads_much_padding(reach.window)
    if takes_chunks(target.isa, shape[1] * shape[2]) and not leaves_out:
        reduce_in_chunks(build, op, attr, target, shape, steps, walk, operands)
        return
    channels = op.dst.dims[1] // op.groups
    blocks = -(-channels // 16)
    slabs, rows, columns = shape
    tiles = tiling(target.isa, rows, columns, blocks, line=line_of(reach.window, target.isa) if reach else ())
    passes = -(-blocks // tiles.blocks)
    dst_block = math.prod(shape) * 64
    weight_bytes = sum(lanes for _, lanes, _ in steps) * blocks * 64
    images = images_at_once(op.dst.dims[0], walk.group, weight_bytes)
    groups = op.dst.dims[0] // images * op.groups
    cut = strips(images * slabs * len(tiles.places), images * walk.group, weight_bytes, passes, groups)
    low, bound = bounds(attr)
    number = reach.number if reach else 1
    spans = [len(steps)]
    # A residual that is added behind a first bound is added to complete sums only.
    if reach and len(cut) == 2 and low == -math.inf:
        part_bytes = sum(lanes for _, lanes, _ in steps) * min(tiles.blocks, blocks) * 64
        spans = [number * n for n in inputs_at_once(len(steps) // number, number, images * walk.group, part_bytes)]
    places = [(slab, *place) for slab in range(slabs) for place in tiles.places]
    needed = [reach.taps(corners(tiles, *place)) if reach else None for place in places]
    trims = reach.window.trims if reach else ()
    numbers = trims_at(reach.window) if reach and trims else lambda tile: ()
    trimmed = [numbers(corners(tiles, *place)) for place in places]
    table = tile_table(tiles, shape, walk)
    dst_image = op.groups * blocks * dst_block
    more = {"trims": trims} if trims else {}
    kernel = KernelSpec.of(
        "conv", tiles=tiles.kinds, blocks=tiles.blocks, step=walk.step, ragged=channels % 16 != 0, **more
    )
    known: dict[tuple[Step, ...], tuple[LaunchArgument, ...]] = {}
    done = skipped = 0
    for span in spans:
        # As seen from the first of its blocks of inputs, so that blocks like these have the same tables.
        begin = reach.plane * (done // number) if reach else 0
        taken = tuple((offset - begin, lanes, skip) for offset, lanes, skip in steps[done : done + span])
        if taken not in known:
            walks = Walks(taken, operands.weight_row, bool(trims))
            own = [walks.place(*each) for each in zip(needed, itertools.repeat(number), trimmed)]
            entries = [
                value
                for image in range(images)
                for i, walked in enumerate(own)
                for value in (
                    table[3 * i], table[3 * i + 1] + image * walk.image, table[3 * i + 2] + image * dst_image, walked,
                )
            ]  # fmt: skip
            known[taken] = tuple(("t", build.table(v)) for v in (walks.steps, walks.walks, entries, list(cut)))
        is_first, is_last = done == 0, done + span == len(steps)
        args: tuple[LaunchArgument, ...] = (
            shifted(operands.src, begin), shifted(operands.weights, skipped), operands.bias if is_first else ("i", 0),
            operands.dst, operands.residual if is_first else operands.dst, *known[taken],
            *ints((len(cut) - 1, op.groups, blocks, channels)),
            *ints((images * walk.image, walk.group, walk.row)),
            *ints((operands.weight_group, operands.weight_block, operands.weight_row)),
            *ints((images * dst_image, dst_block)), ("f", low), ("f", bound if is_last else -math.inf),
        )  # fmt: skip
        build.launch(kernel, args, groups * (len(cut) - 1) * passes)
        done += span
        skipped += sum(lanes * operands.weight_row + skip for _, lanes, skip in taken)


def reduce_in_chunks(
    build: NestBuilder,
    op: Convolution,
    attr: PrimitiveAttr,
    target: Target,
    shape: Shape,
    steps: list[Step],
    walk: Walk,
    operands: Operands,
) -> None:
    """Add the launches of `reduce` that compute chunks of inputs: one, or another for the last block and a half of outputs."""
    channels = op.dst.dims[1] // op.groups
    blocks = -(-channels // 16)
    first = blocks - 2 if ends_with_half(op.groups, channels) else blocks
    if first:
        some = _Outputs(blocks, 0, min(channels, 16 * first), False)
        _reduce_blocks(build, op, attr, target, shape, steps, walk, operands, some)
    if first < blocks:
        last = _Outputs(blocks, first, channels - 16 * first, True)
        _reduce_blocks(build, op, attr, target, shape, steps, walk, operands, last)


class _Outputs(NamedTuple):
    """A part of a group's outputs: of so many blocks the first one, channels, whether wide tiles have them."""

    all_blocks: int
    first: int
    channels: int
    wide: bool


def _reduce_blocks(
    build: NestBuilder,
    op: Convolution,
    attr: PrimitiveAttr,
    target: Target,
    shape: Shape,
    steps: list[Step],
    walk: Walk,
    operands: Operands,
    part: _Outputs,
) -> None:
    """Add the launch for a part of a group's outputs."""
    all_blocks, first, channels, wide = part
    blocks = 1 if wide else -(-channels // 16)
    low, bound = bounds(attr)
    is_early = low == -math.inf
    whole = operands.residual[0] == "m" and not is_early
    lanes = [lanes for _, lanes, _ in steps]
    slabs, rows, columns = shape
    sizes = Sizes(
        op.dst.dims[0] * slabs, rows * columns, op.groups, blocks, walk.group // slabs, sum(lanes) * blocks * 64
    )
    starts = chunks(lanes, whole)
    tiles = cut(target.isa, sizes, len(starts) - 1, wide)
    places = [0]
    for _, count, skip in steps:
        places.append(places[-1] + count * operands.weight_row + skip)
    chunk_table = [
        value
        for begin, end in itertools.pairwise(starts)
        for value in (
            24 * begin,
            end - begin,
            places[begin],
            (operands.weight_row == 64) * (places[end] - places[begin]),
        )
    ]
    tables = ([v for step in steps for v in step], chunk_table, list(tiles.strips))
    dst_slab = rows * columns * 64
    dst_block = slabs * dst_slab
    residual = shifted(operands.residual, first * dst_block) if operands.residual[0] != "i" else operands.residual
    bias = shifted(operands.bias, first * 64) if operands.bias[0] != "i" else operands.bias
    args: tuple[LaunchArgument, ...] = (
        operands.src, shifted(operands.weights, first * operands.weight_block), bias, shifted(operands.dst, first * dst_block),
        residual, *(("t", build.table(values)) for values in tables),
        *ints((len(starts) - 1, tiles.span, len(tiles.strips) - 1, op.groups, blocks, channels)),
        *ints((tiles.tiles, tiles.large, columns, slabs, walk.slab, dst_slab, walk.image, walk.group, walk.row, walk.step)),
        *ints((operands.weight_group, operands.weight_block, operands.weight_row)),
        *ints((op.groups * all_blocks * dst_block, dst_block, int(is_early))), ("f", low), ("f", bound),
    )  # fmt: skip
    # Rows of a window over three channels have 9 or 21 lanes.
    more: dict[str, Any] = {"at_once": 3} if all(count % 3 == 0 and count % 4 for count in lanes) else {}
    if wide:
        more["wide"] = True
    kernel = KernelSpec.of("conv_chunks", positions=tiles.positions, ragged=channels % 16 != 0, **more)
    build.launch(kernel, args, op.groups * (len(tiles.strips) - 1) * blocks)


def tile_table(tiles: Tiling, shape: Shape, walk: Walk) -> list[int]:
    """Return kind, offset in the source and offset in a block of dst of each tile, slab by slab."""
    slabs, rows, columns = shape
    return [
        value
        for slab in range(slabs)
        for kind, row, column in tiles.places
        for value in (
            kind,
            slab * walk.slab + row * walk.row + column * walk.step,
            ((slab * rows + row) * columns + column) * 64,
        )
    ]


def weights_tag(ndims: int) -> str:
    """Return the tag of blocked weights of a rank: ``ABcd16b16a`` for 4."""
    return f"AB{'cdefghijkl'[: ndims - 2]}16b16a"


def chosen(md: MemoryDesc, tag: str) -> MemoryDesc:
    """Return ``md``, in a given layout if its own is left open."""
    return md.with_tag(tag) if md.is_any else md


def refuse_operands(op: Convolution) -> str | None:
    """Return why weights or bias cannot be taken, or None: both f32, the bias row-major."""
    if op.weights.dtype != "f32":
        return f"weights of data type {op.weights.dtype}; only f32 is supported"
    if op.bias is not None and (op.bias.dtype != "f32" or not op.bias.is_plain):
        return f"bias {op.bias}; only row-major f32 is supported"
    return None


def ints(values: Iterable[int]) -> tuple[LaunchArgument, ...]:
    """Return int64 launch arguments."""
    return tuple(("i", value) for value in values)
