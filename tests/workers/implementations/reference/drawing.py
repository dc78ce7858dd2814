"""Tensors drawn at random for tests of reference implementations: shapes, data types, layouts, values, attributes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, Protocol

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from poolrt.workers.desc import (
    Arg,
    MemoryDesc,
    OpDesc,
    PostOp,
    PrimitiveAttr,
    Quantisation,
    item_size,
)
from poolrt.workers.engines.target import Target, cpu_target
from poolrt.workers.implementations.primitive_desc import PrimitiveDesc, primitive_descs
from tests.references import assert_close, converted, results
from tests.references.data_types import FLOATS
from tests.references.magnitudes import gradient_magnitudes

Array = NDArray[Any]

TYPES: Final = ("f64", "f32", "f16", "bf16", "s64", "u64", "s32", "u32", "s16", "u16", "s8", "u8", "bool")
#: Relative error of a result computed in float64 by other means, which may be rounded to a neighbour of the data type.
LAST_PLACE: Final = {"f64": 1e-12, "f32": 2.0**-23, "f16": 2.0**-10, "bf16": 2.0**-7}
#: The same for integers, of operations whose quotients and roots float64 does not hold: see `assert_close`.
DOUBT: Final[dict[str, float]] = dict.fromkeys(
    (
        "attention",
        "batch_normalization",
        "group_normalization",
        "layer_normalization",
        "lrn",
        "resampling",
        "roi_align",
        "softmax",
    ),
    1e-12,
)
_LETTERS: Final = "abcdefghijkl"


def examples(count: int) -> settings:
    """Return the settings of a test on ``count`` drawn problems, others in each run; one that fails is printed in full.

    A profile of Hypothesis with a share of the usual examples has half that share of these: a kernel is compiled for each.
    """
    shared = [HealthCheck.function_scoped_fixture]
    usual = settings().max_examples
    count = -(-count * usual // (100 if usual >= 100 else 200))
    return settings(max_examples=count, deadline=None, database=None, suppress_health_check=shared)


def shapes(low: int = 1, high: int = 4, largest: int = 7) -> st.SearchStrategy[tuple[int, ...]]:
    """Draw a shape of ``low`` to ``high`` dimensions, a dimension of up to ``largest``."""
    return st.lists(st.integers(1, largest), min_size=low, max_size=high).map(tuple)


@st.composite
def described(draw: st.DrawFn, dims: tuple[int, ...], dtype: str | None = None) -> MemoryDesc:
    """Draw a memory descriptor of a shape: any data type, permuted, blocked once or twice, or with gaps."""
    dtype = dtype or draw(st.sampled_from(TYPES))
    order = list(draw(st.permutations(range(len(dims)))))
    kind = draw(st.sampled_from(("permuted", "blocked", "gaps"))) if dims else "permuted"
    if kind == "gaps":
        strides, step = [0] * len(dims), 1
        for dim in reversed(order):
            strides[dim] = step + draw(st.integers(0, 2))
            step = strides[dim] * max(1, dims[dim])
        return MemoryDesc(dims, dtype, "", tuple(strides))
    blocks: list[tuple[int, int]] = []
    if kind == "blocked":
        blocks = draw(
            st.lists(st.tuples(st.sampled_from(order), st.sampled_from((2, 3, 8, 16))), min_size=1, max_size=2)
        )
    blocked = {dim for dim, _ in blocks}
    outer = "".join(_LETTERS[dim].upper() if dim in blocked else _LETTERS[dim] for dim in order)
    return MemoryDesc(dims, dtype, outer + "".join(f"{size}{_LETTERS[dim]}" for dim, size in blocks))


def values(md: MemoryDesc, seed: int, low: float = -6.0, high: float = 6.0) -> Array:
    """Return values of a descriptor's type between two bounds (and its own): halves, which are exact in every float."""
    rng = np.random.default_rng([seed, len(md.dims), *md.dims])
    halves = rng.integers(round(2 * low), round(2 * high) + 1, md.dims) / 2
    if md.dtype[0] == "u" or md.dtype == "bool":
        halves = np.abs(halves)
    return converted(halves if md.dtype in FLOATS else np.rint(halves), md.dtype)


def arguments(op: OpDesc, attr: PrimitiveAttr, seed: int, low: float = -6.0, high: float = 6.0) -> dict[int, Array]:
    """Return values for everything that an operation reads, dst among it where a sum post-op reads it."""
    memories = op.memories()
    read = {arg: md for arg, md in memories.items() if arg not in op.outputs()}
    if any(step.kind == "sum" for step in attr.post_ops):
        read[Arg.DST] = memories[Arg.DST]
    found = {arg: values(md, seed + int(arg), low, high) for arg, md in read.items()}
    for arg, md in attr.memories(memories).items():
        if arg >= Arg.POST_OP or md.dtype == "s32":
            found[arg] = values(md, seed + arg)
        else:  # scales: powers of two, so that integers stay exact
            found[arg] = np.exp2(np.rint(values(md, seed + arg, -2, 2)))
    return found


