"""The components of a store that was opened read-only: it verifies and reads, and leaves no trace.

Guarantees: no file is made, written, touched or removed, no key is made, no server is started, and Redis gets nothing
but reads (its connection refuses anything else). A missing entry is created in this process, for this process; a bad
one is refused as ever, and stays where it is. Counters stay in the process and are added to `stats()`.

A clear, or a capacity, that is in Redis and not on this node is kept in the process.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from .deferred_dataclass import replace
from .errors import StoreReadOnly, StoreUnavailable
from .file_lease import FileLeaseWait
from .key import Key
from .node import Node
from .node_state import NodeState, NodeStateView
from .single_creator import Create, Obtained, SingleCreator
from .statistics_flusher import StatisticsFlusher
from .stats import Batch

if TYPE_CHECKING:
    from .options import StoreOptions
    from .redis.tier import RedisTier
    from .stats import Tally
    from .verification import Verification


class ReadOnlyNode(Node):
    """Look at this node's files."""

    def __init__(self, options: StoreOptions, verification: Verification, tally: Tally) -> None:
        super().__init__(options, verification, tally)
        self._view = NodeStateView(os.path.join(options.folder, "state"))
        self._newer = NodeState()
        self._merged: tuple[NodeState, NodeState, NodeState] = (self._newer, self._newer, self._newer)

    def state(self) -> NodeState:
        """Return the state that the node's processes share, brought up to date with Redis."""
        own, newer = self._or(self._view.read, self._alone), self._newer
        merged = self._merged
        if merged[0] is not own or merged[1] is not newer:
            self._merged = merged = (own, newer, own.updated(newer))
        return merged[2]

    def watch(self, state: NodeState) -> None:
        """Return nothing to watch: the newer state is in no file."""

    def change(self, step: Callable[[NodeState], NodeState]) -> NodeState:
        """Change the state in this process."""
        self._newer = step(self.state())
        return self.state()

    def get_blob(self, state: NodeState, digest: str, use: bool = True) -> bytes | None:
        """Return an entry's bytes as they are; that never counts as a use."""
        return super().get_blob(state, digest, use=False)

    def _write_nothing(self, *_: object, **__: object) -> None:
        """Do nothing."""

    def _refuse(self, *_: object, **__: object) -> bool:
        """Do nothing; return False, since nothing was written."""
        return False

    put = put_later = note_removal = sweep = mark_published = note_misses = note_asked = note_hits = _discard = (
        _write_nothing
    )
    remove = journal_append = _refuse

    def journal_take(self) -> Batch:
        """Take nothing."""
        return Batch({}, ())

    def file_lease(self, digest: str) -> FileLeaseWait:
        """Raise StoreReadOnly: a file lease is a file."""
        raise StoreReadOnly("take file leases")

    def close(self) -> None:
        """Close the state file."""
        self._view.close()

    forget = close


class ReadOnlyFlusher(StatisticsFlusher):
    """Keep counts in the process, and forget uses."""

    def flush(self, tier: RedisTier | None = None) -> None:
        """Forget uses."""
        self._tally.put_back(Batch(self._tally.take().counts, ()))

    def flush_node(self, tier: RedisTier, leaving: bool = False) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""

    flush_to_journal = flush

    def own_counts(self) -> dict[str, int]:
        """Return the counts of this process."""
        batch = self._tally.take()
        self._tally.put_back(batch)
        return batch.counts


class ReadOnlyCreator(SingleCreator):
    """Find an entry in Redis, or create it for this process alone."""

    def obtain(self, key: Key, create: Create, deadline: float) -> Obtained:
        """Return the entry's payload, from Redis or from `create`. Raises CreationFailed."""
        entry = self._verification.verify(key, self._blob(key.digest), _leave)
        if entry is not None:
            self._tally.use(key.digest, "redis", entry.meta.seconds)
            return Obtained(entry.payload, "redis", creation_s=entry.meta.seconds)
        return replace(self.create_uncached(create), keep=True)

    def _blob(self, digest: str) -> bytes | None:
        tier = self._limits.tier()
        if tier is not None:
            try:
                return tier.get(digest)
            except StoreUnavailable:
                pass
        self._tally.add("degraded")
        return None


class KeylessCreator(SingleCreator):
    """Create an entry for this process alone: no other has the key that it would be signed with."""

    def obtain(self, key: Key, create: Create, deadline: float) -> Obtained:
        """Return the entry's payload from `create`. Raises CreationFailed."""
        self._tally.add("degraded")
        return replace(self.create_uncached(create), keep=True)


def _leave(digest: str, bad: bytes) -> None:
    """Leave a bad entry where it is."""
