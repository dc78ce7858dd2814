"""Matmul has no backward of its own: its gradients are matmuls on descriptors that name the same bytes transposed."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from poolrt.workers.desc import Arg, Matmul, MemoryDesc, PrimitiveAttr, Reduction
from poolrt.workers.desc.memory_desc import plain_tag
from poolrt.workers.implementations.primitive_desc import primitive_descs
from tests.references import pack
from tests.references.finite_differences import numeric_gradient
from tests.workers.native_runner import NativeRunner

from .gradients import Array, computed


def transposed(md: MemoryDesc) -> MemoryDesc:
    """Return the descriptor of the same bytes with the last two dimensions exchanged."""
    last = plain_tag(md.ndims)[-2:]
    swapped = str.maketrans(last + last.upper(), last[::-1] + last[::-1].upper())
    dims = (*md.dims[:-2], md.dims[-1], md.dims[-2])
    if md.strides:
        return MemoryDesc(dims, md.dtype, strides=(*md.strides[:-2], md.strides[-1], md.strides[-2]))
    return MemoryDesc(dims, md.dtype, md.tag.translate(swapped))


def backward(op: Matmul) -> tuple[Matmul, Matmul]:
    """Return the matmuls that compute the gradients of src, from (diff_dst, weights), and weights, from (src, diff_dst)."""
    return (
        Matmul(op.dst, transposed(op.weights), None, op.src),
        Matmul(transposed(op.src), op.dst, None, op.weights),
    )


def matmul(dtype: str, *batch: int) -> Matmul:
    rank = len(batch) + 2
    src, weights, dst = ((*batch, *dims) for dims in ((3, 5), (5, 4), (3, 4)))
    bias = MemoryDesc((*(1,) * (rank - 1), 4), dtype)
    return Matmul(MemoryDesc(src, dtype), MemoryDesc(weights, dtype), bias, MemoryDesc(dst, dtype))


LAYOUTS = {
    "row-major": matmul("f64", 2),
    "transposed": dataclasses.replace(matmul("f64", 2), weights=MemoryDesc((2, 5, 4), "f64", "acb")),
    "gaps": dataclasses.replace(matmul("f64"), src=MemoryDesc((3, 5), "f64", strides=(1, 4))),
    "blocked": dataclasses.replace(matmul("f64"), weights=MemoryDesc((5, 4), "f64", "aB3b")),
}


@pytest.mark.parametrize("op", LAYOUTS.values(), ids=list(LAYOUTS))
def test_gradients_are_matmuls_on_the_same_bytes_transposed(native: NativeRunner, op: Matmul) -> None:
    # Given what a forward matmul reads, and the gradient of its dst
    rng = np.random.default_rng(3)
    args = {arg: rng.standard_normal(md.dims) for arg, md in op.memories().items() if arg != Arg.DST}
    errors = rng.standard_normal(op.dst.dims)
    for_src, for_weights = backward(op)
    src, weights = args[Arg.SRC], args[Arg.WEIGHTS]
    turned_src, turned_weights = np.swapaxes(src, -1, -2), np.swapaxes(weights, -1, -2)
    # Then the transposed descriptors name the same bytes: nothing is copied
    assert pack(turned_weights, for_src.weights).tobytes() == pack(weights, op.weights).tobytes()
    assert pack(turned_src, for_weights.src).tobytes() == pack(src, op.src).tobytes()
    # And what the matmuls compute are the slopes; that of the bias is a reduction
    bias = MemoryDesc((*(1,) * (op.dst.ndims - 1), op.dst.dims[-1]), "f64")
    found = {
        Arg.SRC: computed(native, for_src, {Arg.SRC: errors, Arg.WEIGHTS: turned_weights})[Arg.DST],
        Arg.WEIGHTS: computed(native, for_weights, {Arg.SRC: turned_src, Arg.WEIGHTS: errors})[Arg.DST],
        Arg.BIAS: computed(native, Reduction(op.dst, bias, "sum"), {Arg.SRC: errors})[Arg.DST],
    }
    for arg, gradient in found.items():

        def moved(values: Array, arg: int = arg) -> Array:
            return computed(native, op, {**args, arg: values})[Arg.DST]

        np.testing.assert_allclose(gradient, numeric_gradient(moved, args[arg], errors), 1e-7, 1e-7)


def test_implementations_made_for_speed_take_gradients_too() -> None:
    """That of src as it is; that of weights where a reorder has brought src into rows, as it may of any operand."""
    for_src, for_weights = backward(matmul("f32"))
    for op in (for_src, dataclasses.replace(for_weights, src=for_weights.src.with_tag("ab"))):
        names = [pd.impl_name() for pd in primitive_descs(op, PrimitiveAttr(), NativeRunner().target)]
        assert names == ["native:tiles", "ref:matmul"]
