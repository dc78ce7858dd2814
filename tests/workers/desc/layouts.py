"""The tensors of a descriptor brought into other layouts: left open, permuted, blocked, with gaps, each in another one."""

from __future__ import annotations

import dataclasses
import random
from typing import Any, Final

from poolrt.workers.desc import MemoryDesc, OpDesc
from poolrt.workers.desc.memory_desc import plain_tag

#: ``permuted`` and ``blocked`` are the same for all tensors of a rank; ``mixed`` differs from tensor to tensor.
LAYOUTS: Final = ("plain", "any", "permuted", "blocked", "strided", "mixed")
#: Those that leave nothing to an implementation.
GIVEN: Final = tuple(layout for layout in LAYOUTS if layout != "any")


def laid_out(op: OpDesc, layout: str, rng: random.Random | None = None) -> OpDesc:
    """Return a row-major descriptor with its tensors in a layout; without ``rng`` the same one in every process."""
    rng = rng or random.Random(f"{op.kind} {layout} {op.memories()}")
    orders: dict[int, list[int]] = {}

    def convert(md: MemoryDesc) -> MemoryDesc:
        if layout == "permuted" and md.ndims not in orders:
            orders[md.ndims] = rng.sample(range(md.ndims), md.ndims)
        return placed(md, layout, rng, orders.get(md.ndims))

    def changed(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(changed, value))
        return convert(value) if isinstance(value, MemoryDesc) else value

    return dataclasses.replace(op, **{f.name: changed(getattr(op, f.name)) for f in dataclasses.fields(op)})


def placed(md: MemoryDesc, layout: str, rng: random.Random, order: list[int] | None = None) -> MemoryDesc:
    """Return a row-major tensor in a layout; where that permutes dimensions, in an order drawn unless it is given."""
    if layout == "mixed":
        layout = rng.choice(("permuted", "blocked", "strided", "split"))
    order = order or rng.sample(range(md.ndims), md.ndims)
    if layout == "any":
        return md.with_tag("any")
    if layout == "permuted":
        return md.with_tag("".join(plain_tag(md.ndims)[dim] for dim in order))
    if layout == "blocked" and md.ndims > 1:
        return md.with_tag(f"aB{plain_tag(md.ndims)[2:]}16b")
    if layout == "strided":
        return _with_gaps(md, order, rng)
    if layout == "split" and md.ndims:
        return _split(md, order, rng)
    return md


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
