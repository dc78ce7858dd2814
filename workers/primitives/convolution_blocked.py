"""Convolution on blocks of 16 channels: a batch-reduce kernel, after a padded copy of the source if one is needed."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Iterable
from dataclasses import dataclass

from ..desc import Arg, Convolution, MemoryDesc, PrimitiveAttr
from ..engines.target import Target
from .blocks import blocked_tag, refuse
from .chain import chain_source
from .convolution_chain import bounds, refuse_bounded
from .convolution_tiles import strips, tiling
from .program import KernelSpec, Launch, LaunchArgument, Program


class NativeBlockedConvolution:
    """1 or 2 spatial dimensions; groups of whole blocks of channels, or one group of any number of channels."""

    name = "native:blocked"
    engine_kind = "cpu"

    def reject(self, op: Convolution, attr: PrimitiveAttr, target: Target) -> str | None:
        if op.src.ndims not in (3, 4):
            return f"{op.src.ndims - 2} spatial dimensions; only 1 and 2 are supported"
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
        return dataclasses.replace(
            op, src=chosen(op.src, tag), dst=chosen(op.dst, tag), weights=weights, bias=op.bias and chosen(op.bias, "")
        )

    def program(self, op: Convolution, attr: PrimitiveAttr, target: Target) -> Program:
        if op.dst.elements == 0:
            return Program((), ())
        window = Window.of(op)
        blocks = op.weights.padded_dims[1] // 16
        planes = op.src.padded_dims[1] // 16
        kernels: list[KernelSpec] = []
        launches: list[Launch] = []
        scratchpad = 0
        source: LaunchArgument = ("m", (Arg.SRC, 0))
        if window.is_direct:
            rows, phases, columns = window.height, 1, window.width
        else:
            rows, phases, columns = window.rows, window.phases, window.columns
            scratchpad = op.src.dims[0] * planes * rows * phases * columns * 64
            to: LaunchArgument = ("s", 0)
            sizes = (window.height, window.width, rows, phases, columns, window.row_step, window.stride[1], *window.pad)
            kernels.append(KernelSpec.of("conv_pad"))
            launches.append(Launch(0, (source, to, *ints(sizes)), op.src.dims[0] * planes * rows))
            source = to
        plane = rows * phases * columns * 64
        offsets = [
            block * plane + window.offset(kh, kw, columns) * 64
            for block in range(blocks)
            for kh in range(window.kernel[0])
            for kw in range(window.kernel[1])
        ]
        flat = window.is_pointwise
        shape = (1, window.out[0] * window.out[1]) if flat else window.out
        line = 0 if flat else window.step * phases * columns
        run = reduce(op, attr, target, shape, offsets, Walk(line * 64, 64, planes * plane, blocks * plane, 16), source)
        kernels.append(run.kernel)
        launches.append(dataclasses.replace(run.launch, kernel=len(kernels) - 1))
        return Program(tuple(kernels), tuple(launches), run.tables, scratchpad)


@dataclass(frozen=True, slots=True)
class Walk:
    """How a tile's source lies: bytes from row to row and position to position, strides of image and group, lanes."""

    row: int
    step: int
    image: int
    group: int
    lanes: int


@dataclass(frozen=True, slots=True)
class Reduction:
    """The launch of a batch-reduce kernel with its tables."""

    kernel: KernelSpec
    launch: Launch
    tables: bytes


