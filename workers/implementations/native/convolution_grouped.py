"""Convolution of groups that are no whole blocks of 16 channels, where activations stay in such blocks."""

from __future__ import annotations

import itertools
import math
import struct
from typing import Final, NamedTuple

from poolrt.cachestore.deferred_dataclass import replace

from ...desc import Arg, Convolution, PrimitiveAttr
from ...engines.target import Target
from ...kernels.spec import KernelSpec
from ..program import LaunchArgument, Program
from .blocks import blocked_tag, refuse
from .chain import chain_source
from .convolution_blocked import Reach, chosen, ints, padded, refuse_operands, tile_table
from .convolution_chain import bounds, refuse_bounded
from .convolution_chunks import Sizes, cut, takes_chunks
from .convolution_tiles import strips, tiling
from .convolution_window import Window
from .nest_builder import NestBuilder

#: Inputs and outputs of groups of which blocks of 16 channels have whole ones.
_ALIGNED: Final = (2, 4, 8)
#: ISA levels whose registers hold the sums of a tile beside inputs that are shuffled.
_WITH_ALIGNED: Final = ("x86-64-v4",)


class NativeGroupedConvolution:
    """1 to 3 spatial dimensions, several groups of any number of channels.

    On levels without masks, kernels read 16 weights of a row that may have fewer: up to 60 bytes behind the last row.
    """

    name = "native:grouped"
    engine_kind = "cpu"
    general = False

    def reject(self, op: Convolution, attr: PrimitiveAttr, target: Target) -> str | None:
        if op.src.ndims not in (3, 4, 5):
            return f"{op.src.ndims - 2} spatial dimensions; only 1 to 3 are supported"
        if op.groups == 1:
            return "one group; only several are supported"
        op = self.complete(op, attr, target)
        for md in (op.src, op.dst):
            if md.tag != blocked_tag(md.ndims):
                return f"layout {md.tag}; only blocks of 16 channels are supported"
        if op.weights.tag != _weights_tag(op, target.isa):
            return f"weights layout {op.weights.tag}; only {_weights_tag(op, target.isa)} is supported"
        return refuse(op.src, op.dst) or refuse_operands(op) or refuse_bounded(attr, op.dst)

    def complete(self, op: Convolution, attr: PrimitiveAttr, target: Target) -> Convolution:
        tag = blocked_tag(op.src.ndims)
        return replace(
            op, src=chosen(op.src, tag), weights=chosen(op.weights, _weights_tag(op, target.isa)), dst=chosen(op.dst, tag),
            bias=op.bias and chosen(op.bias, ""),
        )  # fmt: skip

    def program(self, op: Convolution, attr: PrimitiveAttr, target: Target) -> Program:
        if op.dst.elements == 0:
            return Program((), ())
        window = Window.of(op)
        planes = op.src.padded_dims[1] // 16
        build = NestBuilder()
        source = padded(build, window, ("m", (int(Arg.SRC), 0)), op.src.dims[0] * planes)
        reach = Reach.of(window, 1, 0)
        if not _group_inputs(op, target.isa) and takes_chunks(target.isa, reach.shape[1] * reach.shape[2]):
            _launch_parts(build, op, attr, target, source, reach)
        else:
            _launch_masked(build, op, attr, target, source, reach)
        return build.program()


