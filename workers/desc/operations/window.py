"""Windows that convolution and pooling move over spatial dimensions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .convolution import Convolution
    from .deconvolution import Deconvolution
    from .pooling import Pooling

#: The greatest stride, dilation and padding: kernels get their products with pitches, in bytes, as int64.
_MOST: Final = (1 << 31) - 1


def windowed(
    sizes: tuple[int, ...], kernel: tuple[int, ...], op: Convolution | Deconvolution | Pooling
) -> tuple[int, ...]:
    """Return the output sizes of a window moved over padded sizes."""
    return tuple(
        (size + left + right - ((k - 1) * (dilation + 1) + 1)) // stride + 1
        for size, k, stride, dilation, left, right in zip(
            sizes, kernel, op.strides, op.dilations, op.padding_l, op.padding_r, strict=True
        )
    )


def require_window(op: Convolution | Deconvolution | Pooling, spatial: int) -> None:
    """Raise ValueError naming the argument unless the window's arguments fit a number of spatial dimensions."""
    for name, low in (("strides", 1), ("dilations", 0), ("padding_l", 0), ("padding_r", 0)):
        values = getattr(op, name)
        if len(values) != spatial or min(values, default=low) < low:
            raise ValueError(f"{name}: expect {spatial} values >= {low}, got {values}")
        if max(values, default=low) > _MOST:
            raise ValueError(f"{name}: expect values of at most {_MOST}, got {values}")
