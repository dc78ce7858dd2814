"""Flush the counts of this process, and republish the entries that Redis lacks.

With a connection, counts and uses go to Redis, together with the node's journal and the entries that were made while
Redis was away. Without one they go to the journal, and some process with a connection will take them along.

Redis adds each batch once. A Redis that does not answer may have counted all the same, or may do so later: a frozen one
goes on with the commands it has received. So each batch has its sender's name and a number, and one without an answer
stays in the outbox, which is sent as it is before anything new. A process that ends writes its outbox to the journal;
the counts of a killed process since its last flush are lost.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Final

from .errors import StoreUnavailable
from .limits import Limits
from .node import Node
from .republish_queue import RepublishQueue
from .stats import Batch, Sent, Tally, merge
from .verification import Verification

if TYPE_CHECKING:
    from .redis.tier import RedisTier

#: Hits in memory, and age in seconds, after which they are flushed.
_MOST_PENDING: Final = 4096
_MOST_AGE_S: Final = 0.5
#: Least time, in seconds, between two flushes of look-ups.
_INTERVAL_S: Final = 0.05
#: Least time, in seconds, between two flushes of the node by one connected process; while there is more to do.
_NODE_INTERVAL_S: Final = 1.0
_SOON_S: Final = 0.1
#: Least time, in seconds, between two writings of the hits of entries.
_HITS_INTERVAL_S: Final = 1.0
#: Entries in use that Redis lacks, remembered until the node's next flush; the rest is found when it is used again.
_MOST_MISSING: Final = 1024
#: Longest wait, in seconds, for another thread that is flushing.
_LONGEST_WAIT_S: Final = 1.0


class StatisticsFlusher:
    """Move counts, uses and late publications of one process towards Redis."""

    def __init__(self, node: Node, limits: Limits, verification: Verification, tally: Tally) -> None:
        self._node = node
        self._limits = limits
        self._tally = tally
        self._flushed = -_INTERVAL_S
        self._next_of_node = 0.0
        self._hits_flushed = time.monotonic()
        self._flushing = threading.Lock()
        self._missing: dict[str, None] = {}
        self._republish_queue = RepublishQueue(node, limits, verification)
        self._sender = _new_sender()
        self._number = 0
        self._outbox: deque[Sent] = deque()

    def flush_memory_hits(self) -> None:
        """Write hits in memory to the journal when there are many or they are old; never waits for Redis."""
        if self._tally.pending >= _MOST_PENDING or time.monotonic() - self._flushed > _MOST_AGE_S:
            self.flush_to_journal()

    def flush_look_ups(self, tier: RedisTier | None) -> None:
        """Flush to Redis, or without a tier to the journal, unless that was done just now."""
        if time.monotonic() - self._flushed >= _INTERVAL_S:
            self.flush(tier)

    def flush(self, tier: RedisTier | None) -> None:
        """Flush everything counted to Redis, and the node from time to time; without a tier to the journal."""
        if tier is None:
            self.flush_to_journal()
        elif self._flushing.acquire(blocking=False):  # else another thread flushes; these counts go with the next call
            try:
                if time.monotonic() >= self._next_of_node:
                    self._flush_node(tier)
                else:
                    self._send(tier, self._tally.take())
            except StoreUnavailable:
                self.flush_to_journal()
            finally:
                self._flushing.release()

    def flush_to_journal(self) -> None:
        """Append everything counted to the node's journal."""
        self._flushed = time.monotonic()
        batch = self._tally.take()
        if batch and not self._node.journal_append(batch):
            self._tally.put_back(batch)
        self._flush_old_hits()

    def flush_hits(self) -> None:
        """Add the hits of this process, by entry, to those of the node."""
        self._hits_flushed = time.monotonic()
        if hits := self._tally.take_hits():
            self._node.note_hits(hits)

    def flush_node(self, tier: RedisTier, leaving: bool = False) -> None:
        """Flush everything counted, the node's journal, and its unpublished entries to Redis. Raises StoreUnavailable.

        ``leaving`` means that this process does not call again.
        """
        if not self._flushing.acquire(timeout=_LONGEST_WAIT_S):
            raise StoreUnavailable(tier.name, "another thread is still flushing statistics")
        try:
            self._flush_node(tier, leaving)
        finally:
            self._flushing.release()

    def close(self) -> None:
        """Leave nothing in this process: append to the journal what Redis has not received, or not answered."""
        outbox = tuple(self._outbox)
        if outbox and self._node.journal_append(Batch({}, (), outbox)):
            self._outbox.clear()
            # Redis would pass over the batch in the journal if a later number came under the old name.
            self._sender, self._number = _new_sender(), 0
        if self._tally.pending:
            self.flush_to_journal()
        self.flush_hits()

    def counts_of_all(self, tier: RedisTier | None) -> tuple[RedisTier | None, dict[str, int]]:
        """Return the counts of all processes, and the tier unless it has gone away.

        Then they are those in the node's journal, with what Redis has been sent, here or by an ended process, and not answered.
        """
        counts: dict[str, int] | None = None
        if tier is not None:
            try:
                self.flush_node(tier)
                counts = tier.counts()
            except StoreUnavailable:
                tier = None
        if counts is None:
            self.flush_to_journal()
            journal = self._node.journal_read()
            counts = merge(
                [journal, *(Batch(each.counts, ()) for each in (*journal.sent, *tuple(self._outbox)))]
            ).counts
        return tier, merge([Batch(counts, ()), Batch(self.own_counts(), ())]).counts

    def own_counts(self) -> dict[str, int]:
        """Return the counts that never leave this process: none."""
        return {}

    def _flush_node(self, tier: RedisTier, leaving: bool = False) -> None:
        self._next_of_node = time.monotonic() + _NODE_INTERVAL_S
        tidied = tier.tidy()
        self._limits.note(tier, tidied.seen)
        self._republish_queue.find_missing(tier, tidied, leaving)
        self._send(tier, merge((self._node.journal_take(), self._tally.take())))
        # Entries in use here that Redis lacks were made without it, or lost by it.
        missing, self._missing = self._missing, {}
        if self._republish_queue.publish(tier, missing) or tidied.soon:
            self._next_of_node = time.monotonic() + _SOON_S

    def _send(self, tier: RedisTier, batch: Batch) -> None:
        self._flushed = time.monotonic()
        self._outbox += batch.sent
        try:
            self._send_outbox(tier)
            missing = tier.touch(batch.uses) if batch.uses else []
        except StoreUnavailable:
            self._tally.put_back(batch)
            raise
        if len(self._missing) < _MOST_MISSING:
            self._missing.update(dict.fromkeys(missing))
        if batch.counts:
            self._number += 1
            self._outbox.append(Sent(self._sender, self._number, batch.counts))
            self._send_outbox(tier)
        self._flush_old_hits()

    def _flush_old_hits(self) -> None:
        if time.monotonic() - self._hits_flushed >= _HITS_INTERVAL_S:
            self.flush_hits()

    def _send_outbox(self, tier: RedisTier) -> None:
        while self._outbox:
            tier.count(self._outbox[0])
            self._outbox.popleft()


def _new_sender() -> str:
    return os.urandom(8).hex()
