"""Schedules: what is copied where devices do not work on the host's memory, and what shares memory."""

from __future__ import annotations

from poolrt import Graph
from poolrt.inprocess.schedule import ON_HOST, Copy, Schedule, scheduled
from poolrt.workers.plans.execution_plan import PlaceKind
from tests.poolrt.graph.test_layout_inserter import lowered, ones


def schedule(graph: Graph, on_host: bool) -> Schedule:
    """Return the schedule of a graph whose devices work on the host's memory or do not."""
    plan = lowered(graph)
    return scheduled(plan, [on_host or engine == "cpu" for engine in plan.plan.engines])


def story(found: Schedule) -> list[str]:
    """Return the outputs of operations, and from where to where each copy goes."""

    def place(number: int) -> str:
        (engine, kind, *_), _ = found.tensors[number]
        return f"{kind.name.lower()} on {'host' if engine == ON_HOST else found.lowered.plan.engines[engine]}"

    return [
        f"{place(step.source)} -> {place(step.destination)}" if isinstance(step, Copy) else step.output
        for step in found.steps
    ]


def across() -> Graph:
    g = Graph("g")
    x = g.eltwise(g.input("x", (8, 32)), "tanh", name="first")
    y = g.matmul(x, ones(32, 32), engine="opencl:0", name="product")
    g.output("y", g.softmax(y, name="last"))
    g.output("z", g.binary(x, y, "add", engine="opencl:0", name="sum"))
    return g


def test_nothing_is_copied_where_every_engine_works_on_the_hosts_memory() -> None:
    found = schedule(across(), on_host=True)
    assert story(found) == ["first", "product", "last", "sum"]
    assert {tensor.engine for tensor, _ in found.tensors} == {ON_HOST}


def test_a_devices_own_memory_is_filled_once_for_all_who_read_it_and_fetched_at_the_end() -> None:
    assert story(schedule(across(), on_host=False)) == [
        "first",
        "work on host -> work on opencl:0",
        "product",
        "work on opencl:0 -> work on host",
        "last",
        "sum",
        "output on opencl:0 -> output on host",
    ]


def test_inputs_come_to_a_device_first_and_constants_are_no_step() -> None:
    g = Graph("g", "opencl:0")
    g.output("y", g.matmul(g.input("x", (8, 32)), ones(32, 32), name="product"))
    found = schedule(g, on_host=False)
    assert story(found) == [
        "input on host -> input on opencl:0",
        "product",
        "output on opencl:0 -> output on host",
    ]
    constants = [tensor.engine for tensor, _ in found.tensors if tensor.kind is PlaceKind.CONSTANT]
    assert constants == [0]


def test_a_part_of_a_devices_tensor_is_read_from_a_copy_that_begins_with_it() -> None:
    g = Graph("g", "opencl:0")
    x = g.eltwise(g.input("x", (6, 32)), "tanh", name="first")
    g.output("y", g.eltwise(g.slice(x, 2, 5), "exp", name="second"))
    (cut,) = [s for s in schedule(g, on_host=False).steps if isinstance(s, Copy) and s.start]
    assert (cut.start, cut.nbytes) == (2 * 32 * 4, 3 * 32 * 4)
    assert not [s for s in schedule(g, on_host=True).steps if isinstance(s, Copy)]


def test_inputs_and_outputs_come_first_and_steps_of_one_name_are_told_apart() -> None:
    g = Graph("g")
    x = g.input("x", (1, 32, 8, 8))
    for number in range(2):
        g.output(f"y{number}", g.convolution(x, ones(32, 32, 3, 3), name=f"conv{number}"))
    found = schedule(g, on_host=True)
    assert [(tensor.kind, tensor.value) for tensor, _ in found.tensors[:3]] == [
        (PlaceKind.INPUT, 0),
        (PlaceKind.OUTPUT, 0),
        (PlaceKind.OUTPUT, 1),
    ]
    names = story(found)
    assert len(set(names)) == len(names)


def test_results_that_are_never_alive_together_share_memory() -> None:
    g = Graph("g")
    x = g.input("x", (64, 64))
    for _ in range(6):
        x = g.eltwise(x, "tanh")
    g.output("y", x)
    work = [nbytes for tensor, nbytes in schedule(g, on_host=True).tensors if tensor.kind is PlaceKind.WORK]
    assert work == [64 * 64 * 4] * 2
