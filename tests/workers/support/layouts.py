"""The tensors of a descriptor brought into other layouts: left open, permuted, blocked, with gaps, each in another one."""

from __future__ import annotations

import dataclasses
import random
from typing import Any, Final

from poolrt.workers.desc import MemoryDesc, OpDesc
from poolrt.workers.desc.memory_desc import plain_tag

#: ``permuted`` and ``blocked`` are the same for all tensors of a rank; ``mixed`` differs from tensor to tensor.
LAYOUTS: Final = ("plain", "any", "permuted", "blocked", "strided", "mixed")


def laid_out(op: OpDesc, layout: str) -> OpDesc:
    """Return a row-major descriptor with its tensors in a layout; the same one in every process."""
    rng = random.Random(f"{op.kind} {layout} {op.memories()}")
    orders: dict[int, list[int]] = {}

    def convert(md: MemoryDesc) -> MemoryDesc:
        chosen = rng.choice(("permuted", "blocked", "strided", "split")) if layout == "mixed" else layout
        order = list(range(md.ndims))
        if chosen == "any":
            return md.with_tag("any")
        if chosen in ("permuted", "strided", "split"):
            rng.shuffle(order)
        if chosen == "strided":
            return _with_gaps(md, order, rng)
        if chosen == "permuted":
            order = order if layout == "mixed" else orders.setdefault(md.ndims, order)
            return md.with_tag("".join(plain_tag(md.ndims)[dim] for dim in order))
        if chosen == "blocked" and md.ndims > 1:
            return md.with_tag(f"aB{plain_tag(md.ndims)[2:]}16b")
        if chosen == "split":
            return _split(md, order, rng)
        return md

    def changed(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(changed, value))
        return convert(value) if isinstance(value, MemoryDesc) else value

    return dataclasses.replace(op, **{f.name: changed(getattr(op, f.name)) for f in dataclasses.fields(op)})


def _with_gaps(md: MemoryDesc, order: list[int], rng: random.Random) -> MemoryDesc:
    """Return a tensor whose dimensions lie in an order, each up to two elements apart."""
    strides, step = [0] * md.ndims, 1
    for dim in reversed(order):
        strides[dim] = step + rng.randint(0, 2)
        step = strides[dim] * max(1, md.dims[dim])
    return MemoryDesc(md.dims, md.dtype, "", tuple(strides))


def _split(md: MemoryDesc, order: list[int], rng: random.Random) -> MemoryDesc:
    """Return a tensor with two blocks, of one dimension or of two, and the blocks in an order."""
    letters = plain_tag(md.ndims)
    blocks = [(rng.choice(order), size) for size in rng.sample((2, 3, 4, 8), 2)]
    split = {dim for dim, _ in blocks}
    outer = "".join(letters[dim].upper() if dim in split else letters[dim] for dim in order)
    return md.with_tag(outer + "".join(f"{size}{letters[dim]}" for dim, size in blocks))
