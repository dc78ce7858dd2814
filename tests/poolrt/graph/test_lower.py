"""Plans: reorders only where layouts differ, each made once; views that move nothing."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest

from poolrt import Graph
from poolrt.graph import choice
from poolrt.graph.lower import lower
from poolrt.graph.wire_parser import parse
from poolrt.workers.desc import MemoryDesc
from poolrt.workers.desc.codec import decode, encode
from poolrt.workers.implementations.primitive_desc import find_accepting
from poolrt.workers.plans.execution_plan import ExecutionPlan, PlaceKind
from tests.workers.levels import target_of

from .lowering import CPU, kinds, lowered, reorders, steps


def ones(*shape: int) -> Any:
    return np.ones(shape, np.float32)


def test_convolutions_share_their_layout_and_the_graphs_edges_are_reordered_once() -> None:
    g = Graph("g")
    x = g.convolution(g.input("x", (1, 32, 8, 8)), ones(32, 32, 3, 3), padding=1)
    for _ in range(3):
        x = g.convolution(g.eltwise(x, "tanh"), ones(32, 32, 3, 3), padding=1)
    g.output("y", g.pooling(x, "max", 2, strides=2))
    plan = lowered(g)
    assert kinds(plan) == ["reorder", "convolution", *["eltwise", "convolution"] * 3, "pooling", "reorder"]
    # Weights are reordered once for all, when the graph is loaded.
    assert all(constant.reorder is not None for constant in plan.plan.constants)


def test_a_tensor_that_several_steps_want_in_one_layout_is_reordered_once() -> None:
    g = Graph("g")
    x = g.input("x", (1, 32, 8, 8))
    for number in range(3):
        y = g.convolution(x, ones(32, 32, 3, 3), name=f"conv{number}")
        g.output(f"y{number}", y)
    assert reorders(lowered(g)) == 1 + 3


def test_nothing_is_reordered_where_layouts_agree() -> None:
    g = Graph("g")
    x = g.input("x", (8, 32))
    g.output("y", g.softmax(g.binary(g.inner_product(x, ones(32, 32)), x, "mul")))
    assert reorders(lowered(g)) == 0


@pytest.mark.parametrize(("sizes", "moves"), [((60,), 2), ((20, 28), 1), ((20, 46), 2), ((6, 9, 12), 1)])
def test_a_convolution_of_every_third_place_has_no_others_reordered(sizes: tuple[int, ...], moves: int) -> None:
    # Given points a stride apart of a row-major source, which blocks of channels are computed from
    g = Graph("g")
    x, weights = g.input("x", (2, 160, *sizes)), ones(40, 160, *(1 for _ in sizes))
    g.output("y", g.convolution(x, weights, strides=3))
    plan = lowered(g)
    # Then only these are brought into blocks, those of long rows side by side first
    assert kinds(plan) == [*["reorder"] * moves, "convolution", "reorder"]
    moved, *_, convolution, _ = (cast("Any", plan.primitives[step.primitive].op) for step in steps(plan))
    assert moved.src.dims == convolution.src.dims == (2, 160, *(-(-size // 3) for size in sizes))
    assert moved.src.strides[2:] == tuple(3 * stride for stride in MemoryDesc(x.shape, "f32").outer_strides()[2:])


def test_a_convolution_that_reads_its_source_in_place_has_no_view_of_it() -> None:
    g = Graph("g")
    x = g.convolution(g.input("x", (1, 32, 16, 16)), ones(64, 32, 3, 3), padding=1)
    g.output("y", g.convolution(x, ones(32, 64, 1, 1), strides=2))
    assert kinds(lowered(g)) == ["reorder", "convolution", "convolution", "reorder"]


def test_equal_steps_share_one_primitive() -> None:
    g = Graph("g")
    x = g.input("x", (8, 32))
    for _ in range(4):
        x = g.eltwise(x, "exp")
    g.output("y", x)
    plan = lowered(g)
    assert len(plan.plan.steps) == 4
    assert len(plan.primitives) == 1


def test_a_slice_of_leading_dimensions_moves_nothing() -> None:
    # Given slices that are contiguous in memory
    g = Graph("g")
    x = g.eltwise(g.input("x", (6, 4, 5)), "exp")
    first = g.slice(x, 2, 4)
    second = g.slice(x, (4, 1), (5, 3), (0, 1))
    # When operations read them
    g.output("y", g.eltwise(first, "tanh"))
    g.output("z", g.eltwise(second, "tanh"))
    plan = lowered(g)
    # Then they read them where they lie
    assert kinds(plan) == ["eltwise"] * 3
    starts = [dict(step.args)[1].start for step in steps(plan)]
    assert starts == [0, 2 * 20 * 4, (4 * 20 + 5) * 4]


def test_other_slices_and_expansions_are_copied_by_one_reorder_however_many_views_there_are() -> None:
    g = Graph("g")
    x = g.input("x", (6, 4, 5))
    view = g.expand(g.unsqueeze(g.slice(g.transpose(x, (2, 0, 1)), 1, 5, 1, 2), 1), (5, 3, 2, 4))
    g.output("y", g.eltwise(view, "tanh"))
    g.output("z", g.eltwise(view, "exp"))
    plan = lowered(g)
    assert kinds(plan) == ["reorder", "eltwise", "eltwise"]
    reorder = plan.primitives[steps(plan)[0].primitive].op.memories()[1]
    assert (reorder.dims, reorder.strides) == ((5, 3, 2, 4), (1, 0, 40, 5))


def test_a_product_reads_turned_weights_as_they_lie() -> None:
    g = Graph("g")
    q, k = g.input("q", (2, 6, 8)), g.input("k", (2, 6, 8))
    g.output("y", g.softmax(g.matmul(q, g.transpose(k, (0, 2, 1)))))
    assert kinds(lowered(g)) == ["matmul", "softmax"]


def test_a_product_reads_both_factors_as_they_lie() -> None:
    # Given heads of attention, which products make side by side, and a slice
    g = Graph("g")
    q, k, v = (g.transpose(g.reshape(g.input(name, (2, 6, 24)), (2, 6, 3, 8)), (0, 2, 1, 3)) for name in "qkv")
    scores = g.softmax(g.matmul(g.slice(q, 1, 5, axes=2), g.transpose(k, (0, 1, 3, 2))), implementation="native:")
    # When they are multiplied, and a transposed result too
    g.output("y", g.matmul(g.transpose(scores, (0, 1, 3, 2)), g.slice(v, 1, 5, axes=2), implementation="native:"))
    # Then nothing is copied
    assert kinds(lowered(g)) == ["matmul", "softmax", "matmul"]


def test_a_product_reads_no_element_repeatedly_in_place() -> None:
    g = Graph("g")
    x = g.expand(g.input("x", (2, 1, 8)), (2, 6, 8))
    g.output("y", g.matmul(x, g.input("w", (2, 8, 4))))
    assert kinds(lowered(g)) == ["reorder", "matmul"]


def test_a_view_of_a_blocked_tensor_is_row_major_first() -> None:
    g = Graph("g")
    x = g.convolution(g.input("x", (1, 32, 8, 8)), ones(32, 32, 3, 3))
    g.output("y", g.reshape(x, (32, 36)))
    assert kinds(lowered(g)) == ["reorder", "convolution", "reorder"]


def test_outputs_that_are_inputs_constants_views_or_twice_the_same_are_copied() -> None:
    g = Graph("g")
    x = g.input("x", (4, 3))
    y = g.eltwise(x, "exp")
    g.output("input", x)
    g.output("constant", g.constant(ones(2)))
    g.output("once", y)
    g.output("twice", y)
    g.output("part", g.slice(y, 0, 2))
    plan = lowered(g)
    assert kinds(plan) == ["eltwise", *["reorder"] * 4]
    written = [dict(step.args)[17] for step in steps(plan)]
    assert sorted(place.value for place in written if place.kind is PlaceKind.OUTPUT) == [0, 1, 2, 3, 4]


def test_a_reorder_to_a_tag_puts_a_tensor_in_that_layout() -> None:
    g = Graph("g")
    x = g.input("x", (1, 32, 8, 8))
    y = g.eltwise(g.reorder(x, "nhwc"), "exp")
    g.output("y", y)
    plan = lowered(g)
    assert kinds(plan) == ["reorder", "eltwise", "reorder"]
    assert plan.primitives[steps(plan)[1].primitive].op.memories()[1].tag == "acdb"


def test_a_plan_survives_the_wire() -> None:
    g = Graph("g")
    x = g.eltwise(g.input("x", (6, 4)), "exp")
    g.output("y", g.eltwise(g.slice(x, 2, 4), "tanh"))
    plan = lowered(g).plan
    assert decode(ExecutionPlan, encode(plan)) == plan


def test_only_what_is_divided_by_threads_depends_on_the_threads_of_workers() -> None:
    g = Graph("g")
    x = g.input("x", (3, 50_000))
    g.output("y", g.reduction(g.eltwise(x, "tanh"), "sum", axes=1))
    found = {n: lower(parse(g.to_wire()[0]), {"cpu": CPU}, n).primitives for n in (1, 2, 4)}
    # A worker of several threads has a region loop too
    numbers = {n: [(pd.op.kind, pd.target.threads) for pd in primitives] for n, primitives in found.items()}
    assert numbers == {
        1: [("eltwise", 0), ("reduction", 0)],
        2: [("eltwise", 0), ("reduction", 2), ("region_loop", 0)],
        4: [("eltwise", 0), ("reduction", 4), ("region_loop", 0)],
    }


def test_layers_that_are_alike_are_described_once(monkeypatch: pytest.MonkeyPatch) -> None:
    described: list[Any] = []

    def counted(op: Any, *others: Any) -> Any:
        described.append(op)
        return find_accepting(op, *others)

    monkeypatch.setattr(choice, "find_accepting", counted)
    choice._find_accepting.cache_clear()
    g = Graph("g")
    x = g.input("x", (3, 37))
    for _ in range(5):
        x = g.softmax(x)
    g.output("y", x)
    assert kinds(lowered(g)) == ["softmax"] * 5
    assert len(described) == 1


def test_short_rows_of_a_depthwise_convolution_are_blocked_below_a_width_of_each_level() -> None:
    weights = np.zeros((32, 1, 3, 3), np.float32)
    found = {}
    for level in ("x86-64-v3", "x86-64-v4"):
        for width in (11, 12, 14, 15):
            g = Graph("depthwise")
            g.output("y", g.convolution(g.input("x", (1, 32, 9, width)), weights, padding=1, groups=32))
            ops: list[Any] = [pd.op for pd in lower(g.to_ir(), {"cpu": target_of(level)}).primitives]
            (tag,) = (op.src.tag for op in ops if op.kind == "convolution")
            found[level, width] = tag == "abcd"
    assert [width for (level, width), plain in found.items() if plain and level == "x86-64-v3"] == [12, 14, 15]
    assert [width for (level, width), plain in found.items() if plain and level == "x86-64-v4"] == [15]
