"""The data types of results: asked for, or by the rules that most operations share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from poolrt.workers.desc import MemoryDesc, OpDesc

#: Attributes of a node, as on the wire; lists are tuples. Those that no descriptor has say which shape the result takes.
Attrs: TypeAlias = "Mapping[str, Any]"
#: The class of an operation's descriptors. It is passed in, so that only those that a graph has are imported.
Operation: TypeAlias = "Callable[..., OpDesc]"
_INTEGERS: Final = ("s64", "s32", "s8", "u8", "bool")


def describe_result(src: MemoryDesc, dtype: str, dims: tuple[int, ...] | None = None) -> MemoryDesc:
    """Return the result of an operation that keeps the shape (or has ``dims``) and, unless asked for, the type of ``src``."""
    return MemoryDesc(src.dims if dims is None else dims, dtype or src.dtype)


def describe_product(src: MemoryDesc, dtype: str, dims: tuple[int, ...]) -> MemoryDesc:
    """Return the result of an operation that adds up products: those of integers are s32 unless told otherwise."""
    return MemoryDesc(dims, dtype or ("s32" if src.dtype in _INTEGERS else src.dtype))
