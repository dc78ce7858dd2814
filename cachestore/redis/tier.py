"""The shared tier: values, order of use, capacities and counters of one namespace and signing key in Redis."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any, Final

from poolrt.cachestore.node_state import NodeState
from poolrt.cachestore.signing import TAG_SIZE
from poolrt.cachestore.stats import COUNTERS, Sent

from ..deferred_dataclass import dataclass
from .connection import RedisConnection
from .lease import LeaseClient, Seen, Terms
from .replies import blob, count, digest_list, flag, integer, items, list_of, run_id, score, unused, value
from .schema import Schema
from .scripts import Scripts

#: Bytes that identify a creation in publish.lua.
_MARK_SIZE: Final = 8
#: Values asked for in one round trip; keeps answers to a few megabytes.
_VALUES_PER_TRIP: Final = 16
#: Digests in one touch.
_TOUCHES_PER_TRIP: Final = 512
#: Entries dropped in one script call; keeps Redis's pauses to some milliseconds.
_DROPS_PER_CALL: Final = 500
#: Entries looked at in one call of tidying, and least time between two calls of all processes, in milliseconds.
_LOOKS_PER_CALL: Final = 128
_LOOK_INTERVAL_MS: Final = 250
#: Time, in milliseconds, for which the number of a sender's last batch is kept: longer than Redis is ever left alone.
_SENDER_LIFE_MS: Final = 600_000


@dataclass(frozen=True, slots=True)
class Listed:
    """One entry's bookkeeping: size in bytes, tick of last use in seconds since the epoch, how often it was created.

    `creations` is None in files, which do not count them.
    """

    digest: str
    bytes: int
    last_use: float
    creations: int | None = None


@dataclass(frozen=True, slots=True)
class Tidied:
    """The answer of tidy.lua. With `soon`, the next call should follow without a pause."""

    run_id: str
    seen: Seen
    soon: bool


class RedisTier:
    """All operations on the shared tier; `leases` has those on leases. Every method raises StoreUnavailable."""

    def __init__(
        self,
        connection: RedisConnection,
        schema: Schema,
        terms: Terms,
        defaults: tuple[int, int],
        initial: tuple[int, int] | None = None,
    ) -> None:
        """Use ``defaults``, in entries and bytes, until the namespace has capacities; `settle` sets ``initial`` ones."""
        self._connection = connection
        self._schema = schema
        self._scripts = Scripts()
        self._defaults = defaults
        self._initial = ("", "") if initial is None else initial
        self._limits_command = ("HMGET", self._schema.meta, "generation", "revision")
        self._limits: list[bytes | None] = []
        self._seen = Seen(0, 0)
        self.leases = LeaseClient(connection, self._schema, self._scripts, terms, defaults)

    @property
    def name(self) -> str:
        """The server, as messages name it."""
        return self._connection.name

    def ping(self) -> None:
        """Get an answer from the server."""
        self._connection.command(unused, "PING")

    def get(self, digest: str) -> bytes | None:
        """Return the bytes of one entry."""
        return self.look_up([digest])[1][0]

    def look_up(self, digests: Sequence[str]) -> tuple[Seen, list[bytes | None]]:
        """Return the numbers of generation and capacity, and the bytes of several entries in order."""
        names = [self._schema.value(digest) for digest in digests]
        limits, values = self._connection.values(self._limits_command, names[:_VALUES_PER_TRIP])
        for part in batched(names[_VALUES_PER_TRIP:], _VALUES_PER_TRIP):
            values += self._connection.values(self._limits_command, part)[1]
        if limits is not self._limits:
            # The reader returns the same list as long as the answer is the same.
            generation, revision = self._connection.check(list_of(count), limits)
            self._seen, self._limits = Seen(generation, revision), limits
        return self._seen, values

    def get_many(self, digests: Sequence[str]) -> Iterator[bytes | None]:
        """Yield the bytes of several entries in order, a few per round trip."""
        for part in batched(digests, _VALUES_PER_TRIP):
            yield from self._connection.batch(value, [("GET", self._schema.value(digest)) for digest in part])

    def present(self, digests: Sequence[str]) -> list[str]:
        """Return those digests that have a value."""
        found: list[str] = []
        for part in batched(digests, _TOUCHES_PER_TRIP):
            answers = self._connection.batch(flag, [("EXISTS", self._schema.value(digest)) for digest in part])
            found += [digest for digest, there in zip(part, answers, strict=True) if there]
        return found

    def remove(self, digest: str, blob: bytes | None = None) -> bool:
        """Remove an entry; with `blob`, only if it still is that one. Return whether one was removed."""
        schema = self._schema
        tail = b"" if blob is None else blob[-TAG_SIZE:]
        keys = [schema.value(digest), schema.order, schema.sizes, schema.meta]
        return self._connection.script(flag, self._scripts.remove, keys, (digest, schema.prefix, tail))

    def touch(self, digests: Sequence[str]) -> list[str]:
        """Mark entries as used, oldest use first; return those that Redis does not have."""
        missing: list[str] = []
        for part in batched(digests, _TOUCHES_PER_TRIP):
            arguments = (self._schema.prefix, *part)
            missing += self._connection.script(digest_list, self._scripts.touch, self._schema.bookkeeping, arguments)
        return missing

    def unlisted(self, digests: Sequence[str]) -> list[str]:
        """Return those digests that are not among the entries."""
        missing: list[str] = []
        for part in batched(digests, _TOUCHES_PER_TRIP):
            answers = self._connection.batch(value, [("ZSCORE", self._schema.order, digest) for digest in part])
            missing += [digest for digest, tick in zip(part, answers, strict=True) if tick is None]
        return missing

    def tidy(self) -> Tidied:
        """Reconcile some of the bookkeeping with the values; return the run id: a new one after a loss of data."""
        arguments = (self._schema.prefix, os.urandom(8).hex(), _LOOKS_PER_CALL, _LOOK_INTERVAL_MS)
        return self._connection.script(_tidied, self._scripts.tidy, self._schema.bookkeeping, arguments)

    def count(self, sent: Sent) -> None:
        """Add a sender's batch of counts to the namespace's counters, unless they have been added already."""
        counts = [item for pair in sent.counts.items() for item in pair]
        if counts:
            keys = [self._schema.counters, self._schema.batch(sent.sender)]
            self._connection.script(unused, self._scripts.count, keys, (sent.number, _SENDER_LIFE_MS, *counts))

    def counts(self) -> dict[str, int]:
        """Return the namespace's counters."""
        shape = list_of(count, len(COUNTERS))
        return dict(
            zip(COUNTERS, self._connection.command(shape, "HMGET", self._schema.counters, *COUNTERS), strict=True)
        )

    def size(self) -> tuple[int, int]:
        """Return the number of entries and the sum of their sizes in bytes."""
        commands = [("ZCARD", self._schema.order), ("HGET", self._schema.sizes, "bytes")]
        entries, total = self._connection.batch(count, commands)
        return entries, total

    def settle(self, state: NodeState) -> tuple[NodeState, list[str]]:
        """Send this node's generation and capacities to Redis, and drop entries that no longer fit.

        Capacities that the namespace lacks afterwards become the initial ones, if this tier has any.
        Returns the numbers that hold now, the removals aside, and the digests of the dropped entries.
        """
        dropped: list[str] = []
        clearing = 0
        while True:
            arguments = (
                self._schema.prefix,
                *state[:4],
                *self._defaults,
                _DROPS_PER_CALL,
                clearing,
                "",
                *self._initial,
            )
            more, now, gone = self._connection.script(
                _settled, self._scripts.limits, self._schema.bookkeeping, arguments
            )
            dropped += gone
            clearing = int(more == 2)
            if more == 0:
                return now, dropped

    def listing(self) -> list[Listed]:
        """Return the bookkeeping of every entry, least recently used first."""
        ticks = self._connection.command(_ticks, "ZRANGE", self._schema.order, 0, -1, "WITHSCORES")
        found: list[Listed] = []
        for part in batched(list(ticks), _TOUCHES_PER_TRIP):
            sizes, repeats = self._connection.batch(
                list_of(value, len(part)),
                [("HMGET", name, *part) for name in (self._schema.sizes, self._schema.repeats)],
            )
            found += [
                Listed(digest, size, ticks[digest] / 1e6, 1 + len(others or b"") // _MARK_SIZE)
                for digest, size, others in zip(
                    part, self._connection.check(list_of(count), sizes), repeats, strict=True
                )
            ]
        return found

    def close(self) -> None:
        """Close the connections."""
        self._connection.close()


def _tidied(reply: Any) -> Tidied:
    name, generation, revision, more = items(reply, 4)[:4]
    return Tidied(run_id(name), Seen(integer(generation), integer(revision)), flag(more))


def _settled(reply: Any) -> tuple[int, NodeState, list[str]]:
    """Return whether there is more to do (2: to clear), the numbers that hold now, and the digests that were dropped."""
    more, *numbers = map(integer, items(reply, 5)[:5])
    return more, NodeState(*numbers), digest_list(reply[5:])


def _ticks(reply: Any) -> dict[str, float]:
    """Return the tick of last use by digest, least recently used first."""
    found = items(reply)
    names, ticks = list_of(blob)(found[::2]), list_of(score, len(found[::2]))(found[1::2])
    by_name = {name.decode("ascii", "replace"): tick for name, tick in zip(names, ticks, strict=True)}
    return {digest: by_name[digest] for digest in digest_list(names)}


def batched(items: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    """Yield slices of at most `size` items (`itertools.batched` of Python 3.12)."""
    for start in range(0, len(items), size):
        yield items[start : start + size]
