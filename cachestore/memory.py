"""The nearest tier: payloads in this process, least recently used out first, bounded in entries and in bytes.

A hit takes no lock: each of its steps is one operation of a dictionary or a list on keys that are bytes, which the
interpreter does in one piece. It computes no digest either: entries are found by the whole canonical key.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from .key import Key
from .node_state import NodeState, Watch

#: Hits between two calls of the owner's `now_and_then`, a power of two.
_HITS: Final = 64

#: The whole of a record; made once, since a hit is shorter than a few such steps.
_ALL: Final = slice(None)

#: A watch that never says that nothing has changed.
_NO_WATCH: Final[Watch] = (b"", b"changed")


class MemoryTier:
    """Keep payloads among the threads of one process, all of one state of the node.

    Each hit appends the entry's digest to `uses`; `now_and_then` is called once in a while to take them away. While
    its `watch` sees no change, the tier may be asked without looking at the node's state.
    """

    def __init__(self, capacity: int, capacity_bytes: int, uses: list[str], now_and_then: Callable[[], None]) -> None:
        self._lock = threading.Lock()
        self._entries: OrderedDict[bytes, tuple[bytes, str]] = OrderedDict()
        self._bytes = 0
        self._capacity = capacity
        self._capacity_bytes = capacity_bytes
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
        canonical = key.canonical
        entries = self._entries
        try:
            entry = entries[canonical]
            entries.move_to_end(canonical)
        except KeyError:
            # Not there, or dropped at this moment by another thread.
            return None
        uses = self._uses
        uses.append(entry[1])
        if not len(uses) % _HITS:
            self._now_and_then()
        return entry[0]

    def reader(self, otherwise: Callable[[Key], bytes | None]) -> Callable[[Key], bytes | None]:
        """Return `hit` as one function, which asks `otherwise` where there is none: half the calls and look-ups of names."""
        entries, uses = self._entries, self._uses
        move_to_end, note = entries.move_to_end, uses.append

        def read(key: Key) -> bytes | None:
            if self._record[_ALL] == self._known:
                canonical = key.canonical
                try:
                    entry = entries[canonical]
                    move_to_end(canonical)
                except KeyError:
                    # Not there, or dropped at this moment by another thread.
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

    def put(self, key: Key, payload: bytes, state: NodeState) -> None:
        """Keep a payload that was found or made under `state`, dropping the least recently used.

        One of another state is not kept: it may have been cleared. Nor is one larger than the whole tier.
        """
        with self._lock:
            if self._capacity == 0 or len(payload) > self._capacity_bytes or state != self._state:
                return
            self._drop(key.canonical)
            self._entries[key.canonical] = (payload, key.digest)
            self._bytes += len(payload)
            while len(self._entries) > self._capacity or self._bytes > self._capacity_bytes:
                _, (dropped, _) = self._entries.popitem(last=False)
                self._bytes -= len(dropped)

    def remove(self, key: Key) -> None:
        """Forget one entry."""
        with self._lock:
            self._drop(key.canonical)

    def reset(self, capacity: int, state: NodeState) -> None:
        """Forget everything, the watch included, and hold at most `capacity` entries of `state` from now on."""
        with self._lock:
            self._state = state
            self._record, self._known = _NO_WATCH
            self._entries.clear()
            self._bytes = 0
            self._capacity = capacity

    def watch(self, watch: Watch | None) -> None:
        """Trust the entries as long as the node's state does not change."""
        self._record, self._known = watch or _NO_WATCH

    def __len__(self) -> int:
        return len(self._entries)

    def _drop(self, canonical: bytes) -> None:
        entry = self._entries.pop(canonical, None)
        if entry is not None:
            self._bytes -= len(entry[0])

    @property
    def bytes(self) -> int:
        """Sum of the payloads' sizes."""
        return self._bytes
