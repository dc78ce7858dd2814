"""Geometry of windows in one to three spatial dimensions, written as three."""

from __future__ import annotations

from math import prod

from poolrt.cachestore.deferred_dataclass import dataclass

from ...desc import Convolution, Pooling

Triple = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Window:
    """Sizes (depth, height, width) of source, output and kernel; ``step`` is the distance between taps (1 = dense)."""

    source: Triple
    output: Triple
    kernel: Triple
    stride: Triple
    step: Triple
    pad: Triple

    @classmethod
    def of(cls, op: Convolution | Pooling, kernel: tuple[int, ...]) -> Window:
        """Return the geometry of an operation of at most three spatial dimensions."""
        step = tuple(d + 1 for d in op.dilations)
        return cls(
            _triple(op.src.dims[2:], 1),
            _triple(op.dst.dims[2:], 1),
            _triple(kernel, 1),
            _triple(op.strides, 1),
            _triple(step, 1),
            _triple(op.padding_l, 0),
        )

    @property
    def taps(self) -> int:
        """Positions of the kernel."""
        return prod(self.kernel)


def _triple(values: tuple[int, ...], fill: int) -> Triple:
    a, b, c = (*(fill,) * (3 - len(values)), *values)
    return a, b, c
