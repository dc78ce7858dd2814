"""Deconvolution: the product of weights and images, summed up where windows overlap; depthwise without a product."""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from ...desc import Arg, Deconvolution, Matmul, MemoryDesc, PrimitiveAttr, item_size
from ...engines.target import Target
from ...kernels.native.limits import INTERLEAVED, MOST_PHASES
from ..nested.builder import NestedBuilder, memory, shifted
from ..primitive_desc import UnsupportedPrimitive, primitive_desc
from ..program import LaunchArgument, Program
from .chain import chain, chain_source
from .deconvolution_grid import even_part, in_three
from .deconvolution_layouts import SPATIAL, refuse_memories, row_major
from .deconvolution_phases import NativePhasesDeconvolution
from .deconvolution_planes import NativePlanesDeconvolution
from .deconvolution_wide import NativeWideDeconvolution

#: Bytes of products at once, which stay in the third-level cache until they are added up: with fewer, threads wait more often.
#: Products of fewer rows than these are slow, so large images have that many unless they take more bytes; and bytes of one output
#: channel at most.
_NEAR: Final = 4 << 20
_ROWS: Final = 64
_FAR: Final = 64 << 20
_MOST: Final = 1 << 30


class NativeDeconvolution:
    """Row-major src and dst; weights in any layout, best with the input channels innermost."""

    engine_kind = "cpu"
    general = False
    # Depthwise ones do if their weights are in another layout.
    nests = True

    def __init__(self, depthwise: bool) -> None:
        self.name = "native:depthwise" if depthwise else "nested:matmul"
        self._depthwise = depthwise

    def reject(self, op: Deconvolution, attr: PrimitiveAttr, target: Target) -> str | None:
        op = self.complete(op, attr, target)
        if self._depthwise and op.weights.dims[1] != 1:
            return f"{op.weights.dims[1]} input channels a group; only one is supported"
        refused = refuse_memories(op, attr, ("f32", "f64"))
        if refused is None and op.strides[-1] > MOST_PHASES:
            refused = f"stride {op.strides[-1]} along the width; at most {MOST_PHASES} is supported"
        if refused or self._depthwise:
            return refused
        if _output_bytes(op) > _MOST:
            return f"the products of an output channel take {_output_bytes(op)} bytes, more than {_MOST}"
        try:
            self.program(op, attr, target)
        except UnsupportedPrimitive as error:
            return f"there is no fast product for it: {error}"
        return None

    def complete(self, op: Deconvolution, attr: PrimitiveAttr, target: Target) -> Deconvolution:
        return row_major(op, self._inner(op.weights))

    def program(self, op: Deconvolution, attr: PrimitiveAttr, target: Target) -> Program:
        build = NestedBuilder(target)
        if op.dst.elements == 0:
            return build.program()
        src, dst, bias, other = memory(Arg.SRC), memory(Arg.DST), memory(Arg.BIAS), chain_source(attr)
        weights = build.reorder_once(op.weights, memory(Arg.WEIGHTS), self._inner(op.weights))
        tables, numbers = _tables(op)
        if self._depthwise:
            whole = _Part(op, 0, op.dst.dims[0], 0, op.groups, 0, op.dst.dims[1] // op.groups)
            whole.add_up(build, attr, (src, weights, bias, dst, other), numbers, True)
        else:
            parts = list(_Part.all_of(op))
            columns = build.book(max(part.product_bytes for part in parts))
            for part in parts:
                if part.product_bytes:
                    part.multiply(build, weights, src, columns)
                part.add_up(build, attr, (columns, weights, bias, dst, other), numbers, False)
        return build.program()._replace(tables=tables)

    def _inner(self, weights: MemoryDesc) -> MemoryDesc:
        """Return the layout of weights in which the channels of inputs are innermost, row-major if there is one of them."""
        if self._depthwise:
            return weights.with_tag("")
        return weights.with_tag(f"a{'cdefghijkl'[: weights.ndims - 2]}b")


class _Part(NamedTuple):
    """What is computed at once: some images, groups of them, and outputs of each group."""

    op: Deconvolution
    image: int
    images: int
    group: int
    groups: int
    first: int
    outputs: int

    @classmethod
    def all_of(cls, op: Deconvolution) -> Iterator[_Part]:
        """Yield parts: whole images, or whole groups of one, or else outputs of a group."""
        batch, outputs = op.dst.dims[0], op.dst.dims[1] // op.groups
        one, taps = max(1, _output_bytes(op)), max(1, math.prod(op.weights.dims[2:]))
        most = max(_NEAR // one, min(-(-_ROWS // taps), _FAR // one))
        images = even_part(batch, most // op.dst.dims[1])
        groups = op.groups if images > 1 else even_part(op.groups, most // outputs)
        count = outputs if groups > 1 else even_part(outputs, most)
        for image, group, first in itertools.product(
            range(0, batch, images), range(0, op.groups, groups), range(0, outputs, count)
        ):
            yield cls(
                op, image, min(images, batch - image), group, min(groups, op.groups - group), first, min(count, outputs - first)
            )  # fmt: skip

    @property
    def product_bytes(self) -> int:
        return self.images * self.groups * self.outputs * _output_bytes(self.op)

    @property
    def _channel(self) -> int:
        return self.group * self.op.dst.dims[1] // self.op.groups + self.first

    def multiply(
        self, build: NestedBuilder, weights: LaunchArgument, src: LaunchArgument, columns: LaunchArgument
    ) -> None:
        """Add the product of weights (outputs and taps, inputs) and images (inputs, pixels), for each image and group."""
        op, size = self.op, item_size(self.op.dst.dtype)
        inputs, pixels, taps = op.weights.dims[1], math.prod(op.src.dims[2:]), math.prod(op.weights.dims[2:])
        rows = self.outputs * taps
        apart = op.dst.dims[1] // op.groups * taps * inputs, op.src.dims[1] * pixels
        left = MemoryDesc(
            (1, self.groups, rows, inputs), op.dst.dtype, strides=(op.groups * apart[0], apart[0], inputs, 1)
        )
        right = MemoryDesc(
            (self.images, self.groups, inputs, pixels), op.dst.dtype, strides=(apart[1], inputs * pixels, pixels, 1)
        )
        product = Matmul(left, right, None, MemoryDesc((self.images, self.groups, rows, pixels), op.dst.dtype))
        pd = primitive_desc(product, PrimitiveAttr(), build.target, references=False)
        weights = shifted(weights, size * self._channel * taps * inputs)
        src = shifted(src, size * (self.image * op.src.dims[1] + self.group * inputs) * pixels)
        build.execute(pd, {Arg.SRC: weights, Arg.WEIGHTS: src, Arg.DST: columns})

    def add_up(
        self, build: NestedBuilder, attr: PrimitiveAttr, places: tuple[LaunchArgument, ...], numbers: tuple[int, ...],
        depthwise: bool,
    ) -> None:  # fmt: skip
        """Add the sum of products, or of weights and images if ``depthwise``, into outputs of dst."""
        op, size = self.op, item_size(self.op.dst.dtype)
        src, weights, bias, dst, other = places
        at = size * (self.image * op.dst.dims[1] + self._channel) * math.prod(op.dst.dims[2:])
        bias = shifted(bias, size * self._channel) if op.bias is not None else ("i", 0)
        depth, height, width, *sizes = numbers
        starts: tuple[LaunchArgument, ...] = (("t", depth), ("t", height), ("t", width))
        stride, channels = op.strides[-1], self.groups * self.outputs
        build.run(
            "deconvolution", (src, weights, bias, shifted(dst, at), shifted(other, at) if other[0] == "m" else other, *starts),
            (*sizes, stride, channels, self.outputs), self.images * channels * math.prod(op.dst.dims[2:-1]), op.dst.elements,
            scaled=depthwise, phases=_phases(op), chain=chain(attr), dtype=op.dst.dtype,
        )  # fmt: skip


def _phases(op: Deconvolution) -> int:
    """Return the stride along the width, 0 for one that no vectors are interleaved for."""
    stride = op.strides[-1]
    return stride if stride < 3 or (op.dst.dtype == "f32" and stride in INTERLEAVED) else 0


def _output_bytes(op: Deconvolution) -> int:
    """Return the bytes of the products of an output channel of an image: those of every tap with every pixel."""
    return item_size(op.dst.dtype) * math.prod(op.weights.dims[2:]) * math.prod(op.src.dims[2:])


def _tables(op: Deconvolution) -> tuple[bytes, tuple[int, ...]]:
    """Return the kernel's tables, where those of each dimension begin, and the sizes that it takes."""
    sizes, wanted, kernel, strides, padding = in_three(op)
    dilations = (*(0,) * (SPATIAL - len(op.dilations)), *op.dilations)
    tables, starts, records = b"", [], []
    for axis in range(SPATIAL):
        is_width = axis == SPATIAL - 1
        taps = [
            [
                (k, (index + padding[axis] - k * (dilations[axis] + 1)) // strides[axis])
                for k in range(kernel[axis])
                if (index + padding[axis] - k * (dilations[axis] + 1)) % strides[axis] == 0
            ]
            for index in range(strides[axis] if is_width else wanted[axis])
        ]
        if not is_width:
            taps = [[(k, at) for k, at in each if 0 <= at < sizes[axis]] for each in taps]
        record = 1 + 2 * max(map(len, taps))
        starts.append(len(tables))
        records.append(8 * record)
        for each in taps:
            values = [len(each), *(value for tap in each for value in tap)]
            tables += struct.pack(f"<{record}q", *values, *[0] * (record - len(values)))
    return tables, (*starts, *sizes, *wanted, *kernel[1:], math.prod(kernel), *records)


IMPLEMENTATIONS = (
    NativePlanesDeconvolution(),
    NativeWideDeconvolution(),
    NativeDeconvolution(True),
    NativePhasesDeconvolution(),
    NativeDeconvolution(False),
)
