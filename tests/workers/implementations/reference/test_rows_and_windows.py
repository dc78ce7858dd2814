"""The reference implementations of reduction, resampling, softmax and LRN, against NumPy in float64."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poolrt.workers.desc import (
    Arg,
    Lrn,
    MemoryDesc,
    PostOp,
    PrimitiveAttr,
    Quantisation,
    Reduction,
    Resampling,
    Softmax,
    scales_of,
)
from poolrt.workers.desc.operations.reduction import REDUCTION_ALGORITHMS
from tests.references import converted

from .drawing import LAST_PLACE, Runner, attributes, check, described, examples, reference_of, shapes

FLOAT = st.sampled_from(tuple(LAST_PLACE))


@examples(35)
@given(data=st.data(), algorithm=st.sampled_from(REDUCTION_ALGORITHMS))
def test_reductions_along_any_dimensions(runner: Runner, data: st.DataObject, algorithm: str) -> None:
    dims = data.draw(shapes(largest=5))
    out = tuple(data.draw(st.sampled_from((1, 1, d))) for d in dims)
    # Roots and quotients are rounded, so that only floats are compared by a unit in the last place.
    exact = algorithm in ("max", "min", "sum", "mul", "norm_lp_power_p_sum")
    op = Reduction(
        data.draw(described(dims)), data.draw(described(out, None if exact else data.draw(FLOAT))), algorithm,
        2.0 if exact else data.draw(st.sampled_from((1.0, 1.5, 3.0))), data.draw(st.sampled_from((0.0, 0.5, 50.0))),
    )  # fmt: skip
    attr = data.draw(attributes(op)) if exact else PrimitiveAttr()
    check(runner, op, attr, data.draw(st.integers(0, 99)))


@pytest.mark.parametrize(("algorithm", "wanted"), [("sum", 0.0), ("mul", 1.0), ("max", -np.inf), ("min", np.inf)])
def test_a_reduction_of_nothing_is_neutral(runner: Runner, algorithm: str, wanted: float) -> None:
    op = Reduction(MemoryDesc((2, 0), "f32"), MemoryDesc((2, 1), "f32"), algorithm)
    got = runner.results(reference_of(op, PrimitiveAttr(), runner.target), {Arg.SRC: np.zeros((2, 0), np.float32)})
    assert got[Arg.DST].tolist() == [[wanted], [wanted]]


@examples(30)
@given(data=st.data(), algorithm=st.sampled_from(("nearest", "linear")))
def test_resampling_to_any_sizes(runner: Runner, data: st.DataObject, algorithm: str) -> None:
    outer, spatial = data.draw(shapes(2, 2, 4)), data.draw(shapes(1, 3, 6))
    wanted = tuple(data.draw(st.integers(1, 7)) for _ in spatial)
    dtype = None if algorithm == "nearest" else data.draw(FLOAT)
    op = Resampling(data.draw(described(outer + spatial)), data.draw(described(outer + wanted, dtype)), algorithm)
    attr = data.draw(attributes(op)) if algorithm == "nearest" else PrimitiveAttr()
    check(runner, op, attr, data.draw(st.integers(0, 99)))


@examples(25)
@given(data=st.data(), algorithm=st.sampled_from(("accurate", "log")))
def test_softmax_along_any_axis(runner: Runner, data: st.DataObject, algorithm: str) -> None:
    dims = data.draw(shapes())
    axis = data.draw(st.integers(0, len(dims) - 1))
    op = Softmax(data.draw(described(dims)), data.draw(described(dims, data.draw(FLOAT))), axis, algorithm)
    check(runner, op, seed=data.draw(st.integers(0, 99)))


@pytest.mark.parametrize("algorithm", ["accurate", "log"])
@pytest.mark.parametrize(
    "row", [[1e3, -1e3, 0.0], [np.inf, 0.0, 1.0], [-np.inf] * 3, [np.nan, 1.0, 2.0], [-np.inf, 3.0, 3.0]]
)
def test_softmax_of_extreme_rows(runner: Runner, row: list[float], algorithm: str) -> None:
    md = MemoryDesc((1, 3), "f64")
    check(runner, Softmax(md, md, 1, algorithm), args={Arg.SRC: np.array([row])})


@pytest.mark.parametrize("dtype", ["s8", "u8", "s32"])
def test_a_scaled_softmax_becomes_an_integer(runner: Runner, dtype: str) -> None:
    src, dst = MemoryDesc((2, 5), "s8"), MemoryDesc((2, 5), dtype)
    attr = PrimitiveAttr((PostOp("eltwise", "linear", 1.0, 0.25),), (Quantisation(Arg.SRC, 1), Quantisation(Arg.DST)))
    args = {
        Arg.SRC: converted(np.arange(10.0).reshape(2, 5), "s8"),
        scales_of(Arg.SRC): np.array([0.3, 0.7], np.float32),
        scales_of(Arg.DST): np.array([1 / 255], np.float32),
    }
    check(runner, Softmax(src, dst, 1), attr, args=args)


@examples(25)
@given(data=st.data(), algorithm=st.sampled_from(("accurate", "log")))
def test_gradients_of_softmax(runner: Runner, data: st.DataObject, algorithm: str) -> None:
    dims = data.draw(shapes(largest=5))
    axis = data.draw(st.integers(0, len(dims) - 1))
    src, dst, diff_dst = (data.draw(described(dims)) for _ in range(3))
    diff_src = data.draw(described(dims, data.draw(FLOAT)))
    op = Softmax(src, dst, axis, algorithm, "backward_data", diff_src, diff_dst)
    # Terms of either sign are added: their errors are relative to the largest.
    check(runner, op, seed=data.draw(st.integers(0, 99)), threshold=max(1e-9, LAST_PLACE[diff_src.dtype]))


@examples(25)
@given(data=st.data(), within=st.booleans(), size=st.integers(1, 6))
def test_lrn_windows_of_any_size(runner: Runner, data: st.DataObject, within: bool, size: int) -> None:
    dims = data.draw(shapes(3 if within else 2, 4, 5))
    dst = data.draw(described(dims, data.draw(FLOAT)))
    algorithm = "within_channel" if within else "across_channels"
    op = Lrn(data.draw(described(dims)), dst, size, 0.5, 0.75, 1.25, algorithm)
    check(runner, op, seed=data.draw(st.integers(0, 99)))
