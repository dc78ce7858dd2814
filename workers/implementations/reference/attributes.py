"""Which attributes a reference implementation can honour."""

from __future__ import annotations

from ...desc import MemoryDesc, OpDesc, PrimitiveAttr, item_size


def refuse_attributes(op: OpDesc, attr: PrimitiveAttr, dst: MemoryDesc | None = None) -> str | None:
    """Return why attributes are not supported, or None. ``dst`` is the result of the chain; None: no chain is possible.

    Modes of computing ask for nothing that float64 does not give.
    """
    if not op.is_forward and not (attr.is_plain and not attr.post_ops):
        return "a backward operation takes no scales, zero points or post-ops"
    try:
        attr.memories(op.memories())
    except ValueError as error:
        return str(error)
    if dst is None:
        return "post-ops are not supported" if attr.post_ops else None
    for step in attr.post_ops:
        source = step.src1
        if source is not None:
            if source.is_any:
                return "the layout of a post-op's second source must be given"
            fits = source.ndims == dst.ndims and all(s in (1, d) for s, d in zip(source.dims, dst.dims, strict=True))
            if not fits:
                return f"the post-op's second source {source} does not broadcast to {dst}"
        if step.dtype and item_size(step.dtype) != item_size(dst.dtype):
            return f"a sum post-op cannot read {dst.dtype} as {step.dtype}"
    return None
