"""Layouts on OpenCL: row-major f32 everywhere, and shapes with neighbouring dimensions merged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from poolrt.cachestore.deferred_dataclass import fields, replace

from ...desc import MemoryDesc, OpDesc

Op = TypeVar("Op", bound=OpDesc)


def reject_layouts(op: OpDesc) -> str | None:
    """Return why the memories of an operation are not supported, or None: each must be f32, row-major or ``any``."""
    for desc in op.memories().values():
        if desc.dtype != "f32":
            return f"{desc}: only f32"
        if not (desc.is_any or desc.is_plain):
            return f"{desc}: only row-major layouts"
    return None


def row_major(op: Op) -> Op:
    """Return an operation with every layout ``any`` made row-major."""
    changed: dict[str, Any] = {}
    for part in fields(op):
        value = getattr(op, part.name)
        if isinstance(value, MemoryDesc):
            changed[part.name] = _plain(value)
        elif isinstance(value, tuple):
            changed[part.name] = tuple(_plain(v) if isinstance(v, MemoryDesc) else v for v in value)
    return replace(op, **changed)


def merged(sizes: Sequence[int], *strides: Sequence[int]) -> tuple[list[int], list[list[int]]]:
    """Return sizes, outermost first, and strides with sizes of 1 dropped and neighbours merged if all strides agree.

    At least one dimension remains, of size 1 if all are.
    """
    kept: list[tuple[int, list[int]]] = []
    for index, size in enumerate(sizes):
        if size == 1:
            continue
        steps = [s[index] for s in strides]
        if kept and all(outer == step * size for outer, step in zip(kept[-1][1], steps, strict=True)):
            kept[-1] = (kept[-1][0] * size, steps)
        else:
            kept.append((size, steps))
    kept = kept or [(1, [1] * len(strides))]
    return [size for size, _ in kept], [[steps[i] for _, steps in kept] for i in range(len(strides))]


def contiguous_strides(sizes: Sequence[int]) -> list[int]:
    """Return the row-major strides of sizes."""
    strides = [1] * len(sizes)
    for i in reversed(range(len(sizes) - 1)):
        strides[i] = strides[i + 1] * sizes[i + 1]
    return strides


def _plain(desc: MemoryDesc) -> MemoryDesc:
    return desc.with_tag("") if desc.is_any else desc
