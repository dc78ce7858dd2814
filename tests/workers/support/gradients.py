"""Forward and backward operations that belong together, and what their implementations make of the same values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from poolrt.workers.desc import FORWARD, Arg, MemoryDesc, OpDesc, PrimitiveAttr
from poolrt.workers.engines.target import cpu_target
from poolrt.workers.implementations.primitive_desc import primitive_desc
from tests.workers.desc.layouts import laid_out
from tests.workers.native_runner import NativeRunner

from .descriptors import MAKERS

Array = NDArray[Any]
#: What each gradient is the gradient of.
OF: Final = {
    Arg.DIFF_SRC: Arg.SRC,
    Arg.DIFF_WEIGHTS: Arg.WEIGHTS,
    Arg.DIFF_BIAS: Arg.BIAS,
    Arg.DIFF_SCALE: Arg.SCALE,
    Arg.DIFF_SHIFT: Arg.SHIFT,
}
#: What tensors of f32 beside the data are multiples of.
F32_STEP: Final = 2.0**-10
#: The operations that have gradients, and the propagation kinds that compute them.
BACKWARD: Final = [(kind, prop) for kind, (props, _) in MAKERS.items() for prop in props[1:] if prop not in FORWARD]


def pairs(kind: str, prop: str) -> Iterator[tuple[OpDesc, OpDesc]]:
    """Yield a forward operation in f64 and the backward one, its tensors in other layouts, for every odd shape."""
    _, make = MAKERS[kind]
    for forward, backward in zip(make("forward_training", "f64"), make(prop, "f64"), strict=True):
        yield forward, laid_out(backward, "mixed")


def ordinary(op: OpDesc) -> dict[int, Array]:
    """Return normally distributed values for what a forward operation reads: none of them equal, or where a slope jumps."""
    rng = np.random.default_rng(7)
    found = {arg: _as(rng.standard_normal(md.dims), md) for arg, md in op.memories().items() if arg not in op.outputs()}
    return found | ({Arg.VARIANCE: np.abs(found[Arg.VARIANCE])} if Arg.VARIANCE in found else {})


def computed(native: NativeRunner, op: OpDesc, args: dict[int, Array]) -> dict[int, Array]:
    """Return what the best implementation writes, in logical dimensions."""
    return native.results(primitive_desc(op, PrimitiveAttr(), cpu_target()), args)


def gradients(
    native: NativeRunner, forward: OpDesc, backward: OpDesc, args: dict[int, Array], errors: Array
) -> dict[int, Array]:
    """Return the gradients of what ``forward`` reads, by its arguments, from those of its dst (``errors``).

    What the backward operation reads besides is what was given to the forward one, or what that has written.
    """
    known = {**args, **computed(native, forward, args), Arg.DIFF_DST: errors}
    reads = [arg for arg in backward.memories() if arg not in backward.outputs()]
    found = computed(native, backward, {arg: known[arg] for arg in reads})
    return {OF[Arg(arg)]: values for arg, values in found.items()}


def _as(values: Array, md: MemoryDesc) -> Array:
    """Return values that a tensor can hold; those of f32 (statistics, scales, shifts) are so also a small step apart."""
    return np.rint(values / F32_STEP) * F32_STEP if md.dtype == "f32" else values
