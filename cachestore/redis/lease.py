"""Leases, a creator's right with a term: acquire one, renew it, and end it with a value or a failure.

Guarantees, all checked inside the scripts, so no clock or pause of a client can break them: there is one holder at a
time; only the holder's nonce can publish, fail or renew; a stream wakes the waiting processes, and remains for late
readers; a creator that comes back after its lease was taken over cannot replace a newer value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from poolrt.cachestore.errors import StoreFull

from ..deferred_dataclass import dataclass
from .connection import BLOCK_S, RedisConnection, Upload
from .replies import blob, count, digest_list, flag, integer, items, refuse, unused
from .schema import Schema
from .scripts import Scripts

#: Time, in milliseconds, that wake streams, uploads and oversized values live, and that a lease's hash outlives it.
LEFTOVER_LIFE_MS: Final = 30_000
#: Memory, in bytes, to make room for when there is none for a lease.
_LEASE_BYTES: Final = 4096
#: Attempts to find memory for something; each one makes twice the room.
_MOST_ATTEMPTS: Final = 4
#: Entries dropped at once to make room.
_MOST_DROPS: Final = 500
#: Extra wait, in seconds, beyond a lease's end, so that the look afterwards finds it expired.
_AFTER_EXPIRY_S: Final = 0.005

#: Answers of publish.lua.
_PUBLISHED: Final = (b"OK", b"LATE", b"DUP", b"LOST", b"CLEARED", b"TRANSIENT", b"NOVAL")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of leases: a silent holder loses one after `term_s` seconds, a busy one after `limit_s`."""

    term_s: float
    limit_s: float


@dataclass(frozen=True, slots=True)
class Seen:
    """The numbers that Redis adds to its answers: the generation and the revision of the capacity."""

    generation: int
    revision: int


@dataclass(frozen=True, slots=True)
class Owned:
    """The lease is ours."""

    seen: Seen
    fence: int


@dataclass(frozen=True, slots=True)
class Held:
    """Another creator has the lease."""

    seen: Seen
    fence: int
    left_s: float
    owner: str
    nonce: bytes


@dataclass(frozen=True, slots=True)
class Present:
    """There is a value."""

    seen: Seen


@dataclass(frozen=True, slots=True)
class Off:
    """The capacity is 0."""

    seen: Seen


@dataclass(frozen=True, slots=True)
class Ended:
    """The lease that we waited for has ended; `failure` is the creator's signed failure, None after a success.

    With `retry`, the creator ended without a result for us.
    """

    failure: bytes | None
    retry: bool


@dataclass(frozen=True, slots=True)
class Publication:
    """A value to publish, made under the lease of `nonce` (or under none) and in a generation."""

    digest: str
    nonce: str
    fence: int
    generation: int
    blob: bytes


@dataclass(frozen=True, slots=True)
class Published:
    """The answer to a publication (see publish.lua) and the digests that were dropped to make room."""

    word: str
    seen: Seen
    dropped: tuple[str, ...]


