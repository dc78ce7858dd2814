"""The store beside its rivals: hits by tier and size, misses, many entries, waiters, and storms of compilations.

Every rival runs in the same run, in turn with the store, on the same bytes and the same Redis. Latencies are medians of
means over a few calls. A hit is always a verified one.
"""

from __future__ import annotations

import hmac
import itertools
import os
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parent))

import cachetools
import diskcache
import dogpile
import redis
from measure import alternate, arguments, record, seconds, sized
from storms import numba_storm, opencl_storm, waiters

from poolrt.cachestore import CacheStore, Key
from poolrt.cachestore.redis.embedded import EmbeddedServer
from poolrt.cachestore.redis.schema import Schema
from poolrt.cachestore.signing import load_key

SIZES: Final = {"5 kB": 5_000, "50 kB": 50_000, "1 MB": 1_000_000}
#: Different entries that a measurement goes round.
ENTRIES: Final = sized(20, 2)
ROUNDS: Final = 40
REPEAT: Final = 10

LRU: Final = "cachetools.LRUCache under a lock"
DISKCACHE: Final = "diskcache (verifies nothing)"
DOGPILE: Final = "dogpile.cache (verifies nothing)"

Call = Callable[[Any], object]
#: What is measured, by name: a call and the items that it is called on.
Contestants = dict[str, tuple[Call, Sequence[Any]]]


class Bench:
    """One Redis, and stores in it that use one tier only."""

    def __init__(self, home: str) -> None:
        self.home = home
        with CacheStore.connect(home=home) as store:
            store.ping()
            self._server = EmbeddedServer(store.options.server_folder)
        self.url = self._server.url
        self.client = redis.Redis.from_url(self.url)

    def store(self, namespace: str, **options: Any) -> CacheStore:
        """Return a store with room for every entry."""
        return CacheStore.connect(self.url, home=self.home, namespace=namespace, capacity=200_000, **options)

    def value_name(self, namespace: str, key: Key) -> str:
        """Return the name of an entry's value in Redis."""
        signing = load_key(f"{self.home}/signing.key", make=False)
        name = Schema(namespace, signing.fingerprint).value(key.digest)
        if not self.client.exists(name):
            raise SystemExit(f"there is no {name} in Redis")
        return name

    def files(self, namespace: str) -> dict[str, Path]:
        """Return the files of the entries on this node by digest."""
        return {path.name: path for path in Path(self.home, namespace, "entries").glob("*/*")}

    def close(self) -> None:
        """Stop the server."""
        self.client.close()
        self._server.down()


def keys_of(name: str, count: int) -> list[Key]:
    """Return keys about as long as those of primitives."""
    return [Key({"schema": 1, "bench": name, "operation": "x" * 600, "number": n}) for n in range(count)]


def fill(store: CacheStore, keys: Sequence[Key], size: int) -> list[bytes]:
    """Store random bytes under some keys and return them."""
    return [store.get_or_create(key, lambda: os.urandom(size)) for key in keys]


def expect(store: CacheStore, keys: Sequence[Key], tier: str) -> None:
    """Raise SystemExit unless look-ups of these keys are answered by a tier."""
    for found in store.get_many(keys):
        if found is None or found.source != tier:
            raise SystemExit(f"expected a hit in {tier}, got {found.source if found else 'a miss'}")


def compare(
    contestants: Contestants, rounds: int = ROUNDS, repeat: int = REPEAT, warm_up: bool = True
) -> dict[str, float]:
    """Return the median latency of each contestant, in seconds, calling it ``repeat`` times in turn on its items."""

    def timed(call: Call, turn: Iterator[Any]) -> Callable[[], float]:
        return lambda: seconds(lambda: deque(map(call, itertools.islice(turn, repeat)), maxlen=0)) / repeat

    if warm_up:
        for call, items in contestants.values():
            deque(map(call, items), maxlen=0)
    return alternate({name: timed(call, itertools.cycle(items)) for name, (call, items) in contestants.items()}, rounds)


def line(what: str, found: dict[str, float], goal: str = "") -> str:
    """Return one line of results: ours first, then each rival with the ratio of our latency to its own."""
    (ours, mine), *rivals = found.items()
    theirs = "; ".join(f"{name} {_time(value)}, ratio {mine / value:.2f}" for name, value in rivals)
    return f"{what}: {ours} {_time(mine)}; {theirs}{f' (goal: {goal})' if goal else ''}"


