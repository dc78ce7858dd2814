"""Reference implementations on OpenCL: a device without double precision, larger grids, more memories."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from poolrt.workers.desc import (
    Arg,
    BatchNormalization,
    Convolution,
    Eltwise,
    Lstm,
    MemoryDesc,
    PostOp,
    PrimitiveAttr,
    Quantisation,
    Reorder,
    Sum,
)
from poolrt.workers.desc.attributes import ELTWISE_ALGORITHMS
from poolrt.workers.implementations.primitive_desc import PrimitiveDesc
from tests.references import converted
from tests.workers.cases.pointwise import eltwise_values
from tests.workers.implementations.reference.drawing import arguments, check

from .runner import OpenClRunner

Array = NDArray[Any]
#: alpha and beta where an algorithm has no sensible results with 0.5 and 0.75.
PARAMETERS = {"clip": (-1.0, 6.0), "clip_v2": (-1.0, 6.0), "softplus": (-2.0, 0.0), "pow": (1.5, 2.5)}


class Single:
    """The device as if it had no double precision."""

    def __init__(self, runner: OpenClRunner) -> None:
        self._runner = runner
        device = tuple((name, "False" if name == "fp64" else value) for name, value in runner.target.device)
        self.target = replace(runner.target, device=device)

    def results(self, pd: PrimitiveDesc, args: Mapping[int, Array]) -> dict[int, Array]:
        """Return everything that a primitive writes."""
        return self._runner.results(pd, args)


@pytest.fixture
def single(opencl: OpenClRunner) -> Single:
    return Single(opencl)


@pytest.mark.parametrize("algorithm", ELTWISE_ALGORITHMS)
def test_every_algorithm_in_single_precision(single: Single, algorithm: str) -> None:
    values = np.linspace(-12, 12, 401)
    values = np.abs(values) + 0.01 if algorithm in ("sqrt", "log", "pow") else values
    md = MemoryDesc(values.shape, "f32")
    op = Eltwise(md, md, algorithm, *PARAMETERS.get(algorithm, (0.5, 0.75)))
    check(single, op, args={Arg.SRC: converted(values, "f32")}, threshold=2e-5)


@pytest.mark.parametrize("target", ["f32", "f16", "bf16", "s32", "s8", "u8", "bool"])
def test_types_become_others_in_single_precision(single: Single, target: str) -> None:
    values = eltwise_values("relu")
    src, dst = MemoryDesc(values.shape, "f32"), MemoryDesc(values.shape, target)
    check(single, Reorder(src, dst), args={Arg.SRC: values}, threshold=0.0)


def test_attributes_in_single_precision(single: Single) -> None:
    """Integers that float32 holds are exact, and so are alpha and beta of every size."""
    src, dst = MemoryDesc((2, 5, 4), "u8", "aBc4b"), MemoryDesc((2, 3, 3), "f32")
    op = Convolution(src, MemoryDesc((3, 5, 2), "s8"), None, dst, (1,), (1,), (1,), (0,))
    steps = (
        PostOp.accumulate(-0.5, 3), PostOp("eltwise", "linear", 2.0**-100, -0.0), PostOp("eltwise", "linear", 2.0**100, 0.0),
        PostOp("binary", "sub", src1=MemoryDesc((1, 3, 1), "bf16")), PostOp("eltwise", "clip", -1e30, float("inf")),
    )  # fmt: skip
    quantised = (Quantisation(Arg.SRC), Quantisation(Arg.WEIGHTS, 1))
    check(single, op, PrimitiveAttr(steps, quantised, quantised), threshold=0.0)


@pytest.mark.slow
def test_normalisation_in_single_precision(single: Single) -> None:
    md = MemoryDesc((3, 5, 4), "f32")
    op = BatchNormalization(md, md, 1e-3, ("use_scale", "use_shift"), "forward_training")
    check(single, op, threshold=1e-5)


@pytest.mark.slow
def test_recurrence_in_single_precision(single: Single) -> None:
    md = MemoryDesc
    op = Lstm(
        md((3, 2, 4), "f32"), None, None, md((1, 2, 4, 4, 4), "f32"), md((1, 2, 4, 4, 4), "f32"), None,
        md((3, 2, 8), "f32"), md((1, 2, 2, 4), "bf16"), None, "bidirectional_concat",
    )  # fmt: skip
    check(single, op, args=arguments(op, PrimitiveAttr(), 1, -1.5, 1.5), threshold=1e-2)


def test_items_beyond_a_row_of_the_grid(opencl: OpenClRunner) -> None:
    md = MemoryDesc((3, 33001), "s8")
    check(opencl, Reorder(md, replace(md, dtype="f16", tag="ba")), threshold=0.0)


def test_more_sources_than_a_usual_program_takes(opencl: OpenClRunner) -> None:
    md = MemoryDesc((2, 3), "s8")
    check(opencl, Sum((md,) * 20, replace(md, dtype="s32"), tuple(map(float, range(20)))), threshold=0.0)
