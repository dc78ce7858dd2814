"""Actors of a drill: release them at once, wait for them, and read their logs."""

from __future__ import annotations

import json
import socket
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from .actor import Call, Job
from .fork_server import ForkServer

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
    """One process, where it writes its results, and the pipe that lets it go and says that it is done."""

    pid: int
    results: Path
    pipe: socket.socket
    job: Job

    def calls(self) -> list[Call]:
        """Return the calls that have come back so far."""
        text = self.results.read_text() if self.results.exists() else ""
        return [Call(*json.loads(line)) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def hear(self, word: bytes, deadline: float) -> bool:
        """Wait for a line; return whether it came before the end of the process. Raises TimeoutError."""
        self.pipe.settimeout(max(0.001, deadline - time.monotonic()))
        try:
            return self.pipe.recv(16) == word
        except ConnectionResetError:
            return False


class Swarm:
    """Some actors with one log of creations."""

    def __init__(self, folder: Path, fork_server: ForkServer) -> None:
        self.log = folder / "creations.log"
        self.actors: list[Actor] = []
        self._done: list[Actor] = []
        self._folder = folder
        self._fork_server = fork_server

    def add(self, job: Job) -> Actor:
        """Start one actor; it waits for `go`."""
        mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        results = self._folder / f"results-{len(self.actors)}"
        with its:
            pid = self._fork_server.fork(job, results, its)
        actor = Actor(pid, results, mine, job)
        self.actors.append(actor)
        return actor

    def go(self, *actors: Actor) -> None:
        """Let these, or all, begin together."""
        chosen = actors or tuple(self.actors)
        deadline = time.monotonic() + START_S
        for actor in chosen:
            if not actor.hear(b"ready", deadline):
                raise DrillFailed("an actor ended before it began")
        for actor in chosen:
            actor.pipe.send(b"go")

    def join(self, *actors: Actor, killed: tuple[int, ...] = ()) -> None:
        """Wait for the end of these, or all; those in `killed`, by process id, need not have done their work."""
        deadline = time.monotonic() + LIMIT_S
        for actor in actors or tuple(self.actors):
            if actor not in self._done:
                if not actor.hear(b"done", deadline) and actor.pid not in killed:
                    raise DrillFailed("an actor ended before its work was done")
                self._done.append(actor)

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
            actor.pipe.close()
