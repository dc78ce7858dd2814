"""The nearest tier: payloads in this process, least recently used out first, bounded in entries and in bytes."""

from __future__ import annotations

import threading
from collections import OrderedDict

from .key import Key


class MemoryTier:
    """Keep payloads among the threads of one process, found by digest and compared by the full key."""

    def __init__(self, capacity: int, capacity_bytes: int) -> None:
        self._lock = threading.Lock()
        self._entries: OrderedDict[str, tuple[bytes, bytes]] = OrderedDict()
        self._bytes = 0
        self._capacity = capacity
        self._capacity_bytes = capacity_bytes

    def get(self, key: Key) -> bytes | None:
        """Return the payload and make it the most recently used."""
        with self._lock:
            entry = self._entries.get(key.digest)
            if entry is None or entry[0] != key.canonical:
                return None
            self._entries.move_to_end(key.digest)
            return entry[1]

    def put(self, key: Key, payload: bytes) -> None:
        """Keep a payload, dropping the least recently used; one larger than the whole tier is not kept."""
        with self._lock:
            if self._capacity == 0 or len(payload) > self._capacity_bytes:
                return
            self._drop(key.digest)
            self._entries[key.digest] = (key.canonical, payload)
            self._bytes += len(payload)
            while len(self._entries) > self._capacity or self._bytes > self._capacity_bytes:
                self._drop(next(iter(self._entries)))

    def remove(self, digest: str) -> None:
        """Forget one entry."""
        with self._lock:
            self._drop(digest)

    def reset(self, capacity: int) -> None:
        """Forget everything and hold at most `capacity` entries from now on."""
        with self._lock:
            self._entries.clear()
            self._bytes = 0
            self._capacity = capacity

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def bytes(self) -> int:
        """Sum of the payloads' sizes."""
        return self._bytes

    def _drop(self, digest: str) -> None:
        entry = self._entries.pop(digest, None)
        if entry is not None:
            self._bytes -= len(entry[1])
