"""The store's counters: their names and meanings, and the tally that one process keeps until it can flush it.

hits.memory/files/redis  look-ups answered by that tier
hits.prebuilt            look-ups answered with the parts that came with the package (see `prebuilt`)
misses                   look-ups that no tier could answer; of those, misses.redis asked Redis (it may be away)
creations                results created, with Redis or without
waits                    callers that got the result of another creator that was already at work
takeovers                leases taken from a creator that died, hung or stopped renewing
late                     results that came to Redis without a lease: made while it was away, or after the lease had ended
duplicates               results that came to Redis too late: there was one already, or a newer lease
creation_errors          creators that failed
evictions                entries dropped for capacity
corrupt, forged          entries refused (see `entry`), and prebuilt parts
malformed                replies of Redis refused (see `redis.replies`)
degraded                 steps of a call that needed Redis, or this node's files, and went on without them
seconds_saved            creation time of the entries that hits in files or Redis brought back (not those in memory)
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from typing import Final, Literal, TypedDict, cast

from .deferred_namedtuple import NamedTuple

#: Where an answer came from, nearest first.
TIERS: Final[tuple[Literal["memory", "files", "prebuilt", "redis"], ...]] = ("memory", "files", "prebuilt", "redis")

#: Names of the counters as they are kept (seconds as whole microseconds, so that sums stay exact).
COUNTERS: Final = (
    "hits.memory",
    "hits.files",
    "hits.prebuilt",
    "hits.redis",
    "misses",
    "misses.redis",
    "creations",
    "waits",
    "takeovers",
    "late",
    "duplicates",
    "creation_errors",
    "evictions",
    "corrupt",
    "forged",
    "malformed",
    "degraded",
    "saved_us",
)


class Hits(TypedDict):
    """Hits by tier."""

    memory: int
    files: int
    prebuilt: int
    redis: int


class TierCounts(TypedDict):
    """Look-ups that one tier could answer, and those that it was asked for and could not."""

    hits: int
    misses: int


class Tiers(TypedDict):
    """Counts by tier: the memories of all processes, files, and Redis."""

    process: TierCounts
    files: TierCounts
    redis: TierCounts


class Stats(TypedDict):
    """The result of `CacheStore.stats()`; a `capacity_bytes` of 0 means no limit in bytes.

    Each look-up is one hit, in the tier that answered, or one of `misses`, however many tiers and processes took part. A
    tier is asked if no nearer one has answered: so `tiers.process.misses` are all other hits, and `misses`.
    """

    entries: int
    bytes: int
    capacity: int
    capacity_bytes: int
    hits: Hits
    misses: int
    tiers: Tiers
    creations: int
    waits: int
    takeovers: int
    late: int
    duplicates: int
    creation_errors: int
    evictions: int
    corrupt: int
    forged: int
    malformed: int
    degraded: int
    seconds_saved: float


class Sent(NamedTuple):
    """Counts on their way to Redis: the sender's name, and the number of the batch among the sender's."""

    sender: str
    number: int
    counts: dict[str, int]


class Batch(NamedTuple):
    """Counts and uses, oldest use first, and the batches that ended processes sent without an answer."""

    counts: dict[str, int]
    uses: tuple[str, ...]
    sent: tuple[Sent, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.counts or self.uses or self.sent)


class Tally:
    """Add up counts and uses of entries among the threads of one process."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._counts: dict[str, int] = {}
        self._uses: dict[str, None] = {}
        self._pending = 0
        #: Digests of hits in memory, oldest first. Appending takes no lock; everything else here adds them up first.
        self.memory_uses: list[str] = []
        # Hits of other tiers, all older than those in memory: tier, digest, seconds saved.
        self._hits: list[tuple[str, str, float]] = []
        self._hits_by_digest: dict[str, int] = {}

    def add(self, name: str, count: int = 1) -> None:
        """Count `name`, one of `COUNTERS`."""
        if not count:
            return
        with self._lock:
            self._counts[name] = self._counts.get(name, 0) + count
            self._pending += 1

    def add_miss(self, *, asked_redis: bool, count: bool = True) -> None:
        """Count a look-up that no tier could answer, unless another process counts it."""
        if count:
            self.add("misses")
            if asked_redis:
                self.add("misses.redis")

    def use(self, digest: str, tier: str, saved_s: float = 0.0) -> None:
        """Count a hit of `tier` and remember the entry as the most recently used."""
        if self.memory_uses:
            with self._lock:
                self._add_up()
        self._hits.append((tier, digest, saved_s))

    @property
    def pending(self) -> int:
        """Number of `add` and `use` calls and of hits in memory since the last `take`."""
        return self._pending + len(self._hits) + len(self.memory_uses)

    def take(self) -> Batch:
        """Return everything and start again from nothing."""
        with self._lock:
            self._add_up()
            batch = Batch(self._counts, tuple(self._uses))
            self._counts, self._uses, self._pending = {}, {}, 0
        return batch

    def take_hits(self) -> dict[str, int]:
        """Return the number of hits by digest since the last call."""
        with self._lock:
            self._add_up()
            hits, self._hits_by_digest = self._hits_by_digest, {}
        return hits

    def put_back(self, batch: Batch) -> None:
        """Add a batch again that could not be flushed; its uses count as older than present ones."""
        with self._lock:
            for name, count in batch.counts.items():
                self._counts[name] = self._counts.get(name, 0) + count
            self._add_up()
            newer = self._uses
            self._uses = dict.fromkeys(digest for digest in batch.uses if digest not in newer)
            self._uses.update(newer)
            self._pending += 1

    def _add_up(self) -> None:
        """Count the noted hits. Threads append meanwhile, so exactly the copied ones are deleted."""
        hits = self._hits[:]
        del self._hits[: len(hits)]
        for tier, digest, saved_s in hits:
            name = f"hits.{tier}"
            self._counts[name] = self._counts.get(name, 0) + 1
            if saved_s > 0.0:
                self._counts["saved_us"] = self._counts.get("saved_us", 0) + round(saved_s * 1e6)
            self._uses.pop(digest, None)
            self._uses[digest] = None
            self._hits_by_digest[digest] = self._hits_by_digest.get(digest, 0) + 1
        self._pending += len(hits)
        digests = self.memory_uses[:]
        if digests:
            del self.memory_uses[: len(digests)]
            self._counts["hits.memory"] = self._counts.get("hits.memory", 0) + len(digests)
            self._pending += len(digests)
            for digest, count in Counter(digests).items():
                self._hits_by_digest[digest] = self._hits_by_digest.get(digest, 0) + count
            # In the order of their last uses: the first ones from the end, reversed.
            latest = list(dict.fromkeys(reversed(digests)))
            for digest in reversed(latest):
                self._uses.pop(digest, None)
                self._uses[digest] = None


