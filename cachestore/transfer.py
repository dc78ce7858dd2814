"""Export the stored entries to a bundle, and import a bundle.

A bundle keeps entries as they are signed, so its namespace is part of them. An import into another namespace checks
their signatures and signs them again: a user with the key may do so, while no entry moves between namespaces without
the key.

Guarantees: an import removes nothing. Entries without room are left out, the least recently used first; the others keep
their order of use.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any, Final

from .bundle import Bundle, BundledEntry, open_bundle, write_bundle
from .deferred_dataclass import dataclass
from .entry import EntryCodec
from .errors import EntryCorrupt, EntryForged, StoreUnavailable
from .limits import Limits
from .node import Node
from .options import StoreOptions
from .redis.tier import RedisTier
from .signing import SigningKey
from .verification import Verification

#: Called with the number of entries done and the number in all.
Progress = Callable[[int, int], None]

_PUBLISHED: Final = ("OK", "LATE")


@dataclass(frozen=True, slots=True)
class ExportReport:
    """The result of `export`.

    `bytes` is the sum of the entries' sizes, `skipped` the number of those that were not sound or vanished meanwhile.
    With `redis`, the bundle has the entries of Redis and of this node's files, else those of the files only.
    """

    path: str
    entries: int
    bytes: int
    skipped: int
    redis: bool

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as a dictionary."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class ImportReport:
    """The result of `import_`: the `entries` of a bundle, made in `namespace`.

    `imported` are new here, with `bytes` in all; `present` were there already, `no_room` did not fit the capacity,
    `busy` were under creation or cleared meanwhile. With `redis`, they are in Redis, else in this node's files.
    """

    path: str
    namespace: str
    entries: int
    imported: int
    bytes: int
    present: int
    no_room: int
    busy: int
    redis: bool

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as a dictionary."""
        return asdict(self)


class Transfer:
    """Export and import the entries of one namespace."""

    def __init__(
        self,
        options: StoreOptions,
        node: Node,
        limits: Limits,
        verification: Verification,
        signing: Callable[[], SigningKey],
    ) -> None:
        self._options = options
        self._node = node
        self._limits = limits
        self._verification = verification
        self._signing = signing

    def export(self, tier: RedisTier | None, path: str, progress: Progress | None) -> ExportReport:
        """Write every sound entry, least recently used first. Raises OSError, and StoreUnavailable half-way."""
        digests = self._digests(tier)
        signing = self._signing()
        count, total = write_bundle(
            path, signing, self._options.namespace, self._sound_entries(tier, digests, progress)
        )
        return ExportReport(path, count, total, len(digests) - count, tier is not None)

    def import_(
        self, tier: RedisTier | None, path: str, progress: Progress | None, publish_later: bool
    ) -> ImportReport:
        """Import the entries that are missing here; `publish_later` marks those that go to files only for Redis.

        Raises BundleForged, BundleCorrupt and OSError before anything has changed.
        """
        with open_bundle(path, self._signing()) as bundle:
            present = self._present(tier, [entry.digest for entry in bundle.entries])
            missing = [entry for entry in bundle.entries if entry.digest not in present]
            chosen = self._that_fit(tier, missing)
            imported = total = 0
            for number, entry in enumerate(chosen, 1):
                blob = self._own(bundle, path, entry)
                kept = False
                if tier is not None:
                    try:
                        kept = self._publish(tier, entry.digest, blob)
                    except StoreUnavailable:
                        # Away or full: the rest waits in files, like entries that are created without Redis.
                        tier, publish_later = None, True
                if tier is None:
                    kept = self._keep(entry.digest, blob, publish_later)
                imported += kept
                total += len(blob) if kept else 0
                if progress is not None:
                    progress(number, len(chosen))
            return ImportReport(
                path=path,
                namespace=bundle.namespace,
                entries=len(bundle.entries),
                imported=imported,
                bytes=total,
                present=len(bundle.entries) - len(missing),
                no_room=len(missing) - len(chosen),
                busy=len(chosen) - imported,
                redis=tier is not None,
            )

    def _digests(self, tier: RedisTier | None) -> list[str]:
        """Return the digests of all stored entries, least recently used first."""
        last_use = {file.digest: file.last_use for file in self._node.listing(self._node.state())}
        if tier is not None:
            last_use |= {item.digest: item.last_use for item in tier.listing()}
        return sorted(last_use, key=lambda digest: last_use[digest])

    def _sound_entries(
        self, tier: RedisTier | None, digests: list[str], progress: Progress | None
    ) -> Iterator[tuple[str, bytes]]:
        state = self._node.state()
        for number, digest in enumerate(digests, 1):
            blob = self._node.get_blob(state, digest, use=False)
            if self._verification.sound_entry(digest, blob) is None:
                blob = tier.get(digest) if tier is not None else None
            if blob is not None and self._verification.sound_entry(digest, blob) is not None:
                yield digest, blob
            if progress is not None:
                progress(number, len(digests))

    def _present(self, tier: RedisTier | None, digests: list[str]) -> set[str]:
        if tier is not None:
            return set(tier.present(digests))
        return {file.digest for file in self._node.listing(self._node.state())}

    def _that_fit(self, tier: RedisTier | None, missing: list[BundledEntry]) -> list[BundledEntry]:
        """Return those for which there is room, in the order of the bundle; the last used are chosen first."""
        state = self._node.state()
        room = self._node.capacity(state) if tier is not None else self._node.files_capacity(state)
        limits = [self._node.capacity_bytes(state)]
        if tier is not None:
            used, used_bytes = tier.size()
        else:
            files = self._node.listing(state)
            used, used_bytes = len(files), sum(file.bytes for file in files)
            limits.append(self._options.files_bytes)
        room -= used
        room_bytes = min((limit for limit in limits if limit > 0), default=sys.maxsize) - used_bytes
        chosen: list[BundledEntry] = []
        for entry in reversed(missing):
            if room > 0 and entry.bytes <= room_bytes:
                chosen.append(entry)
                room -= 1
                room_bytes -= entry.bytes
        chosen.reverse()
        return chosen

    def _own(self, bundle: Bundle, path: str, item: BundledEntry) -> bytes:
        """Return an entry's signed bytes as our namespace has them."""
        blob = bundle.read(item)
        signing = self._signing()
        try:
            entry = EntryCodec(signing, bundle.namespace).unpack(blob, item.digest)
        except (EntryCorrupt, EntryForged) as error:
            raise EntryCorrupt(item.digest, f"bundle {path} was changed while it was read") from error
        if bundle.namespace == self._options.namespace:
            return blob
        return EntryCodec(signing, self._options.namespace).pack(entry.key, entry.payload, entry.meta)

    def _publish(self, tier: RedisTier, digest: str, blob: bytes) -> bool:
        state = self._node.state()
        published = tier.leases.publish(digest, os.urandom(16).hex(), 0, state.generation, blob)
        for dropped in published.dropped:
            self._node.remove(state, dropped)
        self._limits.note(tier, published.seen)
        if published.word not in _PUBLISHED:
            return False
        self._node.put(state, digest, blob)
        return True

    def _keep(self, digest: str, blob: bytes, publish_later: bool) -> bool:
        state = self._node.state()
        self._node.put(state, digest, blob, unpublished=publish_later)
        return self._node.get_blob(state, digest, use=False) is not None
