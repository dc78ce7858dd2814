"""Layouts left open: that of the other side of the operation if it has one, else row-major."""

from __future__ import annotations

import dataclasses
from typing import Final, TypeVar

from ...desc import MemoryDesc, OpDesc
from ..native.blocks import follow

Op = TypeVar("Op", bound=OpDesc)
#: Field -> the one that it follows.
_OTHER_SIDE: Final = {"src": "dst", "dst": "src", "diff_src": "diff_dst", "diff_dst": "dst"}


def completed(op: Op) -> Op:
    """Return an operation with every layout ``any`` chosen."""
    for part in dataclasses.fields(op):
        md = getattr(op, part.name)
        if isinstance(md, MemoryDesc) and md.is_any:
            like = getattr(op, _OTHER_SIDE.get(part.name, part.name))
            op = dataclasses.replace(op, **{part.name: follow(md, like)})
    return op
