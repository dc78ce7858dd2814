"""Deconvolution whose kernel is whole strides long: a product for each phase of dst, into which every element is written once.

The elements of dst that are a stride apart, a *phase*, see the same taps of the kernel, which are a stride apart too. A product
of weights (outputs and phases; taps and inputs) and of copies of src (taps and inputs; positions) has all sums of these elements.
A product for each tap has more results, and they need a second pass over memory that adds them up.
"""

from __future__ import annotations

import itertools
import math
from typing import Final, NamedTuple

from poolrt.cachestore.deferred_dataclass import dataclass, replace

from ...desc import Arg, Deconvolution, Matmul, MemoryDesc, PrimitiveAttr
from ...engines.target import Target
from ...kernels.native.deconvolution_phases import STRIDES
from ..nested.builder import NestedBuilder, memory, shifted
from ..primitive_desc import UnsupportedPrimitive, primitive_desc
from ..program import LaunchArgument, Program
from .blocks import refuse
from .chain import chain, chain_source, refuse_chain
from .deconvolution_grid import SPATIAL, Grid, in_one_stride

#: Bytes of products that stay in the second-level cache until they are written to dst, and of what they are made of.
_NEAR: Final = 384 << 10
#: Products at most for each pixel of src and phase: at the edges some are computed that no element of dst needs.
_MORE: Final = 1.15
#: Rows of weights at multiples of so many bytes compete for the same lines of the first-level cache, which more of them than
#: these slow down.
_ALIASING: Final = 1024
_FEW: Final = 256


