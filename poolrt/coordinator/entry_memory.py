"""Entries that this coordinator has seen, so that a second load of a graph asks nobody: bounded, oldest use first out."""

from __future__ import annotations

from typing import Final

#: Bytes of entries kept beside those that loaded models hold anyway.
MAX_BYTES: Final = 256 * 1024 * 1024


class EntryMemory:
    """Keep at most ``capacity`` entries by the digest of their key; 0 keeps none."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._entries: dict[str, bytes] = {}
        self._bytes = 0

    def get(self, digest: str) -> bytes | None:
        """Return an entry and make it the most recently used, or None."""
        entry = self._entries.pop(digest, None)
        if entry is not None:
            self._entries[digest] = entry
        return entry

    def put(self, digest: str, entry: bytes) -> None:
        """Keep an entry; drop the least recently used beyond the bounds."""
        if digest in self._entries or not self.capacity:
            return
        self._entries[digest] = entry
        self._bytes += len(entry)
        while self._entries and (len(self._entries) > self.capacity or self._bytes > MAX_BYTES):
            oldest = next(iter(self._entries))
            self._bytes -= len(self._entries.pop(oldest))
