"""Operation descriptors: what each operation computes, as hashable data that names no engine and no implementation.

Meanings follow oneDNN: dilation 0 is a dense kernel, paddings are given per side, pooling's average includes or
excludes padding, LRN runs across channels. Every descriptor validates itself and raises ValueError naming the argument.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar

from .args import Arg, multiple_src
from .attributes import BINARY_ALGORITHMS, ELTWISE_ALGORITHMS
from .memory_desc import MemoryDesc

POOLING_ALGORITHMS = ("max", "avg_include_padding", "avg_exclude_padding")


@dataclass(frozen=True, slots=True)
class OpDesc:
    """Base of all operation descriptors; `kind` is oneDNN's primitive kind."""

    kind: ClassVar[str]

    def fields(self) -> dict[str, object]:
        """Return the named fields for a key."""
        return {f.name: _field(getattr(self, f.name)) for f in fields(self)}

    def memories(self) -> dict[int, MemoryDesc]:
        """Return the memory descriptor of each execution argument (post-op sources aside)."""
        raise NotImplementedError  # every operation below defines it

    def to_wire(self) -> list[object]:
        """Return plain data for a message: the kind, then the fields in order."""
        return [self.kind, *(_to_wire(getattr(self, f.name)) for f in fields(self))]


@dataclass(frozen=True, slots=True)
class Convolution(OpDesc):
    """Cross-correlate: src (N, IC, *spatial), weights (OC, IC/groups, *kernel), optional bias (OC), dst (N, OC, *spatial)."""

    kind: ClassVar[str] = "convolution"
    src: MemoryDesc
    weights: MemoryDesc
    bias: MemoryDesc | None
    dst: MemoryDesc
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    padding_l: tuple[int, ...]
    padding_r: tuple[int, ...]
    groups: int = 1

    def __post_init__(self) -> None:
        spatial = self.src.ndims - 2
        _require(spatial >= 1 and self.weights.ndims == spatial + 2, "weights", "rank must equal the rank of src, >= 3")
        _spatial_arguments(self, spatial)
        channels, outputs = self.src.dims[1], self.weights.dims[0]
        _require(
            self.groups >= 1 and channels % self.groups == 0, "groups", f"{self.groups} must divide {channels} channels"
        )
        _require(outputs % self.groups == 0, "groups", f"{self.groups} must divide {outputs} output channels")
        _require(
            self.weights.dims[1] * self.groups == channels,
            "weights",
            f"expect {channels // self.groups} input channels",
        )
        _require(self.bias is None or self.bias.dims == (outputs,), "bias", f"expect ({outputs},)")
        expected = (self.src.dims[0], outputs, *windowed(self.src.dims[2:], self.weights.dims[2:], self))
        _require(self.dst.dims == expected, "dst", f"expect {expected}, got {self.dst.dims}")

    def memories(self) -> dict[int, MemoryDesc]:
        found: dict[int, MemoryDesc] = {Arg.SRC: self.src, Arg.WEIGHTS: self.weights, Arg.DST: self.dst}
        return {**found, Arg.BIAS: self.bias} if self.bias else found


@dataclass(frozen=True, slots=True)
class Pooling(OpDesc):
    """Pool windows of src (N, C, *spatial) into dst (N, C, *spatial)."""

    kind: ClassVar[str] = "pooling"
    src: MemoryDesc
    dst: MemoryDesc
    algorithm: str
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    padding_l: tuple[int, ...]
    padding_r: tuple[int, ...]

    def __post_init__(self) -> None:
        _one_of("algorithm", self.algorithm, POOLING_ALGORITHMS)
        _require(self.src.ndims >= 3, "src", "expect (N, C, *spatial)")
        _require(len(self.kernel) == self.src.ndims - 2, "kernel", f"expect {self.src.ndims - 2} sizes")
        _spatial_arguments(self, self.src.ndims - 2)
        expected = (*self.src.dims[:2], *windowed(self.src.dims[2:], self.kernel, self))
        _require(self.dst.dims == expected, "dst", f"expect {expected}, got {self.dst.dims}")

    def memories(self) -> dict[int, MemoryDesc]:
        return {Arg.SRC: self.src, Arg.DST: self.dst}


