"""The places of boxes: in every graph nothing overlaps, and edges pass beside the boxes."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poolrt.drawing import TooLarge
from poolrt.drawing.layout import WIDTH, place

GRAPHS = st.integers(1, 25).flatmap(
    lambda count: st.tuples(
        st.just(count),
        st.lists(
            st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)).map(sorted).map(tuple), max_size=40
        ).map(lambda pairs: [pair for pair in pairs if pair[0] < pair[1]]),
    )
)


@settings(max_examples=60, deadline=None)
@given(GRAPHS)
def test_boxes_are_below_what_they_read_and_nothing_overlaps(graph: tuple[int, list[tuple[int, int]]]) -> None:
    count, edges = graph
    layout = place(count, edges)
    assert (len(layout.boxes), len(layout.ways)) == (count, len(edges))
    layers: dict[float, list[tuple[float, float]]] = {}
    for x, y in layout.boxes:
        layers.setdefault(y, []).append((x, WIDTH / 2))
    for (source, target), way in zip(edges, layout.ways, strict=True):
        depths = [layout.boxes[source][1], *(y for _, y in way), layout.boxes[target][1]]
        # An edge has a point in each layer that it passes
        steps = {round(below - above, 6) for above, below in pairwise(depths)}
        assert len(steps) == 1
        assert steps.pop() > 0
        for x, y in way:
            layers.setdefault(y, []).append((x, 0.0))
    assert min(layers) == 0
    for points in layers.values():
        points.sort()
        for (x, half), (right, other) in pairwise(points):
            assert right - x >= half + other + 20


def test_boxes_of_a_chain_are_below_one_another_and_a_skip_goes_beside_them() -> None:
    layout = place(4, [(0, 1), (1, 2), (2, 3), (0, 3)])
    (x, _), *_ = layout.boxes
    assert [y for _, y in layout.boxes] == sorted({y for _, y in layout.boxes})
    assert len(layout.ways[3]) == 2
    assert all(abs(way - box) > WIDTH / 2 for (way, _), (box, _) in zip(layout.ways[3], layout.boxes[1:3], strict=True))
    assert abs(layout.boxes[3][0] - x) < 1


def test_a_graph_that_no_one_could_read_is_refused() -> None:
    edges = [(number, number + 1) for number in range(999)] + [(0, number) for number in range(2, 1000)]
    with pytest.raises(TooLarge, match=r"1000 nodes with \d+ parts of long edges are too many to draw"):
        place(1000, edges)
