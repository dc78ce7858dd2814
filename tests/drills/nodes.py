"""Drills of the machine itself: a full disk, a key file that others can read, clocks that step."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Final

from poolrt.cachestore import CacheStore

from .actor import key_of
from .stage import AFTER_LEASE_S, CALL_S, LASTING_S, NAMESPACE, DrillSkipped, Stage

#: A step of a clock, in seconds.
_STEP_S: Final = 3600
#: Bound, in seconds, on a command.
_COMMAND_S: Final = 60.0
_CLOCK_SOURCE: Final = Path(__file__).with_name("clock.c")


def full_disk(stage: Stage) -> None:
    """No space for the node's files, first with Redis, then without it."""
    scale = stage.scale
    size = max(scale.size, 50_000)
    server = stage.server()
    options = stage.options(server.url, lease_s=LASTING_S)
    full = _mount_small(stage, Path(options["home"]))
    # Where nothing can be mounted, the kernel refuses long files instead.
    limit = 0 if full else size // 2
    stage.note("a full tmpfs" if full else "a limit on the length of files")
    swarm = stage.swarm()
    actors = stage.crowd(swarm, options, size=size, file_limit=limit)
    swarm.go()
    swarm.join()
    stage.count_creations(swarm, scale.keys, scale.keys)
    stage.check_calls(actors, CALL_S)
    elsewhere = stage.store(stage.options(server.url, "elsewhere"))
    stage.await_entries(elsewhere, scale.keys)
    stats = elsewhere.stats()
    stage.check_counters(stats, creations=scale.keys, takeovers=0)
    stage.expect(stats["degraded"] > 0, "nothing was counted as degraded")
    stage.check_books(elsewhere, server)
    alone = stage.swarm("alone")
    actors = stage.crowd(
        alone, {**options, "url": "unix:///no-server"}, keys=list(range(1000, 1010)), size=size, file_limit=limit
    )
    alone.go()
    alone.join()
    stage.check_calls(actors, CALL_S)


def key_file(stage: Stage) -> None:
    """A signing key that group or others can read: every call that needs it is refused, and nothing is created."""
    server = stage.server()
    options = stage.options(server.url, lease_s=LASTING_S)
    path = Path(options["key_file"])
    swarm = stage.swarm()
    for mode in (0o640, 0o604, 0o666):
        path.chmod(mode)
        actors = stage.crowd(swarm, options, keys=[0, 1, 2])
        swarm.go(*actors)
        swarm.join(*actors)
        calls = [call for actor in actors for call in actor.calls()]
        refused = [call for call in calls if call.error is not None and call.error["error"] == "KeyFileRefused"]
        stage.expect(len(refused) == 3 * len(actors), f"{len(refused)} of {3 * len(actors)} calls were refused")
        stage.expect(
            all(f"chmod 600 {path}" in str(call.error) for call in refused), "the error does not say what to do"
        )
        stage.expect(not swarm.creations(), "something was created that could not be signed")
    path.chmod(0o600)
    actors = stage.crowd(swarm, options, keys=[0, 1, 2])
    swarm.go(*actors)
    swarm.join(*actors)
    stage.check_calls(actors, CALL_S)
    stage.count_creations(swarm, 3, 3)
    store = stage.store(options)
    stage.await_entries(store, 3)
    stage.check_counters(store.stats(), degraded=0, takeovers=0)


