"""Deconvolution whose kernel is whole strides long: a product for each phase of dst, into which every element is written once.

The elements of dst that are a stride apart, a *phase*, see the same taps of the kernel, which are a stride apart too; behind a
kernel that is shorter than a stride are phases that see none. A product of weights (outputs and phases; taps and inputs) and of
copies of src (taps and inputs; positions) has all sums of these elements.
A product for each tap has more results, and they need a second pass over memory that adds them up.
"""

from __future__ import annotations

import itertools
import math
from typing import Final, NamedTuple

from poolrt.cachestore.deferred_dataclass import dataclass

from ...desc import Arg, Deconvolution, Matmul, MemoryDesc, PrimitiveAttr
from ...engines.target import Target
from ...kernels.native.limits import INTERLEAVED
from ..nested.builder import NestedBuilder, memory, shifted
from ..primitive_desc import UnsupportedPrimitive, primitive_desc
from ..program import LaunchArgument, Program
from .blocks import LANES
from .chain import chain, chain_source
from .deconvolution_grid import Grid, even_part, in_one_stride
from .deconvolution_layouts import refuse_memories, row_major

#: Bytes of products that stay in the second-level cache until they are written to dst, and of what they are made of.
_NEAR: Final = 384 << 10
#: ISA levels whose processors have second-level caches of 1 MiB or more, and the bytes of src that stay there.
_LARGE_CACHES: Final = ("x86-64-v4",)
_NEAR_SRC: Final = 1 << 20
#: Products at most for each pixel of src and phase: at the edges some are computed that no element of dst needs. A product for
#: each tap, and their sums, take longer up to there.
_MORE: Final = 1.4
#: Rows of weights at multiples of so many bytes compete for the same lines of the first-level cache, which more of them than
#: these slow down.
_ALIASING: Final = 1024
_FEW: Final = 256


class NativePhasesDeconvolution:
    """Kernels without dilation that are whole strides long, or shorter than one, row-major src and dst."""

    name = "nested:phases"
    engine_kind = "cpu"
    general = False
    nests = True

    def reject(self, op: Deconvolution, attr: PrimitiveAttr, target: Target) -> str | None:
        op = in_one_stride(self.complete(op, attr, target))
        if refused := refuse_memories(op, attr):
            return refused
        if op.weights.dims[1] == 1 or op.dst.elements == 0 or op.weights.elements == 0:
            return "weights without elements, or of one input channel a group"
        kernel = f"kernel {op.weights.dims[2:]} with stride {op.strides}"
        is_whole = all(k <= step or k % step == 0 for k, step in zip(op.weights.dims[2:], op.strides, strict=True))
        if any(op.dilations) or not is_whole:
            return f"{kernel}: only dense ones of whole strides, or of less than one, are supported"
        grid = Grid.of(op)
        if math.prod(grid.strides) == 1:
            return f"stride {op.strides}; a longer one is needed"
        if math.prod(grid.positions) > _MORE * math.prod(grid.src):
            return f"{math.prod(grid.positions)} products a phase are too many for {math.prod(grid.src)} pixels"
        if grid.has_gaps and grid.strides[-1] not in INTERLEAVED:
            return f"{kernel}: no vectors are interleaved for it"
        depth, weights = _depth(op, grid), op.weights.dims[0] * grid.phases
        if not grid.is_src and depth > weights // op.groups:
            return "copies of src take more memory than products"
        if not grid.is_src and 4 * weights % _ALIASING == 0 and depth > _FEW:
            return f"{depth} rows of weights compete for the same lines of the caches"
        try:
            self.program(op, attr, target)
        except UnsupportedPrimitive as error:
            return f"there is no fast product for it: {error}"
        return None

    def complete(self, op: Deconvolution, attr: PrimitiveAttr, target: Target) -> Deconvolution:
        return row_major(op, _inner(in_one_stride(op)))

    def program(self, op: Deconvolution, attr: PrimitiveAttr, target: Target) -> Program:
        op = in_one_stride(op)
        build, grid = NestedBuilder(target), Grid.of(op)
        weights = build.reorder_once(op.weights, memory(Arg.WEIGHTS), _inner(op))
        cut = _Cut.of(op, grid, target.isa in _LARGE_CACHES)
        windows = memory(Arg.SRC) if grid.is_src else build.book(4 * cut.images * _depth(op, grid) * cut.positions)
        products = build.book(4 * cut.images * cut.outputs * grid.phases * cut.positions)
        outputs = op.dst.dims[1] // op.groups
        for image, group in itertools.product(range(0, op.dst.dims[0], cut.images), range(op.groups)):
            images = min(cut.images, op.dst.dims[0] - image)
            for row in range(0, grid.positions[cut.axis], cut.rows):
                part = _Part(op, grid, cut, image, images, row, group)
                if not grid.is_src:
                    part.copy_windows(build, windows)
                for first in range(0, outputs, cut.outputs):
                    count = min(cut.outputs, outputs - first)
                    part.multiply(build, first, count, (weights, windows, products))
                    part.write(build, attr, first, count, products)
        return build.program()