class NativePhasesDeconvolution:
    """Kernels without dilation that are whole strides long, row-major src and dst."""

    name = "nested:phases"
    engine_kind = "cpu"
    general = False
    nests = True

    def reject(self, op: Deconvolution, attr: PrimitiveAttr, target: Target) -> str | None:
        op = in_one_stride(self.complete(op, attr, target))
        if op.src.ndims - 2 > SPATIAL:
            return f"{op.src.ndims - 2} spatial dimensions; at most {SPATIAL} are supported"
        if op.weights.dims[1] == 1 or op.dst.elements == 0 or op.weights.elements == 0:
            return "weights without elements, or of one input channel a group"
        if any(k % stride for k, stride in zip(op.weights.dims[2:], op.strides, strict=True)) or any(op.dilations):
            return f"kernel {op.weights.dims[2:]} with stride {op.strides}: only dense whole strides are supported"
        grid = Grid.of(op)
        if grid.phases == 1 or not (grid.is_element or grid.strides[-1] in STRIDES):
            return f"stride {op.strides}; only {', '.join(map(str, STRIDES))} along the width are supported"
        if math.prod(grid.positions) > _MORE * math.prod(grid.src):
            return f"{math.prod(grid.positions)} products a phase are too many for {math.prod(grid.src)} pixels"
        depth, weights = _depth(op, grid), op.weights.dims[0] * grid.phases
        if not grid.is_src and depth > weights // op.groups:
            return "copies of src take more memory than products"
        if not grid.is_src and 4 * weights % _ALIASING == 0 and depth > _FEW:
            return f"{depth} rows of weights compete for the same lines of the caches"
        if not (op.src.is_plain and op.dst.is_plain and (op.bias is None or op.bias.is_plain)):
            return "src, bias and dst must be row-major"
        if op.weights.dtype != "f32" or (op.bias is not None and op.bias.dtype != "f32"):
            return "weights and bias must be f32"
        if refused := refuse(op.src, op.dst) or refuse_chain(attr, op.dst):
            return refused
        try:
            self.program(op, attr, target)
        except UnsupportedPrimitive as error:
            return f"there is no fast product for it: {error}"
        return None

    def complete(self, op: Deconvolution, attr: PrimitiveAttr, target: Target) -> Deconvolution:
        src, dst = (md.with_tag("") if md.is_any else md for md in (op.src, op.dst))
        bias = op.bias.with_tag("") if op.bias is not None and op.bias.is_any else op.bias
        op = replace(op, src=src, bias=bias, dst=dst)
        return replace(op, weights=_inner(in_one_stride(op))) if op.weights.is_any else op

    def program(self, op: Deconvolution, attr: PrimitiveAttr, target: Target) -> Program:
        op = in_one_stride(op)
        build, grid = NestedBuilder(target), Grid.of(op)
        weights = build.reorder_once(op.weights, memory(Arg.WEIGHTS), _inner(op))
        cut = _Cut.of(op, grid)
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
    def of(cls, op: Deconvolution, grid: Grid) -> _Cut:
        axis = 0 if grid.positions[0] > 1 else 1
        row, length = math.prod(grid.positions[axis + 1 :]), grid.positions[axis]
        rows = _even(length, _NEAR // (4 * _depth(op, grid) * row))
        one, outputs = 4 * grid.phases * rows * row, op.dst.dims[1] // op.groups
        count = _even(outputs, _NEAR // one)
        images = 1
        if count == outputs and rows == length and op.groups == 1:
            images = _even(op.dst.dims[0], _NEAR // max(one * outputs, 4 * _depth(op, grid) * rows * row))
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

    def copy_windows(self, build: NestedBuilder, to: LaunchArgument) -> None:
        """Add the copy of what positions see of src: a matrix (taps and inputs; positions) an image."""
        inputs, sizes = self.op.weights.dims[1], self._sizes
        numbers = (inputs, *self.grid.src, *self.grid.taps, *sizes, *self._first)
        depth = _depth(self.op, self.grid)
        places = (shifted(memory(Arg.SRC), self._src), to)
        build.run("deconvolution_windows", places, numbers, self.images * depth, self.images * depth * math.prod(sizes))

    def multiply(
        self, build: NestedBuilder, first: int, count: int, places: tuple[LaunchArgument, ...]
    ) -> None:  # fmt: skip
        """Add the product of the weights of ``count`` outputs from number ``first`` on, and what positions see."""
        op, grid, depth = self.op, self.grid, _depth(self.op, self.grid)
        rows, columns, pixels = count * grid.phases, math.prod(self._sizes), math.prod(grid.src)
        number = (self.group * op.dst.dims[1] // op.groups + first) * grid.phases
        weights, windows, products = places
        if grid.taps == (1, 1, 1):
            left, at = MemoryDesc((1, rows, depth), "f32"), 4 * number * depth
        else:
            apart = op.dst.dims[1] * grid.phases
            left, at = MemoryDesc((1, rows, depth), "f32", strides=(apart * depth, 1, apart)), 4 * number
        right = MemoryDesc((self.images, depth, columns), "f32")
        if grid.is_src:
            right = MemoryDesc(right.dims, "f32", strides=(op.src.dims[1] * pixels, pixels, 1))
            windows = shifted(windows, self._src + 4 * self.row * self.cut.row)
        product = Matmul(left, right, None, MemoryDesc((self.images, rows, columns), "f32"))
        pd = primitive_desc(product, PrimitiveAttr(), build.target, references=False)
        build.execute(pd, {Arg.SRC: shifted(weights, at), Arg.WEIGHTS: windows, Arg.DST: products})

    def write(
        self, build: NestedBuilder, attr: PrimitiveAttr, first: int, count: int, products: LaunchArgument
    ) -> None:  # fmt: skip
        """Add the way of products to dst, with bias and post-ops."""
        op, grid = self.op, self.grid
        sizes, at, strides = self._sizes, self._first, grid.strides
        axes = list(zip(at, sizes, strides, grid.padding, grid.dst, strict=True))
        begins = [max(0, start * stride - pad) for start, _, stride, pad, _ in axes]
        ends = [min(size, (start + count) * stride - pad) for start, count, stride, pad, size in axes]
        width, phases = grid.dst[2], grid.phases
        if grid.is_element:
            # All of a channel is one row, in the order of the products.
            sizes, strides, width, phases, ends = (1, 1, phases), (1, 1, 1), phases, 1, [1, 1, 1]
        slabs, rows = ends[0] - begins[0], ends[1] - begins[1]
        channel = self.group * op.dst.dims[1] // op.groups + first
        slab, volume = 4 * math.prod(grid.dst[1:]), 4 * math.prod(grid.dst)
        offset = (self.image * op.dst.dims[1] + channel) * volume + begins[0] * slab + 4 * begins[1] * width
        other = chain_source(attr)
        bias = shifted(memory(Arg.BIAS), 4 * channel) if op.bias is not None else ("i", 0)
        phase = 4 * math.prod(sizes)
        numbers = (
            count, slabs, rows, begins[0] + grid.padding[0], begins[1] + grid.padding[1], *strides[:2], *at[:2], *sizes[1:],
            grid.padding[2] % strides[2], phase, phases * phase, width, slab, volume, op.dst.dims[1] * volume,
        )  # fmt: skip
        to = shifted(memory(Arg.DST), offset)
        build.run(
            "deconvolution_phases", (products, bias, to, shifted(other, offset) if other[0] == "m" else other), numbers,
            self.images * count * slabs * rows, op.dst.elements, stride=strides[2], chain=chain(attr),
        )  # fmt: skip


def _even(length: int, most: int) -> int:
    """Return the length of equal parts of at most ``most``, the last of which may be shorter."""
    most = max(1, min(length, most))
    return -(-length // -(-length // most))


def _depth(op: Deconvolution, grid: Grid) -> int:
    """Return the inputs and taps that an element of dst sees."""
    return op.weights.dims[1] * math.prod(grid.taps)


def _inner(op: Deconvolution) -> MemoryDesc:
    """Return the layout of weights (outputs and phases, inputs), or (taps and inputs, outputs and phases) of several taps."""
    letters = "cde"[: op.weights.ndims - 2]
    if op.weights.dims[2:] == op.strides:
        return op.weights.with_tag(f"a{letters}b")
    pairs = list(zip(letters, op.strides, strict=True))
    outer = "".join(letter.upper() if stride > 1 else letter for letter, stride in pairs)
    return op.weights.with_tag(f"{outer}ba{''.join(f'{stride}{letter}' for letter, stride in pairs if stride > 1)}")
