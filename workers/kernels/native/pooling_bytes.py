"""The maximum of windows of 8-bit integers, channels side by side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import llvmlite.ir as ir

from .compiler import types
from .compiler.language import intrinsic
from .vec import I8, Builder, Value, pointer


def make(isa: str, signed: bool) -> tuple[Callable[..., None], Any]:
    """Return the kernel.

    Arguments: addresses of src and dst; channels; height and width of src and of dst; kernel, stride, dilation (1: dense)
    and padding in rows and columns. One item of work is a row of dst. A window without elements has the least number.
    """
    start64, more64 = _make_steps(64, signed)
    start1, more1 = _make_steps(1, signed)
    _, more16 = _make_steps(16, signed)

    def start(to: int, channels: int) -> None:
        c = 0
        while c + 64 <= channels:
            start64(to + c)
            c += 64
        while c < channels:
            start1(to + c)
            c += 1

    def more(to: int, at: int, channels: int) -> None:
        c = 0
        while c + 64 <= channels:
            more64(to + c, at + c)
            c += 64
        while c + 16 <= channels:
            more16(to + c, at + c)
            c += 16
        while c < channels:
            more1(to + c, at + c)
            c += 1

    def pool(
        begin: int, end: int, src: int, dst: int, channels: int, height: int, width: int, out_height: int,
        out_width: int, kernel_h: int, kernel_w: int, stride_h: int, stride_w: int, dilation_h: int, dilation_w: int,
        top: int, left: int,
    ) -> None:  # fmt: skip
        for item in range(begin, end):
            h = item % out_height * stride_h - top
            image = src + item // out_height * height * width * channels
            for ow in range(out_width):
                to = dst + (item * out_width + ow) * channels
                w = ow * stride_w - left
                start(to, channels)
                for kh in range(kernel_h):
                    row = h + kh * dilation_h
                    if row < 0 or row >= height:
                        continue
                    for kw in range(kernel_w):
                        column = w + kw * dilation_w
                        if 0 <= column < width:
                            more(to, image + (row * width + column) * channels, channels)

    return pool, types.void(*[types.int64] * 17)


def _make_steps(lanes: int, signed: bool) -> tuple[Any, Any]:
    """Return the intrinsics that write the least number, and that take the maximum with neighbouring ones."""
    kind = ir.VectorType(I8, lanes)

    @intrinsic
    def start(_: Any, to: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            b.store(ir.Constant(kind, [128 if signed else 0] * lanes), pointer(b, a[0], kind), align=1)
            return context.get_dummy_value()

        return types.void(types.int64), emit

    @intrinsic
    def more(_: Any, to: Any, at: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            former, new = (b.load(pointer(b, address, kind), align=1) for address in a)
            compare = b.icmp_signed if signed else b.icmp_unsigned
            b.store(b.select(compare(">", new, former), new, former), pointer(b, a[0], kind), align=1)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), emit

    return start, more
