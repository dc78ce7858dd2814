"""Places of boxes in layers, and the ways of edges past the boxes between: a layered drawing after Sugiyama.

Layers, then the order within each layer by barycentres, then the horizontal places. These are the weighted least squares
from the places of neighbours under the condition that nothing overlaps, found by isotonic regression.
K. Sugiyama, S. Tagawa, M. Toda: Methods for visual understanding of hierarchical system structures, 1981.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

from poolrt.cachestore.deferred_dataclass import dataclass

Point: TypeAlias = tuple[float, float]
#: Pixels: the width of a box, the gap beside a box or edge, and the distance of two layers.
WIDTH: Final = 280.0
_GAP: Final = 24.0
_DOWN: Final = 70.0
#: Sweeps over all layers, down and up, for the order within layers and for the places.
_ORDERINGS: Final = 12
_PLACINGS: Final = 24
#: How much more an edge keeps the parts of a long edge below each other than two boxes.
_STRAIGHT: Final = 8.0

#: Boxes, and parts of edges in the layers between, that a drawing has at most: more take over some ten seconds.
_MOST: Final = 60_000


class TooLarge(ValueError):
    """A diagram is too large to draw. Raised by `place`."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The centre of each box, and the points that each edge passes in the layers between its two boxes."""

    boxes: tuple[Point, ...]
    ways: tuple[tuple[Point, ...], ...]


def place(count: int, edges: Sequence[tuple[int, int]]) -> Layout:
    """Return the places of ``count`` boxes in topological order, the first layer at 0, and of the edges between them.

    Guarantees: a box is below all that it reads from; boxes of a layer are `_GAP` apart, and no edge crosses one.
    Raises TooLarge.
    """
    depth = _layers(count, edges)
    parts = sum(depth[target] - depth[source] - 1 for source, target in edges)
    if count + parts > _MOST:
        raise TooLarge(f"{count} nodes with {parts} parts of long edges are too many to draw; {_MOST} are the most")
    above: list[list[int]] = [[] for _ in range(count)]
    below: list[list[int]] = [[] for _ in range(count)]
    ways: list[list[int]] = []
    for source, target in edges:
        way = list(range(len(depth), len(depth) + depth[target] - depth[source] - 1))
        depth += range(depth[source] + 1, depth[target])
        above += [[] for _ in way]
        below += [[] for _ in way]
        for upper, lower in zip((source, *way), (*way, target), strict=True):
            below[upper].append(lower)
            above[lower].append(upper)
        ways.append(way)
    layers: list[list[int]] = [[] for _ in range(max(depth, default=-1) + 1)]
    for point, layer in enumerate(depth):
        layers[layer].append(point)
    _order(layers, above, below)
    across = _places(layers, above, below, count)
    points = [(across[point], _DOWN * depth[point]) for point in range(len(depth))]
    return Layout(tuple(points[:count]), tuple(tuple(points[each] for each in way) for way in ways))


def _layers(count: int, edges: Iterable[tuple[int, int]]) -> list[int]:
    """Return the layer of each box: below all that it reads, and as near to its readers as shortens the edges."""
    layers = [0] * count
    readers: list[list[int]] = [[] for _ in range(count)]
    read = [0] * count
    for source, target in sorted(edges, key=lambda edge: edge[1]):
        layers[target] = max(layers[target], layers[source] + 1)
        readers[source].append(target)
        read[target] += 1
    for box in reversed(range(count)):
        if readers[box] and len(readers[box]) >= read[box]:
            layers[box] = min(layers[reader] for reader in readers[box]) - 1
    first = min(layers, default=0)
    return [layer - first for layer in layers]


def _order(layers: Sequence[list[int]], above: Sequence[list[int]], below: Sequence[list[int]]) -> None:
    """Sort each layer by the mean rank of the neighbours in the layer before, in sweeps down and up."""
    rank = {point: float(number) for layer in layers for number, point in enumerate(layer)}
    for sweep in range(_ORDERINGS):
        down = sweep % 2 == 0
        for layer in layers if down else reversed(layers):
            mean = {}
            for point in layer:
                near = above[point] if down else below[point]
                mean[point] = sum(rank[each] for each in near) / len(near) if near else rank[point]
            layer.sort(key=mean.__getitem__)
            rank.update((point, float(number)) for number, point in enumerate(layer))


def _places(
    layers: Sequence[list[int]], above: Sequence[list[int]], below: Sequence[list[int]], count: int
) -> dict[int, float]:
    """Return the horizontal place of each point; those from ``count`` on are parts of edges and have no width."""
    across = {point: place for layer in layers for point, place in zip(layer, _offsets(layer, count), strict=True)}
    for sweep in range(_PLACINGS):
        for layer in layers if sweep % 2 == 0 else reversed(layers):
            wanted, weights = [], []
            for point in layer:
                near = (above[point] or below[point]) if sweep % 2 == 0 else (below[point] or above[point])
                by = [_STRAIGHT if point >= count and each >= count else 1.0 for each in near]
                total = sum(by)
                mean = (
                    sum(across[each] * weight for each, weight in zip(near, by, strict=True)) / total if total else 0.0
                )
                wanted.append(mean if total else across[point])
                weights.append(total or 0.1)
            across.update(zip(layer, _apart(wanted, weights, _offsets(layer, count)), strict=True))
    return across


def _offsets(layer: Sequence[int], count: int) -> list[float]:
    """Return the nearest places of the points of a layer, the first at 0."""
    found, here, half = [], 0.0, 0.0
    for number, point in enumerate(layer):
        own = WIDTH / 2 if point < count else 0.0
        here += half + own + _GAP if number else 0.0
        half = own
        found.append(here)
    return found


def _apart(wanted: Sequence[float], weights: Sequence[float], offsets: Sequence[float]) -> list[float]:
    """Return the places nearest to those wanted that are as far apart as the offsets, by pooling adjacent violators."""
    #: Weighted mean, weight and length of each pool.
    pools: list[tuple[float, float, int]] = []
    for place, weight, offset in zip(wanted, weights, offsets, strict=True):
        pool = (place - offset, weight, 1)
        while pools and pools[-1][0] > pool[0]:
            mean, before, length = pools.pop()
            total = before + pool[1]
            pool = ((mean * before + pool[0] * pool[1]) / total, total, length + pool[2])
        pools.append(pool)
    shifts = [mean for mean, _, length in pools for _ in range(length)]
    return [shift + offset for shift, offset in zip(shifts, offsets, strict=True)]
