"""Generation and capacity, synchronized between this node and Redis.

Both keep them, so that a clear or a new capacity holds at once on this node even without Redis, and reaches Redis (and
through it the other nodes) when there is a connection. The higher number wins (see `node_state`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .errors import StoreUnavailable
from .node import Node
from .node_state import NodeState, later_than

if TYPE_CHECKING:
    from .redis.lease import Seen
    from .redis.link import RedisLink
    from .redis.tier import RedisTier


class Limits:
    """Return the tier only after node and Redis agree on generation and capacities, and change these."""

    def __init__(self, link: Callable[[], RedisLink], node: Node) -> None:
        self._link = link
        self._node = node
        self._settled_epoch = 0

    @property
    def epoch(self) -> int:
        """Number of times that this process has connected to Redis."""
        return self._link().epoch

    def tier(self) -> RedisTier | None:
        """Return the tier while Redis answers; its entries then belong to the present generation."""
        link = self._link()
        tier = link.tier()
        if tier is None or self._settled_epoch == link.epoch:
            return tier
        try:
            self.settle(tier)
        except StoreUnavailable:
            return None
        return tier

    def settle(self, tier: RedisTier) -> NodeState:
        """Bring node and Redis up to date; drop entries that no longer fit on both sides. Raises StoreUnavailable."""
        epoch = self._link().epoch
        before = self._node.state()
        shared, dropped = tier.settle(before)

        after = before
        if shared[:4] != before[:4]:
            after = self._node.change(lambda state: state.updated(shared))
        for digest in dropped:
            self._node.remove(after, digest)
        if after.generation != before.generation:
            self._node.sweep(after)
        self._settled_epoch = epoch
        return after

    def note(self, tier: RedisTier, seen: Seen, state: NodeState | None = None) -> NodeState:
        """Compare with the numbers that Redis adds to its answers; return the present state. Raises StoreUnavailable.

        `state` is what the caller has just read.
        """
        state = state or self._node.state()
        if seen.generation == state.generation and seen.revision == state.revision:
            return state
        return self.settle(tier)

    def clear(self) -> NodeState:
        """Begin a new generation: entries of older ones do not count from now on."""
        return self._apply(lambda state: state._replace(generation=later_than(state.generation)))

    def set_capacity(self, capacity: int | None, capacity_bytes: int | None) -> NodeState:
        """Set the capacities that are given; 0 entries also begins a new generation."""

        def step(state: NodeState) -> NodeState:
            return state._replace(
                revision=later_than(state.revision),
                capacity=state.capacity if capacity is None else capacity,
                capacity_bytes=state.capacity_bytes if capacity_bytes is None else capacity_bytes,
                generation=later_than(state.generation) if capacity == 0 else state.generation,
            )

        return self._apply(step)

    def _apply(self, step: Callable[[NodeState], NodeState]) -> NodeState:
        # First the decisions of other nodes, so that ours is the later one.
        tier = self.tier()
        state = self._node.change(step)
        if tier is not None:
            try:
                state = self.settle(tier)
            except StoreUnavailable:
                self._settled_epoch = 0
        self._node.sweep(state)
        return state
