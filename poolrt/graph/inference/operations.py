"""Every operation's descriptor from its operands: the one set of rules of the builder and of the plan.

The descriptors validate themselves, so that what is accepted here is accepted by the plan. Every error is a ValueError
that starts with the name of the argument.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Final, TypeAlias

from poolrt.workers.desc import MemoryDesc, OpDesc
from poolrt.workers.desc.op_desc import op_class

from . import attentions, calls, indexing, movement, normalizations, pointwise, products, recurrent, windows
from .operands import result_arguments
from .result import Attrs, Operation

_Describe: TypeAlias = Callable[[Operation, Sequence[MemoryDesc], Attrs, str], OpDesc]
#: Descriptors that are kept: layers of a network are alike, and each node is described while building, rewriting and lowering.
_MOST_KEPT: Final = 1024


#: Types whose texts have all of a value.
_EXACT: Final = frozenset({int, float, str, bool, type(None)})


class _Attributes:
    """Attributes as a key. Numbers that are equal and of different types, such as 1 and True, are not the same here."""

    __slots__ = ("given", "text")

    def __init__(self, given: Attrs, text: str) -> None:
        self.given = given
        self.text = text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Attributes) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)


def op_desc(kind: str, srcs: Sequence[MemoryDesc], attrs: Attrs, dtype: str = "") -> OpDesc:
    """Return the descriptor of one node, with row-major memories.

    ``dtype`` is the data type of the first result, or empty. Raises ValueError naming the wrong argument.
    """
    if kind not in _DESCRIBE:
        raise ValueError(f"kind: unknown operation {kind!r}; known: {', '.join((*_DESCRIBE, *movement.VIEWS))}")
    key = _key(kind, attrs)
    return (
        _DESCRIBE[kind](op_class(kind), srcs, attrs, dtype) if key is None else _described(kind, (*srcs,), key, dtype)
    )


def _key(kind: str, attrs: Attrs) -> _Attributes | None:
    """Return attributes as a key; None for those of a call, which may be long, and for values such as arrays."""
    if kind == "call":
        return None
    for value in attrs.values():
        if not (type(value) in _EXACT or (type(value) is tuple and _EXACT.issuperset(map(type, value)))):
            return None
    return _Attributes(attrs, repr(attrs))


@lru_cache(maxsize=_MOST_KEPT)
def _described(kind: str, srcs: tuple[MemoryDesc, ...], attrs: _Attributes, dtype: str) -> OpDesc:
    return _DESCRIBE[kind](op_class(kind), srcs, attrs.given, dtype)


def infer(kind: str, srcs: Sequence[MemoryDesc], attrs: Attrs, dtype: str = "") -> tuple[MemoryDesc, ...]:
    """Return the row-major descriptors of a node's results. Raises ValueError naming the wrong argument."""
    if is_view(kind):
        (src,) = srcs
        found: tuple[MemoryDesc, ...] = (movement.view(kind, src, attrs),)
    else:
        op = op_desc(kind, srcs, attrs, dtype)
        found = _result_descs(op) if kind == "call" else _known_results(op)
    for each in found:
        if min(each.dims, default=1) < 1:
            raise ValueError(f"src: {srcs[0].dims} leaves nothing to compute (the result would be {each.dims})")
    return found


def _result_descs(op: OpDesc) -> tuple[MemoryDesc, ...]:
    memories = op.memories()
    return tuple(memories[arg].with_tag("") for arg in result_arguments(op))


_known_results: Final = lru_cache(maxsize=_MOST_KEPT)(_result_descs)


def is_view(kind: str) -> bool:
    """Return whether a kind only changes how memory is read."""
    return kind in movement.VIEWS


_DESCRIBE: Final[Mapping[str, _Describe]] = {
    "convolution": windows.convolution,
    "deconvolution": windows.deconvolution,
    "pooling": windows.pooling,
    "resampling": windows.resampling,
    "grid_sample": windows.grid_sample,
    "roi_align": windows.roi_align,
    "fold": windows.fold,
    "eltwise": pointwise.same_shape,
    "softmax": pointwise.same_shape,
    "lrn": pointwise.same_shape,
    "shuffle": pointwise.same_shape,
    "cumulative_sum": pointwise.same_shape,
    "binary": pointwise.binary,
    "sum": pointwise.total,
    "prelu": pointwise.prelu,
    "reduction": pointwise.reduction,
    "concat": movement.concat,
    "reorder": movement.reorder,
    "pad": movement.pad,
    "batch_normalization": normalizations.normalization,
    "layer_normalization": normalizations.normalization,
    "group_normalization": normalizations.normalization,
    "matmul": products.matmul,
    "inner_product": products.inner_product,
    "rnn": recurrent.one_state,
    "lstm": recurrent.two_states,
    "gru": recurrent.one_state,
    "dynamic_lstm": recurrent.dynamic,
    "attention": attentions.attention,
    "rotary": attentions.rotary,
    "gather": indexing.gather,
    "scatter": indexing.scatter,
    "select": indexing.select,
    "arg_reduction": indexing.arg_reduction,
    "top_k": indexing.top_k,
    "tree_leaves": indexing.tree_leaves,
    "non_max_suppression": indexing.non_max_suppression,
    "non_zero": indexing.non_zero,
    "matmul_nbits": products.matmul_nbits,
    "determinant": products.determinant,
    "dynamic_quantise": pointwise.dynamic_quantise,
    "dft": pointwise.dft,
    "call": calls.call,
}
