"""Entries that were put together of prebuilt kernels, which the node keeps for the next coordinator that looks up the same.

Putting together those of ResNet-50 takes 54 ms in a new process, half of it imports; looking up kept ones takes 7. They
are signed (`poolrt.cachestore.results`). The key of an entry has all that it depends on, so the entry is right while it is found.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, cast

import msgpack

from poolrt.cachestore import Key
from poolrt.cachestore.digests import sha256

if TYPE_CHECKING:
    from poolrt.cachestore import CacheStore

#: Raise it when the form of what is kept changes.
_SCHEMA: Final = 1


class KeptEntries:
    """The entries of ``keys``, which are looked up together, that were put together on this node.

    What is kept for these keys stays as it is.
    """

    def __init__(self, store: CacheStore, keys: Sequence[Key]) -> None:
        digest = sha256("".join(key.digest for key in keys).encode()).digest()
        self._key = Key({"schema": _SCHEMA, "entries": digest})
        self._store = store
        self._kept: dict[str, bytes] | None = None
        self._added: dict[str, bytes] = {}

    def find(self, digest: str) -> bytes | None:
        """Return the entry under the digest of its key, or None; the first call reads all of them."""
        if self._kept is None:
            data = self._store.results.get(self._key)
            self._kept = _unpack(data) if data is not None else {}
        return self._kept.get(digest)

    def add(self, digest: str, entry: bytes) -> None:
        """Note an entry that was just put together, for `keep`."""
        self._added[digest] = entry

    def keep(self) -> None:
        """Keep what was noted; nothing if there is too much of it, or if this store keeps nothing."""
        self._store.results.put(self._key, cast("bytes", msgpack.packb(self._added)))

    @property
    def has_more(self) -> bool:
        """Whether anything was noted."""
        return bool(self._added)


def _unpack(data: bytes) -> dict[str, bytes]:
    """Return the entries in verified bytes; none if a program with another form has made them."""
    try:
        found: Any = msgpack.unpackb(data)
    except (ValueError, msgpack.UnpackException):
        return {}
    return found if isinstance(found, dict) else {}
