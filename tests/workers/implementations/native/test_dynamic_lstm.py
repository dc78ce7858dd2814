"""LSTM cells that quantise their states, on native kernels: all steps in one launch and step by step, weights of any size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from poolrt.workers.desc import Arg, DynamicLstm, MemoryDesc, PostOp, PrimitiveAttr
from poolrt.workers.engines.target import cpu_target
from poolrt.workers.implementations.primitive_desc import UnsupportedPrimitive, primitive_desc
from tests.references.dynamic_lstm import dynamic_lstm
from tests.workers.levels import target_of
from tests.workers.native_runner import NativeRunner
from tests.workers.support.quantised_states import described

Array = NDArray[Any]


def drawn(op: DynamicLstm, rng: np.random.Generator, most: int) -> dict[int, Array]:
    """Return arguments with weights of a size up to ``most``."""
    hidden = op.weights.dims[0]
    given: dict[int, Array] = {}
    for arg, md in op.memories().items():
        if arg in op.outputs():
            continue
        match Arg(arg):
            case Arg.WEIGHTS:
                given[arg] = rng.integers(-most, most, md.dims).astype(np.int8)
            case Arg.SCALE:
                given[arg] = (rng.uniform(0.5, 2, md.dims) / most / np.sqrt(hidden)).astype(np.float32)
            case Arg.SHIFT:
                given[arg] = rng.integers(-9, 10, md.dims).astype(np.int32)
            case _:
                given[arg] = rng.standard_normal(md.dims).astype(np.float32)
    return given


def assert_follows(op: DynamicLstm, given: dict[int, Array], found: dict[int, Array]) -> None:
    """Raise AssertionError unless each step follows from the state before, as it was found."""
    h = found[Arg.DST].reshape(op.dst.dims)
    want, last = dynamic_lstm(op, given, h)
    np.testing.assert_allclose(h, want, atol=3e-6, err_msg=str(op))
    np.testing.assert_allclose(found[Arg.DST_1].reshape(last.shape), last, atol=6e-6, err_msg=str(op))


@pytest.mark.parametrize("instructions", ["x86-64-v2", "x86-64-v3", "x86-64-v3+avx_vnni", "x86-64-v4+avx512_vnni"])
def test_steps_follow_from_quantised_states(native: NativeRunner, instructions: str) -> None:
    rng = np.random.default_rng()
    target = target_of(instructions)
    # One channel, parts of groups of four inputs and of 16 channels; one sequence and several; one step and many.
    for steps, batch, hidden in ((9, 1, 1), (7, 3, 18), (1, 2, 33), (6, 1, 64), (2, 17, 5), (3, 2, 100)):
        for states, points, backwards in ((True, False, False), (False, True, True), (True, True, True)):
            op = described(steps, batch, hidden, states, points, backwards, tag="any")
            pd = primitive_desc(op, PrimitiveAttr(), target, references=False)
            assert pd.impl_name() == f"native:dynamic_lstm_{'vnni' if 'vnni' in instructions else 'bytes'}"
            # Sums of two products of 16 bits overflow for the larger weights.
            given = drawn(op, rng, int(rng.choice((60, 128))))
            assert_follows(op, given, native.results(pd, given))


def test_threads_share_the_steps_of_large_networks(native: NativeRunner, isa: str) -> None:
    rng = np.random.default_rng()
    for batch, hidden in ((34, 88), (1, 520)):
        op = described(3, batch, hidden, True, False, True, tag="any")
        one, two, four = (
            primitive_desc(op, PrimitiveAttr(), target_of(isa).on_threads(threads), references=False)
            for threads in (1, 2, 4)
        )
        studies = sum(spec.name == "dynamic_lstm_weights" for spec in one.program().kernels)
        assert [len(pd.program().launches) - studies for pd in (one, two)] == [1, 6]
        assert two.program() == four.program()
        given = drawn(op, rng, 128)
        for pd in (one, two):
            assert_follows(op, given, native.results(pd, given))


def test_states_of_extremes_and_none(native: NativeRunner, isa: str) -> None:
    # Saturated gates: h and c are exact, so that the last bytes of the range are reached, and zeros have the scale 1.
    op = described(8, 2, 16, False, False, False, tag="any")
    given = drawn(op, np.random.default_rng(3), 128)
    given[Arg.SRC] = np.full(op.src.dims, -200.0, np.float32)
    pd = primitive_desc(op, PrimitiveAttr(), target_of(isa), references=False)
    np.testing.assert_array_equal(native.results(pd, given)[Arg.DST], 0.0)
    given[Arg.SRC][:, 0, :, 0] = np.nan
    found = native.results(pd, given)[Arg.DST].reshape(op.dst.dims)
    assert np.isnan(found[:, 0, 0]).all()
    # A state with NaN has the range of zeros: its bytes are 0, and so is what they add.
    np.testing.assert_array_equal(found[:, 1], 0.0)


def test_what_is_not_supported_is_refused_with_the_reason() -> None:
    def refused(op: DynamicLstm, why: str, attr: PrimitiveAttr | None = None) -> None:
        with pytest.raises(UnsupportedPrimitive, match=why):
            primitive_desc(op, attr or PrimitiveAttr(), cpu_target(), references=False)

    refused(described(2, 1, 16, False, False, False, "f64", "any"), "data type f64")
    refused(described(2, 1, 16, False, False, False), "only bCA16c4a is supported")
    refused(described(2, 1, 16, True, False, False), "post-ops", PrimitiveAttr(post_ops=(PostOp("eltwise", "relu"),)))
    refused(described(2, 0, 16, True, False, False, tag="any"), "without elements")
    plain = described(2, 1, 16, True, False, False)
    with pytest.raises(ValueError, match="src_iter_c"):
        DynamicLstm(
            plain.src,
            plain.src_iter,
            None,
            *(getattr(plain, n) for n in ("weights", "scales", "points", "dst", "dst_iter_c")),
        )
    with pytest.raises(ValueError, match="weights: expect s8"):
        DynamicLstm(
            plain.src, None, None, MemoryDesc((16, 4, 16), "u8"), plain.scales, None, plain.dst, plain.dst_iter_c
        )
