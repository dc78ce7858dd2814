"""What a model tells of its steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import poolrt

from .created import create
from .test_engines import mixed_graph


def ones(*shape: int) -> Any:
    return np.ones(shape, np.float32)


def test_a_model_tells_steps_layouts_and_what_was_inserted(pool: poolrt.Pool, settings: dict[str, Any]) -> None:
    g = poolrt.Graph("net")
    x = g.convolution(g.input("x", (1, 32, 8, 8)), ones(32, 32, 3, 3), padding=1, name="conv")
    g.output("y", g.eltwise(x, "tanh", name="act"))
    create(settings["home"], g)
    plan = pool.load(g).plan()
    assert [step.operation for step in plan.steps] == ["reorder", "convolution", "eltwise", "reorder"]
    assert (plan.reorders, plan.cross_engine_reorders) == (2, 0)
    first, conv, act, last = plan.steps
    assert [str(tensor) for tensor in first.operands] == ["src f32:abcd:1x32x8x8 (input 0)"]
    assert (conv.name, conv.engine, conv.results[0].layout) == ("conv", "cpu", "aBcd16b")
    assert act.implementation == "native:eltwise"
    assert last.results[0].where == "output 0"
    (weights,) = plan.constants
    assert (weights.operation, weights.operands[0].layout) == ("reorder", "abcd")
    assert "act: eltwise native:eltwise on cpu: src f32:aBcd16b:1x32x8x8 -> dst f32:aBcd16b:1x32x8x8" in str(plan)


def test_two_convolutions_in_a_row_have_no_reorder_between_them(pool: poolrt.Pool, settings: dict[str, Any]) -> None:
    # Given the same graph with one convolution more
    def reorders(count: int) -> int:
        g = poolrt.Graph("net")
        x = g.input("x", (1, 32, 8, 8))
        for number in range(count):
            x = g.convolution(x, ones(32, 32, 3, 3), padding=1, name=f"conv{number}")
        g.output("y", x)
        create(settings["home"], g)
        return pool.load(g).plan().reorders

    # Then it reorders no more
    assert reorders(1) == reorders(2) == 2


def test_cross_engine_reorders_are_listed_with_their_engines(device: str, settings: dict[str, Any]) -> None:
    with poolrt.Pool(workers=1, threads=1, **settings) as pool:
        plan = pool.load(mixed_graph("opencl:0")).plan()
    assert [step.engine for step in plan.steps] == ["cpu", "cpu -> opencl:0", "opencl:0", "opencl:0 -> cpu", "cpu"]
    assert (plan.reorders, plan.cross_engine_reorders) == (0, 2)


def test_a_closed_model_tells_nothing(pool: poolrt.Pool) -> None:
    g = poolrt.Graph("net")
    g.output("y", g.eltwise(g.input("x", (4, 8)), "relu"))
    model = pool.load(g)
    model.close()
    with pytest.raises(poolrt.errors.PoolClosed, match="model net is closed"):
        model.plan()
