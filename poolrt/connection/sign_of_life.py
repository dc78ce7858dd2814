"""The coordinator's signs of life, as a client that waits for it sees them."""

from __future__ import annotations

import time


class SignOfLife:
    """Says when to ask a coordinator for a sign of life, and when it has given none for ``silence_s`` seconds."""

    __slots__ = ("_asked", "_heard", "_silence_s", "look_s")

    def __init__(self, silence_s: float) -> None:
        self._silence_s = silence_s
        #: Longest wait for a message, in seconds, before the coordinator's silence is looked at.
        self.look_s = silence_s / 4
        #: When the last message came, and when a PING was sent that is not answered yet; 0 if there is none.
        self._heard = self._asked = 0.0

    def note(self) -> None:
        """Note that a message has come."""
        self._heard, self._asked = time.monotonic(), 0.0

    def must_ask(self) -> bool | None:
        """Return whether to send a PING now; None if it was sent and may still be answered. Raises TimeoutError.

        Call it if no message has come for a while.
        """
        now = time.monotonic()
        if now - self._heard < self.look_s:
            return False
        if not self._asked:
            self._asked = now
            return True
        if now - self._asked < self._silence_s / 2:
            return None
        text = (
            f"the coordinator has given no sign of life for {self._silence_s:g} s (the setting coordinator_timeout_s)"
        )
        raise TimeoutError(f"{text}: it is stopped, or this machine is overloaded")
