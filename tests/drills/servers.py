"""Drills in which Redis dies, freezes, forgets, fills up, fails over, refuses to write, loads, or cannot be reached."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from poolrt.cachestore import CacheStore, Stats

from ..cachestore.names import write_key
from ..cachestore.server import RedisServer
from .actor import NAME_SIZE, Call, body_of, key_of
from .ports import Port
from .stage import AFTER_LEASE_S, BACK_S, CALL_S, LASTING_S, Stage
from .swarm import Swarm

#: One creation in ten may be made twice when Redis fails in the middle.
_SPARE_SHARE = 10


def kill_redis(stage: Stage) -> None:
    """Kill (-9) a Redis that keeps nothing, three times; the last time it comes back when all actors have ended."""
    server = stage.server()
    options = stage.options(server.url)
    with_faults = _Middle(stage, options)
    for share in (0.2, 0.5):
        with_faults.until(share)
        server.kill()
        time.sleep(min(1.0, stage.scale.outage_s / 2))
        server.start()
    with_faults.until(0.8)
    server.kill()
    with_faults.join()
    server.start()
    with_faults.check(server)


def freeze_redis(stage: Stage) -> None:
    """SIGSTOP of Redis for some seconds."""
    server = stage.server()
    with_faults = _Middle(stage, stage.options(server.url))
    with_faults.until(0.3)
    server.freeze()
    time.sleep(stage.scale.outage_s)
    server.thaw()
    with_faults.join()
    with_faults.check(server, remembers=True)


def freeze_until_all_have_ended(stage: Stage) -> None:
    """SIGSTOP of Redis until all actors have ended: their entries are on the node, and not yet in Redis."""
    server = stage.server()
    with_faults = _Middle(stage, stage.options(server.url))
    with_faults.until(0.3)
    server.freeze()
    with_faults.join()
    server.thaw()
    with_faults.check(server, remembers=True)


def freeze_embedded(stage: Stage) -> None:
    """SIGSTOP of the embedded server, before the first call of some actors and in the middle of others."""
    scale = stage.scale
    options = stage.options(None)
    folder = Path(options["home"]) / "redis"
    stage.store(options).ping()
    pid = _pid(folder)
    with_faults = _Middle(stage, options)
    with_faults.until(0.3)
    os.kill(pid, signal.SIGSTOP)
    stage.later(lambda: _signal(pid, signal.SIGCONT))
    late = stage.crowd(with_faults.swarm, options, processes=2, pause_s=0.0)
    with_faults.swarm.go(*late)
    with_faults.swarm.join(*late)
    time.sleep(scale.outage_s / 2)
    os.kill(pid, signal.SIGCONT)
    with_faults.join()
    with_faults.check(None, remembers=True)
    log = (folder / "redis.log").read_text()
    stage.expect(log.count("is starting oO0") == 1, "a second server was started beside the frozen one")


def kill_embedded(stage: Stage) -> None:
    """Kill (-9) the embedded server, three times: the next actor that needs it starts it again from its files."""
    options = stage.options(None)
    folder = Path(options["home"]) / "redis"
    stage.store(options).ping()
    pid = _pid(folder)
    with_faults = _Middle(stage, options)
    for share in (0.2, 0.4, 0.7):
        with_faults.until(share)
        os.kill(pid, signal.SIGKILL)
        with_faults.swarm.await_that(lambda killed=pid: _pid(folder) not in (0, killed), "a new server")  # type: ignore[misc]
        pid = _pid(folder)
    with_faults.join()
    with_faults.check(None, remembers=True)


def flush(stage: Stage) -> None:
    """FLUSHALL in the middle, three times: leases, entries, counters and limits are gone at once."""
    server = stage.server()
    options = stage.options(server.url)
    # A namespace that has been cleared before: Redis then forgets a generation, too.
    stage.store(options).clear()
    with_faults = _Middle(stage, options)
    with server.client() as client:
        for share in (0.2, 0.5, 0.8):
            with_faults.until(share)
            client.flushall()
    with_faults.join()
    with_faults.check(server)


def full(stage: Stage) -> None:
    """Redis at its `maxmemory` without eviction, and twice as much to store for the processes of two hosts."""
    server = stage.server()
    keys, size = _too_much(stage, server, "noeviction")
    options = stage.options(server.url)
    swarm = stage.swarm()
    half = stage.scale.processes // 2
    for home, processes in (("home", half), ("another", stage.scale.processes - half)):
        there = stage.options(server.url, home, lease_s=LASTING_S)
        stage.crowd(swarm, there, processes=processes, keys=list(range(keys)), size=size)
    swarm.go()
    swarm.join()
    stage.count_creations(swarm, keys, keys + keys // _SPARE_SHARE)
    stage.check_calls(swarm.actors, CALL_S)
    store = stage.store(options)
    _await(
        lambda: _stats_of_redis(stage, server, store)["entries"] >= keys // 4,
        f"{keys // 4} entries in a full Redis",
        BACK_S,
    )
    # A process that ended while Redis had no memory left its counts in its host's journal, for the next one there.
    _stats_of_redis(stage, server, stage.store(stage.options(server.url, "another")))
    stats = _stats_of_redis(stage, server, store)
    stage.outcome.in_redis.append(stats["entries"])
    stage.expect(stats["entries"] < keys, "Redis was not full")
    newest = max(swarm.creations(), key=lambda one: one.key).key
    found = stage.store(stage.options(server.url, "elsewhere")).get(key_of(newest))
    stage.expect(found is not None, "the newest entry has found no place")
    stage.check_counters(stats, creations=keys, takeovers=0)
    stage.check_books(store, server)


def evicting(stage: Stage) -> None:
    """Redis that evicts any key (allkeys-lru), then loses its order, its sizes and its meta hash as a whole."""
    server = stage.server()
    keys, size = _too_much(stage, server, "allkeys-lru")
    options = stage.options(server.url)
    swarm = stage.swarm()
    actors = stage.crowd(swarm, options, keys=list(range(keys)), size=size)
    swarm.go()
    swarm.join()
    stage.count_creations(swarm, keys, keys + keys // _SPARE_SHARE)
    stage.check_calls(actors, CALL_S)
    store = stage.store(options)
    with server.client() as client:
        stage.expect(int(client.info("stats")["evicted_keys"]) > 0, "Redis has evicted nothing")
        stage.outcome.in_redis.append(_in_redis(stage, server))
        # Enough memory from now on, so that nothing more vanishes while the books are compared.
        client.config_set("maxmemory", 0)
        for number, name in enumerate((b"s", b"m", b"z")):
            _await_tidy(stage, store, server)
            stage.check_books(store, server)
            client.delete(f"{stage.schema.prefix}:".encode() + name)
            store.get_or_create(key_of(20_000 + number), lambda: b"one more")
    _await_tidy(stage, store, server)
    stage.check_books(store, server)
    stage.check_counters(store.stats())


def tampered(stage: Stage) -> None:
    """Entries in Redis are damaged, or replaced by others' that are signed with another key: refused, and made again."""
    scale = stage.scale
    server = stage.server()
    before = stage.store(stage.options(server.url, "before"))
    for number in range(scale.keys):
        before.get_or_create(key_of(number), lambda number=number: b"\0" * NAME_SIZE + body_of(number, scale.size))  # type: ignore[misc]
    foreign_key = write_key(stage.folder / "foreign.key")
    forger = stage.store({**stage.options("unix:///no-server", "forger"), "key_file": foreign_key})
    damaged, forged = range(0, scale.keys, 5), range(1, scale.keys, 5)
    with server.client() as client:
        for number in damaged:
            client.setrange(stage.schema.value(key_of(number).digest), 100 + number, b"\xff\x00\xff")
        for number in forged:
            digest = key_of(number).digest
            forger.get_or_create(key_of(number), lambda: b"\0" * scale.size)
            blob = next((stage.folder / "forger").glob(f"*/entries/*/{digest}")).read_bytes()
            client.set(stage.schema.value(digest), blob)
    options = stage.options(server.url, lease_s=LASTING_S)
    swarm = stage.swarm()
    actors = stage.crowd(swarm, options, shuffled=True)
    swarm.go()
    swarm.join()
    bad = len(damaged) + len(forged)
    stage.count_creations(swarm, bad, bad)
    calls = stage.check_calls(actors, CALL_S)
    store = stage.store(options)
    stage.await_entries(store, scale.keys)
    stats = store.stats()
    # Several processes may have met the same bad entry before the first one removed it.
    for name, number in (("corrupt", len(damaged)), ("forged", len(forged))):
        found = int(stats[name])  # type: ignore[literal-required]
        stage.expect(number <= found <= number * scale.processes, f"{found} {name} entries counted instead of {number}")
    stage.check_counters(stats, corrupt=stats["corrupt"], forged=stats["forged"], degraded=0, takeovers=0)
    stage.expect(stats["creations"] == scale.keys + bad, f"{stats['creations']} creations counted")
    by_source = sum(call.source in ("created", "waited") for call in calls)
    stage.expect(stats["misses"] == scale.keys + by_source, f"{stats['misses']} misses counted")
    stage.check_books(store, server)


