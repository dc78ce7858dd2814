"""A process of a drill: it requests entries of a store and logs its results, their times, and its creations.

Two files tell what happened, also of actors that were killed: the log of creations, shared by all, where `begin` and
`end` stand around each creation, and a file of results of its own, one line a call. Payloads begin with a name of the
creation they come from, so that an older result in the place of a newer one shows; the rest is what the key alone
determines.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from poolrt.cachestore import CacheStore, Key, StoreError

from .delay import delayed_s

#: Bytes of the name of a creation.
NAME_SIZE: Final = 8
#: Pause, in seconds, between two looks for a file.
_LOOK_S: Final = 0.002


class CompilerError(ValueError):
    """A failure with a compiler's log."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.log = f"log of {message}"


@dataclass(frozen=True, slots=True)
class Job:
    """What an actor does; times in seconds.

    `keys` are asked for in order, with `pause_s` between two calls. `slow` gives keys whose first creation of all takes
    longer than `create_s`. No creation ends before there is a file `gate`. With `fail` the creator raises this. `forks`
    are keys in whose creation the actor forks a child that lives on. `clock` is a file with seconds by which the wall
    clock is off. `elsewhere`: others cannot look up whether this process lives, as if it were on another host.
    `file_limit` is the longest file it may write.
    """

    options: dict[str, Any]
    keys: list[int]
    log: str
    size: int
    create_s: float = 0.0
    pause_s: float = 0.0
    slow: dict[int, float] = field(default_factory=dict)
    gate: str = ""
    fail: str = ""
    forks: tuple[int, ...] = ()
    clock: str = ""
    elsewhere: bool = False
    file_limit: int = 0
    timeout_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Call:
    """One call: the entry's number, where it came from, the creation it was made in, and seconds without our creating.

    `good` is whether the payload was the right one; `error` is the wire form of the raised error, if any.
    `delayed_s` is how long the actor was ready to go on and other processes had the cores.
    """

    key: int
    source: str
    made_in: str
    good: bool
    seconds: float
    delayed_s: float
    error: dict[str, Any] | None


def key_of(number: int) -> Key:
    """Return the key of a number."""
    return Key({"primitive": "drill", "n": number})


def body_of(number: int, size: int) -> bytes:
    """Return what the payload of a key holds behind the name of its creation."""
    seed = hashlib.sha256(b"%d" % number).digest()
    return (seed * (size // len(seed) + 1))[:size]


def act(job: Job, results: str, pipe: socket.socket) -> None:
    """Say `ready`, wait for a word, do the job, and say `done`; every call is written to the file `results`."""
    _step_clock(job.clock)
    if job.elsewhere:
        _hide()
    if job.file_limit:
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (job.file_limit, job.file_limit))
    log = os.open(job.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with CacheStore.connect(**job.options) as store, open(results, "a", buffering=1) as written:
        pipe.send(b"ready")
        if not pipe.recv(16):
            return
        for number in job.keys:
            creation = _Creation(job, number, log, store)
            begin, delayed = time.monotonic(), delayed_s()
            source, payload, error = "", b"", None
            try:
                outcome = store.fetch_or_create(key_of(number), creation, job.timeout_s)
                source, payload = outcome.source, outcome.value
            except StoreError as raised:
                error = raised.to_wire()
            seconds = time.monotonic() - begin - creation.seconds
            good = payload[NAME_SIZE:] == body_of(number, job.size)
            call = (number, source, payload[:NAME_SIZE].hex(), good, seconds, delayed_s() - delayed, error)
            written.write(json.dumps(call) + "\n")
            if job.pause_s:
                time.sleep(job.pause_s)
    pipe.send(b"done")


class _Creation:
    """Make one payload, and write that down."""

    def __init__(self, job: Job, number: int, log: int, store: CacheStore) -> None:
        self._job = job
        self._number = number
        self._log = log
        self._store = store
        self.seconds = 0.0

    def __call__(self) -> bytes:
        job, number = self._job, self._number
        name = os.urandom(NAME_SIZE)
        begin = time.monotonic()
        # Decided first: an actor that is killed once this is in the log has been slow once.
        seconds = job.slow[number] if number in job.slow and self._is_first() else job.create_s
        self._note("begin", name)
        time.sleep(seconds)
        while job.gate and not os.path.exists(job.gate) and time.monotonic() - begin < job.timeout_s:
            time.sleep(_LOOK_S)
        if number in job.forks:
            _fork(self._store, number, job.size, f"{job.log.removesuffix('.log')}.children")
        if job.fail:
            self.seconds += time.monotonic() - begin
            raise CompilerError(job.fail)
        self._note("end", name)
        self.seconds += time.monotonic() - begin
        return name + body_of(number, job.size)

    def _is_first(self) -> bool:
        try:
            os.close(os.open(f"{self._job.log}.{self._number}", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError:
            return False
        return True

    def _note(self, word: str, name: bytes) -> None:
        os.write(self._log, f"{word} {self._number} {os.getpid()} {name.hex()}\n".encode())


def _fork(store: CacheStore, number: int, size: int, report: str) -> None:
    """Fork a child in the middle of a creation; it uses the store, and outlives the creation with all it inherited.

    Its exit status is appended to the file `report`.
    """
    child = os.fork()
    if child == 0:
        status = 1
        try:
            other = -1 - number
            made = store.get_or_create(key_of(other), lambda: b"\0" * NAME_SIZE + body_of(other, size), 10.0)
            status = 0 if made[NAME_SIZE:] == body_of(other, size) else 1
            store.close()
            time.sleep(0.3)
        finally:
            with open(report, "a") as file:
                file.write(f"{status}\n")
            os._exit(status)


def _step_clock(path: str) -> None:
    """Let this process's wall clock be off by the seconds in a file, from whenever they stand there."""
    if not path:
        return

    def off() -> float:
        with open(path) as file:
            return float(file.read() or 0.0)

    def stepped(clock: Callable[[], float]) -> Callable[[], float]:
        return lambda: clock() + off()

    real_ns = time.time_ns
    time.time = stepped(time.time)
    time.time_ns = lambda: real_ns() + int(off() * 1e9)


def _hide() -> None:
    """Give out an identity that says nothing, as on a host without /proc."""
    from poolrt.cachestore import single_creator

    setattr(single_creator, "own_identity", lambda: "elsewhere - - - -")  # noqa: B010
