"""Operations whose elements are chosen by other tensors."""

from __future__ import annotations

from collections.abc import Sequence

from poolrt.workers.desc import MemoryDesc, OpDesc
from poolrt.workers.desc.operations.gather import gathered_dims

from .result import Attrs, Operation, describe_result


def gather(op: Operation, srcs: Sequence[MemoryDesc], attrs: Attrs, dtype: str) -> OpDesc:
    """Describe what indices choose."""
    src, indices = srcs
    chosen = attrs.get("algorithm", "rows"), attrs.get("axis", 0), attrs.get("batch_dims", 0)
    return op(src, indices, describe_result(src, dtype, gathered_dims(src, indices, *chosen)), **attrs)
