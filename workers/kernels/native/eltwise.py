"""Apply a function of one variable to runs of elements in any layout; alpha and beta are given at run time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import functions
from .compiler import types
from .elements import elements
from .past_caches import LINE, finish_streams, past_caches
from .vec import vkeep


def make(
    isa: str, algorithm: str, src: str, dst: str, chain: tuple[Any, ...], streams: bool = False
) -> tuple[Callable[..., None], Any]:  # fmt: skip
    """Return the kernel of an algorithm, the data types of src and dst and a chain of post-ops, and its signature.

    With a chain, the data types are the same. If it ``streams``, results are written past the caches: see `past_caches`.
    """
    apply = functions.eltwise(algorithm)
    finish, finish_part = functions.post_ops(chain, dst), functions.post_ops_part(chain, dst)
    read, written = elements(src), elements(dst)
    size, step, real = read.size, written.size, read.real
    load, load_tail, store, store_part = read.load, read.load_tail, written.store, written.store_part
    written_load = written.load
    stream: Any = past_caches(store)

    def kernel(
        begin: int, end: int, src: int, dst: int, other: int,
        length: int, chunk: int, period: int, tail: int, alpha: float, beta: float,
    ) -> None:  # fmt: skip
        a, b = real(alpha), real(beta)
        pieces = (length + chunk - 1) // chunk
        for item in range(begin, end):
            block = item // pieces
            first = (item - block * pieces) * chunk
            count = min(chunk, length - first)
            lanes = tail if block % period == period - 1 else 16
            start = block * length + first
            whole = start + (count & -16)
            if streams and not (dst + start * step) % LINE:
                for at in range(start, whole, 16):
                    stream(dst + at * step, finish(apply(load(src + at * size), a, b), other + at * step))
            else:
                for at in range(start, whole, 16):
                    store(dst + at * step, finish(apply(load(src + at * size), a, b), other + at * step))
            if lanes < 16:
                # A loop of its own, so that a mask costs the other blocks nothing.
                for at in range(start, whole, 16):
                    store(dst + at * step, vkeep(written_load(dst + at * step), lanes))
            if count & 15:
                value = apply(load_tail(src + whole * size, count & 15), a, b)
                value = finish_part(value, other + whole * step, count & 15)
                store_part(dst + whole * step, value, count & 15)
        if streams:
            finish_streams()

    return kernel, types.void(*[types.int64] * 9, types.float64, types.float64)