def fail_over(stage: Stage) -> None:
    """Kill (-9) a primary; its replica is promoted, and the service's address leads to it."""
    port, port_of_replica = Port(), Port()
    primary = stage.server("--port", str(port.number), "--bind", "127.0.0.1", name="primary")
    replica = stage.server(
        *("--port", str(port_of_replica.number), "--bind", "127.0.0.1"),
        *("--replicaof", "127.0.0.1", str(port.number)),
        name="replica",
    )
    with replica.client() as client:
        _await(lambda: client.info("replication")["master_link_status"] == "up", "the replica's link")
    proxy = stage.proxy(primary)
    with_faults = _Middle(stage, stage.options(proxy.url))
    with_faults.until(0.4)
    primary.kill()
    time.sleep(0.3)
    with replica.client() as client:
        client.replicaof("NO", "ONE")
    proxy.lead_to(replica.url.removeprefix("unix://"))
    with_faults.join()
    with_faults.check(replica)


def read_only(stage: Stage) -> None:
    """A Redis that was demoted answers every write with READONLY, and is a primary again later."""
    server = stage.server()
    with_faults = _Middle(stage, stage.options(server.url))
    with server.client() as client:
        with_faults.until(0.3)
        unused = Port()
        client.replicaof("127.0.0.1", str(unused.number))
        time.sleep(stage.scale.outage_s)
        client.replicaof("NO", "ONE")
    with_faults.join()
    with_faults.check(server, remembers=True)


