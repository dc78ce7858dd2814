"""The components of a store that was opened read-only: it verifies and reads, and leaves no trace.

Guarantees: no file is made, written, touched or removed, no key is made, no server is started, and Redis is sent nothing
but reads (its connection refuses anything else). What is missing is created in this process, for this process; what is
bad is refused as ever, and left where it is. Counters stay in the process and are added to `stats()`.

A clear, or a capacity, that Redis has heard of and this node has not is kept in mind rather than written down.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from .entry import Entry
from .errors import StoreReadOnly, StoreUnavailable
from .file_lease import FileLeaseWait
from .key import Key
from .node import Node
from .node_state import NodeState, NodeStateView
from .single_creator import Create, Obtained, SingleCreator
from .statistics_flusher import StatisticsFlusher
from .stats import Batch

if TYPE_CHECKING:
    from .files import Mark
    from .options import StoreOptions
    from .redis.tier import RedisTier
    from .stats import Tally
    from .verification import Verification


class ReadOnlyNode(Node):
    """Look at this node's files."""

    def __init__(self, options: StoreOptions, verification: Verification, tally: Tally) -> None:
        super().__init__(options, verification, tally)
        self._view = NodeStateView(os.path.join(options.folder, "state"))
        self._heard = NodeState()
        self._merged: tuple[NodeState, NodeState, NodeState] = (self._heard, self._heard, self._heard)

    def state(self) -> NodeState:
        """Return what the node's processes agree on, or what is known to be newer."""
        own, heard = self._or(self._view.read, self._alone), self._heard
        merged = self._merged
        if merged[0] is not own or merged[1] is not heard:
            both = own
            if heard.generation > both.generation:
                both = both._replace(generation=heard.generation)
            if heard.revision > both.revision:
                both = both._replace(
                    revision=heard.revision, capacity=heard.capacity, capacity_bytes=heard.capacity_bytes
                )
            self._merged = merged = (own, heard, both)
        return merged[2]

    def watch(self, state: NodeState) -> None:
        """Return nothing to watch: what is kept in mind stands in no file."""

    def change(self, step: Callable[[NodeState], NodeState]) -> NodeState:
        """Keep a change in mind."""
        self._heard = step(self.state())
        return self.state()

    def get(self, state: NodeState, key: Key) -> Entry | None:
        """Return the verified entry of a key."""
        blob = self.get_blob(state, key.digest)
        return self._verification.verify(key, blob, _leave) if blob is not None else None

    def get_blob(self, state: NodeState, digest: str, use: bool = True) -> bytes | None:
        """Return an entry's bytes as they are; that never counts as a use."""
        return super().get_blob(state, digest, use=False)

    def put(self, state: NodeState, digest: str, blob: bytes, unpublished: bool = False) -> None:
        """Do nothing."""

    def put_later(self, state: NodeState, digest: str, blob: bytes) -> None:
        """Do nothing."""

    def remove(self, state: NodeState, digest: str) -> bool:
        """Do nothing."""
        return False

    def note_removal(self) -> None:
        """Do nothing."""

    def sweep(self, state: NodeState) -> None:
        """Do nothing."""

    def mark_published(self, digest: str, mark: Mark) -> None:
        """Do nothing."""

    def note_misses(self, keys: Sequence[Key], since_s: float = 0.0) -> None:
        """Do nothing."""

    def journal_append(self, batch: Batch) -> bool:
        """Refuse: the counts stay in the process."""
        return False

    def journal_take(self) -> Batch:
        """Take nothing."""
        return Batch({}, ())

    def file_lease(self, digest: str) -> FileLeaseWait:
        """Raise StoreReadOnly: a file lease is a file."""
        raise StoreReadOnly("take file leases")

    def close(self) -> None:
        """Close the state file."""
        self._view.close()

    def forget(self) -> None:
        """Close the state file."""
        self._view.close()


class ReadOnlyFlusher(StatisticsFlusher):
    """Keep counts in the process, and forget uses."""

    def flush(self, tier: RedisTier | None) -> None:
        """Forget uses."""
        self.flush_to_journal()

    def flush_to_journal(self) -> None:
        """Forget uses."""
        self._tally.put_back(Batch(self._tally.take().counts, ()))

    def flush_node(self, tier: RedisTier, leaving: bool = False) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""

    def own_counts(self) -> dict[str, int]:
        """Return what this process has counted."""
        batch = self._tally.take()
        self._tally.put_back(batch)
        return batch.counts


class ReadOnlyCreator(SingleCreator):
    """Find an entry in Redis, or make it for this process alone."""

    def obtain(self, key: Key, create: Create, deadline: float) -> Obtained:
        """Return the entry's payload, from Redis or from `create`. Raises CreationFailed."""
        blob = self._blob(key.digest)
        entry = self._verification.verify(key, blob, _leave) if blob is not None else None
        if entry is not None:
            self._tally.use(key.digest, "redis", entry.meta.seconds)
            return Obtained(entry.payload, "redis")
        return Obtained(self.create_uncached(create).payload, "created")

    def _blob(self, digest: str) -> bytes | None:
        tier = self._limits.tier()
        if tier is not None:
            try:
                return tier.get(digest)
            except StoreUnavailable:
                pass
        self._tally.add("degraded")
        return None


def _leave(digest: str, bad: bytes) -> None:
    """Leave a bad entry where it is."""
