"""How each operation of a graph becomes operation descriptors: the layouts to try, best first.

`any` lets the implementation choose. Operations that do not care try the layout that their sources have, then row-major.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from poolrt.workers.desc import (
    Arg,
    BatchNormalization,
    Binary,
    Concat,
    Convolution,
    Eltwise,
    InnerProduct,
    Lrn,
    Matmul,
    MemoryDesc,
    OpDesc,
    Pooling,
    Softmax,
    Sum,
    multiple_src,
)

VIEWS: Final = ("reshape", "transpose")


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to describe a node: the descriptor and the execution argument of each of the node's inputs, in order."""

    op: OpDesc
    args: tuple[int, ...]


def is_view(kind: str) -> bool:
    """Return whether a kind only changes how memory is read."""
    return kind in VIEWS


def post_operations(post_ops: list[list[Any]]) -> tuple[tuple[str, str, float, float], ...]:
    """Return (kind, algorithm, alpha, beta) of each post-op of a node."""
    return tuple((p[0], p[1], *((float(p[2]), float(p[3])) if p[0] == "eltwise" else (0.0, 0.0))) for p in post_ops)


def candidates(
    kind: str, sources: list[MemoryDesc], constant: list[bool], dst: MemoryDesc, attrs: dict[str, Any]
) -> Iterator[Candidate]:
    """Yield the descriptors to try for a node. Raises ValueError for an unknown kind or attributes that do not fit."""
    describe = _DESCRIBE.get(kind)
    if describe is None:
        raise ValueError(f"unknown operation {kind!r}; known: {', '.join((*_DESCRIBE, *VIEWS))}")
    settings = {name: tuple(v) if isinstance(v, list) else v for name, v in attrs.items()}
    try:
        yield from describe(sources, constant, dst.with_tag("any"), settings)
    except TypeError as error:
        raise ValueError(f"attributes do not fit: {error}") from error


def _convolution(
    sources: list[MemoryDesc], constant: list[bool], dst: MemoryDesc, attrs: dict[str, Any]
) -> Iterator[Candidate]:
    src, weights, *bias = sources
    found = Convolution(src.with_tag("any"), weights.with_tag("any"), _row_major(bias), dst, **attrs)
    yield Candidate(found, (Arg.SRC, Arg.WEIGHTS, Arg.BIAS)[: len(sources)])


def _product(operation: Callable[..., OpDesc]) -> Callable[..., Iterator[Candidate]]:
    def describe(
        sources: list[MemoryDesc], constant: list[bool], dst: MemoryDesc, attrs: dict[str, Any]
    ) -> Iterator[Candidate]:
        src, weights, *bias = sources
        layout = "any" if constant[1] else ""
        found = operation(src.with_tag(""), weights.with_tag(layout), _row_major(bias), dst, **attrs)
        yield Candidate(found, (Arg.SRC, Arg.WEIGHTS, Arg.BIAS)[: len(sources)])

    return describe


def _unary(operation: Callable[..., OpDesc], *extra: int) -> Callable[..., Iterator[Candidate]]:
    def describe(
        sources: list[MemoryDesc], constant: list[bool], dst: MemoryDesc, attrs: dict[str, Any]
    ) -> Iterator[Candidate]:
        for tag in dict.fromkeys((sources[0].tag, sources[0].with_tag("").tag)):
            yield Candidate(operation(sources[0].with_tag(tag), dst, **attrs), (Arg.SRC, *extra))

    return describe


def _binary(
    sources: list[MemoryDesc], constant: list[bool], dst: MemoryDesc, attrs: dict[str, Any]
) -> Iterator[Candidate]:
    first, second = sources
    plain = (first.with_tag("").tag, second.with_tag("").tag)
    blocked = _blocked(sources, constant)
    pairs = [(tag, other) for tag in blocked for other in (tag, plain[1])]
    for tag, other in dict.fromkeys((*pairs, plain)):
        yield Candidate(Binary(first.with_tag(tag), second.with_tag(other), dst, **attrs), (Arg.SRC, Arg.SRC_1))


def _many(operation: Callable[..., OpDesc]) -> Callable[..., Iterator[Candidate]]:
    def describe(
        sources: list[MemoryDesc], constant: list[bool], dst: MemoryDesc, attrs: dict[str, Any]
    ) -> Iterator[Candidate]:
        args = tuple(multiple_src(i) for i in range(len(sources)))
        for tag in (*_blocked(sources, constant), ""):
            yield Candidate(operation(tuple(s.with_tag(tag) for s in sources), dst, **attrs), args)

    return describe


def _blocked(sources: list[MemoryDesc], constant: list[bool]) -> list[str]:
    """Return the distinct blocked tags among sources that are computed."""
    tags = dict.fromkeys(s.tag for s, fixed in zip(sources, constant, strict=True) if not fixed and not s.is_plain)
    return [tag for tag in tags if all(s.ndims == sources[0].ndims for s in sources)]


def _row_major(bias: list[MemoryDesc]) -> MemoryDesc | None:
    return bias[0].with_tag("") if bias else None


_DESCRIBE: Final[dict[str, Callable[..., Iterator[Candidate]]]] = {
    "convolution": _convolution,
    "inner_product": _product(InnerProduct),
    "matmul": _product(Matmul),
    "pooling": _unary(Pooling),
    "eltwise": _unary(Eltwise),
    "softmax": _unary(Softmax),
    "lrn": _unary(Lrn),
    "batch_normalization": _unary(BatchNormalization, Arg.MEAN, Arg.VARIANCE, Arg.SCALE, Arg.SHIFT),
    "binary": _binary,
    "sum": _many(Sum),
    "concat": _many(Concat),
}
