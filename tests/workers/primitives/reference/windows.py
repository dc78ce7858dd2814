"""Windows over spatial dimensions, drawn at random."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import strategies as st


class Windows(NamedTuple):
    """A window over spatial dimensions, and the sizes of its two sides."""

    src: tuple[int, ...]
    dst: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    padding_l: tuple[int, ...]
    padding_r: tuple[int, ...]


@st.composite
def windows(draw: st.DrawFn) -> Windows:
    """Draw a window: strided, dilated and padded as it comes, one side unlike the other, mostly in up to 3 dimensions."""
    columns = []
    for _ in range(draw(st.sampled_from((1, 1, 2, 2, 2, 3, 3, 4)))):
        kernel, stride = draw(st.integers(1, 3)), draw(st.integers(1, 3))
        dilation, left, right = draw(st.integers(0, 2)), draw(st.integers(0, 3)), draw(st.integers(0, 2))
        dst, spare = draw(st.integers(1, 4)), draw(st.integers(0, stride - 1))
        padded = (dst - 1) * stride + (kernel - 1) * (dilation + 1) + 1 + spare
        if padded <= left + right:
            left, right = 0, 0
        columns.append((padded - left - right, dst, kernel, stride, dilation, left, right))
    return Windows(*zip(*columns, strict=True))