def merge(batches: Iterable[Batch]) -> Batch:
    """Return the sum of batches given oldest first."""
    tally = Tally()
    sent: list[Sent] = []
    for batch in batches:
        sent += batch.sent
        for name, count in batch.counts.items():
            tally.add(name, count)
        for digest in batch.uses:
            tally._uses.pop(digest, None)
            tally._uses[digest] = None
    return tally.take()._replace(sent=tuple(sent))


def as_stats(counts: dict[str, int], entries: int, bytes_: int, capacity: int, capacity_bytes: int) -> Stats:
    """Return the public form of counters named as in `COUNTERS`; missing ones are 0."""
    count = {name: counts.get(name, 0) for name in COUNTERS}
    sizes = {"entries": entries, "bytes": bytes_, "capacity": capacity, "capacity_bytes": capacity_bytes}
    hits = {tier: count.pop(f"hits.{tier}") for tier in TIERS}
    beyond_files = hits["prebuilt"] + hits["redis"] + count["misses"]
    tiers = {
        "process": {"hits": hits["memory"], "misses": hits["files"] + beyond_files},
        "files": {"hits": hits["files"], "misses": beyond_files},
        "redis": {"hits": hits["redis"], "misses": count.pop("misses.redis")},
    }
    seconds_saved = count.pop("saved_us") / 1e6
    return cast(Stats, {**sizes, "hits": hits, "tiers": tiers, **count, "seconds_saved": seconds_saved})
