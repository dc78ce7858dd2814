"""The attributes that nodes of each kind take, with their types."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final, TypeAlias, get_type_hints

from poolrt.cachestore.deferred_dataclass import MISSING, fields
from poolrt.workers.desc import OPERATIONS
from poolrt.workers.desc.op_desc import op_class

_Integers: TypeAlias = tuple[int, ...]
#: Attributes that no descriptor has, because they only say which shape or layout the result has.
_OF_RESULTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "reshape": {"shape": _Integers, "axes": _Integers},
    "transpose": {"perm": _Integers},
    "slice": {"starts": _Integers, "ends": _Integers, "steps": _Integers},
    "expand": {"shape": _Integers},
    "reduction": {"axes": _Integers},
    "resampling": {"sizes": _Integers, "factors": tuple[float, ...]},
    "roi_align": {"parts": tuple[int, int]},
    "fold": {"image": _Integers},
    "deconvolution": {"output_padding": _Integers},
    "reorder": {"tag": str},
    "call": {"results": tuple[str, ...]},
}
#: Fields of descriptors that nodes do not have: they belong to gradients and to reorders between engines.
_NOT_IN_GRAPHS: Final = frozenset({"use_dst", "src_engine", "dst_engine"})


@cache
def attribute_types(kind: str) -> Mapping[str, tuple[Any, bool]]:
    """Return the type of each attribute, and whether it is optional. Raises ValueError for an unknown kind."""
    found = {name: (of, False) for name, of in _OF_RESULTS.get(kind, {}).items()}
    if kind not in OPERATIONS and kind != "call":
        if not found:
            known = ", ".join(dict.fromkeys((*OPERATIONS, *_OF_RESULTS)))
            raise ValueError(f"unknown operation {kind!r}; known: {known}")
        return found
    op = op_class(kind)
    hints = get_type_hints(op)
    for field in fields(op):
        if "MemoryDesc" not in str(field.type) and field.name not in (*_NOT_IN_GRAPHS, *found):
            found[field.name] = hints[field.name], field.default is not MISSING
    return found