@dataclass(frozen=True, slots=True)
class Eltwise(OpDesc):
    """Apply a function of one variable to every element; alpha and beta as in oneDNN (relu's alpha is its negative slope)."""

    kind: ClassVar[str] = "eltwise"
    src: MemoryDesc
    dst: MemoryDesc
    algorithm: str
    alpha: float = 0.0
    beta: float = 0.0

    def __post_init__(self) -> None:
        _one_of("algorithm", self.algorithm, ELTWISE_ALGORITHMS)
        _require(self.src.dims == self.dst.dims, "dst", f"expect {self.src.dims}, got {self.dst.dims}")

    def memories(self) -> dict[int, MemoryDesc]:
        return {Arg.SRC: self.src, Arg.DST: self.dst}


@dataclass(frozen=True, slots=True)
class Binary(OpDesc):
    """Combine two tensors of equal rank element by element; a dimension of 1 is broadcast."""

    kind: ClassVar[str] = "binary"
    src0: MemoryDesc
    src1: MemoryDesc
    dst: MemoryDesc
    algorithm: str

    def __post_init__(self) -> None:
        _one_of("algorithm", self.algorithm, BINARY_ALGORITHMS)
        _require(self.src0.ndims == self.src1.ndims, "src1", f"expect rank {self.src0.ndims}, got {self.src1.ndims}")
        pairs = list(zip(self.src0.dims, self.src1.dims, strict=True))
        _require(
            all(a == b or 1 in (a, b) for a, b in pairs),
            "src1",
            f"{self.src1.dims} does not broadcast with {self.src0.dims}",
        )
        expected = tuple(a if b == 1 else b for a, b in pairs)
        _require(self.dst.dims == expected, "dst", f"expect {expected}, got {self.dst.dims}")

    def memories(self) -> dict[int, MemoryDesc]:
        return {Arg.SRC: self.src0, Arg.SRC_1: self.src1, Arg.DST: self.dst}


@dataclass(frozen=True, slots=True)
class Sum(OpDesc):
    """Add tensors of one shape."""

    kind: ClassVar[str] = "sum"
    srcs: tuple[MemoryDesc, ...]
    dst: MemoryDesc

    def __post_init__(self) -> None:
        _require(len(self.srcs) >= 1, "srcs", "expect at least one source")
        _require(all(s.dims == self.dst.dims for s in self.srcs), "srcs", f"expect {self.dst.dims} for each")

    def memories(self) -> dict[int, MemoryDesc]:
        return {**{multiple_src(i): s for i, s in enumerate(self.srcs)}, Arg.DST: self.dst}


@dataclass(frozen=True, slots=True)
class Concat(OpDesc):
    """Join tensors along an axis."""

    kind: ClassVar[str] = "concat"
    srcs: tuple[MemoryDesc, ...]
    dst: MemoryDesc
    axis: int

    def __post_init__(self) -> None:
        _require(len(self.srcs) >= 1, "srcs", "expect at least one source")
        _require(0 <= self.axis < self.dst.ndims, "axis", f"expect 0..{self.dst.ndims - 1}, got {self.axis}")
        total = 0
        for source in self.srcs:
            same = source.ndims == self.dst.ndims and all(
                a == b for i, (a, b) in enumerate(zip(source.dims, self.dst.dims, strict=True)) if i != self.axis
            )
            _require(same, "srcs", f"{source.dims} does not join to {self.dst.dims} along axis {self.axis}")
            total += source.dims[self.axis]
        _require(total == self.dst.dims[self.axis], "dst", f"expect {total} along axis {self.axis}")

    def memories(self) -> dict[int, MemoryDesc]:
        return {**{multiple_src(i): s for i, s in enumerate(self.srcs)}, Arg.DST: self.dst}


