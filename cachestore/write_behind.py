"""Write entries from Redis to this node's files a moment later, so that no caller waits for the disk.

Entries come in bursts, one for each kernel of a graph; writing one would delay the next. The thread that writes lives
only while entries wait, and a little longer. Entries that wait when a process is killed are still in Redis.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Final

from .deferred_interrupts import deferred_interrupts
from .node_state import NodeState

#: Pause, in seconds, between two looks of the thread.
_PAUSE_S: Final = 0.02
#: Looks for which a burst is waited out, and looks without anything to keep before the thread ends.
_MOST_HELD: Final = 25
_MOST_IDLE: Final = 50
#: Waiting bytes at which a caller has to write them itself.
_MOST_BYTES: Final = 32 << 20
#: Longest wait, in seconds, for the thread to end.
_JOIN_S: Final = 1.0


class WriteBehind:
    """Call `keep` with entries (the state they were found under, digest, bytes) a moment after they were put."""

    def __init__(self, keep: Callable[[NodeState, str, bytes], None]) -> None:
        self._keep = keep
        self._waiting: deque[tuple[NodeState, str, bytes]] = deque()
        # Not exact among threads: it only keeps a flood within bounds.
        self._bytes = 0
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def put(self, state: NodeState, digest: str, blob: bytes) -> None:
        """Keep an entry a moment later."""
        self._waiting.append((state, digest, blob))
        self._bytes += len(blob)
        if self._bytes > _MOST_BYTES:
            self.drain()
        elif self._thread is None:
            self._start_thread()

    def drain(self) -> None:
        """Keep everything that waits now."""
        while self._waiting:
            try:
                item = self._waiting.popleft()
            except IndexError:
                # Another thread has taken the last one.
                break
            self._keep(*item)
        self._bytes = 0

    def close(self) -> None:
        """Keep everything that waits and end the thread; a later `put` starts another."""
        thread = self._thread
        if thread is not None:
            self._over.set()
            thread.join(_JOIN_S)
        self.drain()

    def _start_thread(self) -> None:
        """Start the thread; if none can be started, keep everything now. An interrupt comes before or after it."""
        self._over.clear()
        with deferred_interrupts():
            self._thread = threading.Thread(target=self._run, name="poolrt-write-behind", daemon=True)
            try:
                self._thread.start()
            except RuntimeError:
                self._thread = None
        if self._thread is None:
            self.drain()

    def _run(self) -> None:
        waiting = held = idle = 0
        while idle < _MOST_IDLE and not self._over.wait(_PAUSE_S):
            before, waiting = waiting, len(self._waiting)
            if waiting > before and held < _MOST_HELD:
                held += 1
            elif waiting:
                self.drain()
                waiting = held = idle = 0
            else:
                idle += 1
        self._thread = None
        # For entries put after the last look and before the line above; later ones start another thread.
        self.drain()
