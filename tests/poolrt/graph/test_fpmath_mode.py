"""The mode of floating point of a graph: in its wire form and in the keys of its products, and no other operation's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from poolrt import Graph, GraphError
from poolrt.graph.lower import lower
from poolrt.graph.lowered_plan import LoweredPlan
from poolrt.graph.wire_parser import parse
from poolrt.workers.desc import Arg
from poolrt.workers.desc.attributes import FPMATH_MODES
from poolrt.workers.engines.isa import extensions_of
from poolrt.workers.engines.target import Target
from poolrt.workers.plans.execution_plan import Step
from poolrt.workers.primitives.key import primitive_key

#: A processor with every extension, which need not be this one, and one with AVX2.
EVERYTHING = Target("cpu", "native", (("isa", "x86-64-v4"), ("extensions", " ".join(extensions_of("x86-64-v4")))))
AVX2 = Target("cpu", "native", (("isa", "x86-64-v3"),))


def network(mode: str) -> Graph:
    """Return a convolution, a product by a constant, an inner product, and a product of two inputs."""
    rng = np.random.default_rng(7)
    g = Graph("network", fpmath_mode=mode)
    x = g.convolution(g.input("x", (40, 3, 5, 5)), rng.standard_normal((8, 3, 3, 3), np.float32), name="windows")
    rows = g.matmul(g.reshape(x, (40, 72)), rng.standard_normal((72, 50), np.float32), name="by constant")
    rows = g.inner_product(rows, rng.standard_normal((30, 50), np.float32), name="inner")
    g.output("y", g.matmul(rows, g.input("z", (30, 20)), name="by input"))
    return g


def lowered(graph: Graph, target: Target) -> dict[str, Any]:
    """Return the primitive descriptor of each step by name, from the graph's wire form."""
    plan: LoweredPlan = lower(parse(graph.to_wire()[0]), {"cpu": target})
    return {step.name: plan.primitives[step.primitive] for step in plan.plan.steps if isinstance(step, Step)}


@pytest.mark.parametrize("mode", FPMATH_MODES)
def test_products_have_the_mode_of_the_graph_in_their_keys_and_other_operations_do_not(mode: str) -> None:
    found, strict = lowered(network(mode), AVX2), lowered(network("strict"), AVX2)
    for name in ("by constant", "inner", "by input"):
        assert found[name].attr.fpmath_mode == mode
        assert (primitive_key(found[name]) == primitive_key(strict[name])) == (mode == "strict")
        # The programs are the same: a processor without the instruction computes in f32.
        assert found[name].program() == strict[name].program()
    assert primitive_key(found["windows"]) == primitive_key(strict["windows"])


@pytest.mark.parametrize("mode", FPMATH_MODES)
def test_constants_of_products_are_rounded_once_if_mode_and_processor_allow_it(mode: str) -> None:
    found = lowered(network(mode), EVERYTHING)
    rounds = mode in ("bf16", "any")
    for name in ("by constant", "inner"):
        assert found[name].impl_name() == ("native:amx_bf16" if rounds else "native:tiles")
        assert found[name].memories()[Arg.WEIGHTS].dtype == ("bf16" if rounds else "f32")
        assert found[name].memories()[Arg.DST].dtype == "f32"
    assert found["by input"].memories()[Arg.WEIGHTS].dtype == "f32"
    plan = lower(network(mode).to_ir(), {"cpu": EVERYTHING})
    forms = [plan.primitives[c.reorder].memories()[Arg.DST].dtype for c in plan.plan.constants if c.reorder is not None]
    assert forms.count("bf16") == (2 if rounds else 0)


def test_an_unknown_mode_is_refused_where_it_is_given() -> None:
    known = "known: strict, bf16, f16, any"
    for wrong in ("fast", "BF16", "", None, ["bf16"]):
        with pytest.raises(GraphError, match=f"graph 'g': fpmath_mode: unknown .*; {known}"):
            Graph("g", fpmath_mode=wrong)  # type: ignore[arg-type]
        g = Graph("g", fpmath_mode="bf16")
        with pytest.raises(GraphError, match=f"fpmath_mode: unknown .*; {known}"):
            g.fpmath_mode = wrong  # type: ignore[assignment]
        assert g.fpmath_mode == "bf16"
