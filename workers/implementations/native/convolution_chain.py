"""Post-op chains of convolutions and products: relu before and after one addition of a tensor in dst's layout."""

from __future__ import annotations

import math

from ...desc import MemoryDesc, PrimitiveAttr
from .chain import refuse_chain


def refuse_bounded(attr: PrimitiveAttr, dst: MemoryDesc) -> str | None:
    """Return why a chain is more than relu and one addition, or None. The layout of ``dst`` must be chosen."""
    for step in attr.post_ops:
        if step.algorithm != ("relu" if step.kind == "eltwise" else "add") or step.alpha != 0.0:
            return f"post-op {step.algorithm}; only relu and add are supported"
    return refuse_chain(attr, dst)


def bounds(attr: PrimitiveAttr) -> tuple[float, float]:
    """Return the lower bounds before and after the addition (the second one where nothing is added), -inf for none."""
    before, after = -math.inf, -math.inf
    for step in attr.post_ops:
        if step.kind == "binary":
            before, after = after, -math.inf
        else:
            after = 0.0
    return before, after
