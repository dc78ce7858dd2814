"""Winograd's transform of windows of 16-bit integers: the 4 x 4 sources of 2 x 2 outputs of a 3 x 3 kernel become 16 factors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import llvmlite.ir as ir

from .compiler import types
from .compiler.language import intrinsic
from .vec import I16, I64, LANES, Builder, Value, pointer

_KIND = ir.VectorType(I16, LANES)


def make(isa: str) -> tuple[Callable[..., None], Any]:
    """Return the kernel.

    Arguments: addresses of src (images, rows, columns, channels) and of the factors (images, 16, windows, channels), 16 bits
    each; channels, a multiple of 16; rows and columns of windows; rows and columns of src. Windows are two rows and two columns
    apart. One item of work is a row of windows.
    """

    def transform(
        begin: int, end: int, src: int, to: int, channels: int, rows: int, columns: int, height: int, width: int
    ) -> None:
        pixel = channels * 2
        plane = rows * columns * pixel
        for item in range(begin, end):
            image = item // rows
            row = item % rows
            for column in range(columns):
                at = src + ((image * height + 2 * row) * width + 2 * column) * pixel
                out = to + image * 16 * plane + (row * columns + column) * pixel
                for _ in range(channels // 16):
                    _transform(at, width * pixel, pixel, out, plane)
                    at += 32
                    out += 32

    return transform, types.void(*[types.int64] * 9)


@intrinsic
def _transform(_: Any, at: Any, row: Any, column: Any, to: Any, plane: Any) -> Any:
    """Write the factors of 16 channels of a window; the distances are those of src and of the factors."""

    def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
        at, row, column, to, plane = a
        window = [
            [
                b.load(pointer(b, b.add(at, b.add(b.mul(row, I64(h)), b.mul(column, I64(w)))), _KIND), align=2)
                for w in range(4)
            ]
            for h in range(4)
        ]
        across = [_differences(b, line) for line in zip(*window, strict=True)]
        for h in range(4):
            for w, value in enumerate(_differences(b, [line[h] for line in across])):
                b.store(value, pointer(b, b.add(to, b.mul(plane, I64(4 * h + w))), _KIND), align=2)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 5), emit


def _differences(b: Builder, d: Any) -> list[Value]:
    return [b.sub(d[0], d[2]), b.add(d[1], d[2]), b.sub(d[2], d[1]), b.sub(d[1], d[3])]
