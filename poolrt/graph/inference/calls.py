"""Calls of users' kernels: the shapes of the results are given, as sizes of the operands or as numbers."""

from __future__ import annotations

from collections.abc import Sequence

from poolrt.workers.desc import MemoryDesc, OpDesc

from .result import Attrs, Operation


def call(op: Operation, srcs: Sequence[MemoryDesc], attrs: Attrs, dtype: str) -> OpDesc:
    """Describe a call; an item of ``results`` is a data type and the sizes of a result: ``f32 src0.0 8``."""
    from poolrt.workers.desc.operations.call import resolve_size

    given = dict(attrs)
    sources = tuple(srcs)
    dsts = []
    for number, text in enumerate(given.pop("results")):
        kind, *sizes = text.split(" ")
        try:
            dsts.append(MemoryDesc(tuple(resolve_size(size, sources, ()) for size in sizes), kind))
        except ValueError as error:
            raise ValueError(f"outputs[{number}]: {error}") from error
    return op(sources, tuple(dsts), **given)