def _launch_masked(
    build: NestBuilder, op: Convolution, attr: PrimitiveAttr, target: Target, source: LaunchArgument, reach: Reach
) -> None:
    """Add the launch that sums the inputs of all groups of a block at once, with weights that are masked, or in order."""
    slabs, height, width = reach.shape
    tiles = tiling(target.isa, height, width, 1)
    blocks, inputs = op.dst.padded_dims[1] // 16, _group_inputs(op, target.isa)
    block_table: list[int] = []
    steps: list[int] = []
    for block in range(blocks):
        taps = _taps(reach)
        found = _aligned_steps(block, taps, reach.plane, inputs) if inputs else _steps(op, block, taps, reach.plane)
        block_table += [8 * len(steps), len(found)]
        steps += [value for step in found for value in step]
    planes = op.src.padded_dims[1] // 16
    image = planes * reach.plane
    cuts = strips(slabs * len(tiles.places), image, op.weights.nbytes, blocks, op.dst.dims[0])
    tables = (block_table, steps, tile_table(tiles, reach.shape, reach.walk(planes, planes)), list(cuts))
    low, bound = bounds(attr)
    args: tuple[LaunchArgument, ...] = (
        *_places(op, attr, source), *(("t", build.table(values)) for values in tables),
        *ints((len(cuts) - 1, blocks, op.dst.dims[1], image, reach.row, op.dst.dims[1] // op.groups * 4)),
        *ints((math.prod(reach.shape) * 64,)), ("f", low), ("f", bound),
    )  # fmt: skip
    more = {"inputs": inputs} if inputs else {}
    kernel = KernelSpec.of("conv_grouped", tiles=tiles.kinds, step=64, ragged=op.dst.dims[1] % 16 != 0, **more)
    build.launch(kernel, args, op.dst.dims[0] * (len(cuts) - 1) * blocks)


def _launch_parts(
    build: NestBuilder, op: Convolution, attr: PrimitiveAttr, target: Target, source: LaunchArgument, reach: Reach
) -> None:
    """Add the launch that sums the inputs of each group of a block by themselves."""
    slabs, height, width = reach.shape
    blocks = op.dst.padded_dims[1] // 16
    block_table, part_table, masks, steps = [0], list[int](), list[int](), list[int]()
    for block in range(blocks):
        for part in _parts(op, block, _taps(reach), reach.plane):
            is_whole = len(part.outputs) == 16
            part_table += [8 * len(steps), len(part.steps), part.weights, -1 if is_whole else 8 * len(masks)]
            masks += [] if is_whole else _words(part.outputs)
            steps += [value for step in part.steps for value in step]
        block_table.append(len(part_table) // 4)
    image = op.src.padded_dims[1] // 16 * reach.plane
    images = op.dst.dims[0] * slabs
    # The source of a group is read for each of its blocks.
    sizes = Sizes(1, height * width, images, blocks, image // slabs // op.groups, op.weights.nbytes)
    tiles = cut(target.isa, sizes, 1)
    tables = (block_table, part_table, masks, steps, list(tiles.strips))
    low, bound = bounds(attr)
    args: tuple[LaunchArgument, ...] = (
        *_places(op, attr, source), *(("t", build.table(values)) for values in tables),
        *ints((len(tiles.strips) - 1, blocks, op.dst.dims[1], tiles.large, width)),
        *ints((slabs, reach.slab, height * width * 64, image, reach.row, 64)),
        *ints((op.dst.dims[1] // op.groups * 4, math.prod(reach.shape) * 64)), ("f", low), ("f", bound),
    )  # fmt: skip
    kernel = KernelSpec.of("conv_group_parts", positions=tiles.positions, ragged=op.dst.dims[1] % 16 != 0)
    build.launch(kernel, args, images * (len(tiles.strips) - 1) * blocks)


def _taps(reach: Reach) -> list[int]:
    """Return the offset of each tap in the source, of a reach over one channel."""
    return [offset for offset, _, _ in reach.steps]


def _places(op: Convolution, attr: PrimitiveAttr, source: LaunchArgument) -> tuple[LaunchArgument, ...]:
    """Return the arguments that are addresses: src, weights, bias, dst and residual."""
    bias: LaunchArgument = ("m", (int(Arg.BIAS), 0)) if op.bias else ("i", 0)
    return source, ("m", (int(Arg.WEIGHTS), 0)), bias, ("m", (int(Arg.DST), 0)), chain_source(attr)


class _Part(NamedTuple):
    """The sums of one group in a block: steps (src offset, lanes, weights to skip), first weights, its outputs."""

    steps: list[tuple[int, int, int]]
    weights: int
    outputs: range


def _parts(op: Convolution, block: int, taps: list[int], plane: int) -> list[_Part]:
    """Return the parts of a block of 16 outputs; the last one of the tensor has the lanes behind it, too."""
    outputs, inputs = op.dst.dims[1] // op.groups, op.weights.dims[1]
    row, blocks = outputs * 4, -(-inputs // 16)
    first, end = block * 16, min(block * 16 + 16, op.dst.dims[1])
    found = []
    for group in range(first // outputs, (end - 1) // outputs + 1):
        is_last = (group + 1) * outputs >= end
        begin, stop = max(first, group * outputs) - first, 16 if is_last else (group + 1) * outputs - first
        weights = group * blocks * len(taps) * 16 * row + (first - group * outputs) * 4
        # Rows of a kernel of one tap follow each other, whatever block of inputs they belong to.
        lengths = [inputs] if len(taps) == 1 else [min(16, inputs - at) for at in range(0, inputs, 16)]
        steps = []
        at = group * inputs
        for length in lengths:
            pieces = _pieces(at, length)
            for tap in taps:
                steps += [(piece // 16 * plane + piece % 16 * 4 + tap, count, 0) for piece, count in pieces]
                steps[-1] = (*steps[-1][:2], (16 - length) * row if len(taps) > 1 else 0)
            at += length
        found.append(_Part(steps, weights, range(begin, stop)))
    return found


def _words(outputs: range) -> list[int]:
    """Return 16 words of 32 bits, ones for each of some outputs, in pairs as int64."""
    words = [0xFFFFFFFF * (output in outputs) for output in range(16)]
    return list(struct.unpack("<8q", struct.pack("<16I", *words)))


def _pieces(first: int, count: int) -> list[tuple[int, int]]:
    """Cut channels where a block of 16 of the tensor begins: first channels and lengths."""
    marks = [first, *range(first // 16 * 16 + 16, first + count, 16), first + count]
    return [(at, to - at) for at, to in itertools.pairwise(marks)]


def _steps(op: Convolution, block: int, taps: list[int], plane: int) -> list[tuple[int, int, int, int]]:
    """Return the steps of a block of 16 outputs: src offset, lanes, offset in the weights, and its outputs as bits."""
    outputs, inputs = op.dst.dims[1] // op.groups, op.weights.dims[1]
    row, blocks = outputs * 4, -(-inputs // 16)
    first, end = block * 16, min(block * 16 + 16, op.dst.dims[1])
    found = []
    for group in range(first // outputs, (end - 1) // outputs + 1):
        lanes = range(max(first, group * outputs) - first, min(end, (group + 1) * outputs) - first)
        bits = (1 << lanes.stop) - (1 << lanes.start)
        for begin, count in _runs(group * inputs, inputs):
            number, lane = divmod(begin - group * inputs, 16)
            for tap, offset in enumerate(taps):
                weights = ((group * blocks + number) * len(taps) + tap) * 16 + lane
                source = begin // 16 * plane + begin % 16 * 4 + offset
                found.append((source, count, weights * row + (first - group * outputs) * 4, bits))
    return found


def _aligned_steps(block: int, taps: list[int], plane: int, inputs: int) -> list[tuple[int, int, int, int]]:
    """Return the same of a block that has whole groups, with as many inputs as outputs, without the bits."""
    first = block * len(taps)
    return [(block * plane + tap, inputs, (first + number) * inputs * 64, 0) for number, tap in enumerate(taps)]


def _runs(first: int, count: int) -> list[tuple[int, int]]:
    """Cut the channels of a group where a block of 16 begins, in the tensor or in the group: first channels and lengths."""
    marks = {first, first + count, *range(-(-first // 16) * 16, first + count, 16), *range(first, first + count, 16)}
    return [(at, to - at) for at, to in itertools.pairwise(sorted(marks))]


def _group_inputs(op: Convolution, isa: str) -> int:
    """Return the inputs of a group if it has as many outputs and 16 channels are whole groups, else 0."""
    inputs = op.weights.dims[1]
    return inputs if isa in _WITH_ALIGNED and inputs in _ALIGNED and op.dst.dims[1] == op.groups * inputs else 0


def _weights_tag(op: Convolution, isa: str) -> str:
    """Return the tag that the kernel reads: of groups that share blocks, 16 outputs side by side for each input."""
    return f"A{'cdefghijkl'[: op.weights.ndims - 2]}b16a" if _group_inputs(op, isa) else group_weights_tag(op)


def group_weights_tag(op: Convolution) -> str:
    """Return the tag with all outputs of a group side by side: ``ABcd16b68a`` for groups of 68."""
    outputs = op.weights.dims[0] // op.groups
    letters = "cdefghijkl"[: op.weights.ndims - 2]
    return f"aB{letters}16b" if outputs == 1 else f"AB{letters}16b{outputs}a"
