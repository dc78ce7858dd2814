"""Windows over spatial dimensions and the operations that move one, for fixed problems and for those drawn at random."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from poolrt.workers.desc import Convolution, Deconvolution, MemoryDesc, Pooling

Sizes = tuple[int, ...]
F32: Final = ("f32", "f32", "f32")


class Window(NamedTuple):
    """A window over spatial dimensions: the sizes that it moves over, its own, and how it moves."""

    src: Sizes
    kernel: Sizes
    strides: Sizes
    dilations: Sizes
    padding_l: Sizes
    padding_r: Sizes

    @property
    def dst(self) -> Sizes:
        """The sizes that the window takes ``src`` to."""
        return tuple(
            (s + a + b - (k - 1) * (d + 1) - 1) // stride + 1 for s, k, stride, d, a, b in zip(*self, strict=True)
        )

    @property
    def moves(self) -> tuple[Sizes, Sizes, Sizes, Sizes]:
        """Strides, dilations and paddings, as descriptors take them."""
        return self.strides, self.dilations, self.padding_l, self.padding_r


class Channels(NamedTuple):
    """The batch, and the channels of each of some groups on both sides."""

    batch: int
    groups: int
    inputs: int
    outputs: int


def drawn(integer: Callable[[int, int], int], spatial: int, most: int = 4, form: str = "") -> Window:
    """Return a window strided, dilated and padded as it comes, one side unlike the other, with up to ``most`` places.

    ``integer`` draws a number between two bounds. A ``"long"`` window is dense, and its strides along the width are as long as
    vectors; a ``"point"`` is one element that moves by one.
    """
    columns = []
    for axis in range(spatial):
        kernel, stride, dilation = integer(1, 3), integer(1, 3), integer(0, 2)
        left, right = integer(0, 3), integer(0, 2)
        if form == "long":
            dilation = 0
            if axis == spatial - 1:
                kernel, stride = integer(1, 20), integer(16, 18)
        elif form == "point":
            kernel, stride, dilation, left, right = 1, 1, 0, 0, 0
        padded = (integer(1, most) - 1) * stride + (kernel - 1) * (dilation + 1) + 1 + integer(0, stride - 1)
        if padded <= left + right:
            left, right = 0, 0
        columns.append((padded - left - right, kernel, stride, dilation, left, right))
    return Window(*zip(*columns, strict=True))


def convolution(
    w: Window, c: Channels, prop: str = "forward_inference", types: tuple[str, str, str] = F32, bias: bool = True
) -> Convolution:
    """Return a row-major convolution with data types of src, weights, and of bias and dst."""
    kernel = MemoryDesc((c.groups * c.outputs, c.inputs, *w.kernel), types[1])
    src, dst = MemoryDesc((c.batch, c.groups * c.inputs, *w.src), types[0]), _dst(c, w.dst, types[2])
    return Convolution(src, kernel, _bias(c, types[2], bias), dst, *w.moves, c.groups, prop)


def deconvolution(
    w: Window, c: Channels, prop: str = "forward_inference", types: tuple[str, str, str] = F32, bias: bool = True
) -> Deconvolution:
    """Return a row-major deconvolution, from the smaller side of the window to the larger one."""
    kernel = MemoryDesc((c.groups * c.outputs, c.inputs, *w.kernel), types[1])
    src, dst = MemoryDesc((c.batch, c.groups * c.inputs, *w.dst), types[0]), _dst(c, w.src, types[2])
    return Deconvolution(src, kernel, _bias(c, types[2], bias), dst, *w.moves, c.groups, prop)


def pooling(w: Window, batch: int, channels: int, algorithm: str, prop: str, dtype: str) -> Pooling:
    """Return a row-major pooling."""
    src, dst = (MemoryDesc((batch, channels, *sizes), dtype) for sizes in (w.src, w.dst))
    return Pooling(src, dst, algorithm, w.kernel, *w.moves, prop)


def _dst(c: Channels, sizes: Sizes, dtype: str) -> MemoryDesc:
    return MemoryDesc((c.batch, c.groups * c.outputs, *sizes), dtype)


def _bias(c: Channels, dtype: str, wanted: bool) -> MemoryDesc | None:
    return MemoryDesc((c.groups * c.outputs,), dtype) if wanted else None
