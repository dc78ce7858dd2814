"""Batch, layer and group normalisation in every propagation kind and with every flag, drawn at random."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from poolrt.workers.desc import (
    FORWARD,
    Arg,
    BatchNormalization,
    GroupNormalization,
    LayerNormalization,
    MemoryDesc,
    PostOp,
    PrimitiveAttr,
    Quantisation,
)
from poolrt.workers.engines.target import cpu_target
from poolrt.workers.implementations.primitive_desc import UnsupportedPrimitive, primitive_desc

from .drawing import LAST_PLACE, Runner, arguments, check, described, examples, reference_of

#: Flags that one kind of normalisation alone has.
OWN = {"fuse_norm_relu": "batch", "rms_norm": "layer"}
FLAGS = ("use_global_stats", "use_scale", "use_shift", *OWN)
BACKWARD = ("backward_data", "backward")


@st.composite
def normalizations(draw: st.DrawFn, kind: str, props: tuple[str, ...]) -> Any:
    rest = draw(st.lists(st.integers(0, 4), max_size=3))
    flags = tuple(flag for flag in FLAGS if OWN.get(flag, kind) == kind and draw(st.booleans()))
    prop = draw(st.sampled_from(props))
    epsilon = draw(st.sampled_from((0.5, 1e-3)))
    groups = draw(st.integers(1, 3))
    dims = (draw(st.integers(0, 4)), groups * draw(st.integers(1, 4)), *rest)
    count = 2 if prop in FORWARD else 4
    tensors = [draw(described(dims, draw(st.sampled_from(tuple(LAST_PLACE))))) for _ in range(count)]
    src, dst, *gradients = tensors
    if kind == "group":
        return GroupNormalization(src, dst, groups, epsilon, flags, prop)
    made = BatchNormalization if kind == "batch" else LayerNormalization
    return made(src, dst, epsilon, flags, prop, *gradients)


def read(op: Any, attr: PrimitiveAttr | None = None) -> dict[int, NDArray[Any]]:
    """Return values for what an operation reads: variances are positive."""
    args = arguments(op, attr or PrimitiveAttr(), 3, -3.0, 3.0)
    return args | ({Arg.VARIANCE: np.abs(args[Arg.VARIANCE])} if Arg.VARIANCE in args else {})


@pytest.mark.parametrize("kind", ["batch", "layer", "group"])
@examples(25)
@given(data=st.data())
def test_forward(runner: Runner, kind: str, data: st.DataObject) -> None:
    op = data.draw(normalizations(kind, FORWARD))
    steps = [PostOp("eltwise", "linear", 2.0, -1.0), PostOp.accumulate(-0.5)]
    steps.append(PostOp("binary", "mul", src1=data.draw(described((1, *op.dst.dims[1:])))))
    chain = tuple(step for step in steps if data.draw(st.booleans()))
    scales: tuple[Quantisation, ...] = ()
    if kind != "batch":
        scales = tuple(Quantisation(arg) for arg in (Arg.SRC, Arg.DST) if data.draw(st.booleans()))
    attr = PrimitiveAttr(chain, scales)
    check(runner, op, attr, args=read(op, attr))


@pytest.mark.parametrize("kind", ["batch", "layer"])
@examples(30)
@given(data=st.data())
def test_backward(runner: Runner, kind: str, data: st.DataObject) -> None:
    op = data.draw(normalizations(kind, BACKWARD))
    args = read(op)
    if "fuse_norm_relu" in op.flags:
        args[Arg.WORKSPACE] = np.random.default_rng(1).integers(0, 2, op.src.dims)
    check(runner, op, args=args)


@pytest.mark.parametrize("dtype", ["s64", "s32", "s8", "u8"])
def test_integers_are_normalised_with_given_statistics(runner: Runner, dtype: str) -> None:
    md = MemoryDesc((2, 5, 3), dtype, "aBc2b")
    op = BatchNormalization(md, md, 1.0)
    # The square root of variance and epsilon is 2.
    check(runner, op, args=read(op) | {Arg.VARIANCE: np.full(5, 3.0), Arg.SCALE: np.full(5, 0.5)})


def test_a_mean_that_dwarfs_the_deviation_costs_no_precision(runner: Runner) -> None:
    md = MemoryDesc((4, 2, 8), "f64")
    op = BatchNormalization(md, md, 0.0, (), "forward_training")
    src = 2.0**20 + np.random.default_rng(3).integers(-4, 5, md.dims) * 2.0**-6
    check(runner, op, args={Arg.SRC: src})


def test_a_fused_relu_keeps_nan(runner: Runner) -> None:
    md = MemoryDesc((1, 1, 3), "f32")
    op = BatchNormalization(md, md, 1.0, ("fuse_norm_relu", "use_global_stats"), "forward_training")
    args: dict[int, NDArray[Any]] = {
        Arg.SRC: np.array([[[np.nan, -np.inf, np.inf]]]),
        Arg.MEAN: np.zeros(1),
        Arg.VARIANCE: np.ones(1),
    }
    got = runner.results(reference_of(op, PrimitiveAttr(), runner.target), args)
    assert got[Arg.WORKSPACE].ravel().tolist() == [1, 0, 1]
    np.testing.assert_array_equal(got[Arg.DST].ravel(), [np.nan, 0.0, np.inf])


def test_statistics_of_nothing_are_zero_and_so_are_the_gradients(runner: Runner) -> None:
    md = MemoryDesc((0, 3), "f32")
    forward = BatchNormalization(md, md, 0.0, ("use_scale", "use_shift"), "forward_training")
    got = runner.results(reference_of(forward, PrimitiveAttr(), runner.target), read(forward))
    assert got[Arg.MEAN].tolist() == got[Arg.VARIANCE].tolist() == [0.0] * 3
    backward = BatchNormalization(md, md, 0.0, ("use_scale", "use_shift"), "backward")
    got = runner.results(reference_of(backward, PrimitiveAttr(), runner.target), read(backward))
    assert got[Arg.DIFF_SCALE].tolist() == got[Arg.DIFF_SHIFT].tolist() == [0.0] * 3


@pytest.mark.parametrize(
    ("attr", "why"),
    [
        (PrimitiveAttr(zero_points=(Quantisation(Arg.SRC),)), "takes no zero points"),
        (PrimitiveAttr(scales=(Quantisation(Arg.SRC, 1),)), "must not vary"),
    ],
)
def test_what_layer_normalization_cannot_take_is_refused(attr: PrimitiveAttr, why: str) -> None:
    md = MemoryDesc((2, 3), "f32")
    with pytest.raises(UnsupportedPrimitive, match=why):
        primitive_desc(LayerNormalization(md, md, 0.1), attr, cpu_target())
