"""Failed starts: how often in a row processes of one kind exited before they were ready."""

from __future__ import annotations


class FailedStarts:
    """Counts failed starts. Processes that were spawned together may fail together, as their fork server did: that is one.

    A process keeps the ``total`` at its spawn. Its failure counts if none has been counted since.
    """

    def __init__(self) -> None:
        self.in_a_row = 0
        self.total = 0

    def count(self, total_at_spawn: int) -> bool:
        """Count the failure of a process; return False if it belongs to an earlier failure."""
        if total_at_spawn != self.total:
            return False
        self.total += 1
        self.in_a_row += 1
        return True

    def clear(self) -> None:
        """Note that a process has become ready."""
        self.in_a_row = 0
