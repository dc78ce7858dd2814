"""Verification of bytes at rest: only genuine entries of the right key reach the callers.

An entry that is corrupt, forged or of another key with the same digest is counted and removed, and the look-up misses.
"""

from __future__ import annotations

from collections.abc import Callable

import msgpack

from .entry import FAILURE, VALUE, Entry, EntryCodec, EntryMeta
from .errors import CreationFailed, EntryCorrupt, EntryForged, StoreError
from .key import Key
from .stats import Tally


class Verification:
    """Verify entries and failures; sign failures."""

    def __init__(self, codec: Callable[[], EntryCodec], tally: Tally) -> None:
        self._codec = codec
        self._tally = tally

    def verify(
        self, key: Key, blob: bytes | None, discard: Callable[[str, bytes], object], kind: int = VALUE
    ) -> Entry | None:
        """Return the entry of `key` in `blob`; call `discard(digest, blob)` when it is bad, and return None."""
        if blob is None:
            return None
        try:
            entry = self._codec().open(blob, key, kind)
        except (EntryCorrupt, EntryForged) as error:
            self.count_refusal(error)
            entry = None
        if entry is None:
            discard(key.digest, blob)
        return entry

    def check(self, digest: str, blob: bytes) -> Entry:
        """Return the entry stored under `digest`; raise EntryCorrupt or EntryForged, without counting."""
        return self._codec().unpack(blob, digest)

    def sound_entry(self, digest: str, blob: bytes | None) -> Entry | None:
        """Return the entry stored under `digest`; None for none, or a bad one, which stays where it is, uncounted."""
        try:
            return self.check(digest, blob) if blob is not None else None
        except (EntryCorrupt, EntryForged):
            return None

    def count_refusal(self, error: EntryCorrupt | EntryForged) -> None:
        """Count a bad entry."""
        self._tally.add("forged" if isinstance(error, EntryForged) else "corrupt")

    def sign_failure(self, key: Key, failure: CreationFailed) -> bytes:
        """Return a failure as signed bytes that only this key's waiters accept."""
        payload: bytes = msgpack.Packer().pack(failure.to_wire())
        return self._codec().pack(key.canonical, payload, EntryMeta(0, 0.0, 0.0, "", ""), FAILURE)

    def verify_failure(self, key: Key, blob: bytes) -> CreationFailed | None:
        """Return a signed failure; None, and counted, when it is not genuine."""
        try:
            entry = self._codec().open(blob, key, FAILURE)
        except (EntryCorrupt, EntryForged) as error:
            self.count_refusal(error)
            return None
        if entry is None:
            return None
        failure = _failure(entry.payload)
        if failure is None:
            self.count_refusal(EntryCorrupt(key.digest, "not the wire form of a failure"))
        return failure


def _failure(payload: bytes) -> CreationFailed | None:
    """Return the failure in a genuine message; None if it comes from a program with another wire form."""
    try:
        error = StoreError.from_wire(msgpack.unpackb(payload))
    except (ValueError, msgpack.UnpackException):
        return None
    return error if isinstance(error, CreationFailed) else None
