"""Depthwise convolution of 8-bit integers with channels side by side."""

from __future__ import annotations

from typing import Final

from poolrt.cachestore.deferred_dataclass import replace

from ...desc import Arg, Convolution, MemoryDesc, PrimitiveAttr
from ...engines.target import Target
from ...kernels.native.limits import QUAD_BYTES, QUAD_CHANNELS, QUAD_ROWS, QUADS_OF_WEIGHTS_ROOM, QUADS_ROOM
from ...kernels.spec import KernelSpec
from ..program import LaunchArgument, Program
from .convolution_tiles import even
from .convolution_window import Window
from .integer_epilogue import NONE, Epilogue, is_exact, points_fit, refuse_attributes, refuse_types
from .nest_builder import NestBuilder

#: Columns of outputs at least that are computed at once, unless a row has fewer.
_PIECE: Final = 8


class NativeIntegerDepthwise:
    """src u8 or s8 by weights s8, one input and one output channel a group, 1 or 2 spatial dimensions.

    Attributes: those of `NativeIntegerConvolution`, without an addition. With "vnni", results are bytes of more than 16 channels.
    """

    engine_kind = "cpu"
    general = True

    def __init__(self, how: str = "") -> None:
        self.name = "native:depthwise_integer" + f"_{how}" * bool(how)
        self._how = how
        self.extensions = ("avx512_vnni",) if how else ()

    def reject(self, op: Convolution, attr: PrimitiveAttr, target: Target) -> str | None:
        if why := target.lack_of(self.extensions):
            return why
        if not op.is_forward or op.src.ndims not in (3, 4):
            return "only forward with 1 or 2 spatial dimensions is supported"
        if not op.groups == op.src.dims[1] == op.dst.dims[1] or 0 in op.weights.dims:
            return "not one input and one output channel a group"
        op = self.complete(op, attr, target)
        if why := refuse_types(op.src, op.weights, op.bias, op.dst):
            return why
        last, weights = _channels_last(op.src.ndims), _weights_tag(op.weights.ndims)
        if (op.src.tag, op.weights.tag, op.dst.tag) != (last, weights, last):
            return f"layouts {op.src.tag}, {op.weights.tag}, {op.dst.tag}; only {last} with {weights} is supported"
        if any(step.kind != "eltwise" for step in attr.post_ops):
            return "an addition is not supported"
        if self._how and (why := _refuse_quads(op, attr)):
            return why
        return refuse_attributes(attr, op.bias, op.dst, 1)

    def complete(self, op: Convolution, attr: PrimitiveAttr, target: Target) -> Convolution:
        last = _channels_last(op.src.ndims)
        return replace(
            op, src=_chosen(op.src, last), weights=_chosen(op.weights, _weights_tag(op.weights.ndims)),
            dst=_chosen(op.dst, last), bias=op.bias and _chosen(op.bias, ""),
        )  # fmt: skip

    def program(self, op: Convolution, attr: PrimitiveAttr, target: Target) -> Program:
        if op.dst.elements == 0:
            return Program((), ())
        window, channels = Window.of(op), op.dst.dims[1]
        epilogue, exact = Epilogue.of(attr, op.dst), is_exact(attr, op.bias, op.dst)
        build = NestBuilder(epilogue.tables)
        blocks = -(-channels // 16)
        plus = NONE if op.dst.dtype in ("u8", "s8") else epilogue.point(Arg.DST)
        terms, factors, offsets = (build.book(-(-channels // QUAD_CHANNELS) * QUAD_CHANNELS * 4) for _ in range(3))
        bias: LaunchArgument = ("m", (int(Arg.BIAS), 0)) if op.bias is not None else NONE
        src_scale, weight_scales, dst_scale = (epilogue.scale(arg) for arg in (Arg.SRC, Arg.WEIGHTS, Arg.DST))
        src, weights, dst = (("m", (int(arg), 0)) for arg in (Arg.SRC, Arg.WEIGHTS, Arg.DST))
        # The kernels subtract the zero point of src.
        build.launch(
            KernelSpec.of(
                "integer_terms", how="pairs", exact=exact, bias=op.bias.dtype if op.bias else "", less=False, kind="s8"
            ),
            (
                weights, bias, NONE, plus, src_scale, weight_scales, dst_scale, terms, factors,
                offsets, *(("i", n) for n in (0, epilogue.scale_step, blocks, channels, 0)), ("f", 0.0),
            ),
            blocks,
        )  # fmt: skip
        sizes = (
            channels, window.height, window.width, *window.out, *window.kernel, *window.stride, *window.dilation,
            *window.pad, *([_piece(window)] if self._how else []),
        )  # fmt: skip
        point = epilogue.point(Arg.SRC)
        last = (NONE, NONE) if exact else (dst_scale, epilogue.point(Arg.DST))
        args: tuple[LaunchArgument, ...] = (
            src, weights, dst, point, terms, factors, offsets, *last, *(("i", n) for n in sizes), ("f", epilogue.low),
            ("f", epilogue.high),
        )  # fmt: skip
        signed, rows = op.src.dtype == "s8", op.dst.dims[0] * window.out[0]
        if self._how:
            kernel = KernelSpec.of("integer_depthwise_columns", signed=signed, dtype=op.dst.dtype)
            build.launch(kernel, args, rows * -(-channels // QUAD_CHANNELS))
            return build.program()
        kernel = KernelSpec.of(
            "integer_depthwise", signed=signed, shifted=point != NONE, dtype=op.dst.dtype, exact=exact
        )  # fmt: skip
        build.launch(kernel, args, rows)
        return build.program()


def _refuse_quads(op: Convolution, attr: PrimitiveAttr) -> str | None:
    """Return why quads of rows of the source cannot be multiplied, or None."""
    if op.dst.dtype not in ("u8", "s8") or op.dst.dims[1] <= 16:
        return "results that are no bytes of more than 16 channels"
    if not points_fit(attr, op.src.dtype):
        return f"a zero point of src that is no {op.src.dtype}"
    window = Window.of(op)
    if _quads(window) * window.kernel[1] * QUAD_BYTES > QUADS_OF_WEIGHTS_ROOM or _piece(window) < min(
        _PIECE, window.out[1]
    ):
        return "a window too large for the stack"
    return None


def _quads(window: Window) -> int:
    """Return the quads of rows of a window."""
    return -(-window.kernel[0] // QUAD_ROWS)


def _piece(window: Window) -> int:
    """Return the columns of outputs whose quads fit on the stack, of pieces as long as one another."""
    most = (QUADS_ROOM // (QUAD_BYTES * _quads(window)) - window.reach[1] - 1) // window.stride[1] + 1
    return even(window.out[1], most)[0] if most > 0 else 0


def _weights_tag(ndims: int) -> str:
    """Return the tag with the kernels of 16 channels side by side: ``Abcd16a`` for 4."""
    return f"A{'bcdefghijkl'[: ndims - 1]}16a"


def _channels_last(ndims: int) -> str:
    return f"a{'cdefghijkl'[: ndims - 2]}b"


def _chosen(md: MemoryDesc, tag: str) -> MemoryDesc:
    return md.with_tag(tag) if md.is_any else md
