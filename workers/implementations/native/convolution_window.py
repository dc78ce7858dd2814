"""The spatial side of a convolution in up to three dimensions, and the padded copy that its source may need. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from poolrt.cachestore.deferred_dataclass import dataclass

from ...desc import Convolution

#: Rows before and behind, and columns before and behind.
Spare: TypeAlias = tuple[tuple[int, int], tuple[int, int]]
#: Positions that a tap leaves out at the beginning and at the end of a tile.
Trim: TypeAlias = tuple[int, int]
#: No rows and no columns.
NO_SPARE: Spare = ((0, 0), (0, 0))


@dataclass(frozen=True, slots=True)
class Depth:
    """The first of three spatial dimensions: slabs of rows and columns. Convolutions in fewer have one slab."""

    size: int = 1
    kernel: int = 1
    stride: int = 1
    dilation: int = 1
    pad: int = 0
    out: int = 1

    @property
    def sizes(self) -> tuple[int, ...]:
        """Slabs of the source and of the result, taps, stride, dilation and padding: the arguments of kernels."""
        return self.size, self.out, self.kernel, self.stride, self.dilation, self.pad

    @property
    def reach(self) -> int:
        """Slabs from the first to the last tap of the kernel."""
        return (self.kernel - 1) * self.dilation

    @property
    def is_inside(self) -> bool:
        """Whether no position reads padding."""
        return self.pad == 0 and (self.out - 1) * self.stride + self.reach < self.size


@dataclass(frozen=True, slots=True)
class Window:
    """The spatial side of a convolution: rows and columns (a single dimension is the second, of height 1) and slabs of them.

    ``spare`` are the rows and columns at the edges of the padded copy that no tile reads. The copy does not have them.
    With ``trims`` there is no copy: tiles leave out the positions at their ends from which a tap reads padding.
    """

    height: int
    width: int
    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    pad: tuple[int, int]
    out: tuple[int, int]
    depth: Depth
    spare: Spare = NO_SPARE
    trims: tuple[Trim, ...] = ()

    @classmethod
    def of(cls, op: Convolution) -> Window:
        """Return the window of a convolution with 1 to 3 spatial dimensions."""

        def three(values: Iterable[int], fill: int) -> tuple[int, tuple[int, int]]:
            given = tuple(values)
            depth, height, width = (*(fill,) * (3 - len(given)), *given)
            return depth, (height, width)

        deep, (height, width) = three(op.src.dims[2:], 1)
        kernels, kernel = three(op.weights.dims[2:], 1)
        step, stride = three(op.strides, 1)
        apart, dilation = three((d + 1 for d in op.dilations), 1)
        front, pad = three(op.padding_l, 0)
        slabs, out = three(op.dst.dims[2:], 1)
        return cls(
            height, width, kernel, stride, dilation, pad, out, Depth(deep, kernels, step, apart, front, slabs)
        )  # fmt: skip

    @property
    def reach(self) -> tuple[int, int]:
        """Rows and columns from the first to the last tap of the kernel."""
        return (self.kernel[0] - 1) * self.dilation[0], (self.kernel[1] - 1) * self.dilation[1]

    @property
    def row(self) -> tuple[int, int, int, int, int, int]:
        """What decides the taps of a row: width of src and dst, and kernel, stride, dilation and padding in columns."""
        return (self.width, self.out[1], self.kernel[1], self.stride[1], self.dilation[1], self.pad[1])

    @property
    def is_pointwise(self) -> bool:
        """Whether every output position reads one source position."""
        return self.kernel == (1, 1) and self.depth.kernel == 1

    @property
    def is_inside(self) -> bool:
        """Whether no position reads padding."""
        ends = zip(self.out, self.stride, self.reach, self.pad, self.spare, strict=True)
        last = [(o - 1) * s + r - pad - behind for o, s, r, pad, (_, behind) in ends]
        inside = self.margins == (0, 0) and last[0] < self.height and last[1] < self.width
        return inside and self.depth.is_inside

    @property
    def margins(self) -> tuple[int, int]:
        """Rows and columns of padding before the source in the padded copy."""
        return self.pad[0] - self.spare[0][0], self.pad[1] - self.spare[1][0]

    @property
    def is_direct(self) -> bool:
        """Whether the source can be read in place: no padding, neighbours adjacent, and whole rows where flattened."""
        if self.trims:
            return True
        sizes = (self.depth.size, self.height, self.width)
        whole = (self.depth.out, *self.out) == sizes if self.is_pointwise else True
        return self.is_inside and self.stride[1] == 1 and whole

    @property
    def row_step(self) -> int:
        """Source rows from one row of the padded copy to the next: a pointwise kernel skips rows that it does not read."""
        return self.stride[0] if self.is_pointwise else 1

    @property
    def step(self) -> int:
        """Source rows from one output row to the next."""
        return 1 if self.is_pointwise else self.stride[0]

    @property
    def slab_step(self) -> int:
        """Slabs of what the kernel reads from one slab of outputs to the next."""
        return 1 if self.is_pointwise else self.depth.stride

    @property
    def slabs(self) -> int:
        """Slabs of the tensor that the kernel reads."""
        if self.is_direct:
            return self.depth.size
        return (self.depth.out - 1) * self.slab_step + self.depth.reach + 1

    @property
    def rows(self) -> int:
        """Rows of the padded copy."""
        return (self.out[0] - 1) * self.step + self.reach[0] + 1 - sum(self.spare[0])

    @property
    def phases(self) -> int:
        """Phases of columns in the padded copy, those that no tap reads left out."""
        return max(kw * self.dilation[1] % self.stride[1] for kw in range(self.kernel[1])) + 1

    @property
    def columns(self) -> int:
        """Columns of a phase of the padded copy."""
        return self.out[1] + self.reach[1] // self.stride[1] - sum(self.spare[1])

    def copy(self) -> tuple[int, int, int]:
        """Return rows, phases and columns of a slab that the kernel reads: of the padded copy, or the source itself."""
        return (self.height, 1, self.width) if self.is_direct else (self.rows, self.phases, self.columns)

    def copy_sizes(self) -> tuple[int, ...]:
        """Return the arguments of the kernel that makes the padded copy."""
        thinned = self.depth.stride if self.is_pointwise else 1
        return (
            self.depth.size, self.height, self.width, self.slabs, *self.copy(), thinned, self.row_step, self.stride[1],
            self.depth.pad, *self.margins,
        )  # fmt: skip

    def offset(self, kh: int, kw: int, columns: int) -> int:
        """Return the place that a tap of the first output reads, in positions of a copy of so many columns."""
        column, phase = divmod(kw * self.dilation[1], self.stride[1])
        above, left = self.pad if self.trims else (self.spare[0][0], self.spare[1][0])
        return ((kh * self.dilation[0] - above) * self.phases + phase) * columns + column - left
