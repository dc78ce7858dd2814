"""Convolution of 8-bit integers with channels side by side, its result requantized in registers."""

from __future__ import annotations

import math
from typing import Final

from poolrt.cachestore.deferred_dataclass import replace

from ...desc import Arg, Convolution, MemoryDesc, PrimitiveAttr
from ...engines.target import Target
from ...kernels.spec import KernelSpec
from ..program import LaunchArgument, Program
from .convolution_window import Window
from .integer_amx import EXTENSIONS_OF, copied_how, fills_tiles, is_few_with_point, reduce_by_tiles
from .integer_epilogue import Epilogue, is_exact, points_fit, refuse_attributes, refuse_types
from .integer_reduce import GROUP, GROUP_BYTES, Outputs, Positions, reduce_integers
from .integer_strips import multiply_strips, strip_count
from .nest_builder import NestBuilder

#: With at most so many input channels src may be in any plain layout: its copy gathers them.
_FEW: Final = 8
#: Outputs of a group at least that are computed beside those of other groups in a block of 16.
_LEAST_OUTPUTS: Final = 8


class NativeIntegerConvolution:
    """src u8 or s8 by weights s8, 1 or 2 spatial dimensions; groups of at least 8 outputs, or of 4 if all are whole blocks of 16.

    Activations have their channels side by side; up to 8 input channels may be in any plain layout. Attributes: scales of
    src and dst, of weights one or one an output; zero points of src and dst; one addition, then relu and clip. Without scales
    and post-ops, s32 sums are exact modulo 2**32. Limitation: with padding, a zero point of src that is given at execution
    is a number of src's type.
    """

    engine_kind = "cpu"
    general = True

    def __init__(self, how: str) -> None:
        self.name = f"native:integer_{how}"
        self._how = how
        self.extensions = EXTENSIONS_OF.get(how, ())

    def reject(self, op: Convolution, attr: PrimitiveAttr, target: Target) -> str | None:
        if why := target.lack_of(self.extensions):
            return why
        if not op.is_forward or op.src.ndims not in (3, 4):
            return "only forward with 1 or 2 spatial dimensions is supported"
        if why := self._refuse_groups(op):
            return why
        if 0 in op.weights.dims:
            return "weights without elements"
        op = self.complete(op, attr, target)
        if why := refuse_types(op.src, op.weights, op.bias, op.dst):
            return why
        last, weights = _channels_last(op.src.ndims), self._weights_tag(op.weights.ndims)
        few = op.groups == 1 and op.src.dims[1] <= _FEW and not op.src.layout.blocks and not op.src.strides
        if (op.src.tag != last and not few) or op.dst.tag != last or op.weights.tag != weights:
            return f"layouts {op.src.tag}, {op.weights.tag}, {op.dst.tag}; only {last} with {weights} is supported"
        if not points_fit(attr, op.src.dtype):
            return f"a zero point of src that is no {op.src.dtype}"
        if self._how == "amx":
            if not fills_tiles(_groups(op)):
                return "a step has too few neighbouring numbers for a tile"
            if is_few_with_point(attr, op.dst.dims[0] * math.prod(op.dst.dims[2:])):
                return "few positions and a zero point of src: the sums of weights cost another pass over these"
        return refuse_attributes(attr, op.bias, op.dst, 1)

    def _refuse_groups(self, op: Convolution) -> str | None:
        """Return why groups are not supported, or None."""
        outputs = op.dst.dims[1] // op.groups
        if op.groups > 1 and outputs % 16 and (self._how == "amx" or (outputs < _LEAST_OUTPUTS and _parts(op) == 1)):
            return f"groups of {outputs} outputs"
        return None

    def complete(self, op: Convolution, attr: PrimitiveAttr, target: Target) -> Convolution:
        last = _channels_last(op.src.ndims)
        few = op.groups == 1 and op.src.dims[1] <= _FEW
        src = _chosen(op.src, "" if few else last)
        weights = _chosen(op.weights, self._weights_tag(op.weights.ndims))
        bias = op.bias and _chosen(op.bias, "")
        return replace(op, src=src, weights=weights, dst=_chosen(op.dst, last), bias=bias)

    def program(self, op: Convolution, attr: PrimitiveAttr, target: Target) -> Program:
        if op.dst.elements == 0:
            return Program((), ())
        epilogue = Epilogue.of(attr, op.dst)
        build = NestBuilder(epilogue.tables)
        exact = is_exact(attr, op.bias, op.dst)
        is_last = op.src.tag == _channels_last(op.src.ndims)
        if self._how == "pairs" and is_last and (strips := strip_count(target.isa, op)):
            multiply_strips(build, op, strips, Outputs(*_outputs(op), op.dst, op.bias), epilogue, exact)
            return build.program()
        src, positions, shift = self._positions(build, op, epilogue.point(Arg.SRC), Window.of(op))
        parts = _parts(op)
        outputs = Outputs(*_outputs(op), op.dst, op.bias, parts, positions.group if parts > 1 else 0)
        positions = replace(positions, group=positions.group * parts)
        weights: LaunchArgument = ("m", (int(Arg.WEIGHTS), 0))
        if self._leaves_no_gaps(op):
            weights = self._joined(build, op, weights)
        if self._how == "amx":
            reduce_by_tiles(build, src, op.src.dtype, weights, positions, outputs, epilogue, exact)
            return build.program()
        reduce_integers(build, target.isa, self._how, src, weights, shift, positions, outputs, epilogue, exact)
        return build.program()

    def _positions(
        self, build: NestBuilder, op: Convolution, point: LaunchArgument, window: Window
    ) -> tuple[LaunchArgument, Positions, int]:
        """Return the place of the source that tiles read, its positions, and what its copy has added to each number."""
        inputs = op.weights.dims[1]
        size = GROUP[self._how]
        padded = inputs if self._leaves_no_gaps(op) else -(-inputs // size) * size
        signed = op.src.dtype == "s8"
        source: LaunchArgument = ("m", (int(Arg.SRC), 0))
        shift = 128 if signed and self._how == "vnni" else 0
        is_as_given = self._how == "amx" or (self._how == "vnni" and not signed)
        plain = is_as_given and inputs % size == 0 and op.src.tag == _channels_last(op.src.ndims)
        stride = window.stride
        width = GROUP_BYTES // size
        pixel = op.groups * padded * width
        columns, area = window.width, window.height * window.width
        if not (plain and window.is_inside):
            sampled = window.is_pointwise and window.pad == (0, 0)
            step, stride = (stride, (1, 1)) if sampled else ((1, 1), stride)
            rows, columns = ((o - 1) * s + r + 1 for o, s, r in zip(window.out, stride, window.reach, strict=True))
            area = rows * columns
            image, channel, *strides = op.src.outer_strides()
            channel = channel if op.src.dims[1] > 1 else 1
            sizes = (
                window.height, window.width, image, channel, *((0,) if op.src.ndims == 3 else ()), *strides, rows,
                columns, *step, *window.pad, op.groups, inputs, padded,
            )  # fmt: skip
            to = build.book(op.src.dims[0] * area * pixel)
            kernel = KernelSpec.of("integer_copy", how=copied_how(self._how, signed), signed=signed)
            build.launch(kernel, (source, to, point, *(("i", n) for n in sizes)), op.src.dims[0] * rows)
            source = to
        steps = _steps(op, window, columns, pixel, padded * width)
        across = stride[1] * pixel
        down = stride[0] * columns * pixel
        shape = window.out
        if window.is_pointwise and down == window.out[1] * across:
            shape = (1, window.out[0] * window.out[1])
        return source, Positions(*shape, down, across, area * pixel, padded * width, steps), shift

    def _leaves_no_gaps(self, op: Convolution) -> bool:
        """Return whether the copy of src has one or three channels, not filled up to a group: rows of the kernel are shorter."""
        window, inputs, size = Window.of(op), op.weights.dims[1], GROUP[self._how]
        if self._how == "amx" or inputs not in (1, 3) or not _joins_row(op, window):
            return False
        return -(-window.kernel[1] * inputs // size) < window.kernel[1] * -(-inputs // size)

    def _joined(self, build: NestBuilder, op: Convolution, weights: LaunchArgument) -> LaunchArgument:
        """Add the launch that packs weights as they are without gaps, and return their place."""
        (rows, columns), inputs, size = Window.of(op).kernel, op.weights.dims[1], GROUP[self._how]
        blocks = -(-op.dst.dims[1] // 16)
        packed = build.book(blocks * rows * -(-columns * inputs // size) * size * 16)
        kernel = KernelSpec.of("integer_join", how=self._how)
        build.launch(kernel, (weights, packed, *(("i", n) for n in (rows, columns, inputs))), blocks)
        return packed

    def _weights_tag(self, ndims: int) -> str:
        """Return the tag with the groups of 16 outputs side by side: ``AcdB16a4b`` for 4."""
        return f"A{'cdefghijkl'[: ndims - 2]}B16a{GROUP[self._how]}b"


def _steps(op: Convolution, window: Window, columns: int, pixel: int, group: int) -> list[tuple[int, int]]:
    """Return what a position adds up: a row of the kernel at once if its numbers are neighbours, else tap by tap."""
    height, width = window.kernel
    down, across = window.dilation[0] * columns * pixel, window.dilation[1] * pixel
    if _joins_row(op, window):
        return [(kh * down, -(-width * group // GROUP_BYTES)) for kh in range(height)]
    return [(kh * down + kw * across, group // GROUP_BYTES) for kh in range(height) for kw in range(width)]


def _joins_row(op: Convolution, window: Window) -> bool:
    """Return whether the numbers of a row of the kernel are neighbours."""
    return op.groups == 1 and (window.dilation[1] == 1 or window.kernel[1] == 1)


def _parts(op: Convolution) -> int:
    """Return how many groups a block of 16 outputs has, if each has 4 or 8 and all outputs are whole blocks; else 1."""
    outputs = op.dst.dims[1] // op.groups
    return 16 // outputs if outputs in (4, 8) and op.dst.dims[1] % 16 == 0 and op.groups > 1 else 1


def _outputs(op: Convolution) -> tuple[int, int, int]:
    """Return the images, the groups as blocks of 16 outputs have them, and the outputs of each."""
    parts = _parts(op)
    return op.dst.dims[0], op.groups // parts, op.dst.dims[1] * parts // op.groups


def _groups(op: Convolution) -> int:
    """Return the groups of four numbers that a step adds up."""
    window = Window.of(op)
    return -(-op.weights.dims[1] // 4) * (window.kernel[1] if _joins_row(op, window) else 1)


def _channels_last(ndims: int) -> str:
    return f"a{'cdefghijkl'[: ndims - 2]}b"


def _chosen(md: MemoryDesc, tag: str) -> MemoryDesc:
    return md.with_tag(tag) if md.is_any else md