@st.composite
def attributes(draw: st.DrawFn, op: OpDesc, sources: tuple[int, ...] = (Arg.SRC,), sums: bool = True) -> PrimitiveAttr:
    """Draw a chain of up to four post-ops of every kind, and scales and zero points of sources and dst, masks and all."""
    memories = op.memories()
    dst = memories[Arg.DST]
    steps = []
    for kind in draw(
        st.lists(st.sampled_from(("eltwise", "binary", "sum") if sums else ("eltwise", "binary")), max_size=4)
    ):
        if kind == "eltwise":
            algorithm, alpha, beta = draw(
                st.sampled_from((("relu", 0.25, 0.0), ("linear", 2.0, -1.5), ("clip", -20.0, 24.0)))
            )
            steps.append(PostOp("eltwise", algorithm, alpha, beta))
        elif kind == "binary":
            dims = tuple(draw(st.sampled_from((1, size))) if size else size for size in dst.dims)
            algorithm = draw(st.sampled_from(("add", "mul", "max", "min", "sub", "ge", "lt", "ne")))
            steps.append(PostOp("binary", algorithm, src1=draw(described(dims))))
        else:
            alike = [t for t in TYPES if item_size(t) == item_size(dst.dtype) and t not in FLOATS and t != "bool"]
            dtype = draw(st.sampled_from(["", *alike] if dst.dtype not in (*FLOATS, "bool") else [""]))
            steps.append(PostOp.accumulate(draw(st.sampled_from((1.0, -0.5))), draw(st.integers(-2, 2)), dtype))

    def quantised(values: tuple[float, ...]) -> tuple[Quantisation, ...]:
        found = []
        for arg in draw(st.lists(st.sampled_from((*sources, Arg.DST)), unique=True, max_size=len(sources) + 1)):
            item = Quantisation(arg, draw(st.integers(0, (1 << memories[arg].ndims) - 1)))
            if draw(st.booleans()):
                count = item.desc(memories[arg], "f32").elements
                first = draw(st.integers(0, len(values) - 1))
                item = replace(item, values=tuple(values[(first + i) % len(values)] for i in range(count)))
            found.append(item)
        return tuple(found)

    # Scales are powers of two, so that integers stay exact.
    return PrimitiveAttr(tuple(steps), quantised((0.25, 4.0, 1.0, 0.5, 2.0)), quantised((-3, 0, 5, 1, -6)))


class Runner(Protocol):
    """Runs primitives made for a target."""

    @property
    def target(self) -> Target:
        """What its device needs."""
        ...

    def results(self, pd: PrimitiveDesc, args: Mapping[int, Array]) -> dict[int, Array]:
        """Return everything that a primitive writes in logical dimensions, by execution argument."""
        ...


def reference_of(op: OpDesc, attr: PrimitiveAttr, target: Target | None = None) -> PrimitiveDesc:
    """Return the primitive descriptor of the reference implementation, which is the last, for the CPU by default."""
    pd = primitive_descs(op, attr, target or cpu_target())[-1]
    assert pd.impl_name().startswith("ref:")
    return pd


def check(
    runner: Runner,
    op: OpDesc,
    attr: PrimitiveAttr | None = None,
    seed: int = 0,
    args: Mapping[int, Array] | None = None,
    threshold: float | None = None,
) -> None:
    """Raise AssertionError unless the reference implementation gives what NumPy does, by benchdnn's rule.

    Without a ``threshold``, floats may differ by one unit in the last place, integers not at all.
    """
    attr = attr or PrimitiveAttr()
    pd = reference_of(op, attr, runner.target)
    args = arguments(pd.op, attr, seed) if args is None else args
    memories = pd.memories()
    wanted = results(pd.op, attr, args)
    got = runner.results(pd, args)
    assert set(got) == {int(arg) for arg in wanted}
    for arg, want in wanted.items():
        dtype = memories[arg].dtype
        limit = LAST_PLACE.get(dtype, 0.0) if threshold is None else threshold
        case, doubt = f"{op} {attr} argument {int(arg)}", DOUBT.get(op.kind, 0.0)
        summand: Array | float = 0.0
        if dtype == "f64" and not op.is_forward:
            # In float64 the terms of a gradient cancel here and in NumPy.
            summand = gradient_magnitudes(pd.op, dict(args), arg)
        elif dtype == "f64" and op.kind in ("rnn", "lstm", "gru"):
            # What a step adds up, and the states of two directions, are about 1 and cancel likewise.
            summand = 1.0
        assert_close(got[arg], want, dtype, limit, case, summand, doubt=doubt)