@dataclass(frozen=True, slots=True)
class BatchNormalization(OpDesc):
    """Normalise src (N, C, ...) with given statistics: (x - mean) / sqrt(variance + epsilon) * scale + shift, each (C,)."""

    kind: ClassVar[str] = "batch_normalization"
    src: MemoryDesc
    dst: MemoryDesc
    epsilon: float

    def __post_init__(self) -> None:
        _require(self.src.ndims >= 2, "src", "expect (N, C, ...)")
        _require(self.src.dims == self.dst.dims, "dst", f"expect {self.src.dims}, got {self.dst.dims}")
        _require(self.epsilon >= 0.0, "epsilon", f"must not be negative, got {self.epsilon}")

    def memories(self) -> dict[int, MemoryDesc]:
        channel = MemoryDesc((self.src.dims[1],), "f32")
        statistics: dict[int, MemoryDesc] = dict.fromkeys((Arg.MEAN, Arg.VARIANCE, Arg.SCALE, Arg.SHIFT), channel)
        return {Arg.SRC: self.src, **statistics, Arg.DST: self.dst}


@dataclass(frozen=True, slots=True)
class Lrn(OpDesc):
    """Normalise across channels: x / (k + alpha / size * sum of squares over ``size`` channels) ** beta."""

    kind: ClassVar[str] = "lrn"
    src: MemoryDesc
    dst: MemoryDesc
    local_size: int
    alpha: float
    beta: float
    k: float

    def __post_init__(self) -> None:
        _require(self.src.ndims >= 2, "src", "expect (N, C, ...)")
        _require(self.src.dims == self.dst.dims, "dst", f"expect {self.src.dims}, got {self.dst.dims}")
        _require(self.local_size >= 1, "local_size", f"must be at least 1, got {self.local_size}")

    def memories(self) -> dict[int, MemoryDesc]:
        return {Arg.SRC: self.src, Arg.DST: self.dst}


@dataclass(frozen=True, slots=True)
class Matmul(OpDesc):
    """Multiply src (..., M, K) by weights (..., K, N), batch dimensions broadcast; optional bias (1, ..., N)."""

    kind: ClassVar[str] = "matmul"
    src: MemoryDesc
    weights: MemoryDesc
    bias: MemoryDesc | None
    dst: MemoryDesc

    def __post_init__(self) -> None:
        rank = self.src.ndims
        _require(rank >= 2 and self.weights.ndims == rank, "weights", f"expect rank {rank} >= 2")
        _require(self.src.dims[-1] == self.weights.dims[-2], "weights", f"expect K = {self.src.dims[-1]}")
        pairs = list(zip(self.src.dims[:-2], self.weights.dims[:-2], strict=True))
        _require(all(a == b or 1 in (a, b) for a, b in pairs), "weights", "batch dimensions do not broadcast")
        batch = tuple(a if b == 1 else b for a, b in pairs)
        expected = (*batch, self.src.dims[-2], self.weights.dims[-1])
        _require(self.dst.dims == expected, "dst", f"expect {expected}, got {self.dst.dims}")
        row = (*(1,) * (rank - 1), expected[-1])
        _require(self.bias is None or self.bias.dims == row, "bias", f"expect {row}")

    def memories(self) -> dict[int, MemoryDesc]:
        found: dict[int, MemoryDesc] = {Arg.SRC: self.src, Arg.WEIGHTS: self.weights, Arg.DST: self.dst}
        return {**found, Arg.BIAS: self.bias} if self.bias else found


@dataclass(frozen=True, slots=True)
class InnerProduct(OpDesc):
    """Multiply src (N, IC) by the transpose of weights (OC, IC); optional bias (OC,), dst (N, OC)."""

    kind: ClassVar[str] = "inner_product"
    src: MemoryDesc
    weights: MemoryDesc
    bias: MemoryDesc | None
    dst: MemoryDesc

    def __post_init__(self) -> None:
        _require(self.src.ndims == 2 and self.weights.ndims == 2, "weights", "src and weights must be of rank 2")
        _require(self.weights.dims[1] == self.src.dims[1], "weights", f"expect IC = {self.src.dims[1]}")
        outputs = self.weights.dims[0]
        _require(self.dst.dims == (self.src.dims[0], outputs), "dst", f"expect {(self.src.dims[0], outputs)}")
        _require(self.bias is None or self.bias.dims == (outputs,), "bias", f"expect ({outputs},)")

    def memories(self) -> dict[int, MemoryDesc]:
        found: dict[int, MemoryDesc] = {Arg.SRC: self.src, Arg.WEIGHTS: self.weights, Arg.DST: self.dst}
        return {**found, Arg.BIAS: self.bias} if self.bias else found


