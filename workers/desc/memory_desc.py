"""Memory descriptors: the dimensions, data type and layout of a tensor, as hashable data.

A layout is a *format tag* in oneDNN's notation: letters name the dimensions (``a`` is the first), their order is the
order in memory, outermost first. A capital letter says that the dimension is also blocked, and each ``<n><letter>``
at the end is an inner block: ``aBcd16b`` (nChw16c) keeps 16 channels side by side. A blocked dimension is padded up to
a multiple of its blocks; the padding holds zeros. ``any`` leaves the choice to the implementation. A layout can be
given by *strides* instead; larger ones than needed leave gaps between elements, dense ones become a tag. A stride of 0
repeats one element along a dimension; such memory is only read.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Final, final

from poolrt.cachestore.deferred_dataclass import dataclass, field
from poolrt.cachestore.deferred_namedtuple import NamedTuple

from .data_type import data_type, item_size
from .typed import shorten, to_integers

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
#: Numbers in entries are int64.
MOST_BYTES: Final = (1 << 63) - 1
#: The tag of a layout that only strides describe.
STRIDED: Final = "strided"


class Layout(NamedTuple):
    """A parsed format tag: ``order`` of the dimensions, outermost first, and inner ``blocks`` as (dimension, size)."""

    order: tuple[int, ...]
    blocks: tuple[tuple[int, int], ...]

    def block_of(self, dim: int) -> int:
        """Return the product of the inner blocks of a dimension, 1 if it is not blocked."""
        found = 1
        for of, size in self.blocks:
            if of == dim:
                found *= size
        return found

    def pad(self, dims: tuple[int, ...]) -> tuple[int, ...]:
        """Return dimensions rounded up to their blocks."""
        if not self.blocks:
            return dims
        return tuple(
            [-(-size // block) * block for size, block in zip(dims, map(self.block_of, range(len(dims))), strict=True)]
        )


def plain_tag(ndims: int) -> str:
    """Return the row-major tag of a rank: ``abcd`` for 4."""
    return "abcdefghijkl"[:ndims]


@lru_cache(maxsize=1024)
def parse_tag(tag: str, ndims: int) -> Layout:
    """Parse a format tag (or alias) for a rank. Raises ValueError naming what is wrong."""
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
    if math.prod(size for _, size in blocks) > MOST_BYTES:
        raise ValueError(f"format tag {tag!r:.80}: its blocks have more than {MOST_BYTES} elements")
    return Layout(order, blocks)


def _dense_tag(dims: tuple[int, ...], strides: tuple[int, ...]) -> str:
    """Return the tag of dense strides: row-major if possible; an extent of 1 stays before its next dimension."""
    if 0 in dims:
        return plain_tag(len(dims))
    order = sorted((d for d in range(len(dims)) if dims[d] > 1), key=lambda d: -strides[d])
    for dim in reversed([d for d in range(len(dims)) if dims[d] == 1]):
        later = [order.index(d) for d in range(dim + 1, len(dims)) if d in order]
        order.insert(min(later) if later else len(order), dim)
    return "".join("abcdefghijkl"[d] for d in order)


@final
@dataclass(frozen=True, slots=True, init=False)
class MemoryDesc:
    """Dimensions, data type and layout of one tensor.

    ``dims`` are logical (unpadded), ``dtype`` a short name (``f32``), ``tag`` a format tag; an empty tag means row-major.
    Strides, in elements, are given in the tag's place or as ``strides``, which remains empty for every layout that a
    tag can name. Aliases, NumPy names and dense strides are normalised, so that equal layouts make equal descriptors.
    Raises ValueError naming what is wrong.
    """

    dims: tuple[int, ...]
    dtype: str
    tag: str = ""
    strides: tuple[int, ...] = ()
    _hash: int = field(init=False, repr=False, compare=False)
    #: Kept: a plan asks for them some hundred times for each of its steps. None and 0 for a layout that is not chosen yet.
    _padded_dims: tuple[int, ...] | None = field(init=False, repr=False, compare=False)
    _nbytes: int = field(init=False, repr=False, compare=False)

    def __new__(
        cls, dims: Sequence[int], dtype: object, tag: str | Sequence[int] = "", strides: Sequence[int] = ()
    ) -> MemoryDesc:
        """Return the descriptor, the same object for the same arguments while these are in use."""
        try:
            sizes = tuple(dims)
            # A loop in place: equal numbers of other types, True among them, would be found in the cache of `_described`.
            for size in sizes:
                if type(size) is not int:
                    sizes = _integers("dims", sizes)
                    break
            if not isinstance(tag, str):
                return _described(sizes, dtype, "", _integers("strides", tag))
            return _described(
                sizes, dtype, tag, _integers("strides", strides) if type(strides) is not tuple or strides else ()
            )
        except TypeError as error:
            expected = "dims: expect integers, a data type, and a format tag or integers as strides"
            given = ", ".join(map(shorten, (dims, dtype, tag, strides)))
            raise ValueError(f"{expected}, got {given} (MemoryDesc)") from error

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        return MemoryDesc, (self.dims, self.dtype, self.tag, self.strides)

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
    def repeats(self) -> bool:
        """Whether several elements share one place, so that the memory can only be read."""
        return 0 in self.strides

    @property
    def layout(self) -> Layout:
        """The parsed tag, or the order that strides give. Raises ValueError for ``any``."""
        if self.is_any:
            raise ValueError("the layout of this memory descriptor is not chosen yet (tag any)")
        if self.strides:
            return Layout(tuple(sorted(range(self.ndims), key=lambda d: (-self.strides[d], d))), ())
        return parse_tag(self.tag, self.ndims)

    @property
    def padded_dims(self) -> tuple[int, ...]:
        """Dimensions rounded up to their blocks. Raises ValueError for ``any``."""
        return self.layout.pad(self.dims) if self._padded_dims is None else self._padded_dims

    @property
    def elements(self) -> int:
        """Logical number of elements."""
        return math.prod(self.dims)

    @property
    def nbytes(self) -> int:
        """Bytes in memory, from the first element to the last, padding and gaps included. Raises ValueError for ``any``."""
        return self._nbytes if self._padded_dims is not None else math.prod(self.padded_dims)

    def outer_strides(self) -> tuple[int, ...]:
        """Return for each dimension the stride, in elements, of its outermost index (one step = one whole block)."""
        if self.strides:
            return self.strides
        layout, padded = self.layout, self.padded_dims
        strides = [0] * self.ndims
        step = math.prod(size for _, size in layout.blocks)
        for dim in reversed(layout.order):
            strides[dim] = step
            step *= padded[dim] // layout.block_of(dim)
        return tuple(strides)

    def with_tag(self, tag: str) -> MemoryDesc:
        """Return the same tensor in the layout of a tag."""
        return MemoryDesc(self.dims, self.dtype, tag)

    def fields(self) -> dict[str, object]:
        """Return the named fields for a key."""
        return {"dims": self.dims, "dtype": self.dtype, "tag": self.tag, "strides": self.strides}

    def __str__(self) -> str:
        layout = f"s{'x'.join(map(str, self.strides))}" if self.strides else self.tag
        return f"{self.dtype}:{layout}:{'x'.join(map(str, self.dims))}"


@lru_cache(maxsize=4096)
def _described(dims: tuple[int, ...], dtype: object, tag: str, strides: tuple[int, ...]) -> MemoryDesc:
    """Return the normalised descriptor. Kept, because making one takes longer than the rest of a cache hit."""
    if len(dims) > MAX_DIMS:
        raise ValueError(f"a memory descriptor has at most {MAX_DIMS} dimensions, got {len(dims)}")
    if any(d < 0 for d in dims):
        raise ValueError(f"dimensions must not be negative, got {shorten(dims)}")
    if strides:
        tag, strides = _normalised(dims, tag, strides)
    else:
        tag = ALIASES.get(tag, str.__str__(tag)) or plain_tag(len(dims))
        if tag != "any":
            parse_tag(tag, len(dims))
    values = {"dims": dims, "dtype": data_type(dtype), "tag": tag, "strides": strides}
    desc = object.__new__(MemoryDesc)
    for name, value in {**values, "_hash": hash(tuple(values.values()))}.items():
        object.__setattr__(desc, name, value)
    padded = None if desc.is_any else desc.layout.pad(dims)
    if strides:
        elements = sum((d - 1) * s for d, s in zip(dims, strides, strict=True)) + 1
    else:
        elements = math.prod(dims if padded is None else padded)
    nbytes = elements * item_size(desc.dtype)
    object.__setattr__(desc, "_padded_dims", padded)
    object.__setattr__(desc, "_nbytes", 0 if padded is None else nbytes)
    if max(strides, default=0) > MOST_BYTES:
        raise ValueError(f"strides: {shorten(strides)} exceed {MOST_BYTES}")
    if max((nbytes, *dims)) > MOST_BYTES:
        raise ValueError(f"dims: {shorten(dims)} of {desc.dtype} take more than {MOST_BYTES} bytes")
    return desc


def _integers(name: str, given: Iterable[int]) -> tuple[int, ...]:
    """Return sizes or strides as Python's integers. Raises TypeError for no sequence, ValueError for what is no integer."""
    values = tuple(given)
    try:
        return to_integers(name, values, "MemoryDesc")
    except ValueError:
        raise ValueError(f"{name}: expect integers, got {shorten(values)} (MemoryDesc)") from None


def _normalised(dims: tuple[int, ...], tag: str, strides: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
    """Return the tag and strides of a layout that is given by strides."""
    if tag not in ("", STRIDED):
        raise ValueError(f"a layout is given by a format tag or by strides, not both: {tag!r}, {strides}")
    if len(strides) != len(dims) or any(s < 0 for s in strides):
        raise ValueError(f"strides: expect {len(dims)} values that are not negative, got {strides}")
    dense, step, reach = True, 1, 0
    for stride, size in sorted((s, d) for s, d in zip(strides, dims, strict=True) if d > 1):
        if 0 < stride <= reach:
            raise ValueError(f"strides: {strides} let elements of {dims} overlap")
        dense = dense and stride == step
        step = stride * size
        reach += stride * (size - 1)
    if 0 in dims or dense:
        # An extent of 1 may have any stride, so it does not make a layout sparse.
        return _dense_tag(dims, strides), ()
    return STRIDED, tuple(s if d > 1 else 1 for s, d in zip(strides, dims, strict=True))