def _time(value: float) -> str:
    return f"{value * 1e6:.2f} us" if value < 1e-4 else f"{value * 1e3:.2f} ms"


def memory_hits(bench: Bench) -> Iterator[str]:
    """Measure hits in memory beside an LRU cache under a lock."""
    for label, size in SIZES.items():
        keys = keys_of(f"memory {label}", ENTRIES)
        digests = [key.digest for key in keys]
        with bench.store("memory") as store:
            rival = locked_lru(dict(zip(digests, fill(store, keys, size), strict=True)))
            expect(store, keys, "memory")
            contestants: Contestants = {"memory": (store.get, keys), LRU: (rival, digests)}
            yield line(f"hit of {label} in memory", compare(contestants, repeat=5_000), "at most 1")


def locked_lru(payloads: dict[str, bytes]) -> Callable[[str], bytes]:
    """Return the look-up of an LRU cache that threads may share, with these payloads and room for as many more."""
    lru, lock = cachetools.LRUCache[str, bytes](2 * len(payloads)), threading.Lock()
    lru.update(payloads)

    def get(digest: str) -> bytes:
        with lock:
            return lru[digest]

    return get


def files_hits(bench: Bench) -> Iterator[str]:
    """Measure hits in the node's files beside reading and signing the same files, and beside diskcache."""
    with bench.store("files", memory_bytes=0) as store, diskcache.Cache(f"{bench.home}/diskcache") as disk:
        for label, size in SIZES.items():
            keys = keys_of(f"files {label}", ENTRIES)
            for key, payload in zip(keys, fill(store, keys, size), strict=True):
                disk[key.digest] = payload
            expect(store, keys, "files")
            files = bench.files("files")
            contestants: Contestants = {
                "files": (store.get, keys),
                "open, read and HMAC": (read_and_sign, [files[key.digest] for key in keys]),
                DISKCACHE: (disk.get, [key.digest for key in keys]),
            }
            goal = "at most 2 of open, read and HMAC" if label == "50 kB" else ""
            yield line(f"hit of {label} in files", compare(contestants), goal)


def read_and_sign(path: Path) -> bytes:
    """Do what any verified read of a file has to do."""
    with open(path, "rb") as file:
        data = file.read()
    return hmac.digest(b"k" * 64, data, "sha256")


def redis_hits(bench: Bench) -> Iterator[str]:
    """Measure hits in Redis beside a bare GET of the same bytes, and beside dogpile.cache."""
    region = waiters.region_in(bench.url)
    with bench.store("shared", memory_bytes=0, files_bytes=0) as store:
        for label, size in SIZES.items():
            keys = keys_of(f"redis {label}", ENTRIES)
            for key, payload in zip(keys, fill(store, keys, size), strict=True):
                region.set(key.digest, payload)
            expect(store, keys, "redis")
            contestants: Contestants = {
                "Redis": (store.get, keys),
                "GET": (bench.client.get, [bench.value_name("shared", key) for key in keys]),
                DOGPILE: (region.get, [key.digest for key in keys]),
            }
            goal = "at most 1.6 of GET" if label == "50 kB" else ""
            yield line(f"hit of {label} in Redis", compare(contestants), goal)


def first_redis_hits(bench: Bench) -> Iterator[str]:
    """Measure the first hits of a process in Redis, which memory and files then keep, beside GETs that keep nothing."""
    first, *keys = keys_of("first", 100)
    with bench.store("first", files_bytes=0) as store:
        fill(store, [first, *keys], 50_000)
    names = [bench.value_name("first", key) for key in keys]

    def ours() -> float:
        # The node's files had them from the round before.
        for path in bench.files("first").values():
            path.unlink()
        with bench.store("first") as store:
            expect(store, [first], "redis")
            return seconds(lambda: [store.get(key) for key in keys]) / len(keys)

    def rival() -> float:
        return seconds(lambda: [bench.client.get(name) for name in names]) / len(names)

    yield line("first hit of 50 kB in Redis, to be kept here", alternate({"Redis": ours, "GET": rival}, 15))


