"""Drills in which creators are killed, stopped, hang, fail, fork, or are overtaken by a `clear`."""

from __future__ import annotations

import os
import signal
import time

from poolrt.cachestore import CacheStore

from ..cachestore.waiting import await_all_at
from .actor import key_of
from .stage import AFTER_LEASE_S, CALL_S, LASTING_S, Stage
from .swarm import Swarm


def no_fault(stage: Stage) -> None:
    """Many processes ask for the same entries at once, in the same order and each in its own: one creation per key."""
    scale = stage.scale
    server = stage.server()
    for number in range(scale.rounds):
        options = stage.options(server.url, f"home{number}", namespace=f"drill{number}", lease_s=LASTING_S)
        swarm = stage.swarm(f"swarm{number}")
        actors = stage.crowd(swarm, options, shuffled=number % 2 == 1)
        swarm.go()
        swarm.join()
        stage.count_creations(swarm, scale.keys, scale.keys)
        stage.check_each(swarm)
        calls = stage.check_calls(actors, CALL_S)
        stage.expect(len({(call.key, call.made_in) for call in calls}) == scale.keys, "a key has two results")
        store = stage.store(options)
        stage.await_entries(store, scale.keys)
        stats = store.stats()
        stage.check_counters(stats, takeovers=0, duplicates=0, late=0, degraded=0, evictions=0)
        stage.check_sums(stats, calls, swarm)
        with server.client() as client:
            client.flushall()


def kill_creators(stage: Stage) -> None:
    """Kill (-9) creators at work; their neighbours see at once that they are dead."""
    _kill(stage, lease_s=LASTING_S, longest_s=CALL_S, elsewhere=False)


def kill_creators_elsewhere(stage: Stage) -> None:
    """Kill (-9) creators that no process can look up, as on other hosts: their leases have to expire."""
    lease_s = stage.scale.lease_s
    _kill(stage, lease_s, longest_s=lease_s + AFTER_LEASE_S, elsewhere=True)


def _kill(stage: Stage, lease_s: float, longest_s: float, elsewhere: bool) -> None:
    scale = stage.scale
    server = stage.server()
    slow = _some_keys(stage)
    swarm = stage.swarm()
    for number in range(scale.processes):
        home = f"home{number}" if elsewhere else "home"
        options = stage.options(server.url, home, lease_s=lease_s)
        swarm.add(stage.job(swarm, options, slow=dict.fromkeys(slow, 60.0), elsewhere=elsewhere))
    swarm.go()
    killed = []
    for key in slow:
        killed.append(swarm.await_creator(key))
        os.kill(killed[-1], signal.SIGKILL)
    swarm.join(killed=tuple(killed))
    stage.count_creations(swarm, scale.keys + len(slow), scale.keys + len(slow))
    stage.check_each(swarm, twice=slow)
    calls = stage.check_calls([actor for actor in swarm.actors if actor.pid not in killed], longest_s)
    stage.expect(len({(call.key, call.made_in) for call in calls}) == scale.keys, "a key has two results")
    store = stage.store(stage.options(server.url, "home0" if elsewhere else "home"))
    stage.await_entries(store, scale.keys)
    stage.check_counters(store.stats(), takeovers=len(slow), duplicates=0, late=0, degraded=0)
    stage.check_books(store, server)


def stop_creators(stage: Stage) -> None:
    """SIGSTOP of creators for longer than their leases: they come too late and replace nothing newer."""
    scale = stage.scale
    server = stage.server()
    slow = _some_keys(stage)
    options = stage.options(server.url)
    swarm = stage.swarm()
    # Long enough to be stopped meanwhile, and over by the time that it is let go on.
    stage.crowd(swarm, options, slow=dict.fromkeys(slow, scale.lease_s))
    # One actor more than creators are stopped asks for everything, and has to get it in time.
    swarm.go()
    stopped = {}
    for key in slow:
        pid = swarm.await_creator(key)
        os.kill(pid, signal.SIGSTOP)
        stopped[pid] = key
    free = [actor for actor in swarm.actors if actor.pid not in stopped]
    swarm.join(*free)
    calls = stage.check_calls(free, scale.lease_s + AFTER_LEASE_S)
    newer = {call.key: call.made_in for call in calls}
    for pid in stopped:
        os.kill(pid, signal.SIGCONT)
    swarm.join()
    stage.count_creations(swarm, scale.keys + len(slow), scale.keys + len(slow))
    stage.check_each(swarm, twice=slow)
    for actor in swarm.actors:
        stage.expect(all(call.good for call in actor.calls()), "a stopped creator got a wrong payload")
    store = stage.store(options)
    stage.await_entries(store, scale.keys)
    with server.client() as client:
        client.ping()
    stage.expect(_made_in(stage, store, server.url) == newer, "a late result has replaced a newer one")
    stage.check_counters(store.stats(), takeovers=len(slow), duplicates=len(slow), late=0, degraded=0)
    stage.check_books(store, server)


def hang(stage: Stage) -> None:
    """A creator hangs while its heart beats: the hard limit ends its lease."""
    scale = stage.scale
    limit_s = 1.5 * scale.lease_s
    server = stage.server()
    options = stage.options(server.url, creation_limit_s=limit_s)
    swarm = stage.swarm()
    stage.crowd(swarm, options, slow={0: 2.5 * limit_s})
    swarm.go()
    hanging = swarm.await_creator(0)
    free = [actor for actor in swarm.actors if actor.pid != hanging]
    swarm.join(*free)
    stage.check_calls(free, limit_s + AFTER_LEASE_S)
    swarm.join()
    stage.count_creations(swarm, scale.keys + 1, scale.keys + 1)
    store = stage.store(options)
    stage.await_entries(store, scale.keys)
    stage.check_counters(store.stats(), takeovers=1, duplicates=1, late=0, degraded=0)