def slow_to_load(stage: Stage) -> None:
    """A Redis that takes seconds to read its data: it is there, and answers LOADING, or nothing at all."""
    scale = stage.scale
    server = stage.server()
    options = stage.options(server.url)
    before = stage.store(options)
    for number in range(3 * scale.keys):
        before.get_or_create(key_of(10_000 + number), lambda: b"x" * scale.size)
    before.close()
    with server.client() as client:
        client.save()
        per_key_us = round(1e6 * scale.outage_s / client.dbsize())
    server.kill()
    with_faults = _Middle(stage, options, lambda: server.spawn("--key-load-delay", str(per_key_us)))
    with_faults.join()
    server.await_answer()
    with_faults.check(server, 4 * scale.keys, remembers=True)


def black_hole(stage: Stage) -> None:
    """A proxy swallows everything to and from one host, in the middle of its creation, for longer than its lease."""
    scale = stage.scale
    server = stage.server()
    proxy = stage.proxy(server)
    swarm = stage.swarm()
    there = stage.options(proxy.url, "there")
    here = stage.options(server.url, "here")
    cut_off = swarm.add(stage.job(swarm, there, slow={0: 1.5 * scale.lease_s}))
    swarm.go(cut_off)
    swarm.await_creator(0)
    proxy.hold()
    waiter = swarm.add(stage.job(swarm, here, keys=[0]))
    swarm.go(waiter)
    swarm.join(waiter)
    (taken,) = stage.check_calls([waiter], scale.lease_s + AFTER_LEASE_S)
    # The one that is cut off goes on alone, however long that lasts.
    swarm.join(cut_off)
    stage.check_calls([cut_off], CALL_S)
    proxy.flow()
    stage.count_creations(swarm, scale.keys + 1, scale.keys + 1)
    store = stage.store(there)
    took = stage.await_entries(store, scale.keys)
    stage.note(f"{scale.keys - 1} entries made in the hole were in Redis after {took:.1f} s")
    found = stage.store(stage.options(server.url, "elsewhere")).get(key_of(0))
    stage.expect(found is not None and found[:8].hex() == taken.made_in, "the late result replaced the newer one")
    stats = store.stats()
    stage.check_counters(stats, creations=scale.keys + 1, takeovers=1, late=scale.keys - 1)
    stage.expect(stats["degraded"] > 0, "nothing was counted as degraded")
    stage.check_books(store, server)


