"""The entries that Redis lacks: those made while it was away, and those that it has lost.

They are marked in the node's files, so a process that ends leaves the queue to the next one with a connection. When the
run id of Redis has changed (see tidy.lua), or Redis was away, its entries are compared with the node's files. Entries
that were published lately are compared once more, since a server that fails over, or loses its machine, forgets its
last writes. Missing entries are marked as far as Redis has room: entries dropped for capacity do not replace newer
ones.

Guarantees: publishing takes a bounded share of a call's time; a Redis without memory is left alone for a while; each
entry is verified before it is published. Over a link that answers quickly, each round trip carries more entries than
the last, so a distant server has them nearly as soon as a close one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from .errors import EntryCorrupt, EntryForged, StoreFull
from .files import FileStatus, Mark
from .limits import Limits
from .node import Node
from .node_state import NodeState
from .verification import Verification

if TYPE_CHECKING:
    from .redis.lease import Publication
    from .redis.tier import RedisTier, Tidied

#: Time, in seconds, that one call spends on publishing; one round trip is made in any case.
_SHARE_S: Final = 0.05
#: Most entries in one round trip, bytes at which it takes no more of them, and time, in seconds, up to which the next
#: one carries twice as many entries.
_MOST_TOGETHER: Final = 16
_TOGETHER_BYTES: Final = 1 << 19
_TRIP_S: Final = 0.1
#: Age, in seconds, at which an entry should be on the server's disk and on its replicas.
_SETTLED_S: Final = 2.0
#: Time, in seconds, for which a Redis without memory gets no late publications.
_FULL_PAUSE_S: Final = 10.0


class RepublishQueue:
    """Find the entries that Redis lacks, and publish them."""

    def __init__(self, node: Node, limits: Limits, verification: Verification) -> None:
        self._node = node
        self._limits = limits
        self._verification = verification
        self._run_id = ""
        self._epoch = 0
        self._spared_until = 0.0
        self._together = 1

    def find_missing(self, tier: RedisTier, tidied: Tidied, leaving: bool) -> None:
        """Mark the entries that Redis lacks, if it may have lost any since the last call. Raises StoreUnavailable.

        `leaving` means that this process does not call again, so its newest entries are compared now.
        """
        epoch = self._limits.epoch
        was_away = epoch != self._epoch and self._epoch > 0
        state = self._node.state()
        if tidied.run_id != self._run_id or was_away:
            known = self._node.run_id()
            if was_away or known not in ("", tidied.run_id):
                self._mark_missing(tier, state, self._node.listing(state))
            if known != tidied.run_id:
                self._node.set_run_id(tidied.run_id)
            self._run_id = tidied.run_id
        self._epoch = epoch
        recent = self._node.put_before(time.monotonic() - (0.0 if leaving else _SETTLED_S))
        if recent:
            self._mark_missing(tier, state, self._node.statuses(state, recent))

    def publish(self, tier: RedisTier, used: Iterable[str]) -> bool:
        """Publish the marked entries, and the `used` ones, which Redis lacks, oldest use first.

        Returns whether some are left for another call. Raises StoreUnavailable.
        """
        for digest in used:
            self._node.mark_unpublished(digest)
        unpublished = self._node.unpublished()
        if not unpublished or time.monotonic() < self._spared_until:
            return False
        state = self._node.state()
        publications = self._sound(state, unpublished)
        until = time.monotonic() + _SHARE_S
        while together := self._take(publications):
            if not self._publish_together(tier, state, together):
                self._spared_until = time.monotonic() + _FULL_PAUSE_S
                return False
            if time.monotonic() >= until:
                return True
        return False

    def _mark_missing(self, tier: RedisTier, state: NodeState, files: list[FileStatus]) -> None:
        """Mark those of some files (least recently used first) that Redis lacks, and has room for."""
        missing = set(tier.unlisted([file.digest for file in files]))
        if not missing:
            return
        entries, total = tier.size()
        room = self._node.capacity(state) - entries
        limit = self._node.capacity_bytes(state)
        for file in reversed(files):
            if file.digest in missing:
                room -= 1
                total += file.bytes
                if room < 0 or (limit and total > limit):
                    return
                self._node.mark_unpublished(file.digest, file.last_use)

    def _sound(self, state: NodeState, unpublished: Iterable[str]) -> Iterator[tuple[Mark, Publication]]:
        """Yield the unpublished entries that are here and sound; remove the marks of the others."""
        from .redis.lease import Publication

        for digest in unpublished:
            mark = self._node.mark_of(digest)
            if mark is None:
                # Another process has just published it.
                continue
            blob = self._node.get_blob(state, digest, use=False)
            if blob is None:
                self._node.mark_published(digest, mark)
                continue
            try:
                self._verification.check(digest, blob)
            except (EntryCorrupt, EntryForged) as error:
                self._verification.count_refusal(error)
                self._node.remove(state, digest)
                continue
            # Under the lease of the creator, which did not reach Redis to end it: publishing wakes the waiting
            # processes.
            nonce, _, fence = mark.lease.partition(" ")
            if not nonce.isalnum() or not fence.isdigit():
                nonce, fence = os.urandom(16).hex(), "0"
            yield mark, Publication(digest, nonce, int(fence), state.generation, blob)

    def _take(self, publications: Iterator[tuple[Mark, Publication]]) -> list[tuple[Mark, Publication]]:
        """Return the next ones for one round trip."""
        taken: list[tuple[Mark, Publication]] = []
        size = 0
        while len(taken) < self._together and size < _TOGETHER_BYTES:
            publication = next(publications, None)
            if publication is None:
                break
            taken.append(publication)
            size += len(publication[1].blob)
        return taken

    def _publish_together(self, tier: RedisTier, state: NodeState, together: list[tuple[Mark, Publication]]) -> bool:
        """Publish in one round trip; return whether Redis had memory for all."""
        begin = time.monotonic()
        # A trip that fails leaves the next one small.
        most, self._together = self._together, 1
        outcomes = tier.leases.publish_together([publication for _, publication in together])
        quick = time.monotonic() - begin <= _TRIP_S
        self._together = min(2 * most, _MOST_TOGETHER) if quick else max(1, most // 2)
        for (mark, publication), published in zip(together, outcomes, strict=True):
            if isinstance(published, StoreFull):
                continue
            for dropped in published.dropped:
                self._node.remove(state, dropped)
            self._limits.note(tier, published.seen)
            if published.word not in ("LOST", "NOVAL") and published.seen.generation >= state.generation:
                # LOST: a holder, perhaps unaware that Redis is back, has the lease, which has to expire. NOVAL, or an
                # older generation: Redis has dropped the value on its way, or had forgotten our generation and has it
                # again now. The next call publishes it.
                self._node.mark_published(publication.digest, mark)
        return not any(isinstance(published, StoreFull) for published in outcomes)
