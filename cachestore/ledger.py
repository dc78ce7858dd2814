"""Hand on what this process has counted, and what the node still owes to Redis.

With a connection, counts and uses go to Redis, together with the node's journal and the entries that were made while
Redis was away. Without one they go to the journal, and some process with a connection will take them along.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

from .admission import Admission
from .arrears import Arrears
from .errors import StoreUnavailable
from .limits import Limits
from .node import Node
from .sender import Sender
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
#: Least time, in seconds, when there is more to do.
_SOON_S: Final = 0.1
#: Entries in use that Redis does not have, remembered until the next fold; the rest is found when it is used again.
_MOST_MISSING: Final = 1024
#: Longest wait, in seconds, for another thread that is handing on.
_LONGEST_TURN_S: Final = 1.0


class Ledger:
    """Move counts, uses and late publications towards Redis."""

    def __init__(self, node: Node, limits: Limits, admission: Admission, tally: Tally) -> None:
        self._node = node
        self._limits = limits
        self._tally = tally
        self._handed_on = -_INTERVAL_S
        self._next_fold = 0.0
        self._sending = threading.Lock()
        self._missing: dict[str, None] = {}
        self._sender = Sender(node)
        self._arrears = Arrears(node, limits, admission)

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
        if not self._sending.acquire(blocking=False):
            # Another thread is at it; what was counted here goes with the next call.
            return
        try:
            if time.monotonic() >= self._next_fold:
                self._fold(tier)
            else:
                self._hand_on(tier, self._tally.take())
        except StoreUnavailable:
            self.write_down()
        finally:
            self._sending.release()

    def fold(self, tier: RedisTier, leaving: bool = False) -> None:
        """Hand Redis everything counted, the node's journal, and its unpublished entries. Raises StoreUnavailable.

        `leaving` tells that this is the last time.
        """
        if not self._sending.acquire(timeout=_LONGEST_TURN_S):
            raise StoreUnavailable(tier.name, "another thread is still handing on what was counted")
        try:
            self._fold(tier, leaving)
        finally:
            self._sending.release()

    def leave(self) -> None:
        """Leave nothing in this process: append to the node's files what Redis has not got, or not answered."""
        self._sender.leave()
        if self._tally.pending:
            self.write_down()

    def kept(self) -> Batch:
        """Return what has been counted here and stays here: nothing."""
        return Batch({}, ())

    def _fold(self, tier: RedisTier, leaving: bool = False) -> None:
        self._next_fold = time.monotonic() + _FOLD_INTERVAL_S
        tidied = tier.tidy()
        self._limits.note(tier, tidied.seen)
        self._arrears.compare(tier, tidied, leaving)
        self._sender.send_for_others(tier)
        self._hand_on(tier, merge((self._node.journal_take(), self._tally.take())))
        # Entries in use here that Redis does not have were made without it, or lost by it.
        missing, self._missing = self._missing, {}
        if self._arrears.pay(tier, missing) or tidied.soon:
            self._next_fold = time.monotonic() + _SOON_S

    def _hand_on(self, tier: RedisTier, batch: Batch) -> None:
        self._handed_on = time.monotonic()
        try:
            self._sender.send_again(tier)
            missing = tier.touch(batch.uses) if batch.uses else []
        except StoreUnavailable:
            self._tally.put_back(batch)
            raise
        if len(self._missing) < _MOST_MISSING:
            self._missing.update(dict.fromkeys(missing))
        self._sender.send(tier, batch.counts)
