"""List and verify all stored entries."""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterator
from dataclasses import asdict
from typing import Any

from .asks import AskedBy
from .deferred_dataclass import dataclass, fields
from .errors import EntryCorrupt, EntryForged, StoreUnavailable
from .explain import Explainer, Known, kind_of
from .hits import HitCounts
from .key import Key
from .node import Node
from .node_state import NodeState
from .redis.tier import Listed, RedisTier
from .verification import Verification


@dataclass(frozen=True, slots=True)
class EntryInfo:
    """One stored entry.

    `kind` is the key's field `primitive`, `kind` or `name`, the first of them that the key has as text; `bytes` the size at
    rest; `age_s` and `last_use_s` are seconds ago; `seconds` is the time of its creation. `creations` is how often it
    was created since it was last dropped. `asked_by` is the name that last needed it on this node, such as a model's; None
    if none is known, as after a while. `hits` is how many look-ups on this node have found it. A bad entry has None for the
    fields that it does not contain; so has `creations` while Redis, which counts them, is away.
    """

    digest: str
    kind: str | None
    bytes: int
    age_s: float | None
    last_use_s: float
    seconds: float | None
    creator: str | None
    toolchain: str | None
    creations: int | None
    asked_by: str | None = None
    hits: int = 0
    key: Key | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the fields except the key as a dictionary."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "key"}


@dataclass(frozen=True, slots=True)
class Problem:
    """One bad entry that `verify` removed: where it was and why it is bad."""

    digest: str
    tier: str
    reason: str


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """The entries that `verify` checked. `redis_checked` is None when Redis did not answer."""

    files_checked: int
    redis_checked: int | None
    problems: tuple[Problem, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as a dictionary."""
        return asdict(self)


class Inspection:
    """List and check the entries of Redis and of this node's files."""

    def __init__(self, node: Node, verification: Verification, flush_hits: Callable[[], None]) -> None:
        """``flush_hits`` writes down the hits of this process."""
        self._flush_hits = flush_hits
        self._node = node
        self._verification = verification
        self._sound_entry = verification.sound_entry

    def entries(self, tier: RedisTier | None) -> list[EntryInfo]:
        """Return the stored entries, most recently used first: all of Redis, or this node's files without it."""
        state = self._node.state()
        now = time.time()
        files = self._node.listing(state)
        listed = (
            tier.listing() if tier is not None else [Listed(file.digest, file.bytes, file.last_use) for file in files]
        )
        blobs = self._blobs(state, tier, [item.digest for item in listed], {file.digest for file in files})
        self._flush_hits()
        asked, hits = self._node.asked_by(), self._node.hits()
        found = [self._info(item, blob, now, asked, hits) for item, blob in zip(listed, blobs, strict=True)]
        found.reverse()
        return found

    def sizes(self, tier: RedisTier | None) -> tuple[int, int]:
        """Return the number of entries and the sum of their bytes: in Redis, or in this node's files without it."""
        if tier is not None:
            try:
                return tier.size()
            except StoreUnavailable:
                pass
        files = self._node.listing(self._node.state())
        return len(files), sum(file.bytes for file in files)

    def payloads_here(self, seen: Container[str], most: int) -> dict[str, bytes]:
        """Return the payloads of the sound entries of this node, the least recently used first: see `CacheStore`."""
        state = self._node.state()
        found = {}
        for digest in [file.digest for file in self._node.listing(state)[-most:]]:
            if digest not in seen:
                entry = self._sound_entry(digest, self._node.get_blob(state, digest, use=False))
                found[digest] = b"" if entry is None else entry.payload
        return found

    def explainer(self, tier: RedisTier | None) -> Explainer:
        """Return an explainer that compares keys with all entries in this node's files and in Redis."""
        return Explainer(self._known(tier))

    def _known(self, tier: RedisTier | None) -> Iterator[Known]:
        """Yield the stored entries, without the payloads."""
        state = self._node.state()
        digests = [file.digest for file in self._node.listing(state)]
        in_files = set(digests)
        creations = {item.digest: item.creations for item in tier.listing()} if tier is not None else {}
        digests += [digest for digest in creations if digest not in in_files]
        for digest, blob in zip(digests, self._blobs(state, tier, digests, in_files), strict=True):
            entry = self._sound_entry(digest, blob)
            if entry is not None:
                yield Known(digest, Key.from_canonical(entry.key), entry.meta, creations.get(digest))

    def key_of(self, tier: RedisTier | None, digest: str) -> Key | None:
        """Return the key of a stored entry; None if there is no sound entry of this digest."""
        blob = self._node.get_blob(self._node.state(), digest, use=False)
        entry = self._sound_entry(digest, blob)
        if entry is None and tier is not None:
            entry = self._sound_entry(digest, tier.get(digest))
        return Key.from_canonical(entry.key) if entry is not None else None

    def verify(self, tier: RedisTier | None) -> VerifyReport:
        """Check every entry; remove the bad ones and report them. Raises StoreUnavailable when Redis goes away."""
        state = self._node.state()
        problems: list[Problem] = []
        files = self._node.listing(state)
        for file in files:
            blob = self._node.get_blob(state, file.digest, use=False)
            problem = self._problem(file.digest, "files", blob) if blob is not None else None
            if problem is not None:
                self._node.remove(state, file.digest)
                problems.append(problem)
        if tier is None:
            return VerifyReport(len(files), None, tuple(problems))
        digests = [item.digest for item in tier.listing()]
        for digest, blob in zip(digests, tier.get_many(digests), strict=True):
            problem = self._problem(digest, "redis", blob)
            if problem is not None:
                tier.remove(digest, blob)
                problems.append(problem)
        return VerifyReport(len(files), len(digests), tuple(problems))

    def _blobs(
        self, state: NodeState, tier: RedisTier | None, digests: list[str], in_files: set[str]
    ) -> Iterator[bytes | None]:
        """Yield the bytes of entries in order, from files where they are there."""
        remote = [digest for digest in digests if digest not in in_files]
        from_redis = dict(zip(remote, tier.get_many(remote), strict=True)) if tier is not None else {}
        for digest in digests:
            yield self._node.get_blob(state, digest, use=False) if digest in in_files else from_redis.get(digest)

    def _info(self, item: Listed, blob: bytes | None, now: float, asked: AskedBy, hits: HitCounts) -> EntryInfo:
        entry = self._sound_entry(item.digest, blob)
        meta = entry.meta if entry is not None else None
        key = Key.from_canonical(entry.key) if entry is not None else None
        return EntryInfo(
            digest=item.digest,
            kind=kind_of(key.fields) if key is not None else None,
            bytes=item.bytes,
            age_s=max(0.0, now - meta.created) if meta is not None else None,
            last_use_s=max(0.0, now - item.last_use),
            seconds=meta.seconds if meta is not None else None,
            creator=meta.creator if meta is not None else None,
            toolchain=meta.toolchain if meta is not None else None,
            creations=item.creations,
            asked_by=asked.get(item.digest),
            hits=hits.get(item.digest),
            key=key,
        )

    def _problem(self, digest: str, tier: str, blob: bytes | None) -> Problem | None:
        if blob is None:
            return Problem(digest, tier, "listed, but its value is gone")
        try:
            self._verification.check(digest, blob)
        except (EntryCorrupt, EntryForged) as error:
            self._verification.count_refusal(error)
            return Problem(digest, tier, str(error))
        return None
