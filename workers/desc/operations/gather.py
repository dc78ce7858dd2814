"""Gather: parts or elements of a tensor, chosen by indices."""

from __future__ import annotations

from typing import ClassVar, Final

from poolrt.cachestore.deferred_dataclass import dataclass

from ..args import Arg
from ..memory_desc import MemoryDesc
from ..op_desc import OpDesc, one_of, require

GATHER_ALGORITHMS: Final = ("rows", "elements", "nd")
INDEX_TYPES: Final = ("s32", "s64")


@dataclass(frozen=True, slots=True)
class Gather(OpDesc):
    """Copy what indices of s32 or s64 choose. Negative ones count from the end; one that is out of range gives zeros.

    ``rows``: the dimensions of the indices replace dimension ``axis`` of src; dst has the part of src at each index.
    ``elements``: dst has the shape of the indices, which is that of src but along ``axis`` smaller or larger, and elsewhere
    at most as large; an index replaces the element's own along ``axis``.
    ``nd``: the last dimension of the indices has one index for each dimension of src from ``batch_dims`` on, as many as there
    are; dst has the other dimensions of the indices, then those of src that have no index. The first ``batch_dims``
    dimensions of src and indices are the same, and run along.
    """

    kind: ClassVar[str] = "gather"
    src: MemoryDesc
    indices: MemoryDesc
    dst: MemoryDesc
    algorithm: str = "rows"
    axis: int = 0
    batch_dims: int = 0

    def __post_init__(self) -> None:
        expected = gathered_dims(self.src, self.indices, self.algorithm, self.axis, self.batch_dims)
        require(self.dst.dims == expected, "dst", f"expect {expected}, got {self.dst.dims}")

    def memories(self) -> dict[int, MemoryDesc]:
        return {Arg.SRC: self.src, Arg.SRC_1: self.indices, Arg.DST: self.dst}


def gathered_dims(src: MemoryDesc, indices: MemoryDesc, algorithm: str, axis: int, batch_dims: int) -> tuple[int, ...]:
    """Return the shape of a gather's result. Raises ValueError naming the wrong argument."""
    one_of("algorithm", algorithm, GATHER_ALGORITHMS)
    require_indices(indices)
    if algorithm == "nd":
        require(axis == 0, "axis", f"nd has none, got {axis}")
        return _nd_dims(src, indices, batch_dims)
    require(batch_dims == 0, "batch_dims", f"only nd has them, got {batch_dims}")
    require(0 <= axis < src.ndims, "axis", f"expect 0..{src.ndims - 1}, got {axis}")
    if algorithm == "rows":
        return (*src.dims[:axis], *indices.dims, *src.dims[axis + 1 :])
    require_within(src, indices, axis)
    return indices.dims


def require_indices(indices: MemoryDesc) -> None:
    """Raise ValueError unless a tensor has a data type of indices."""
    require(indices.dtype in INDEX_TYPES, "indices", f"expect {' or '.join(INDEX_TYPES)}, got {indices.dtype}")


def require_within(src: MemoryDesc, indices: MemoryDesc, axis: int) -> None:
    """Raise ValueError unless indices are at most as large as a tensor along each dimension but ``axis``."""
    pairs = zip(indices.dims, src.dims, strict=False)
    fits = indices.ndims == src.ndims and all(i <= s for d, (i, s) in enumerate(pairs) if d != axis)
    require(fits, "indices", f"{indices.dims} exceeds {src.dims} along another dimension than axis {axis}")


def _nd_dims(src: MemoryDesc, indices: MemoryDesc, batch_dims: int) -> tuple[int, ...]:
    require(indices.ndims >= 1, "indices", "expect at least one dimension, got none")
    count = indices.dims[-1]
    least = min(indices.ndims - 1, src.ndims)
    require(0 <= batch_dims <= least, "batch_dims", f"expect 0..{least}, got {batch_dims}")
    same = indices.dims[:batch_dims] == src.dims[:batch_dims]
    require(same, "indices", f"expect the first {batch_dims} dimensions of {src.dims}, got {indices.dims}")
    left = src.ndims - batch_dims
    require(count <= left, "indices", f"expect at most {left} indices for {src.dims}, got {count}")
    return (*indices.dims[:-1], *src.dims[batch_dims + count :])