def error(stage: Stage) -> None:
    """A creator fails: all waiting processes get its error, and the next caller tries again, once."""
    server = stage.server()
    options = stage.options(server.url, lease_s=LASTING_S)
    swarm = stage.swarm()
    expected = {
        "error": "CreationFailed",
        "type": "CompilerError",
        "message": "no such type",
        "log": "log of no such type",
    }
    for attempt in (1, 2):
        gate = stage.folder / f"failing{attempt}"
        callers = stage.crowd(swarm, options, keys=[0], gate=str(gate), fail="no such type")
        begin = time.monotonic()
        swarm.go(*callers)
        # All wait for the one creation, so that no later caller may get its error.
        with server.client() as client:
            await_all_at(key_of(0).digest, [caller.pid for caller in callers], client)
        gate.touch()
        held_s = time.monotonic() - begin
        swarm.join(*callers)
        calls = stage.check_calls(callers, held_s + AFTER_LEASE_S, errors=True)
        stage.expect([call.error for call in calls] == [expected] * len(callers), "not all got the creator's own error")
        stage.expect(len(swarm.creations()) == attempt, f"{len(swarm.creations())} creations in attempt {attempt}")
    last = swarm.add(stage.job(swarm, options, keys=[0]))
    swarm.go(last)
    swarm.join(last)
    stage.check_calls([last], CALL_S)
    stage.count_creations(swarm, 3, 3)
    store = stage.store(options)
    stage.await_entries(store, 1)
    stage.check_counters(store.stats(), creation_errors=2, creations=1, takeovers=0, degraded=0)


def clear_meanwhile(stage: Stage) -> None:
    """`clear` while creators are at work: they get their results, which are not kept, and one waiter creates again."""
    scale = stage.scale
    server = stage.server()
    options = stage.options(server.url, lease_s=LASTING_S)
    swarm = stage.swarm()
    shared = 1000
    cleared = stage.folder / "cleared"
    for number in range(scale.processes):
        swarm.add(stage.job(swarm, options, keys=[number], gate=str(cleared)))
    makers = tuple(swarm.actors)
    waiters = [swarm.add(stage.job(swarm, options, keys=[shared], gate=str(cleared))) for _ in range(3)]
    begin = time.monotonic()
    swarm.go()
    swarm.await_creations(scale.processes + 1)
    store = stage.store(options)
    store.clear()
    cleared.touch()
    held_s = time.monotonic() - begin
    swarm.join()
    stage.check_calls([*makers, *waiters], held_s + CALL_S)
    stage.count_creations(swarm, scale.processes + 2, scale.processes + 2)
    stage.await_entries(store, 1)
    fresh = stage.store(options)
    kept = [number for number in range(scale.processes) if fresh.get(key_of(number)) is not None]
    stage.expect(not kept, f"{len(kept)} entries from before the clear are still there")
    stage.expect(fresh.get(key_of(shared)) is not None, "the entry made after the clear is not there")
    stage.check_counters(store.stats(), takeovers=0, degraded=0)


def fork_meanwhile(stage: Stage) -> None:
    """A creator forks in the middle of its creation; the child uses the store too, and outlives it."""
    scale = stage.scale
    server = stage.server()
    options = stage.options(server.url, lease_s=LASTING_S)
    swarm = stage.swarm()
    forks = tuple(_some_keys(stage))
    actors = stage.crowd(swarm, options, forks=forks)
    swarm.go()
    swarm.join()
    stage.count_creations(swarm, scale.keys, scale.keys)
    calls = stage.check_calls(actors, CALL_S)
    swarm.await_that(lambda: len(_children(swarm)) == len(forks), "the forked children's ends")
    stage.expect(_children(swarm) == ["0"] * len(forks), "a forked child did not get its entry")
    store = stage.store(options)
    stage.await_entries(store, scale.keys + len(forks))
    stats = store.stats()
    stage.check_counters(stats, takeovers=0, duplicates=0, late=0, degraded=0)
    stage.expect(stats["creations"] == scale.keys + len(forks), f"{stats['creations']} creations counted")
    stage.expect(stats["misses"] == len(forks) + sum(call.source in ("created", "waited") for call in calls), "misses")


def _some_keys(stage: Stage) -> list[int]:
    """Return the keys whose creators are hit, spread over all."""
    scale = stage.scale
    return [(number + 1) * scale.keys // (scale.hits + 1) for number in range(scale.hits)]


def _children(swarm: Swarm) -> list[str]:
    path = swarm.log.with_suffix(".children")
    return path.read_text().split() if path.exists() else []


def _made_in(stage: Stage, store: CacheStore, url: str) -> dict[int, str]:
    """Return for each entry in Redis the creation it comes from, as another node reads it."""
    from .actor import NAME_SIZE

    elsewhere = stage.store(stage.options(url, f"elsewhere{time.monotonic_ns()}"))
    found = elsewhere.get_many([key_of(number) for number in range(stage.scale.keys)])
    return {number: item.value[:NAME_SIZE].hex() for number, item in enumerate(found) if item is not None}