class LeaseClient:
    """Acquire, renew and end leases in one namespace."""

    def __init__(
        self, connection: RedisConnection, schema: Schema, scripts: Scripts, terms: Terms, defaults: tuple[int, int]
    ) -> None:
        self._connection = connection
        self._schema = schema
        self._scripts = scripts
        self._term_ms = round(terms.term_s * 1000)
        self._limit_ms = round(terms.limit_s * 1000)
        self._defaults = defaults

    def acquire(
        self, digest: str, nonce: str, owner: str, waited_for: int | None
    ) -> Owned | Held | Present | Off | Ended:
        """Acquire the lease of an entry; `waited_for` is the fence of the lease that the caller waited for.

        Makes room for it if Redis is full: without leases, each host would create for itself.
        """
        schema = self._schema
        keys = [schema.value(digest), schema.lease(digest), schema.meta, schema.counters]
        if waited_for is not None:
            keys.append(schema.wake(digest, waited_for))
        arguments = (nonce, self._term_ms, self._limit_ms, self._defaults[0], owner, LEFTOVER_LIFE_MS)
        return self._making_room(
            lambda: self._connection.script(_acquired, self._scripts.acquire, keys, arguments), _LEASE_BYTES
        )

    def wait(self, digest: str, held: Held, longest_s: float) -> Ended | None:
        """Wait for the end of a lease, for at most `BLOCK_S` seconds; return None if it has not ended."""
        wait_s = min(max(held.left_s, 0.0) + _AFTER_EXPIRY_S, BLOCK_S, longest_s)
        stream = self._schema.wake(digest, held.fence)
        return self._connection.wait_command(
            _first_event, "XREAD", "COUNT", 1, "BLOCK", max(1, round(wait_s * 1000)), "STREAMS", stream, "0-0"
        )

    def renew(self, digest: str, nonce: str) -> bool:
        """Prolong our lease; False when it is over."""
        arguments = (nonce, self._term_ms, LEFTOVER_LIFE_MS)
        return self._connection.script(flag, self._scripts.renew, [self._schema.lease(digest)], arguments)

    def publish(self, digest: str, nonce: str, fence: int, generation: int, blob: bytes) -> Published:
        """Publish a value and end our lease, if we still have it.

        Raises StoreFull when Redis has no memory for it even after making room.
        """
        publication = Publication(digest, nonce, fence, generation, blob)

        def run() -> Published:
            (published,) = self.publish_together([publication])
            if isinstance(published, StoreFull):
                raise published
            if published.word == "NOVAL":
                raise StoreFull(self._connection.name, "the value did not stay")
            return published

        return self._making_room(run, len(blob))

    def publish_together(self, publications: Sequence[Publication]) -> list[Published | StoreFull]:
        """Publish several values in one round trip, without making room; return the answer to each."""
        schema = self._schema
        uploads: list[Upload] = []
        for one in publications:
            keys = [
                schema.upload(one.nonce),
                schema.value(one.digest),
                schema.lease(one.digest),
                schema.wake(one.digest, one.fence),
                *schema.bookkeeping,
            ]
            size = len(one.blob)
            arguments = (one.digest, one.nonce, one.generation, size, *self._defaults, schema.prefix, LEFTOVER_LIFE_MS)
            uploads.append((("SET", keys[0], one.blob, "PX", LEFTOVER_LIFE_MS), keys, arguments))
        return self._connection.uploads(_published, uploads, self._scripts.publish)

    def fail(self, digest: str, nonce: str | bytes, fence: int, failure: bytes | None) -> bool:
        """End a lease without a value: with a signed failure for the waiting processes, or None to let one of them try.

        Returns False when the lease is no longer that of `nonce`.
        """
        arguments = (nonce, "retry" if failure is None else "err", failure or b"", LEFTOVER_LIFE_MS)
        keys = [self._schema.lease(digest), self._schema.wake(digest, fence)]
        return self._connection.script(flag, self._scripts.fail, keys, arguments)

    def _making_room(self, run: Callable[[], T], needed: int) -> T:
        """Return what `run` returns; while Redis is full, make room for `needed` bytes, then twice as many."""
        for attempt in range(_MOST_ATTEMPTS - 1):
            try:
                return run()
            except StoreFull:
                self._make_room(needed << attempt)
        return run()

    def _make_room(self, needed: int) -> None:
        """Drop the least recently used entries, about twice as many bytes as are needed."""
        schema = self._schema
        entries, total = self._connection.batch(count, [("ZCARD", schema.order), ("HGET", schema.sizes, "bytes")])
        drops = min(entries, _MOST_DROPS, 1 + 2 * needed * entries // max(1, total))
        self._connection.script(
            unused,
            self._scripts.limits,
            schema.bookkeeping,
            (schema.prefix, 0, 0, -1, -1, *self._defaults, drops, 0, entries - drops),
        )


def _acquired(reply: Any) -> Owned | Held | Present | Off | Ended:
    word, generation, revision, *rest = items(reply, 3)
    seen = Seen(integer(generation), integer(revision))
    if word == b"OWN":
        return Owned(seen, integer(*items(rest, 1)[:1]))
    if word == b"WAIT":
        fence, left_ms, owner, nonce = items(rest, 4)[:4]
        return Held(seen, integer(fence), integer(left_ms) / 1000, blob(owner).decode("utf-8", "replace"), blob(nonce))
    if word == b"HIT":
        return Present(seen)
    if word == b"OFF":
        return Off(seen)
    if word == b"DONE":
        kind, failure = items(rest, 2)[:2]
        return Ended(blob(failure) if kind == b"err" else None, retry=False)
    refuse("an answer of acquire.lua", reply)


def _published(reply: Any) -> Published:
    word, generation, revision, *dropped = items(reply, 3)
    if word not in _PUBLISHED:
        refuse("an answer of publish.lua", reply)
    return Published(word.decode(), Seen(integer(generation), integer(revision)), tuple(digest_list(dropped)))


def _first_event(reply: Any) -> Ended | None:
    """Return the first event of an XREAD reply: [[stream, [[id, [name, value, ...]]]]]."""
    if reply is None:
        return None
    (_, events), *_ = (items(stream, 2) for stream in items(reply, 1))
    fields = items(items(items(events, 1)[0], 2)[1])
    found = {blob(name): blob(field) for name, field in zip(fields[::2], fields[1::2], strict=False)}
    return Ended(found.get(b"e", b"") if found.get(b"s") == b"err" else None, found.get(b"s") == b"retry")
