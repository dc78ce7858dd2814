"""The descriptors of results: the data type is the requested one, or follows the rules that most operations share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from poolrt.workers.desc import MemoryDesc, OpDesc

#: Attributes of a node. Those that no descriptor has determine the shape of the result.
Attrs: TypeAlias = "Mapping[str, Any]"
#: The class of an operation's descriptors. It is passed in, so that only those that a graph has are imported.
Operation: TypeAlias = "Callable[..., OpDesc]"
#: Types whose products are s32.
_INTEGERS: Final = ("s64", "s32", "s16", "s8", "u16", "u8", "bool")


def describe_result(src: MemoryDesc, dtype: str, dims: tuple[int, ...] | None = None) -> MemoryDesc:
    """Describe a result of the shape (or ``dims``) of ``src`` and of a data type, by default that of ``src``."""
    return MemoryDesc(src.dims if dims is None else dims, dtype or src.dtype)


def describe_product(src: MemoryDesc, dtype: str, dims: tuple[int, ...]) -> MemoryDesc:
    """Describe a result that is a sum of products; by default those of integers are s32."""
    return MemoryDesc(dims, dtype or ("s32" if src.dtype in _INTEGERS else src.dtype))
