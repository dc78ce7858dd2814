"""Scaled dot product attention."""

from __future__ import annotations

import math
from typing import ClassVar

from poolrt.cachestore.deferred_dataclass import dataclass

from ..args import Arg
from ..memory_desc import MemoryDesc
from ..op_desc import OpDesc, require


@dataclass(frozen=True, slots=True)
class Attention(OpDesc):
    """Return the mean of values for each query, weighted by the softmax of ``scale`` * query . key + mask over the keys.

    query is (B, H, S, D), key (B, G, T, D), value (B, G, T, E) and dst (B, H, S, E). H is a multiple of G: H / G consecutive
    heads share keys and values. ``scale`` is 1 / sqrt(D) unless given. A mask broadcasts to (B, H, S, T): one of bool excludes
    the keys at which it is false, any other is added to the scores. ``causal`` excludes the keys t > s + T - S. dst is 0 for a
    query without keys, that is if all are excluded or have a score of minus infinity. Limitation: a key that is excluded
    and its value must be finite.
    """

    kind: ClassVar[str] = "attention"
    query: MemoryDesc
    key: MemoryDesc
    value: MemoryDesc
    mask: MemoryDesc | None
    dst: MemoryDesc
    scale: float | None = None
    causal: bool = False

    def __post_init__(self) -> None:
        require(self.query.ndims == 4, "query", f"expect (B, H, S, D), got {self.query.dims}")
        batch, heads, rows, depth = self.query.dims
        require(self.key.ndims == 4, "key", f"expect (B, G, T, D), got {self.key.dims}")
        groups, keys = self.key.dims[1:3]
        expected = (batch, groups, keys, depth)
        require(self.key.dims == expected, "key", f"expect {expected}, got {self.key.dims}")
        fits = heads == groups or (groups > 0 and heads % groups == 0)
        require(fits, "key", f"expect a number of heads that divides {heads}, got {groups}")
        fits = self.value.ndims == 4 and self.value.dims[:3] == expected[:3]
        require(fits, "value", f"expect ({batch}, {groups}, {keys}, E), got {self.value.dims}")
        result = (batch, heads, rows, self.value.dims[3])
        require(self.dst.dims == result, "dst", f"expect {result}, got {self.dst.dims}")
        if self.mask is not None:
            scores = (batch, heads, rows, keys)
            fits = self.mask.ndims == 4 and all(m in (1, s) for m, s in zip(self.mask.dims, scores, strict=True))
            require(fits, "mask", f"expect each of {scores} or 1, got {self.mask.dims}")
        if self.scale is None:
            object.__setattr__(self, "scale", 1.0 / math.sqrt(max(depth, 1)))
        require(math.isfinite(self.factor), "scale", f"expect a finite number, got {self.scale}")

    @property
    def factor(self) -> float:
        """The scale, which is known here."""
        return 1.0 if self.scale is None else self.scale

    def memories(self) -> dict[int, MemoryDesc]:
        found: dict[int, MemoryDesc] = {
            Arg.SRC: self.query, Arg.SRC_1: self.key, Arg.SRC_2: self.value, Arg.DST: self.dst,
        }  # fmt: skip
        return {**found, Arg.SHIFT: self.mask} if self.mask else found
