"""Generation and capacity, brought into line between this node and Redis.

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
    """Give out the tier only after node and Redis agree, and change what they agree on."""

    def __init__(self, link: Callable[[], RedisLink], node: Node) -> None:
        self._link = link
        self._node = node
        self._settled_epoch = 0

    @property
    def epoch(self) -> int:
        """Number of times that Redis was found, first or again."""
        return self._link().epoch

    def tier(self) -> RedisTier | None:
        """Return the tier while Redis answers; what Redis holds then belongs to the present generation."""
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
        """Exchange what node and Redis know; drop what no longer fits on both sides. Raises StoreUnavailable."""
        epoch = self._link().epoch
        before = self._node.state()
        shared, dropped = tier.settle(before)

        def step(state: NodeState) -> NodeState:
            if shared.generation > state.generation:
                state = state._replace(generation=shared.generation)
            if shared.revision > state.revision:
                state = state._replace(
                    revision=shared.revision,
                    capacity=shared.capacity,
                    capacity_bytes=shared.capacity_bytes,
                )
            return state

        after = before
        if (shared.generation, shared.revision) != (before.generation, before.revision):
            after = self._node.change(step)
        for digest in dropped:
            self._node.remove(after, digest)
        if after.generation != before.generation:
            self._node.sweep(after)
        self._settled_epoch = epoch
        return after

    def note(self, tier: RedisTier, seen: Seen, state: NodeState | None = None) -> NodeState:
        """Take in what Redis said beside an answer, and return the state that holds now. Raises StoreUnavailable.

        `state` is what the caller has just read.
        """
        if state is None:
            state = self._node.state()
        if seen.generation == state.generation and seen.revision == state.revision:
            return state
        return self.settle(tier)

    def clear(self) -> NodeState:
        """Begin a new generation: nothing stored before counts from now on."""
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
        # First what others have decided, so that our word is the later one.
        tier = self.tier()
        state = self._node.change(step)
        if tier is not None:
            try:
                state = self.settle(tier)
            except StoreUnavailable:
                self._settled_epoch = 0
        self._node.sweep(state)
        return state