def reduce(
    op: Convolution,
    attr: PrimitiveAttr,
    target: Target,
    shape: tuple[int, int],
    offsets: list[int],
    walk: Walk,
    source: LaunchArgument,
) -> Reduction:
    """Describe the batch-reduce launch over ``shape`` rows and columns of positions into a blocked dst."""
    channels = op.dst.dims[1] // op.groups
    blocks = -(-channels // 16)
    tiles = tiling(target.isa, *shape, blocks)
    passes = -(-blocks // tiles.blocks)
    weight_block = len(offsets) * walk.lanes * 64
    cut = strips(len(tiles.places), walk.group, blocks * weight_block, passes)
    entries = [
        (kind, row * walk.row + column * walk.step, (row * shape[1] + column) * 64)
        for kind, row, column in tiles.places
    ]
    parts = [offsets, [value for entry in entries for value in entry], list(cut)]
    places = [0, len(parts[0]) * 8, (len(parts[0]) + len(parts[1])) * 8]
    dst_block = shape[0] * shape[1] * 64
    low, bound = bounds(attr)
    args: tuple[LaunchArgument, ...] = (
        source, ("m", (Arg.WEIGHTS, 0)), ("m", (Arg.BIAS, 0)) if op.bias else ("i", 0), ("m", (Arg.DST, 0)),
        chain_source(attr), *(("t", place) for place in places), *ints((len(cut) - 1, op.groups, blocks, len(offsets))),
        *ints((walk.lanes, channels, walk.image, walk.group, walk.row, blocks * weight_block, weight_block, 64)),
        *ints((op.dst.padded_dims[1] // 16 * dst_block, dst_block)), ("f", low), ("f", bound),
    )  # fmt: skip
    kernel = KernelSpec.of("conv", tiles=tiles.kinds, blocks=tiles.blocks, step=walk.step, ragged=channels % 16 != 0)
    launch = Launch(0, args, op.dst.dims[0] * op.groups * (len(cut) - 1) * passes)
    return Reduction(kernel, launch, b"".join(struct.pack(f"<{len(part)}q", *part) for part in parts))


@dataclass(frozen=True, slots=True)
class Window:
    """The spatial side of a convolution in two dimensions (a single one is the second, of height 1)."""

    height: int
    width: int
    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    pad: tuple[int, int]
    out: tuple[int, int]

    @classmethod
    def of(cls, op: Convolution) -> Window:
        """Return the window of a convolution with 1 or 2 spatial dimensions."""

        def two(values: Iterable[int], fill: int) -> tuple[int, int]:
            *rest, last = values
            return (rest[0] if rest else fill, last)

        height, width = two(op.src.dims[2:], 1)
        dilation = two((d + 1 for d in op.dilations), 1)
        return cls(
            height, width, two(op.weights.dims[2:], 1), two(op.strides, 1), dilation, two(op.padding_l, 0),
            two(op.dst.dims[2:], 1),
        )  # fmt: skip

    @property
    def reach(self) -> tuple[int, int]:
        """Rows and columns from the first to the last tap of the kernel."""
        return (self.kernel[0] - 1) * self.dilation[0], (self.kernel[1] - 1) * self.dilation[1]

    @property
    def is_pointwise(self) -> bool:
        """Whether every output position reads one source position."""
        return self.kernel == (1, 1)

    @property
    def is_inside(self) -> bool:
        """Whether no position reads padding."""
        last = [(o - 1) * s + r for o, s, r in zip(self.out, self.stride, self.reach, strict=True)]
        return self.pad == (0, 0) and last[0] < self.height and last[1] < self.width

    @property
    def is_direct(self) -> bool:
        """Whether the source can be read in place: no padding, neighbours adjacent, and whole rows where flattened."""
        whole = self.out == (self.height, self.width) if self.is_pointwise else True
        return self.is_inside and self.stride[1] == 1 and whole

    @property
    def row_step(self) -> int:
        """Source rows from one row of the padded copy to the next: a pointwise kernel skips what it does not read."""
        return self.stride[0] if self.is_pointwise else 1

    @property
    def step(self) -> int:
        """Rows of what is read from one output row to the next."""
        return 1 if self.is_pointwise else self.stride[0]

    @property
    def rows(self) -> int:
        """Rows of the padded copy."""
        return (self.out[0] - 1) * self.step + self.reach[0] + 1

    @property
    def phases(self) -> int:
        """Phases of columns in the padded copy, those that no tap reads left out."""
        return max(kw * self.dilation[1] % self.stride[1] for kw in range(self.kernel[1])) + 1

    @property
    def columns(self) -> int:
        """Columns of a phase of the padded copy."""
        return self.out[1] + self.reach[1] // self.stride[1]

    def offset(self, kh: int, kw: int, columns: int) -> int:
        """Return how many positions a tap lies behind the first one."""
        column, phase = divmod(kw * self.dilation[1], self.stride[1])
        return (kh * self.dilation[0] * self.phases + phase) * columns + column


def weights_tag(ndims: int) -> str:
    """Return the tag of blocked weights of a rank: ``ABcd16b16a`` for 4."""
    return f"AB{'cdefghijkl'[: ndims - 2]}16b16a"


def chosen(md: MemoryDesc, tag: str) -> MemoryDesc:
    """Return ``md`` in a layout where its own is left open."""
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
