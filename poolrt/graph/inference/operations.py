"""Every operation's descriptor from its operands: the one set of rules of the builder and of the plan.

The descriptors validate themselves, so that what is accepted here is accepted by the plan. Every error is a ValueError
that starts with the name of the argument.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from poolrt.workers.desc import MemoryDesc, OpDesc
from poolrt.workers.desc.op_desc import op_class

from . import attentions, calls, indexing, movement, normalizations, pointwise, products, recurrent, windows
from .operands import result_arguments
from .result import Attrs, Operation

_Describe: TypeAlias = Callable[[Operation, Sequence[MemoryDesc], Attrs, str], OpDesc]


def op_desc(kind: str, srcs: Sequence[MemoryDesc], attrs: Attrs, dtype: str = "") -> OpDesc:
    """Return the descriptor of one node, with row-major memories.

    ``dtype`` is the data type of the first result, or empty. Raises ValueError naming the wrong argument.
    """
    if kind not in _DESCRIBE:
        raise ValueError(f"kind: unknown operation {kind!r}; known: {', '.join((*_DESCRIBE, *movement.VIEWS))}")
    return _DESCRIBE[kind](op_class(kind), srcs, attrs, dtype)


def infer(kind: str, srcs: Sequence[MemoryDesc], attrs: Attrs, dtype: str = "") -> tuple[MemoryDesc, ...]:
    """Return the row-major descriptors of a node's results. Raises ValueError naming the wrong argument."""
    if is_view(kind):
        (src,) = srcs
        found: tuple[MemoryDesc, ...] = (movement.view(kind, src, attrs),)
    else:
        op = op_desc(kind, srcs, attrs, dtype)
        memories = op.memories()
        found = tuple(memories[arg].with_tag("") for arg in result_arguments(op))
    for each in found:
        if min(each.dims, default=1) < 1:
            raise ValueError(f"src: {srcs[0].dims} leaves nothing to compute (the result would be {each.dims})")
    return found


def is_view(kind: str) -> bool:
    """Return whether a kind only changes how memory is read."""
    return kind in movement.VIEWS


_DESCRIBE: Final[Mapping[str, _Describe]] = {
    "convolution": windows.convolution,
    "deconvolution": windows.deconvolution,
    "pooling": windows.pooling,
    "resampling": windows.resampling,
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
    "attention": attentions.attention,
    "gather": indexing.gather,
    "scatter": indexing.scatter,
    "select": indexing.select,
    "arg_reduction": indexing.arg_reduction,
    "top_k": indexing.top_k,
    "non_max_suppression": indexing.non_max_suppression,
    "matmul_nbits": products.matmul_nbits,
    "dynamic_quantise": pointwise.dynamic_quantise,
    "call": calls.call,
}
