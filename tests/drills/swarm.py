"""Start actors as processes of their own, let them go at once, hit some of them, and read what they wrote down."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from .actor import Call, Job, act

#: Bounds, in seconds: on starting, and on everything an actor does.
START_S: Final = 30.0
LIMIT_S: Final = 120.0
#: Pause, in seconds, between two looks at what happens.
_LOOK_S: Final = 0.002


class DrillFailed(Exception):
    """The drill itself could not be done: an actor did not start, or something awaited did not happen in time."""


@dataclass(frozen=True, slots=True)
class Creation:
    """One creation: the entry's number, the creator's process id, its name, and whether it came to its end."""

    key: int
    pid: int
    name: str
    ended: bool


@dataclass(slots=True)
class Actor:
    """One process, where it writes its results, and the pipe that lets it go."""

    process: ForkServerProcess
    results: Path
    pipe: Connection
    job: Job

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self.process.pid is not None
        return self.process.pid

    def calls(self) -> list[Call]:
        """Return the calls that have come back so far."""
        text = self.results.read_text() if self.results.exists() else ""
        return [Call(*json.loads(line)) for line in text.splitlines(keepends=True) if line.endswith("\n")]


class Swarm:
    """Some actors with one log of creations; all are gone at the end of the block."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "creations.log"
        self._folder = folder
        self._context = multiprocessing.get_context("forkserver")
        # Actors are forked from a process that has imported everything already: they start in milliseconds.
        self._context.set_forkserver_preload(
            ["tests.drills.actor", "poolrt.cachestore.single_creator", "poolrt.cachestore.redis.link", "redis"]
        )
        self.actors: list[Actor] = []
        self._ended = False

    def add(self, job: Job) -> Actor:
        """Start one actor; it waits for `go`."""
        mine, its = self._context.Pipe()
        results = self._folder / f"results-{len(self.actors)}"
        process = self._context.Process(target=act, args=(job, str(results), its), daemon=True)
        process.start()
        its.close()
        actor = Actor(process, results, mine, job)
        self.actors.append(actor)
        return actor

    def go(self, *actors: Actor) -> None:
        """Let these, or all, begin together."""
        chosen = actors or tuple(self.actors)
        deadline = time.monotonic() + START_S
        for actor in chosen:
            if not actor.pipe.poll(max(0.0, deadline - time.monotonic())):
                raise DrillFailed("an actor did not start")
            try:
                actor.pipe.recv()
            except EOFError:
                raise DrillFailed("an actor ended before it began") from None
        for actor in chosen:
            actor.pipe.send("go")

    def join(self, *actors: Actor, killed: tuple[int, ...] = ()) -> None:
        """Wait for the end of these, or all; those in `killed` by process id may have ended by a signal."""
        deadline = time.monotonic() + LIMIT_S
        for actor in actors or tuple(self.actors):
            actor.process.join(max(0.0, deadline - time.monotonic()))
            code = actor.process.exitcode
            if code is None:
                raise DrillFailed("an actor did not come to its end")
            if code != 0 and not (code == -signal.SIGKILL and actor.pid in killed):
                raise DrillFailed(f"an actor ended with {code}")

    def creations(self) -> list[Creation]:
        """Return all creations so far, in the order of their beginnings."""
        begun: dict[str, Creation] = {}
        text = self.log.read_text() if self.log.exists() else ""
        for line in text.splitlines():
            word, number, pid, name = line.split()
            begun[name] = Creation(int(number), int(pid), name, word == "end")
        return list(begun.values())

    def per_key(self) -> Counter[int]:
        """Return how often each key's creation has begun."""
        return Counter(creation.key for creation in self.creations())

    def await_creations(self, number: int) -> None:
        """Return once so many creations have begun."""
        self.await_that(lambda: len(self.creations()) >= number, f"{number} creations")

    def await_creator(self, key: int) -> int:
        """Return the process id of the one that creates this key, as soon as there is one."""
        found: list[int] = []

        def look() -> bool:
            found[:] = [one.pid for one in self.creations() if one.key == key and not one.ended]
            return bool(found)

        self.await_that(look, f"a creator of entry {key}")
        return found[-1]

    def await_that(self, condition: Callable[[], bool], what: str, seconds: float = START_S) -> None:
        """Return once `condition()` holds; raise DrillFailed, naming `what`, after `seconds`."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() >= deadline:
                raise DrillFailed(f"waited in vain for {what}")
            time.sleep(_LOOK_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for actor in self.actors:
            if actor.process.is_alive():
                # A stopped process dies of SIGKILL too.
                os.kill(actor.pid, signal.SIGKILL)
            actor.process.join(START_S)
            actor.process.close()
            actor.pipe.close()