def misses(bench: Bench) -> Iterator[str]:
    """Measure what a creation costs beyond the creator's own time, and a look-up in vain."""
    payload = os.urandom(50_000)
    region = waiters.region_in(bench.url)
    keys = keys_of("miss", REPEAT * (ROUNDS + 1))
    digests = [key.digest for key in keys]
    with bench.store("misses") as store, diskcache.Cache(f"{bench.home}/diskcache") as disk:
        vain: Contestants = {
            "store": (store.get, keys),
            "GET": (bench.client.get, digests),
            "dogpile.cache": (region.get, digests),
        }
        yield line("look-up in vain", compare(vain))

        def on_disk(digest: str) -> None:
            if disk.get(digest) is None:
                disk[digest] = payload

        # Each entry once, so without warming up.
        created: Contestants = {
            "store": (lambda key: store.get_or_create(key, lambda: payload), keys),
            "dogpile.cache": (lambda digest: region.get_or_create(digest, lambda: payload), digests),
            "diskcache (does not promise one creator)": (on_disk, digests),
        }
        yield line("creation of 50 kB, beyond the creator's own time", compare(created, warm_up=False))


def many_entries(bench: Bench) -> Iterator[str]:
    """Measure hits of 1 kB among few and many entries, in each tier beside a rival that holds as many."""
    for count in sized((1_000, 100_000), (100,)):
        namespace = f"many-{count}"
        keys = keys_of(namespace, count)
        chosen = keys[:: count // min(count, 1_000)]
        digests = [key.digest for key in chosen]
        what = f"hit of 1 kB among {count} entries"
        with bench.store(namespace, memory_bytes=1 << 30) as store:
            begin = time.perf_counter()
            payloads = dict(zip((key.digest for key in keys), fill(store, keys, 1_000), strict=True))
            creation = (time.perf_counter() - begin) / count
            expect(store, chosen, "memory")
            contestants: Contestants = {"memory": (store.get, chosen), LRU: (locked_lru(payloads), digests)}
            yield line(f"{what} in memory", compare(contestants, repeat=1_000))
        with bench.store(namespace, memory_bytes=0) as store, diskcache.Cache(f"{bench.home}/{namespace}-disk") as disk:
            with disk.transact():
                for digest, payload in payloads.items():
                    disk[digest] = payload
            expect(store, chosen, "files")
            contestants = {"files": (store.get, chosen), DISKCACHE: (disk.get, digests)}
            yield line(f"{what} in files", compare(contestants, repeat=50))
        for path in bench.files(namespace).values():
            path.unlink()
        with bench.store(namespace, memory_bytes=0, files_bytes=0) as store:
            region = waiters.region_in(bench.url)
            region.set_multi(payloads)
            expect(store, chosen, "redis")
            contestants = {"Redis": (store.get, chosen), DOGPILE: (region.get, digests)}
            yield line(f"{what} in Redis", compare(contestants, repeat=50))
        yield f"creation of 1 kB, mean of {count}, beyond the creator's own time: {_time(creation)}"


def waking(bench: Bench) -> Iterator[str]:
    """Measure how long waiting processes take to get what was created."""
    processes = sized(32, 3)
    ours, rival = waiters.measure(bench.home, bench.url, sized(5, 1), processes)
    yield (
        f"{processes} processes get a value after its creator is done, first/median/last: "
        f"store {ours}; dogpile.cache {rival}; ratio of the last {ours.last / rival.last:.2f}"
    )


PARTS: Final = {
    "memory": memory_hits,
    "files": files_hits,
    "redis": redis_hits,
    "first": first_redis_hits,
    "misses": misses,
    "waiters": waking,
    "entries": many_entries,
}
STORMS: Final = {"numba": numba_storm.main, "opencl": opencl_storm.main}


@contextmanager
def bench_in_new_home() -> Iterator[Bench]:
    """Give a bench that leaves nothing behind."""
    with tempfile.TemporaryDirectory(prefix="poolrt-bench-") as home:
        bench = Bench(home)
        try:
            yield bench
        finally:
            bench.close()


def main(chosen: list[str]) -> None:
    """Print the parts that were chosen."""
    versions = ", ".join(
        f"{module.__name__} {module.__version__}" for module in (cachetools, diskcache, dogpile, redis)
    )
    for name, part in PARTS.items():
        if name in chosen:
            with bench_in_new_home() as bench:
                record(f"Store: {name} ({versions})", list(part(bench)))
    for name, storm in STORMS.items():
        if name in chosen:
            storm()


if __name__ == "__main__":
    main(arguments(__doc__, (*PARTS, *STORMS)))
