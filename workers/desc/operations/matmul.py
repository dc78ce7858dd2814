"""Matmul: products of matrices, with batch dimensions."""

from __future__ import annotations

from typing import ClassVar

from poolrt.cachestore.deferred_dataclass import dataclass

from ..args import Arg
from ..memory_desc import MemoryDesc
from ..op_desc import OpDesc, require


@dataclass(frozen=True, slots=True)
class Matmul(OpDesc):
    """Multiply src (..., M, K) by weights (..., K, N), batch dimensions broadcast; an optional bias broadcasts to dst."""

    kind: ClassVar[str] = "matmul"
    src: MemoryDesc
    weights: MemoryDesc
    bias: MemoryDesc | None
    dst: MemoryDesc

    def __post_init__(self) -> None:
        rank = self.src.ndims
        require(rank >= 2 and self.weights.ndims == rank, "weights", f"expect rank {rank} >= 2")
        require(self.src.dims[-1] == self.weights.dims[-2], "weights", f"expect K = {self.src.dims[-1]}")
        pairs = list(zip(self.src.dims[:-2], self.weights.dims[:-2], strict=True))
        require(all(a == b or 1 in (a, b) for a, b in pairs), "weights", "batch dimensions do not broadcast")
        batch = tuple(a if b == 1 else b for a, b in pairs)
        expected = (*batch, self.src.dims[-2], self.weights.dims[-1])
        require(self.dst.dims == expected, "dst", f"expect {expected}, got {self.dst.dims}")
        if self.bias is not None:
            fits = self.bias.ndims == rank and all(b in (1, d) for b, d in zip(self.bias.dims, expected, strict=True))
            require(fits, "bias", f"expect each of {expected} or 1, got {self.bias.dims}")

    @property
    def bias_is_row(self) -> bool:
        """Whether the bias, if any, has one value a column of dst."""
        return self.bias is None or self.bias.dims == (*(1,) * (self.dst.ndims - 1), self.dst.dims[-1])

    def memories(self) -> dict[int, MemoryDesc]:
        found: dict[int, MemoryDesc] = {Arg.SRC: self.src, Arg.WEIGHTS: self.weights, Arg.DST: self.dst}
        return {**found, Arg.BIAS: self.bias} if self.bias else found
