"""Hand on what this process has counted, and what the node still owes to Redis.

With a connection, counts and uses go to Redis, together with the node's journal and the entries that were made while
Redis was away. Without one they go to the journal, and some process with a connection will take them along.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Final

from .admission import Admission
from .errors import EntryCorrupt, EntryForged, StoreFull, StoreUnavailable
from .limits import Limits
from .node import Node
from .node_state import NodeState
from .stats import Batch, Tally, merge

if TYPE_CHECKING:
    from .redis.tier import RedisTier

#: Hits in memory, and age in seconds, after which they are handed on.
_MOST_PENDING: Final = 4096
_MOST_AGE_S: Final = 0.5
#: Least time, in seconds, between two times that look-ups are handed on.
_INTERVAL_S: Final = 0.05
#: Least time, in seconds, between two looks into the journal by one connected process.
_FOLD_INTERVAL_S: Final = 1.0
#: Entries brought to Redis in one go; the rest follows with the next one.
_MOST_PUBLICATIONS: Final = 64


class Ledger:
    """Move counts, uses and late publications towards Redis."""

    def __init__(self, node: Node, limits: Limits, admission: Admission, tally: Tally) -> None:
        self._node = node
        self._limits = limits
        self._admission = admission
        self._tally = tally
        self._handed_on = -_INTERVAL_S
        self._folded = -_FOLD_INTERVAL_S

    def after_memory(self) -> None:
        """Hand on hits in memory when there are many or they are old; never waits for Redis."""
        if self._tally.pending >= _MOST_PENDING or time.monotonic() - self._handed_on > _MOST_AGE_S:
            self.write_down()

    def after_look_up(self, tier: RedisTier | None) -> None:
        """Hand on what look-ups have counted, at once if that was not done just now."""
        if time.monotonic() - self._handed_on < _INTERVAL_S:
            return
        if tier is not None:
            self.after_redis(tier)
        else:
            self.write_down()

    def write_down(self) -> None:
        """Append everything counted to the node's journal."""
        self._handed_on = time.monotonic()
        batch = self._tally.take()
        if batch and not self._node.journal_append(batch):
            self._tally.put_back(batch)

    def after_redis(self, tier: RedisTier) -> None:
        """Hand everything counted to Redis, and from time to time what the node owes."""
        try:
            if time.monotonic() - self._folded >= _FOLD_INTERVAL_S:
                self.fold(tier)
            else:
                self._hand_on(tier, self._tally.take())
        except StoreUnavailable:
            self.write_down()

    def fold(self, tier: RedisTier) -> None:
        """Hand Redis everything counted, the node's journal, and its unpublished entries. Raises StoreUnavailable."""
        self._folded = time.monotonic()
        state = self._node.state()
        missing = self._hand_on(tier, merge((self._node.journal_take(), self._tally.take())))
        # Entries in use here that Redis does not have were made without it, or lost by it.
        for digest in dict.fromkeys((*self._node.unpublished()[:_MOST_PUBLICATIONS], *missing[-_MOST_PUBLICATIONS:])):
            self._publish(tier, state, digest)

    def kept(self) -> Batch:
        """Return what has been counted here and stays here: nothing."""
        return Batch({}, ())

    def _hand_on(self, tier: RedisTier, batch: Batch) -> list[str]:
        self._handed_on = time.monotonic()
        try:
            missing = tier.touch(batch.uses) if batch.uses else []
        except StoreUnavailable:
            self._tally.put_back(batch)
            raise
        try:
            tier.count(batch)
        except StoreUnavailable:
            self._tally.put_back(Batch(batch.counts, ()))
            raise
        return missing

    def _publish(self, tier: RedisTier, state: NodeState, digest: str) -> None:
        blob = self._node.get_blob(state, digest, use=False)
        if blob is not None:
            try:
                self._admission.check(digest, blob)
            except (EntryCorrupt, EntryForged) as error:
                self._admission.refuse(error)
                self._node.remove(state, digest)
                return
            try:
                published = tier.leases.publish(digest, os.urandom(16).hex(), 0, state.generation, blob)
            except StoreFull:
                return
            for dropped in published.dropped:
                self._node.remove(state, dropped)
            self._limits.note(tier, published.seen)
        self._node.mark_published(digest)
