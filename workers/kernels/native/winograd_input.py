"""Winograd's transform of windows of 16-bit integers: the sources of some results of a 3 x 3 kernel become factors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import llvmlite.ir as ir

from .compiler import types
from .compiler.language import intrinsic
from .vec import I16, I64, LANES, Builder, Value, iload, pointer
from .winograd_scheme import FACTORS, SCHEMES, Windows

_KIND = ir.VectorType(I16, LANES)


def make(isa: str, stride: int) -> tuple[Callable[..., None], Any]:
    """Return the kernel for the scheme of a stride.

    Arguments: addresses of src (images, rows, columns, channels), of the factors (images, strips, 25, windows of a strip,
    channels), 16 bits each, and of the table of strips (seven numbers each: the first row of windows, rows, how many of these
    are large, the same of columns, and the windows of all strips before); channels, a multiple of 16; strips, most rows of a
    strip, windows of an image; large windows in a column and in a row of the image; rows and columns of src.
    One item of work is a row of windows of a strip.
    """
    scheme = SCHEMES[stride]
    large, small = len(scheme.large.results) * stride, len(scheme.small.results) * stride
    both, tall, wide, neither = (
        _make_transform(rows, columns, scheme.lacking)
        for rows in (scheme.large, scheme.small)
        for columns in (scheme.large, scheme.small)
    )

    def transform(
        begin: int, end: int, src: int, to: int, table: int, channels: int, strips: int, most: int, windows: int,
        large_rows: int, large_columns: int, height: int, width: int,
    ) -> None:  # fmt: skip
        pixel = channels * 2
        for item in range(begin, end):
            row = item % most
            strip = item // most % strips
            image = item // (most * strips)
            entry = table + strip * 56
            rows, columns = iload(entry + 8), iload(entry + 32)
            if row < rows:
                is_tall = row < iload(entry + 16)
                wide_columns = iload(entry + 40)
                plane = rows * columns * pixel
                base = to + (image * windows + iload(entry + 48)) * 25 * pixel
                place = iload(entry) + row
                line = min(place, large_rows) * large + max(0, place - large_rows) * small
                for column in range(columns):
                    place = iload(entry + 24) + column
                    across = min(place, large_columns) * large + max(0, place - large_columns) * small
                    at = src + ((image * height + line) * width + across) * pixel
                    out, wide_out = (
                        base + (row * columns + column) * pixel,
                        base + (row * wide_columns + column) * pixel,
                    )
                    for _ in range(channels // 16):
                        if is_tall:
                            if column < wide_columns:
                                both(at, width * pixel, pixel, out, wide_out, plane)
                            else:
                                tall(at, width * pixel, pixel, out, wide_out, plane)
                        elif column < wide_columns:
                            wide(at, width * pixel, pixel, out, wide_out, plane)
                        else:
                            neither(at, width * pixel, pixel, out, wide_out, plane)
                        at += 32
                        out += 32
                        wide_out += 32

    return transform, types.void(*[types.int64] * 13)


def _make_transform(rows: Windows, columns: Windows, lacking: int) -> Any:
    """Return the intrinsic that writes the factors of 16 channels of a window.

    Arguments: address of its first source; distances of rows and of columns; addresses of its first factor, among those of
    all windows of a strip and among those of the large ones in a row; the distance of factors. ``lacking`` is of the columns.
    """

    @intrinsic
    def transform(_: Any, at: Any, row: Any, column: Any, to: Any, wide: Any, plane: Any) -> Any:
        def emit(context: Any, b: Builder, sig: Any, a: list[Value]) -> Value:
            at, row, column, to, wide, plane = a

            def read(h: int, w: int) -> Value:
                return b.load(pointer(b, b.add(at, b.add(b.mul(row, I64(h)), b.mul(column, I64(w)))), _KIND), align=2)

            for i, down in enumerate(rows.factors):
                if not down:
                    continue
                line = [
                    combined(b, down, [read(h, w) if of else None for h, of in enumerate(down)])
                    for w in range(columns.sources)
                ]
                for j, across in enumerate(columns.factors):
                    if across:
                        place = b.add(wide if lacking >> j & 1 else to, b.mul(plane, I64(FACTORS * i + j)))
                        b.store(combined(b, across, line), pointer(b, place, _KIND), align=2)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 6), emit

    return transform


def combined(b: Builder, factors: tuple[int, ...], values: list[Value]) -> Value:
    """Return the sum of vectors of integers by whole numbers, some of which are not 0; those by 0 are not looked at."""
    terms = [(factor, value) for factor, value in zip(factors, values, strict=True) if factor]
    # A term that is added comes first, then none is negated; of those, one without a product.
    terms.sort(key=lambda term: (term[0] < 0, abs(term[0])))

    def scaled(factor: int, value: Value) -> Value:
        return value if factor == 1 else b.mul(value, ir.Constant(value.type, [factor] * value.type.count))

    total = scaled(*terms[0])
    for factor, value in terms[1:]:
        total = b.add(total, scaled(factor, value)) if factor > 0 else b.sub(total, scaled(-factor, value))
    return total
