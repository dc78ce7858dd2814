"""Layouts left open: that of the other side of the operation if it has one, else row-major."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from poolrt.cachestore.deferred_dataclass import fields, replace

from ..desc import MemoryDesc, OpDesc

if TYPE_CHECKING:
    from ..desc import Concat, Sum

Op = TypeVar("Op", bound=OpDesc)
Joining = TypeVar("Joining", "Concat", "Sum")
#: Field -> the one that it follows.
_OTHER_SIDE: Final = {"src": "dst", "dst": "src", "diff_src": "diff_dst", "diff_dst": "dst"}


def complete_layouts(op: Op, order: Sequence[str] = ()) -> Op:
    """Return an operation with every layout ``any`` chosen, field by field in ``order``, that of the fields unless given."""
    for name in order or [part.name for part in fields(op)]:
        md = getattr(op, name)
        if isinstance(md, MemoryDesc) and md.is_any:
            op = replace(op, **{name: follow(md, getattr(op, _OTHER_SIDE.get(name, name), md))})
    return op


def complete_sources(op: Joining) -> Joining:
    """Return an operation on several sources with every layout ``any`` chosen: that of the first source with a layout."""
    known = next((s for s in op.srcs if not s.is_any), op.dst)
    srcs = tuple(follow(s, known) for s in op.srcs)
    return replace(op, srcs=srcs, dst=follow(op.dst, srcs[0]))


def follow(md: MemoryDesc, like: MemoryDesc) -> MemoryDesc:
    """Return ``md``, in the layout of ``like`` if its own is left open (row-major if both are)."""
    if not md.is_any:
        return md
    if md.ndims != like.ndims or like.is_any:
        return md.with_tag("")
    # Gaps between elements are not asked of another tensor, their order is.
    return md.with_tag("".join("abcdefghijkl"[dim] for dim in like.layout.order) if like.strides else like.tag)
