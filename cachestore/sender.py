"""Send counts to Redis so that each is added exactly once.

A Redis that does not answer may have counted all the same, or may do so later: one that was frozen goes on with what it
was told. So each batch bears its sender's name and a number, and one that was not answered is sent again as it was,
before anything new. What is not answered when the process ends is written down for the next one.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from .node import Node
from .stats import Sent

if TYPE_CHECKING:
    from .redis.tier import RedisTier


class Sender:
    """Send the batches of one process, one after the other; the caller holds a lock."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._name = _new_name()
        self._number = 0
        self._unanswered: Sent | None = None

    def send_again(self, tier: RedisTier) -> None:
        """Send what was not answered; to be called before `send`. Raises StoreUnavailable."""
        if self._unanswered is not None:
            tier.count(self._unanswered)
            self._unanswered = None

    def send(self, tier: RedisTier, counts: dict[str, int]) -> None:
        """Add counts in Redis. They are the sender's from now on, also when this raises StoreUnavailable."""
        if counts:
            self._number += 1
            self._unanswered = Sent(self._name, self._number, counts)
            self.send_again(tier)

    def send_for_others(self, tier: RedisTier) -> None:
        """Send what processes that have ended were not answered. Raises StoreUnavailable."""
        rest = self._node.unanswered_take()
        try:
            while rest:
                tier.count(rest[0])
                del rest[0]
        finally:
            if rest:
                self._node.unanswered_append(rest)

    def leave(self) -> None:
        """Write down what was not answered, for the next process with a connection."""
        if self._unanswered is not None and self._node.unanswered_append([self._unanswered]):
            self._unanswered = None
            # A number sent later under the old name would make Redis pass over the one that was written down.
            self._name, self._number = _new_name(), 0


def _new_name() -> str:
    return os.urandom(8).hex()
