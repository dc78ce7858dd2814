"""Hints: the layouts that a backward operation takes from its forward primitive."""

from __future__ import annotations

from typing import Any

from poolrt.cachestore.deferred_dataclass import fields, replace

from ..desc import MemoryDesc, OpDesc
from ..implementations.primitive_desc import PrimitiveDesc


def take_hint(op: OpDesc, forward: PrimitiveDesc) -> OpDesc:
    """Return a backward operation with each layout left ``any`` as the forward primitive has it.

    A gradient has its tensor's layout. Raises ValueError if the primitive is not the operation's forward primitive.
    """
    if op.is_forward:
        raise ValueError(f"hint: a forward {op.kind} takes none")
    if forward.op.kind != op.kind or not forward.op.is_forward:
        prop = getattr(forward.op, "prop", "forward")
        raise ValueError(f"hint: expect a forward {op.kind}, got {prop} {forward.op.kind}")
    chosen: dict[str, Any] = {}
    for part in fields(op):
        desc, name = getattr(op, part.name), part.name.removeprefix("diff_")
        if isinstance(desc, MemoryDesc) and desc.is_any:
            known = getattr(forward.op, name, None)
            if not isinstance(known, MemoryDesc) or known.dims != desc.dims:
                raise ValueError(f"hint: its {name} is {known}, which cannot give {part.name} of {desc} a layout")
            chosen[part.name] = MemoryDesc(desc.dims, desc.dtype, known.tag if not known.strides else "", known.strides)
    return replace(op, **chosen) if chosen else op
