"""The nearest tier: payloads in this process, in an `Lru` that is bounded in entries and in bytes.

A hit takes no lock, and computes no digest: entries are found by the whole canonical key.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from .key import Key
from .lru import Lru
from .node_state import NodeState, Watch

#: Hits between two calls of the owner's `now_and_then`, a power of two.
_HITS: Final = 64

#: The whole of a record; made once, since making it would take a good part of a hit.
_ALL: Final = slice(None)

#: A watch that always reports a change.
_NO_WATCH: Final[Watch] = (b"", b"changed")


class MemoryTier:
    """Keep payloads among the threads of one process, all of one state of the node.

    Each hit appends the entry's digest to `uses`; `now_and_then` is called once in a while to flush them. While
    `watch` sees no change, a hit needs no look at the node's state.
    """

    def __init__(self, capacity: int, capacity_bytes: int, uses: list[str], now_and_then: Callable[[], None]) -> None:
        self._lock = threading.RLock()
        #: Payload, digest, and the seconds that the creation took.
        self._entries: Lru[bytes, tuple[bytes, str, float]] = Lru(capacity, capacity_bytes, lambda entry: len(entry[0]))
        self._uses = uses
        self._now_and_then = now_and_then
        self._state = NodeState()
        self._record, self._known = _NO_WATCH

    def hit(self, key: Key, current: bool = False) -> bytes | None:
        """Return the payload and make it the most recently used.

        None also when the node's state has changed, or may have, since the last `watch`, unless the caller has just
        seen that it is `current`.
        """
        if not current and self._record[_ALL] != self._known:
            return None
        entry = self._entries.get(key.canonical)
        if entry is None:
            return None
        uses = self._uses
        uses.append(entry[1])
        if not len(uses) % _HITS:
            self._now_and_then()
        return entry[0]

    def reader(self, otherwise: Callable[[Key], bytes | None]) -> Callable[[Key], bytes | None]:
        """Return `hit` as one function that calls `otherwise` on a miss: half the calls and look-ups of names."""
        entries, uses = self._entries.values, self._uses
        move_to_end, note = entries.move_to_end, uses.append

        def read(key: Key) -> bytes | None:
            if self._record[_ALL] == self._known:
                canonical = key.canonical
                try:
                    entry = entries[canonical]
                    move_to_end(canonical)
                except KeyError:
                    # Missing, or evicted at this moment by another thread.
                    return otherwise(key)
                note(entry[1])
                if not len(uses) % _HITS:
                    self._now_and_then()
                return entry[0]
            return otherwise(key)

        return read

    @property
    def is_unchanged(self) -> bool:
        """Whether the node's state is certainly that of the last `watch`."""
        return self._record[:] == self._known

    def __contains__(self, key: Key) -> bool:
        return key.canonical in self._entries

    def creation_s(self, key: Key) -> float:
        """Return the seconds that the creation of an entry took; 0 if it is not here."""
        entry = self._entries.values.get(key.canonical)
        return entry[2] if entry is not None else 0.0

    def put(self, key: Key, payload: bytes, state: NodeState, creation_s: float = 0.0) -> None:
        """Keep a payload that was found or made under `state` in `creation_s` seconds, dropping the least recently used.

        One of another state is not kept: it may have been cleared. Nor is one larger than the whole tier.
        """
        with self._lock:
            if state == self._state:
                self._entries.put(key.canonical, (payload, key.digest, creation_s))

    def remove(self, key: Key) -> None:
        """Forget one entry."""
        self._entries.remove(key.canonical)

    def set_capacity(self, capacity: int) -> None:
        """Hold at most `capacity` entries from now on, dropping the least recently used."""
        with self._lock:
            self._entries.set_capacity(capacity)

    def reset(self, capacity: int, state: NodeState) -> None:
        """Forget everything, the watch included, and hold at most `capacity` entries of `state` from now on."""
        with self._lock:
            self._state = state
            self._record, self._known = _NO_WATCH
            self._entries.clear()
            self._entries.set_capacity(capacity)

    def watch(self, watch: Watch | None) -> None:
        """Trust the entries as long as the node's state does not change."""
        self._record, self._known = watch or _NO_WATCH

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def bytes(self) -> int:
        """Sum of the payloads' sizes."""
        return self._entries.weight
