"""Failed starts: how often in a row processes of one kind exited before they were ready."""

from __future__ import annotations

from typing import Final

#: Fork servers that may exit in a row while processes start from them: more than starts that fail by themselves, because
#: the end of a fork server says nothing about the processes that it forks. Another one starts within half a second.
LOST_FORK_SERVERS_LIMIT: Final = 10
#: Starts that may be ended with SIGKILL by another process in a row, and the seconds for which they are repeated: such an end
#: says nothing about the next start. Where each is killed at once, the number is reached in about a second.
KILLED_STARTS_LIMIT: Final = 40
KILLED_S: Final = 10.0


class FailedStarts:
    """Counts failed starts. Processes that were spawned together may fail together, as their fork server did: that is one.

    ``limit`` is the number that may fail in a row; starts that were lost with their fork server have a limit of their own, and
    those that were killed from outside a larger one, and one in time. A process keeps the ``total`` at its spawn. Its failure
    counts if none has been counted since.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.total = 0
        self._own = 0
        self._with_fork_server = 0
        self._killed = 0
        self._killed_since = 0.0

    @property
    def in_a_row(self) -> int:
        """The number of failures since a process became ready."""
        return self._own + self._with_fork_server + self._killed

    @property
    def excess(self) -> int:
        """The number of failures beyond the limit; negative before that is reached."""
        return max(self._own - self.limit, self._with_fork_server - LOST_FORK_SERVERS_LIMIT)

    def count(self, total_at_spawn: int, with_fork_server: bool = False) -> bool:
        """Count the failure of a process; return False if it belongs to an earlier failure."""
        if total_at_spawn != self.total:
            return False
        self.total += 1
        self._own += not with_fork_server
        self._with_fork_server += with_fork_server
        return True

    def count_killed(self, total_at_spawn: int, now: float) -> bool:
        """Count the failure of a process that was killed from outside; return whether these are too many, or last too long.

        ``now`` is in seconds of a steady clock.
        """
        if not self._killed:
            self._killed_since = now
        if total_at_spawn == self.total:
            self.total += 1
            self._killed += 1
        return self._killed >= KILLED_STARTS_LIMIT or now - self._killed_since > KILLED_S

    def clear(self) -> None:
        """Note that a process has become ready."""
        self._own = self._with_fork_server = self._killed = 0
