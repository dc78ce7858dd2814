"""The number of this process."""

from __future__ import annotations

import os


class OwnProcess:
    """The number of this process, known without a call of the system, which takes as long as ten lines of Python."""

    __slots__ = ("process",)

    def __init__(self) -> None:
        self.process = 0
        self.look()
        os.register_at_fork(after_in_child=self.look)

    def look(self) -> None:
        """Find it again: this process is a fork."""
        self.process = os.getpid()


own = OwnProcess()