@dataclass(frozen=True, slots=True)
class _Cut:
    """How much is computed at once: images, rows of positions along an ``axis`` or slabs of them, outputs of a group."""

    images: int
    axis: int
    rows: int
    row: int
    outputs: int

    @property
    def positions(self) -> int:
        """The positions of an image that are computed at once."""
        return self.rows * self.row

    @classmethod
    def of(cls, op: Deconvolution, grid: Grid, is_large: bool) -> _Cut:
        axis = 0 if grid.positions[0] > 1 else 1
        row, length = math.prod(grid.positions[axis + 1 :]), grid.positions[axis]
        rows = even_lines(row, length, _NEAR // (4 * max(_depth(op, grid), grid.phases) * row))
        if is_large and grid.is_src and row * rows % LANES and 4 * _depth(op, grid) * length * row <= _NEAR_SRC:
            # What products read of src where it is stays in the cache for all of them: parts would begin inside of lines.
            rows = length
        one, outputs = 4 * grid.phases * rows * row, op.dst.dims[1] // op.groups
        count = even_part(outputs, _NEAR // one)
        images = 1
        if count == outputs and rows == length and op.groups == 1:
            images = even_part(op.dst.dims[0], _NEAR // max(one * outputs, 4 * _depth(op, grid) * rows * row))
        return cls(images, axis, rows, row, count)


class _Part(NamedTuple):
    """Some images, a group, and rows of positions from number ``row`` on."""

    op: Deconvolution
    grid: Grid
    cut: _Cut
    image: int
    images: int
    row: int
    group: int

    @property
    def _sizes(self) -> tuple[int, ...]:
        """The positions of this part in three dimensions."""
        axis, sizes = self.cut.axis, list(self.grid.positions)
        sizes[axis] = min(self.cut.rows, sizes[axis] - self.row)
        return tuple(sizes)

    @property
    def _first(self) -> tuple[int, ...]:
        """The first of these positions in padded dst."""
        return tuple(at + self.row * (axis == self.cut.axis) for axis, at in enumerate(self.grid.first))

    @property
    def _src(self) -> int:
        """Where the pixels of the images and the group begin, in bytes."""
        inputs = self.op.weights.dims[1]
        return 4 * (self.image * self.op.src.dims[1] + self.group * inputs) * math.prod(self.grid.src)

    @property
    def is_turned(self) -> bool:
        """Whether products have rows of outputs and phases: no vectors are interleaved for a stride along the width."""
        return not (self.grid.is_element or self.grid.strides[-1] in INTERLEAVED)

    def copy_windows(self, build: NestedBuilder, to: LaunchArgument) -> None:
        """Add the copy of what positions see of src: a matrix (taps and inputs; positions) an image."""
        inputs, sizes = self.op.weights.dims[1], self._sizes
        numbers = (inputs, *self.grid.src, *self.grid.taps, *sizes, *self._first)
        depth = _depth(self.op, self.grid)
        places = (shifted(memory(Arg.SRC), self._src), to)
        build.run("deconvolution_windows", places, numbers, self.images * depth, self.images * depth * math.prod(sizes))

    def multiply(self, build: NestedBuilder, first: int, count: int, places: tuple[LaunchArgument, ...]) -> None:
        """Add the product of the weights of ``count`` outputs from number ``first`` on, and what positions see."""
        op, grid, depth = self.op, self.grid, _depth(self.op, self.grid)
        rows, columns, pixels = count * grid.phases, math.prod(self._sizes), math.prod(grid.src)
        number = (self.group * op.dst.dims[1] // op.groups + first) * grid.phases
        weights, windows, products = places
        apart = op.dst.dims[1] * grid.phases
        # The matrices (outputs and phases, depth) and (depth, positions): strides of rows and columns, places
        ours, at = ((depth, 1), 4 * number * depth) if _has_rows_of_outputs(op) else ((1, apart), 4 * number)
        image, row, skipped = depth * columns, columns, 0
        if grid.is_src:
            image, row, skipped = op.src.dims[1] * pixels, pixels, self._src + 4 * self.row * self.cut.row
        weights, windows = shifted(weights, at), shifted(windows, skipped)
        if self.is_turned:
            left = MemoryDesc((self.images, columns, depth), "f32", strides=(image, 1, row))
            right = MemoryDesc((1, depth, rows), "f32", strides=(apart * depth, ours[1], ours[0]))
            places, to = (windows, weights), MemoryDesc((self.images, columns, rows), "f32")
        else:
            left = MemoryDesc((1, rows, depth), "f32", strides=(apart * depth, *ours))
            right = MemoryDesc((self.images, depth, columns), "f32", strides=(image, row, 1))
            places, to = (weights, windows), MemoryDesc((self.images, rows, columns), "f32")
        pd = primitive_desc(Matmul(left, right, None, to), PrimitiveAttr(), build.target, references=False)
        build.execute(pd, {Arg.SRC: places[0], Arg.WEIGHTS: places[1], Arg.DST: products})

    def write(
        self, build: NestedBuilder, attr: PrimitiveAttr, first: int, count: int, products: LaunchArgument
    ) -> None:  # fmt: skip
        """Add the way of products to dst, with bias and post-ops."""
        op, grid = self.op, self.grid
        sizes, at, strides, kept = self._sizes, self._first, grid.strides, grid.kept
        axes = list(zip(at, sizes, strides, grid.padding, grid.dst, strict=True))
        begins = [max(0, start * stride - pad) for start, _, stride, pad, _ in axes]
        ends = [min(size, (start + count) * stride - pad) for start, count, stride, pad, size in axes]
        width, phases = grid.dst[2], grid.phases
        if grid.is_element:
            # All of a channel is one row, in the order of the products.
            sizes, width, phases, ends = (1, 1, phases), phases, 1, [1, 1, 1]
            strides = kept = (1, 1, 1)
        slabs, rows = ends[0] - begins[0], ends[1] - begins[1]
        channel = self.group * op.dst.dims[1] // op.groups + first
        slab, volume = 4 * math.prod(grid.dst[1:]), 4 * math.prod(grid.dst)
        offset = (self.image * op.dst.dims[1] + channel) * volume + begins[0] * slab + 4 * begins[1] * width
        other = chain_source(attr)
        bias = shifted(memory(Arg.BIAS), 4 * channel) if op.bias is not None else ("i", 0)
        ours = (count, slabs, rows, begins[0] + grid.padding[0], begins[1] + grid.padding[1])
        lead, there = grid.padding[2] % strides[2], (width, slab, volume, op.dst.dims[1] * volume)
        places = (
            products,
            bias,
            shifted(memory(Arg.DST), offset),
            shifted(other, offset) if other[0] == "m" else other,
        )
        items, positions = self.images * count * slabs * rows, math.prod(sizes)
        if self.is_turned:
            position = 4 * count * phases
            numbers = (*ours, *strides, *at[:2], *sizes[1:], lead, phases, position, position * positions, *there)
            build.run("deconvolution_runs", places, numbers, items, op.dst.elements, chain=chain(attr))
            return
        phase = 4 * positions
        numbers = (*ours, *strides[:2], *kept[:2], *at[:2], *sizes[1:], lead, phase, phases * phase, *there)
        how = {"stride": strides[2], **({"kept": kept[2], "lead": lead} if grid.has_gaps else {})}
        build.run("deconvolution_phases", places, numbers, items, op.dst.elements, chain=chain(attr), **how)


def even_lines(row: int, length: int, most: int) -> int:
    """Return how many rows of positions are computed at once: about equal parts of at most ``most``, if possible of whole lines.

    Products of other parts begin and end with a part of a vector. A last part of less than a half would cost more.
    """
    rows, lines = even_part(length, most), LANES // math.gcd(row, LANES)
    whole = -(-rows // lines) * lines
    last = (length - 1) % whole + 1
    return whole if whole <= min(length, most) and 2 * last >= whole else rows


def _depth(op: Deconvolution, grid: Grid) -> int:
    """Return the inputs and taps that an element of dst sees."""
    return op.weights.dims[1] * math.prod(grid.taps)


def _has_rows_of_outputs(op: Deconvolution) -> bool:
    """Return whether weights are a matrix (outputs and phases, inputs), else one (taps and inputs, outputs and phases)."""
    return all(k <= stride for k, stride in zip(op.weights.dims[2:], op.strides, strict=True))


def _inner(op: Deconvolution) -> MemoryDesc:
    """Return the layout of weights for the product."""
    letters = "cdefghijkl"[: op.weights.ndims - 2]
    if _has_rows_of_outputs(op):
        return op.weights.with_tag(f"a{letters}b")
    pairs = list(zip(letters, map(min, op.strides, op.weights.dims[2:]), strict=True))
    outer = "".join(letter.upper() if kept > 1 else letter for letter, kept in pairs)
    return op.weights.with_tag(f"{outer}ba{''.join(f'{kept}{letter}' for letter, kept in pairs if kept > 1)}")
