"""What drills of pools share: settings, processes by their role, kills at random moments, and bounds."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import poolrt
from poolrt.errors import ArenaFull

from ..poolrt.pool.created import create
from ..poolrt.pool.processes import below, children, connects, descendants, is_alive
from .stage import Stage
from .swarm import DrillFailed
from .traffic import WORK, Traffic, product_graph

#: Bound, in seconds, on the time from the last kill until all workers are ready.
BACK_S: Final = 2.0
#: Bound, in seconds, on the exit of all processes of a closed pool.
GONE_S: Final = 5.0
#: Least share of the runs and functions between kills that get their results.
SHARE: Final = 0.9
#: Kills after which a drill looks how soon all workers are back.
ROUND: Final = 50
#: Bound, in seconds, on anything that a drill waits for without measuring it.
_LIMIT_S: Final = 60.0
_LOOK_S: Final = 0.01
#: Seconds between two kills, one of which is drawn: many meet processes that are still starting.
PAUSES_S: Final = (0.0, 0.005, 0.02, 0.05, 0.2)
#: Role -> how often of a hundred times one of its processes is killed. `others` compile, preload the compiler, or start.
MIXED: Final[Mapping[str, int]] = {"worker": 85, "others": 11, "fork server": 4}


def settings(stage: Stage, **more: Any) -> dict[str, Any]:
    """Return settings of a drill's pools, which share files and find no Redis. `product_graph` is in the files."""
    home = stage.folder / "pool"
    if not home.exists():
        home.mkdir(mode=0o700)
        create(home, product_graph()[0])
    plain = {"home": str(home), "redis_url": f"unix://{home}/none.sock", "arena_bytes": 256 << 20, "threads": 1}
    return {**plain, "progress": False, **more}


@contextmanager
def pool_of(stage: Stage, **more: Any) -> Iterator[poolrt.Pool]:
    """Yield a pool; at the end of the block its processes have to be gone soon after it was closed."""
    pool = poolrt.Pool(**settings(stage, **more))
    family: list[int] = []
    try:
        coordinator = pool.stats(_LIMIT_S)["pid"]
        yield pool
        family = [coordinator, *descendants(coordinator)]
    finally:
        pool.close()
    expect_gone(stage, family, "a closed pool")


@contextmanager
def served(stage: Stage, **more: Any) -> Iterator[str]:
    """Yield the socket of a coordinator that serves several clients; it has exited at the end of the block."""
    path = str(stage.folder / "s")
    server = start_server(stage, path, **more)
    try:
        yield path
        stage.expect(server.poll() is None, f"the coordinator has exited with status {server.returncode}")
        server.terminate()
        try:
            server.wait(GONE_S + stage.outcome.noise_s)
        except subprocess.TimeoutExpired:
            stage.expect(False, "a coordinator did not exit when it was asked to")
    finally:
        server.kill()
        server.wait()


def start_server(stage: Stage, path: str, **more: Any) -> subprocess.Popen[bytes]:
    """Return the process of a coordinator that listens at a path. Raises DrillFailed, and leaves none, if it does not."""
    chosen = settings(stage, **more)
    environment = {f"POOLRT_{name.upper()}": str(value) for name, value in chosen.items()}
    command = [sys.executable, "-m", "poolrt", "serve", "--socket", path]
    with open(os.devnull, "w") as nothing:
        server = subprocess.Popen(
            command, env={**os.environ, **environment}, stdin=subprocess.DEVNULL, stdout=nothing, stderr=nothing
        )
    if not await_that(lambda: connects(Path(path)), _LIMIT_S):
        server.kill()
        server.wait()
        raise DrillFailed("poolrt serve does not listen")
    return server


