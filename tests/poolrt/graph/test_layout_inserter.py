"""The switch between engines, layouts and data types: what is inserted, what is shared, and what is left alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from poolrt import Graph
from poolrt.graph.engine_name import engines_of
from poolrt.graph.errors import LoweringError
from poolrt.graph.lower import lower
from poolrt.graph.lowered_plan import LoweredPlan
from poolrt.graph.wire_parser import parse
from poolrt.workers.desc.codec import decode, encode
from poolrt.workers.engines.target import Target
from poolrt.workers.plans.execution_plan import CrossEngineReorder, ExecutionPlan, PlaceKind, Step

from .lowering import CPU

DEVICE = Target("opencl", "opencl", (("name", "a device"), ("type", "CPU"), ("vector_width", "8")))
TARGETS = {"cpu": CPU, "opencl:0": DEVICE, "opencl:1": DEVICE}


def ones(*shape: int) -> Any:
    return np.ones(shape, np.float32)


def lowered(graph: Graph) -> LoweredPlan:
    found = lower(parse(graph.to_wire()[0]), TARGETS)
    assert decode(ExecutionPlan, encode(found.plan)) == found.plan
    return found


def story(found: LoweredPlan) -> list[str]:
    """Return the operation and engine of each step, and from where to where each crossing goes."""
    plan, steps = found.plan, []
    for step in plan.steps:
        if isinstance(step, CrossEngineReorder):
            steps.append(f"{plan.engines[step.source_engine]} -> {plan.engines[step.destination_engine]}")
        else:
            kind = found.primitives[step.primitive].op.kind
            steps.append(f"{kind} {plan.engines[plan.primitives[step.primitive]]}")
    return steps


def test_a_graph_for_one_engine_crosses_nothing() -> None:
    g = Graph("g", "opencl")
    x = g.input("x", (8, 32))
    g.output("y", g.eltwise(g.matmul(x, ones(32, 32)), "tanh"))
    found = lowered(g)
    assert found.plan.engines == ("opencl:0",)
    assert story(found) == ["inner_product opencl:0", "eltwise opencl:0"]


def test_a_node_on_another_engine_brings_its_operand_there_and_its_result_back() -> None:
    g = Graph("g")
    x = g.eltwise(g.input("x", (8, 32)), "tanh")
    y = g.matmul(x, ones(32, 32), engine="opencl:0")
    g.output("y", g.softmax(y))
    found = lowered(g)
    assert engines_of(g.to_wire()[0]) == ["cpu", "opencl:0"]
    assert found.plan.engines == ("cpu", "opencl:0")
    assert story(found) == [
        "eltwise cpu",
        "cpu -> opencl:0",
        "inner_product opencl:0",
        "opencl:0 -> cpu",
        "softmax cpu",
    ]


def test_inputs_constants_and_outputs_are_read_and_written_where_they_lie() -> None:
    g = Graph("g")
    x = g.input("x", (8, 32))
    for number, engine in enumerate(("cpu", "opencl:0", "opencl:1")):
        g.output(f"y{number}", g.binary(x, ones(8, 32), "add", engine=engine))
    found = lowered(g)
    assert story(found) == ["binary cpu", "binary opencl:0", "binary opencl:1"]
    assert len(found.plan.constants) == 3


def test_a_tensor_crosses_once_for_all_who_read_it_and_constants_never_do() -> None:
    g = Graph("g")
    x, shared = g.eltwise(g.input("x", (8, 32)), "tanh"), ones(8, 32)
    total = [g.binary(x, shared, algorithm, engine="opencl:0") for algorithm in ("add", "mul", "max")]
    g.output("y", g.sum([*total, x], engine="opencl:0"))
    found = lowered(g)
    assert story(found).count("cpu -> opencl:0") == 1
    assert len(found.plan.constants) == 1


def test_a_layout_is_changed_where_it_is_understood_before_a_tensor_crosses() -> None:
    g = Graph("g")
    x = g.convolution(g.input("x", (1, 32, 8, 8)), ones(32, 32, 3, 3))
    g.output("y", g.eltwise(x, "tanh", engine="opencl:0"))
    assert story(lowered(g)) == ["reorder cpu", "convolution cpu", "reorder cpu", "cpu -> opencl:0", "eltwise opencl:0"]


def test_what_several_nodes_of_another_engine_want_is_reordered_and_crosses_once() -> None:
    g = Graph("g")
    x = g.convolution(g.input("x", (1, 32, 8, 8)), ones(32, 32, 3, 3))
    for number, algorithm in enumerate(("tanh", "exp", "relu")):
        g.output(f"y{number}", g.eltwise(x, algorithm, engine="opencl:0"))
    steps = story(lowered(g))
    assert steps == ["reorder cpu", "convolution cpu", "reorder cpu", "cpu -> opencl:0", *["eltwise opencl:0"] * 3]


def test_weights_that_several_nodes_want_in_one_layout_are_reordered_once_when_loaded() -> None:
    g = Graph("g")
    x, weights = g.input("x", (1, 32, 8, 8)), ones(32, 32, 3, 3)
    g.output("y", g.convolution(g.convolution(x, weights), weights))
    (constant,) = lowered(g).plan.constants
    assert constant.reorder is not None


def test_between_two_devices_a_tensor_crosses_by_way_of_the_host() -> None:
    g = Graph("g", "opencl:0")
    x = g.eltwise(g.input("x", (8, 32)), "tanh")
    g.output("y", g.eltwise(x, "exp", engine="opencl:1"))
    found = lowered(g)
    crossings = ["opencl:0 -> cpu", "cpu -> opencl:1"]
    assert story(found) == ["eltwise opencl:0", *crossings, "eltwise opencl:1"]
    # Equal devices have equal primitives, but each engine realizes its own.
    assert len({key.digest for key in found.keys}) == 2


def test_what_crossed_stays_as_long_as_it_is_read_on_the_other_side() -> None:
    # Given a tensor that crosses early and is read late, while others are made and dropped
    g = Graph("g")
    x = g.eltwise(g.input("x", (64, 64)), "tanh")
    early = g.eltwise(x, "exp", engine="opencl:0")
    y = x
    for _ in range(3):
        y = g.eltwise(y, "square")
    g.output("y", y)
    g.output("z", g.binary(early, x, "add", engine="opencl:0"))
    found = lowered(g)
    # Then nothing overwrites its bytes on the source engine while a step on the other engine still reads it
    plan = found.plan
    last = max(n for n, s in enumerate(plan.steps) if isinstance(s, Step) and plan.primitives[s.primitive] == 1)
    crossing = next(s for s in plan.steps if isinstance(s, CrossEngineReorder))
    start, end = crossing.source.value, crossing.source.value + crossing.nbytes
    for step in plan.steps[plan.steps.index(crossing) : last]:
        if isinstance(step, Step) and plan.primitives[step.primitive] == 0:
            written = dict(step.args)[17]
            assert written.kind is not PlaceKind.WORK or not start - crossing.nbytes < written.value < end


def test_what_an_engine_cannot_do_is_done_on_the_host_unless_the_node_insists() -> None:
    def graph(**options: Any) -> Graph:
        g = Graph("g", "opencl:0")
        x = g.input("x", (2, 8, 5, 5), "float64")
        g.output("y", g.softmax(g.eltwise(x, "tanh", **options), 1))
        return g

    assert story(lowered(graph())) == ["eltwise cpu", "softmax cpu"]
    with pytest.raises(LoweringError, match="eltwise on engine kind opencl is not supported"):
        lowered(graph(engine="opencl:0"))


def test_a_reorder_to_an_engine_is_a_crossing() -> None:
    g = Graph("g")
    x = g.eltwise(g.input("x", (8, 32)), "tanh")
    g.output("y", g.eltwise(g.reorder(x, engine="opencl:0"), "exp", engine="opencl:0"))
    assert story(lowered(g)) == ["eltwise cpu", "cpu -> opencl:0", "eltwise opencl:0"]


def test_a_data_type_is_changed_once_and_where_it_is_asked_for() -> None:
    g = Graph("g")
    x = g.input("x", (8, 32))
    narrow = g.reorder(x, dtype="uint8", scales={"dst": 0.5}, zero_points={"dst": 3})
    g.output("y", g.reorder(narrow, dtype="int32"))
    g.output("z", g.reorder(narrow, dtype="int32"))
    assert story(lowered(g)) == ["reorder cpu", "reorder cpu", "reorder cpu"]


def test_a_node_may_name_its_implementation() -> None:
    g = Graph("g")
    x = g.input("x", (8, 32))
    g.output("y", g.eltwise(g.eltwise(x, "tanh", implementation="ref:"), "exp"))
    assert [pd.impl_name() for pd in lowered(g).primitives] == ["ref:eltwise", "native:eltwise"]
    g.output("z", g.eltwise(x, "tanh", implementation="fast:", name="z"))
    with pytest.raises(LoweringError, match=r"node 'z' .*native:eltwise: its name does not begin with fast:"):
        lowered(g)


def test_a_node_with_an_engine_of_its_own_is_not_folded_into_one_elsewhere() -> None:
    g = Graph("g")
    x = g.convolution(g.input("x", (1, 32, 8, 8)), ones(32, 32, 3, 3))
    g.output("y", g.binary(x, ones(1, 32, 1, 1), "mul", engine="opencl:0"))
    assert story(lowered(g))[-1] == "binary opencl:0"


def test_an_engine_without_a_target_is_refused() -> None:
    g = Graph("g")
    g.output("y", g.eltwise(g.input("x", (8, 32)), "tanh", engine="opencl:7"))
    with pytest.raises(LoweringError, match="engine: opencl:7 has no target"):
        lowered(g)
