"""Deconvolution: the product of weights and images, summed up where windows overlap; depthwise without a product."""

from __future__ import annotations

import math
import struct
from typing import Final

from poolrt.cachestore.deferred_dataclass import replace

from ...desc import Arg, Deconvolution, Matmul, MemoryDesc, PrimitiveAttr, item_size
from ...engines.target import Target
from ..nested.builder import NestedBuilder, memory, shifted
from ..primitive_desc import UnsupportedPrimitive, primitive_desc
from ..program import LaunchArgument, Program
from .blocks import refuse
from .chain import chain, chain_source, refuse_chain
from .deconvolution_phases import NativePhasesDeconvolution
from .deconvolution_planes import NativePlanesDeconvolution

#: Spatial dimensions that the kernel has, and its largest stride along the width.
_SPATIAL: Final = 3
_MOST_PHASES: Final = 16
#: Bytes of products of images computed at once, and of one image at most.
_AT_ONCE: Final = 1 << 20
_MOST: Final = 1 << 30


class NativeDeconvolution:
    """Row-major src and dst; weights in any layout, best with the input channels innermost."""

    engine_kind = "cpu"
    general = False

    def __init__(self, depthwise: bool) -> None:
        self.name = "native:depthwise" if depthwise else "nested:matmul"
        self.nests = not depthwise
        self._depthwise = depthwise

    def reject(self, op: Deconvolution, attr: PrimitiveAttr, target: Target) -> str | None:
        op = self.complete(op, attr, target)
        if self._depthwise and op.weights.dims[1] != 1:
            return f"{op.weights.dims[1]} input channels a group; only one is supported"
        if op.src.ndims - 2 > _SPATIAL:
            return f"{op.src.ndims - 2} spatial dimensions; at most {_SPATIAL} are supported"
        if op.strides[-1] > _MOST_PHASES:
            return f"stride {op.strides[-1]} along the width; at most {_MOST_PHASES} is supported"
        if not (op.src.is_plain and op.dst.is_plain and (op.bias is None or op.bias.is_plain)):
            return "src, bias and dst must be row-major"
        dtype = op.dst.dtype
        if op.weights.dtype != dtype or (op.bias is not None and op.bias.dtype != dtype):
            return f"weights and bias must be {dtype}"
        refused = refuse(op.src, op.dst, dtypes=("f32", "f64")) or refuse_chain(attr, op.dst)
        if refused or self._depthwise:
            return refused
        if _product_bytes(op) > _MOST:
            return f"the products of an image take {_product_bytes(op)} bytes, more than {_MOST}"
        try:
            self.program(op, attr, target)
        except UnsupportedPrimitive as error:
            return f"there is no fast product for it: {error}"
        return None

    def complete(self, op: Deconvolution, attr: PrimitiveAttr, target: Target) -> Deconvolution:
        src, dst = (md.with_tag("") if md.is_any else md for md in (op.src, op.dst))
        bias = op.bias.with_tag("") if op.bias is not None and op.bias.is_any else op.bias
        op = replace(op, src=src, bias=bias, dst=dst)
        return replace(op, weights=self._inner(op.weights)) if op.weights.is_any else op

    def program(self, op: Deconvolution, attr: PrimitiveAttr, target: Target) -> Program:
        build = NestedBuilder(target)
        if op.dst.elements == 0:
            return build.program()
        batch, size = op.dst.dims[0], item_size(op.dst.dtype)
        src, dst = memory(Arg.SRC), memory(Arg.DST)
        weights = build.reorder_once(op.weights, memory(Arg.WEIGHTS), self._inner(op.weights))
        tables, numbers = _tables(op)
        nbytes = _product_bytes(op)
        step = batch if self._depthwise or not nbytes else _images(batch, nbytes)
        columns = None if self._depthwise else build.book(step * nbytes)
        for first in range(0, batch, step):
            images = shifted(src, size * first * op.src.elements // batch)
            if columns is not None and nbytes:
                _multiply(build, op, step, weights, images, columns)
            at = size * first * op.dst.elements // batch
            other = chain_source(attr)
            _add_up(
                build, op, attr, step, (columns or images, weights, shifted(dst, at)),
                shifted(other, at) if other[0] == "m" else other, numbers, self._depthwise,
            )  # fmt: skip
        return build.program()._replace(tables=tables)

    def _inner(self, weights: MemoryDesc) -> MemoryDesc:
        """Return the layout of weights in which the channels of inputs are innermost, row-major if there is one of them."""
        if self._depthwise:
            return weights.with_tag("")
        return weights.with_tag(f"a{'cde'[: weights.ndims - 2]}b")


def _images(batch: int, nbytes: int) -> int:
    """Return how many images are multiplied at once: a divisor of their number."""
    most = max(1, min(batch, _AT_ONCE // nbytes))
    return next(count for count in range(most, 0, -1) if batch % count == 0)


def _product_bytes(op: Deconvolution) -> int:
    """Return the bytes of the products of an image: those of every tap with every pixel, of each output channel."""
    taps, pixels = math.prod(op.weights.dims[2:]), math.prod(op.src.dims[2:])
    return item_size(op.dst.dtype) * op.weights.dims[0] * taps * pixels


def _multiply(
    build: NestedBuilder, op: Deconvolution, count: int, weights: LaunchArgument, images: LaunchArgument,
    columns: LaunchArgument,
) -> None:  # fmt: skip
    """Add the product of weights (outputs and taps, inputs) and images (inputs, pixels), for each image and group."""
    inputs, pixels = op.weights.dims[1], math.prod(op.src.dims[2:])
    rows = op.weights.dims[0] // op.groups * math.prod(op.weights.dims[2:])
    shapes = (1, op.groups, rows, inputs), (count, op.groups, inputs, pixels), (count, op.groups, rows, pixels)
    left, right, to = (MemoryDesc(dims, op.dst.dtype) for dims in shapes)
    product = Matmul(left, right, None, to)
    pd = primitive_desc(product, PrimitiveAttr(), build.target, references=False)
    build.execute(pd, {Arg.SRC: weights, Arg.WEIGHTS: images, Arg.DST: columns})


def _add_up(
    build: NestedBuilder, op: Deconvolution, attr: PrimitiveAttr, count: int, places: tuple[LaunchArgument, ...],
    other: LaunchArgument, numbers: tuple[int, ...], depthwise: bool,
) -> None:  # fmt: skip
    """Add the sum of products, or of weights and images if ``depthwise``, into images of dst."""
    src, weights, dst = places
    bias = memory(Arg.BIAS) if op.bias is not None else ("i", 0)
    stride, outputs = op.strides[-1], op.dst.dims[1]
    depth, height, width, *sizes = numbers
    starts: tuple[LaunchArgument, ...] = (("t", depth), ("t", height), ("t", width))
    items = count * math.prod(op.dst.dims[1:-1])
    build.run(
        "deconvolution", (src, weights, bias, dst, other, *starts), (*sizes, stride, outputs, outputs // op.groups), items,
        op.dst.elements, scaled=depthwise, phases=stride if stride < 3 else 0, chain=chain(attr), dtype=op.dst.dtype,
    )  # fmt: skip


def _tables(op: Deconvolution) -> tuple[bytes, tuple[int, ...]]:
    """Return the kernel's tables, where those of each dimension begin, and the sizes that it takes."""
    missing = _SPATIAL - (op.src.ndims - 2)
    ones, zeros = (1,) * missing, (0,) * missing
    sizes, wanted, kernel = (
        (*ones, *op.src.dims[2:]), (*ones, *op.dst.dims[2:]), (*ones, *op.weights.dims[2:])
    )  # fmt: skip
    strides, dilations, padding = (*ones, *op.strides), (*zeros, *op.dilations), (*zeros, *op.padding_l)
    tables, starts, records = b"", [], []
    for axis in range(_SPATIAL):
        is_width = axis == _SPATIAL - 1
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
    NativeDeconvolution(True),
    NativePhasesDeconvolution(),
    NativeDeconvolution(False),
)