@dataclass(frozen=True, slots=True)
class Softmax(OpDesc):
    """Normalise exponentials along an axis; ``log`` gives their logarithm."""

    kind: ClassVar[str] = "softmax"
    src: MemoryDesc
    dst: MemoryDesc
    axis: int
    algorithm: str = "accurate"

    def __post_init__(self) -> None:
        _one_of("algorithm", self.algorithm, ("accurate", "log"))
        _require(0 <= self.axis < self.src.ndims, "axis", f"expect 0..{self.src.ndims - 1}, got {self.axis}")
        _require(self.src.dims == self.dst.dims, "dst", f"expect {self.src.dims}, got {self.dst.dims}")

    def memories(self) -> dict[int, MemoryDesc]:
        return {Arg.SRC: self.src, Arg.DST: self.dst}


@dataclass(frozen=True, slots=True)
class Reorder(OpDesc):
    """Copy a tensor into another layout; a transposition is a reorder whose source tag names the permuted order."""

    kind: ClassVar[str] = "reorder"
    src: MemoryDesc
    dst: MemoryDesc

    def __post_init__(self) -> None:
        _require(self.src.dims == self.dst.dims, "dst", f"expect {self.src.dims}, got {self.dst.dims}")
        _require(not (self.src.is_any or self.dst.is_any), "dst", "a reorder's layouts must both be given")

    def memories(self) -> dict[int, MemoryDesc]:
        return {Arg.SRC: self.src, Arg.DST: self.dst}


OPERATIONS: dict[str, type[OpDesc]] = {
    op.kind: op
    for op in (
        Convolution, Pooling, Eltwise, Binary, Sum, Concat, BatchNormalization, Lrn, Matmul, InnerProduct, Softmax, Reorder,
    )
}  # fmt: skip


def op_from_wire(wire: list[Any]) -> OpDesc:
    """Rebuild an operation descriptor from its wire form. Raises ValueError for an unknown kind or malformed fields."""
    kind, *values = wire
    if kind not in OPERATIONS:
        raise ValueError(f"unknown operation {kind!r}; known: {', '.join(OPERATIONS)}")
    return OPERATIONS[kind](*(_from_wire(value) for value in values))


def windowed(sizes: tuple[int, ...], kernel: tuple[int, ...], op: Convolution | Pooling) -> tuple[int, ...]:
    """Return the output sizes of a window moved over padded sizes."""
    return tuple(
        (size + left + right - ((k - 1) * (dilation + 1) + 1)) // stride + 1
        for size, k, stride, dilation, left, right in zip(
            sizes, kernel, op.strides, op.dilations, op.padding_l, op.padding_r, strict=True
        )
    )


def _spatial_arguments(op: Convolution | Pooling, spatial: int) -> None:
    for name, low in (("strides", 1), ("dilations", 0), ("padding_l", 0), ("padding_r", 0)):
        values = getattr(op, name)
        _require(
            len(values) == spatial and all(v >= low for v in values),
            name,
            f"expect {spatial} values >= {low}, got {values}",
        )


def _one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    _require(value in known, name, f"unknown {value!r}; known: {', '.join(known)}")


def _require(condition: bool, name: str, message: str) -> None:
    if not condition:
        raise ValueError(f"{name}: {message}")


def _field(value: object) -> object:
    if isinstance(value, MemoryDesc):
        return value.fields()
    if isinstance(value, tuple):
        return tuple(_field(v) for v in value)
    return value


def _to_wire(value: object) -> object:
    if isinstance(value, MemoryDesc):
        return {"md": value.to_wire()}
    if isinstance(value, tuple):
        return [_to_wire(v) for v in value]
    return value


def _from_wire(value: object) -> object:
    if isinstance(value, dict):
        return MemoryDesc.from_wire(value["md"])
    if isinstance(value, list):
        return tuple(_from_wire(v) for v in value)
    return value
