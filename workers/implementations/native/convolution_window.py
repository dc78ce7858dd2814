"""The spatial side of a convolution in one or two dimensions, and the padded copy that its source may need. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from poolrt.cachestore.deferred_dataclass import dataclass

from ...desc import Convolution


@dataclass(frozen=True, slots=True)
class Window:
    """The spatial side of a convolution in two dimensions (a single one is the second, of height 1)."""

    height: int
    width: int
    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    pad: tuple[int, int]
    out: tuple[int, int]

    @classmethod
    def of(cls, op: Convolution) -> Window:
        """Return the window of a convolution with 1 or 2 spatial dimensions."""

        def two(values: Iterable[int], fill: int) -> tuple[int, int]:
            *rest, last = values
            return (rest[0] if rest else fill, last)

        height, width = two(op.src.dims[2:], 1)
        dilation = two((d + 1 for d in op.dilations), 1)
        return cls(
            height, width, two(op.weights.dims[2:], 1), two(op.strides, 1), dilation, two(op.padding_l, 0),
            two(op.dst.dims[2:], 1),
        )  # fmt: skip

    @property
    def reach(self) -> tuple[int, int]:
        """Rows and columns from the first to the last tap of the kernel."""
        return (self.kernel[0] - 1) * self.dilation[0], (self.kernel[1] - 1) * self.dilation[1]

    @property
    def is_pointwise(self) -> bool:
        """Whether every output position reads one source position."""
        return self.kernel == (1, 1)

    @property
    def is_inside(self) -> bool:
        """Whether no position reads padding."""
        last = [(o - 1) * s + r for o, s, r in zip(self.out, self.stride, self.reach, strict=True)]
        return self.pad == (0, 0) and last[0] < self.height and last[1] < self.width

    @property
    def is_direct(self) -> bool:
        """Whether the source can be read in place: no padding, neighbours adjacent, and whole rows where flattened."""
        whole = self.out == (self.height, self.width) if self.is_pointwise else True
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
    def rows(self) -> int:
        """Rows of the padded copy."""
        return (self.out[0] - 1) * self.step + self.reach[0] + 1

    @property
    def phases(self) -> int:
        """Phases of columns in the padded copy, those that no tap reads left out."""
        return max(kw * self.dilation[1] % self.stride[1] for kw in range(self.kernel[1])) + 1

    @property
    def columns(self) -> int:
        """Columns of a phase of the padded copy."""
        return self.out[1] + self.reach[1] // self.stride[1]

    def copy(self) -> tuple[int, int, int]:
        """Return rows, phases and columns of the tensor that the kernel reads: the padded copy, or the source itself."""
        return (self.height, 1, self.width) if self.is_direct else (self.rows, self.phases, self.columns)

    def copy_sizes(self) -> tuple[int, ...]:
        """Return the arguments of the kernel that makes the padded copy."""
        return (self.height, self.width, *self.copy(), self.row_step, self.stride[1], *self.pad)

    def offset(self, kh: int, kw: int, columns: int) -> int:
        """Return the distance of a tap from the first one, in positions."""
        column, phase = divmod(kw * self.dilation[1], self.stride[1])
        return (kh * self.dilation[0] * self.phases + phase) * columns + column
