"""What is known of a result before it is inferred, and the rules that most operations share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

from poolrt.workers.desc import MemoryDesc, OpDesc

#: Attributes of a node, as on the wire; lists are tuples.
Attrs: TypeAlias = "Mapping[str, Any]"
#: The class of an operation's descriptors. It is passed in, so that only those that a graph has are imported.
Operation: TypeAlias = "Callable[..., OpDesc]"
_INTEGERS = ("s64", "s32", "s8", "u8", "bool")


class Result(NamedTuple):
    """The first result: its dimensions where operands and attributes leave a choice, its data type where it was asked for."""

    dims: tuple[int, ...] | None = None
    dtype: str = ""

    def like(self, src: MemoryDesc, dims: tuple[int, ...] | None = None) -> MemoryDesc:
        """Return the result of an operation that keeps the shape (or gives it) and data type of ``src``."""
        return MemoryDesc(src.dims if dims is None else dims, self.dtype or src.dtype)

    def product(self, src: MemoryDesc, dims: tuple[int, ...]) -> MemoryDesc:
        """Return the result of an operation that adds up products: those of integers are s32 unless told otherwise."""
        return MemoryDesc(dims, self.dtype or ("s32" if src.dtype in _INTEGERS else src.dtype))

    def chosen(self) -> tuple[int, ...]:
        """Return the dimensions, which only whoever asks can know. Raises ValueError where they were not given."""
        if self.dims is None:
            raise ValueError("dst: its shape must be given")
        return self.dims