class Hunt:
    """Kills processes of a pool at random moments, and waits until it is whole again."""

    def __init__(self, stage: Stage, pool: poolrt.Pool) -> None:
        self._stage = stage
        self._pool = pool
        self._coordinator: int = pool.stats(_LIMIT_S)["pid"]
        self.killed: dict[str, int] = {}

    def kill(self, count: int, weights: Mapping[str, int] = MIXED, pauses_s: tuple[float, ...] = PAUSES_S) -> None:
        """Kill (-9) so many processes, with a pause after each. Raises DrillFailed if there is nothing to kill."""
        chance, until, done = self._stage.random, time.monotonic() + _LIMIT_S + count, 0
        while done < count:
            if time.monotonic() > until:
                raise DrillFailed(f"only {done} of {count} processes to kill were there")
            (role,) = chance.choices(list(weights), list(weights.values()))
            found = self.by_role()[role]
            if not found:
                time.sleep(_LOOK_S)
                continue
            try:
                os.kill(chance.choice(found), signal.SIGKILL)
            except ProcessLookupError:
                continue
            done += 1
            self.killed[role] = self.killed.get(role, 0) + 1
            time.sleep(chance.choice(pauses_s))
        self._stage.outcome.faults += done

    def await_back(self) -> None:
        """Wait until all workers are ready, and hold that against its bound."""
        begin = time.monotonic()
        back = await_that(self._is_whole, _LIMIT_S)
        took = time.monotonic() - begin
        outcome = self._stage.outcome
        outcome.back_s = max(outcome.back_s, took)
        bound = BACK_S + outcome.noise_s
        self._stage.expect(back and took <= bound, f"workers back after {took:.2f} s instead of {BACK_S:g} s")

    def _is_whole(self) -> bool:
        workers = self._pool.stats(_LIMIT_S)["workers"]
        ready = [worker["pid"] for worker in workers if worker["state"] != "starting" and is_alive(worker["pid"])]
        return len(ready) == self._pool.workers

    def by_role(self) -> dict[str, list[int]]:
        """Return the processes of the pool, below its coordinator, by their role."""
        workers = {worker["pid"] for worker in self._pool.stats(_LIMIT_S)["workers"]}
        lower = below(self._coordinator, 2)
        lower += [pid for parent in lower for pid in children(parent)]
        return {
            "fork server": children(self._coordinator),
            "worker": [pid for pid in lower if pid in workers],
            "others": [pid for pid in lower if pid not in workers],
        }


def await_that(condition: Callable[[], bool], seconds: float) -> bool:
    """Return whether a condition became true within so many seconds."""
    until = time.monotonic() + seconds
    while not (holds := condition()) and time.monotonic() < until:
        time.sleep(_LOOK_S)
    return holds


def expect_gone(stage: Stage, family: Collection[int], whose: str) -> None:
    """Expect that the processes of something that has ended are gone soon."""
    gone = await_that(lambda: not any(map(is_alive, family)), GONE_S + stage.outcome.noise_s)
    stage.expect(gone, f"processes left by {whose}: {[pid for pid in family if is_alive(pid)]}")


def check_traffic(stage: Stage, traffic: Traffic, share: float = SHARE) -> None:
    """Record the answers to runs and functions, of which ``share`` have to be right; nothing may be wrong or hang."""
    hanging = traffic.end()
    stage.expect(not hanging, f"calls that hang: {hanging}")
    work, whole = traffic.total(*WORK), traffic.total(*traffic.tallies)
    outcome = stage.outcome
    outcome.calls, outcome.answered = outcome.calls + work.asked, outcome.answered + work.right
    outcome.bad += len(whole.bad)
    outcome.longest_s = max(outcome.longest_s, whole.longest_s)
    stage.expect(not whole.bad, f"{len(whole.bad)} bad answers, one: {whole.bad[:1]}")
    enough = work.right >= share * work.asked
    stage.expect(enough, f"{work.right} of {work.asked} runs and functions got their results, less than {share:.0%}")
    for kind, tally in traffic.tallies.items():
        stage.note(f"{kind}: {tally}")
    stage.note(f"created for loads: {traffic.created} primitives")
    for error, count in whole.refused.most_common(4):
        stage.note(f"refused {count} times: {error}")


def check_memory(stage: Stage, pool: poolrt.Pool, traffic: Traffic) -> None:
    """Unload the traffic's model: then nothing may hold a slot of shared memory."""
    traffic.model.close()
    gc.collect()  # results of calls that have failed
    # The client keeps slots for later inputs until memory is short.
    with suppress(ArenaFull):
        pool.empty(pool.stats(_LIMIT_S)["arena"]["bytes"] + 1, "uint8")
    # Runs of dropped futures whose worker was killed may be under way again.
    await_that(lambda: not pool.stats(_LIMIT_S)["arena"]["used"], GONE_S + stage.outcome.noise_s)
    used = pool.stats(_LIMIT_S)["arena"]["used"]
    stage.expect(not used, f"{used} bytes of shared memory are in use after the last model was unloaded")
