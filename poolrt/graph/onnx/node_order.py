"""The order of an ONNX graph's nodes: ONNX wants each behind those it reads, and some tools write them otherwise."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import Any

from .read_node import names_read


def in_order(nodes: Sequence[Any], is_known: Callable[[str], bool]) -> Sequence[Any]:
    """Return nodes with each behind those whose results it, or a branch of it, reads; the given ones if they are in order.

    ``is_known(name)`` returns whether a name has a value before the first node. Nodes keep their order as far as possible.
    Those that read their own results, directly or through others, come last.
    """
    if _are_in_order(nodes, is_known):
        return nodes
    maker: dict[str, int] = {}
    for number, node in enumerate(nodes):
        for name in node.output:
            maker.setdefault(name, number)
    waits: list[int] = []
    readers: list[list[int]] = [[] for _ in nodes]
    for number, node in enumerate(nodes):
        needed = {maker[name] for name in names_read([node]) if name in maker and not is_known(name)}
        waits.append(len(needed))
        for each in needed:
            readers[each].append(number)
    ready = [number for number, count in enumerate(waits) if not count]
    order: list[int] = []
    while ready:
        number = heapq.heappop(ready)
        order.append(number)
        for reader in readers[number]:
            waits[reader] -= 1
            if not waits[reader]:
                heapq.heappush(ready, reader)
    order += [number for number, count in enumerate(waits) if count]
    return [nodes[number] for number in order]


def _are_in_order(nodes: Sequence[Any], is_known: Callable[[str], bool]) -> bool:
    """Return whether no node reads a result that only a node behind it makes."""
    made = {name for node in nodes for name in node.output}
    seen: set[str] = set()
    for node in nodes:
        if any(name in made and name not in seen and not is_known(name) for name in names_read([node])):
            return False
        seen.update(node.output)
    return True