def wall_clock(stage: Stage) -> None:
    """The wall clock of a node steps back and forth, with Redis and without it; a stopped creator delays by a lease."""
    scale = stage.scale
    server = stage.server()
    for url in (server.url, "unix:///no-server"):
        name = "with" if url == server.url else "without"
        options = stage.options(url, name, namespace=f"{NAMESPACE}-{name}")
        clock = stage.folder / f"clock-{name}"
        clock.write_text("0")
        swarm = stage.swarm(f"swarm-{name}")
        # The first is stopped, the second has to last until it is seen.
        slow = {0: scale.lease_s, scale.keys // 2: 0.3 + 2 * stage.outcome.noise_s}
        stage.crowd(swarm, options, clock=str(clock), slow=slow, pause_s=scale.pause_s)
        swarm.go()
        # A step back while the first creator is stopped: its files seem to come from the future.
        stopped = swarm.await_creator(0)
        os.kill(stopped, signal.SIGSTOP)
        clock.write_text(str(-_STEP_S))
        swarm.await_creator(scale.keys // 2)
        clock.write_text(str(_STEP_S))
        swarm.join(*(actor for actor in swarm.actors if actor.pid != stopped))
        os.kill(stopped, signal.SIGCONT)
        swarm.join()
        free = [actor for actor in swarm.actors if actor.pid != stopped]
        stage.check_calls(free, scale.lease_s + AFTER_LEASE_S)
        stage.count_creations(swarm, scale.keys + 1, scale.keys + 2)
        store = stage.store({**options, "url": server.url})
        stage.await_entries(store, scale.keys)
        stage.check_counters(store.stats())


def redis_clock(stage: Stage) -> None:
    """The wall clock of Redis steps back and forth: leases end after their term, and the order of use stays."""
    scale = stage.scale
    clock = stage.folder / "clock"
    clock.write_text("0")
    library = compile_clock(stage)
    server = stage.server(environment={"LD_PRELOAD": str(library), "DRILL_CLOCK": str(clock)})
    swarm = stage.swarm()
    slow = [0, scale.keys // 3, 2 * scale.keys // 3]
    for number in range(scale.processes):
        options = stage.options(server.url, f"home{number}")
        swarm.add(stage.job(swarm, options, slow=dict.fromkeys(slow, 60.0), elsewhere=True))
    swarm.go()
    killed = []
    for key, step in zip(slow, (-_STEP_S, 0, _STEP_S), strict=True):
        killed.append(swarm.await_creator(key))
        clock.write_text(str(step))
        os.kill(killed[-1], signal.SIGKILL)
    swarm.join(killed=tuple(killed))
    free = [actor for actor in swarm.actors if actor.pid not in killed]
    stage.check_calls(free, scale.lease_s + AFTER_LEASE_S)
    # No creator was taken for dead, except those at work when the clock stepped forward.
    stage.count_creations(swarm, scale.keys + len(slow), scale.keys + len(slow) + 2 * scale.processes)
    clock.write_text(str(-_STEP_S))
    store = stage.store(stage.options(server.url, "home0"))
    stage.await_entries(store, scale.keys)
    _check_order(stage, store)
    stage.check_counters(store.stats(), degraded=0)
    stage.check_books(store, server)


def _check_order(stage: Stage, store: CacheStore) -> None:
    """Use one entry and see that it counts as the last used, though the clock says otherwise."""
    other = stage.store(stage.options(store.options.url, "other"))
    other.get(key_of(0))
    other.close()
    newest = store.entries()[0].digest
    stage.expect(newest == key_of(0).digest, "the entry used last is not the last that would be dropped")


def _mount_small(stage: Stage, home: Path) -> bool:
    """Put a tmpfs of some entries' size at `home`; return whether that is possible here."""
    home.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=256k,mode=0700", "tmpfs", str(home)]
    try:
        mounted = subprocess.run(command, capture_output=True, timeout=_COMMAND_S, check=False).returncode == 0
    except FileNotFoundError:
        mounted = False
    if mounted:
        unmount = ["umount", "--lazy", str(home)]
        stage.later(lambda: subprocess.run(unmount, capture_output=True, timeout=_COMMAND_S, check=True))
    return mounted


def compile_clock(stage: Stage) -> Path:
    """Return a library that, preloaded, lets a program's wall clock be off by the seconds in the file DRILL_CLOCK."""
    library = stage.folder / "clock.so"
    command = ["cc", "-shared", "-fPIC", "-o", str(library), str(_CLOCK_SOURCE), "-ldl"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_COMMAND_S, check=False)
    except FileNotFoundError:
        raise DrillSkipped("no C compiler for the clock that is preloaded") from None
    if done.returncode:
        raise DrillSkipped(f"the clock that is preloaded does not compile: {done.stderr[-300:]}")
    return library
