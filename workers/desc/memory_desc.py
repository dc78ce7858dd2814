"""Memory descriptors: the dimensions, data type and layout of a tensor, as hashable data.

A layout is a *format tag* in oneDNN's notation: letters name the dimensions (``a`` is the first), their order is the
order in memory, outermost first. A capital letter says that the dimension is also blocked, and each ``<n><letter>``
at the end is an inner block: ``aBcd16b`` (nChw16c) keeps 16 channels side by side. A blocked dimension is padded up to
a multiple of its blocks; the padding holds zeros. ``any`` leaves the choice to the implementation.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from .data_type import data_type, item_size

#: The field's names for common layouts.
ALIASES: Final[dict[str, str]] = {
    "x": "a",
    "nc": "ab",
    "cn": "ba",
    "ncw": "abc",
    "nwc": "acb",
    "nchw": "abcd",
    "nhwc": "acdb",
    "oi": "ab",
    "io": "ba",
    "oihw": "abcd",
    "hwio": "cdba",
    "nCw16c": "aBc16b",
    "nChw16c": "aBcd16b",
    "nChw8c": "aBcd8b",
}
_TAG: Final = re.compile(r"([A-La-l]+)((?:[0-9]+[a-l])*)")
_BLOCK: Final = re.compile(r"([0-9]+)([a-l])")
MAX_DIMS: Final = 12


class Layout(NamedTuple):
    """A parsed format tag: ``order`` of the dimensions, outermost first, and inner ``blocks`` as (dimension, size)."""

    order: tuple[int, ...]
    blocks: tuple[tuple[int, int], ...]

    def block_of(self, dim: int) -> int:
        """Return the product of the inner blocks of a dimension, 1 where it is not blocked."""
        return math.prod(size for d, size in self.blocks if d == dim)


def plain_tag(ndims: int) -> str:
    """Return the row-major tag of a rank: ``abcd`` for 4."""
    return "abcdefghijkl"[:ndims]


@lru_cache(maxsize=1024)
def parse_tag(tag: str, ndims: int) -> Layout:
    """Parse a format tag (or alias) for a rank. Raises ValueError saying what is wrong with it."""
    text = ALIASES.get(tag, tag)
    match = _TAG.fullmatch(text) if ndims else None
    if ndims == 0 and text == "":
        return Layout((), ())
    if match is None:
        raise ValueError(f"format tag {tag!r} is not of the form abcd or aBcd16b")
    letters, tail = match.groups()
    order = tuple(ord(letter.lower()) - ord("a") for letter in letters)
    if sorted(order) != list(range(ndims)):
        raise ValueError(f"format tag {tag!r} does not name each of {ndims} dimensions once")
    blocks = tuple((ord(letter) - ord("a"), int(size)) for size, letter in _BLOCK.findall(tail))
    capital = {ord(letter.lower()) - ord("a") for letter in letters if letter.isupper()}
    if capital != {dim for dim, _ in blocks} or any(size < 2 for _, size in blocks):
        raise ValueError(f"format tag {tag!r}: capital letters and inner blocks do not agree")
    return Layout(order, blocks)


@dataclass(frozen=True, slots=True)
class MemoryDesc:
    """Dimensions, data type and layout of one tensor.

    ``dims`` are logical (unpadded), ``dtype`` a short name (``f32``), ``tag`` a format tag; an empty tag means row-major.
    Two descriptors are equal exactly when they describe the same bytes: aliases and NumPy names are normalised.
    """

    dims: tuple[int, ...]
    dtype: str
    tag: str = ""

    def __post_init__(self) -> None:
        dims = tuple(int(d) for d in self.dims)
        if len(dims) > MAX_DIMS:
            raise ValueError(f"a memory descriptor has at most {MAX_DIMS} dimensions, got {len(dims)}")
        if any(d < 0 for d in dims):
            raise ValueError(f"dimensions must not be negative, got {dims}")
        object.__setattr__(self, "dims", dims)
        object.__setattr__(self, "dtype", data_type(self.dtype))
        tag = ALIASES.get(self.tag, self.tag) or plain_tag(len(dims))
        if tag != "any":
            parse_tag(tag, len(dims))
        object.__setattr__(self, "tag", tag)

    @property
    def ndims(self) -> int:
        """The rank."""
        return len(self.dims)

    @property
    def is_any(self) -> bool:
        """Whether the layout is left to the implementation."""
        return self.tag == "any"

    @property
    def is_plain(self) -> bool:
        """Whether the layout is row-major without blocks or padding."""
        return self.tag == plain_tag(self.ndims)

    @property
    def layout(self) -> Layout:
        """The parsed tag. Raises ValueError for ``any``."""
        if self.is_any:
            raise ValueError("the layout of this memory descriptor is not chosen yet (tag any)")
        return parse_tag(self.tag, self.ndims)

    @property
    def padded_dims(self) -> tuple[int, ...]:
        """Dimensions rounded up to their blocks."""
        layout = self.layout
        return tuple(-(-d // layout.block_of(i)) * layout.block_of(i) for i, d in enumerate(self.dims))

    @property
    def elements(self) -> int:
        """Logical number of elements."""
        return math.prod(self.dims)

    @property
    def nbytes(self) -> int:
        """Bytes in memory, padding included."""
        return math.prod(self.padded_dims) * item_size(self.dtype)

    def outer_strides(self) -> tuple[int, ...]:
        """Return for each dimension the stride, in elements, of its outermost index (one step = one whole block)."""
        layout, padded = self.layout, self.padded_dims
        strides = [0] * self.ndims
        step = math.prod(size for _, size in layout.blocks)
        for dim in reversed(layout.order):
            strides[dim] = step
            step *= padded[dim] // layout.block_of(dim)
        return tuple(strides)

    def with_tag(self, tag: str) -> MemoryDesc:
        """Return the same tensor in another layout."""
        return MemoryDesc(self.dims, self.dtype, tag)

    def fields(self) -> dict[str, object]:
        """Return the named fields for a key."""
        return {"dims": self.dims, "dtype": self.dtype, "tag": self.tag}

    def to_wire(self) -> list[object]:
        """Return plain data for a message."""
        return [list(self.dims), self.dtype, self.tag]

    @classmethod
    def from_wire(cls, wire: list[object]) -> MemoryDesc:
        """Rebuild from `to_wire`'s data. Raises ValueError where it is malformed."""
        dims, dtype, tag = wire
        if not isinstance(dims, (list, tuple)):
            raise ValueError("a memory descriptor's dims must be a list")
        return cls(tuple(dims), str(dtype), str(tag))

    def __str__(self) -> str:
        return f"{self.dtype}:{self.tag}:{'x'.join(map(str, self.dims))}"
