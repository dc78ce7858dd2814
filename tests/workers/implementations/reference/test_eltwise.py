"""The reference implementation of eltwise, forward and backward, against NumPy in float64."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poolrt.workers.desc import Arg, Eltwise, MemoryDesc, PostOp, PrimitiveAttr
from poolrt.workers.desc.attributes import ELTWISE_ALGORITHMS, STEP_ALGORITHMS
from poolrt.workers.desc.operations.eltwise import FROM_DST
from poolrt.workers.engines.target import cpu_target
from poolrt.workers.implementations.primitive_desc import UnsupportedPrimitive, primitive_desc
from tests.workers.cases.pointwise import eltwise_values

from .drawing import Array, Runner, attributes, check, described, examples, reference_of, shapes, values

#: alpha and beta where an algorithm has no sensible results with 0.5 and 0.75.
PARAMETERS = {"clip": (-1.0, 6.0), "clip_v2": (-1.0, 6.0), "softplus": (-2.0, 0.0), "pow": (1.5, 2.5)}
#: Functions whose values near 0, or far from it, are differences: NumPy's own errors are larger there.
TOLERANCE = {"gelu_tanh": 1e-9, "mish": 1e-9, "tanh": 1e-9, "swish": 1e-9, "gelu_erf": 1e-9, "pow": 1e-9}
POSITIVE = ("sqrt", "log", "pow")


def flat(count: int, dtype: str) -> MemoryDesc:
    return MemoryDesc((count,), dtype)


@pytest.mark.parametrize("dtype", ["f64", "f32"])
@pytest.mark.parametrize("algorithm", ELTWISE_ALGORITHMS)
def test_every_algorithm_is_right_on_special_and_ordinary_values(runner: Runner, algorithm: str, dtype: str) -> None:
    x = eltwise_values(algorithm).astype(np.float64)
    if algorithm in POSITIVE:
        x = np.abs(x)
    if algorithm == "gelu_tanh":
        x = x[~(np.abs(x) > 1e100)]
    md = flat(x.size, dtype)
    op = Eltwise(md, md, algorithm, *PARAMETERS.get(algorithm, (0.5, 0.75)))
    threshold = TOLERANCE.get(algorithm, 1e-12) if dtype == "f64" else None
    check(runner, op, args={Arg.SRC: x}, threshold=threshold)


@pytest.mark.parametrize("dtype", ["f64", "f16"])
def test_a_zero_keeps_its_sign(runner: Runner, dtype: str) -> None:
    md = flat(4, dtype)
    pd = reference_of(Eltwise(md, md, "linear", -1.0, -0.0), PrimitiveAttr(), runner.target)
    found = runner.results(pd, {Arg.SRC: np.array([0.0, -0.0, 2.0, -3.0])})[Arg.DST]
    np.testing.assert_array_equal(np.signbit(found), [True, False, True, False])


@pytest.mark.parametrize("algorithm", [a for a in ELTWISE_ALGORITHMS if a not in STEP_ALGORITHMS])
def test_every_gradient_from_src_is_right(runner: Runner, algorithm: str) -> None:
    x = np.concatenate([np.linspace(-30, 30, 1201), [0.0, np.nan, 6.0, -1.0, 1e-6, -1e-6]])
    x = np.abs(x) + 1e-3 if algorithm in POSITIVE else x
    md = flat(x.size, "f64")
    op = Eltwise(md, md, algorithm, *PARAMETERS.get(algorithm, (0.5, 0.75)), "backward_data")
    check(runner, op, args={Arg.SRC: x, Arg.DIFF_DST: np.cos(np.arange(x.size))}, threshold=1e-9)


@pytest.mark.parametrize("algorithm", FROM_DST)
def test_every_gradient_from_dst_is_right(runner: Runner, algorithm: str) -> None:
    y = np.concatenate([np.linspace(-0.999, 0.999, 501), [6.0, -1.0, 7.0]])
    y = np.abs(y) + 1e-3 if algorithm in ("sqrt", "exp", "logistic") else y
    md = flat(y.size, "f64")
    op = Eltwise(md, md, algorithm, *PARAMETERS.get(algorithm, (0.5, 0.75)), "backward_data", use_dst=True)
    check(runner, op, args={Arg.DST: y, Arg.DIFF_DST: np.cos(np.arange(y.size))})


@examples(30)
@given(data=st.data())
def test_any_types_and_layouts_with_any_attributes(runner: Runner, data: st.DataObject) -> None:
    dims = data.draw(shapes())
    op = Eltwise(data.draw(described(dims)), data.draw(described(dims)), "linear", 2.0, 1.0)
    check(runner, op, data.draw(attributes(op)), data.draw(st.integers(0, 99)))


@examples(25)
@given(data=st.data(), use_dst=st.booleans())
def test_gradients_of_any_types_and_layouts(runner: Runner, data: st.DataObject, use_dst: bool) -> None:
    dims = data.draw(shapes())
    src, dst, diff_src, diff_dst = (data.draw(described(dims)) for _ in range(4))
    op = Eltwise(src, dst, "relu", 0.5, 0.0, "backward_data", diff_src, diff_dst, use_dst)
    check(runner, op, seed=data.draw(st.integers(0, 99)))


def test_a_sum_reads_what_the_destination_held(runner: Runner) -> None:
    md = MemoryDesc((3, 5), "s8", "Ab4a")
    args: dict[int, Array] = {Arg.SRC: values(md, 1), Arg.DST: values(md, 2)}
    check(runner, Eltwise(md, md, "square"), PrimitiveAttr((PostOp.accumulate(-0.5, 3),)), args=args)


def test_layouts_left_open_follow_the_other_tensor() -> None:
    gaps, blocked = MemoryDesc((4, 5), "f64", strides=(1, 9)), MemoryDesc((4, 5), "s8", "aB8b")
    for known, wanted in ((gaps, "ba"), (blocked, "aB8b")):
        op = Eltwise(known, MemoryDesc((4, 5), "f16", "any"), "relu")
        pd = primitive_desc(op, PrimitiveAttr(), cpu_target())
        assert (pd.impl_name(), pd.memories()[Arg.DST].tag) == ("ref:eltwise", wanted)
        backward = dataclasses.replace(op, prop="backward_data", dst=known, diff_dst=MemoryDesc((4, 5), "f16", "any"))
        assert primitive_desc(backward, PrimitiveAttr(), cpu_target()).memories()[Arg.DIFF_DST].tag == wanted


@pytest.mark.parametrize("algorithm", STEP_ALGORITHMS)
def test_a_function_of_steps_has_no_gradient(algorithm: str) -> None:
    op = Eltwise(flat(3, "f32"), flat(3, "f32"), algorithm, prop="backward_data")
    with pytest.raises(UnsupportedPrimitive, match=f"{algorithm} has no gradient"):
        primitive_desc(op, PrimitiveAttr(), cpu_target())