class _Middle:
    """A crowd of actors, and a failure in the middle of their work."""

    def __init__(self, stage: Stage, options: dict[str, Any], before_go: Callable[[], object] = lambda: None) -> None:
        scale = stage.scale
        self._stage = stage
        self._options = options
        self.swarm: Swarm = stage.swarm()
        stage.crowd(self.swarm, options, pause_s=scale.pause_s)
        before_go()
        self.swarm.go()

    def until(self, share: float) -> None:
        """Return when this share of the entries has been made."""
        self.swarm.await_creations(round(share * self._stage.scale.keys))

    def join(self) -> None:
        """Wait for the actors' ends."""
        self.swarm.join()

    def check(self, server: RedisServer | None, entries: int = 0, remembers: bool = False) -> list[Call]:
        """Hold everything against the bounds for a Redis that fails in the middle, and is back now.

        `remembers` means that it has lost no data, so that all counters must be exact.
        """
        stage, keys = self._stage, self._stage.scale.keys
        stage.count_creations(self.swarm, keys, keys + keys // _SPARE_SHARE)
        calls = stage.check_calls(self.swarm.actors, CALL_S)
        store: CacheStore = stage.store(self._options)
        took = stage.await_entries(store, entries or keys, BACK_S)
        stage.note(f"all entries in Redis after {took:.1f} s")
        stats = store.stats()
        if remembers:
            stage.check_sums(stats, calls, self.swarm, before=entries - keys if entries else 0)
            stage.expect(stats["degraded"] > 0, "nothing was counted as degraded")
        else:
            stage.check_counters(stats)
        if server is not None:
            stage.check_books(store, server)
        return calls


def _too_much(stage: Stage, server: RedisServer, policy: str) -> tuple[int, int]:
    """Limit a server's memory; return a number of entries and their size that take twice as much."""
    keys, size = max(stage.scale.keys, 150), max(stage.scale.size, 50_000)
    with server.client() as client:
        client.config_set("maxmemory-policy", policy)
        client.config_set("maxmemory", int(client.info("memory")["used_memory"]) + keys * size // 2)
    return keys, size


def _in_redis(stage: Stage, server: RedisServer) -> int:
    """Return the number of entries in Redis, as it counts them itself."""
    with server.client() as client:
        return len(client.keys(f"{stage.schema.prefix}:v:*"))


def _stats_of_redis(stage: Stage, server: RedisServer, store: CacheStore) -> Stats:
    """Return a store's statistics once they are those of Redis: the node answers in place of one that was slow."""
    found: list[Stats] = []

    def agree() -> bool:
        found.append(store.stats())
        return found[-1]["entries"] == _in_redis(stage, server)

    _await(agree, "a store to count what Redis holds", BACK_S)
    return found[-1]


def _await_tidy(stage: Stage, store: CacheStore, server: RedisServer) -> None:
    """Use a store until its bookkeeping fits what is there, or that has taken too long."""
    begin = time.monotonic()
    while time.monotonic() - begin < BACK_S + stage.outcome.noise_s:
        store.stats()
        if not stage.misfits(server):
            return
        time.sleep(0.02)


def _pid(folder: Path) -> int:
    """Return the process that the file names, 0 while there is none, or a new server is about to write it."""
    try:
        return int((folder / "redis.pid").read_text())
    except (FileNotFoundError, ValueError):
        return 0


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _await(condition: Callable[[], bool], what: str, seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited in vain for {what}")
        time.sleep(0.01)
