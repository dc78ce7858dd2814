"""How fast 32 processes that wait for one creation get its value: the store beside dogpile.cache, in the same Redis."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import dogpile.cache

from poolrt.cachestore import CacheStore, Key

#: Seconds that a creation takes: long enough for everyone to be waiting.
CREATION_S: Final = 1.0
SIZE: Final = 50_000


@dataclass(frozen=True)
class Waking:
    """Seconds between the end of the creation and the first, the middle and the last waiter having the value."""

    first: float
    median: float
    last: float

    def __str__(self) -> str:
        return "/".join(f"{value * 1e3:.1f}" for value in (self.first, self.median, self.last)) + " ms"


def measure(home: str, url: str, rounds: int, processes: int) -> tuple[Waking, Waking]:
    """Return the medians of both over some rounds; the processes are started once and wait for their turns."""
    command = [sys.executable, __file__, json.dumps({"home": home, "url": url})]
    children = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(processes)
    ]
    found: dict[str, list[tuple[float, float, float]]] = {"poolrt": [], "dogpile": []}
    try:
        for child in children:
            _receive(child)
        for number in range(rounds):
            for name, wakings in found.items():
                for child in children:
                    _send(child, f"{name} {number}")
                answers = [json.loads(_receive(child)) for child in children]
                done = [end for _, end in answers if end is not None]
                if len(done) != 1:
                    raise SystemExit(f"{name}: {len(done)} processes created one value")
                late = sorted(got - done[0] for got, end in answers if end is None)
                wakings.append((late[0], statistics.median(late), late[-1]))
    finally:
        for child in children:
            child.kill()
            child.communicate()
    ours, theirs = (Waking(*map(statistics.median, zip(*wakings, strict=True))) for wakings in found.values())
    return ours, theirs


def _send(child: subprocess.Popen[str], line: str) -> None:
    if child.stdin is not None:
        child.stdin.write(line + "\n")
        child.stdin.flush()


def _receive(child: subprocess.Popen[str]) -> str:
    line = child.stdout.readline() if child.stdout is not None else ""
    if not line:
        raise SystemExit("a waiting process has ended")
    return line


def region_in(url: str) -> Any:
    """Return a region of dogpile.cache in Redis that lets one process of all create, as its manual says."""
    arguments = {"url": url, "distributed_lock": True, "thread_local_lock": False}
    return dogpile.cache.make_region().configure("dogpile.cache.redis", arguments=arguments)


def _creator(ended: list[float]) -> Callable[[], bytes]:
    def create() -> bytes:
        time.sleep(CREATION_S)
        payload = os.urandom(SIZE)
        ended.append(time.monotonic())
        return payload

    return create


def _answer_lines(job: dict[str, str]) -> None:
    """Be one of the processes: answer each line with the times (got the value, ended the creation or null)."""
    region = region_in(job["url"])
    with CacheStore.connect(job["url"], home=job["home"], namespace="waiters") as store:
        store.ping()
        region.get("nothing")  # both are connected before the first round
        print("ready", flush=True)
        for line in sys.stdin:
            ended: list[float] = []
            if line.startswith("poolrt"):
                value = store.get_or_create(Key({"line": line}), _creator(ended))
            else:
                value = region.get_or_create(line.strip(), _creator(ended))
            got = time.monotonic()
            if len(value) != SIZE:
                raise SystemExit("a value of another size")
            print(json.dumps([got, ended[0] if ended else None]), flush=True)


if __name__ == "__main__":
    _answer_lines(json.loads(sys.argv[1]))
