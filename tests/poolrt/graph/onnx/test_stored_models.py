"""ONNX's stored models: poolrt computes all that ONNX Runtime computes in the same run."""

from __future__ import annotations

import pytest

from poolrt.workers.primitives.provider import PrimitiveProvider
from tests.poolrt.onnx.models import session

from .stored_models import run


@pytest.mark.parametrize(
    ("kind", "least"),
    [
        ("simple", 17),
        pytest.param("pytorch-operator", 24, marks=pytest.mark.slow),
        pytest.param("pytorch-converted", 57, marks=pytest.mark.slow),
        pytest.param("real", 9, marks=pytest.mark.slow),
    ],
)
def test_all_that_onnx_runtime_computes_is_right(kind: str, least: int, cache: PrimitiveProvider) -> None:
    counts, broken = run(kind, lambda model: session(model, cache))
    assert broken == []
    assert counts["poolrt right"] >= least
